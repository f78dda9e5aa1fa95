"""Configs of several kernels in one launch, beside those that Inductor goes through for one."""

from __future__ import annotations

from typing import Any

import pytest

from kernellab.errors import UsageError
from kernellab.timing.config import Config
from kernellab.tune import workloads
from kernellab.tune.workloads import Subkernel
from tests.tune.conftest import Inductor, Told, told

NAMES = ["XBLOCK", "YBLOCK", "R0_BLOCK"]


def theirs(inductor: Inductor, target: str, together: bool) -> Told:
    """Return what Inductor tries of five kernels, each of its trials as if none before it had been faster."""
    with inductor.on(target) as told_of_device:
        told_of_device["signature"] = {f"{name}_{place}": "constexpr" for name in NAMES for place in range(5)}
        meta: dict[str, Any] = {
            "combo_grid_meta": {
                "num_kernels": 5,
                "autotune_grouping": together,
                **{f"heuristic_{at}": "pointwise" for at in (0, 1, 4)},
                **{f"tile_hint_{at}": "TileHint.DEFAULT" for at in (0, 1, 4)},
                **{f"size_hints_{at}": {"x": 4096} for at in (0, 4)},
                "size_hints_1": {"x": 256, "y": 128},
                "heuristic_2": "reduction", "size_hints_2": {"x": 64, "r0_": 2048}, "reduction_hint_2": "DEFAULT",
                "heuristic_3": "persistent_reduction", "size_hints_3": {"x": 32, "r0_": 64},
                "reduction_hint_3": "DEFAULT",
            }
        }  # fmt: skip
        base = inductor.heuristics._handle_combo_kernel_per_subkernel_blocks({}, meta, told_of_device)[0]
        trials = [(base.kwargs, base.num_warps, base.num_stages)]
        for group in meta["combo_tuning_groups"]:
            for config in group["configs"]:
                values = dict(base.kwargs)
                for place in group["member_indices"]:
                    inductor.heuristics._update_combo_kernel_kwargs(
                        values, config.kwargs, place, group["skip_rblock"], told_of_device["signature"]
                    )
                trials.append((values, base.num_warps, base.num_stages))
        trials += [(base.kwargs, *pair) for pair in meta["combo_warp_stage_candidates"]]
    return list(dict.fromkeys((tuple(sorted(values.items())), *pair) for values, *pair in trials))


@pytest.mark.parametrize("target", ["cuda:90", "hip:gfx942"])
@pytest.mark.parametrize("together", [False, True])
def test_configs_of_combined_kernels_are_those_that_inductor_tries(
    known_inductor: Inductor, target: str, together: bool
) -> None:
    flat = Subkernel(tuple(workloads.pointwise(4096, target=target)), 4096)
    ours = workloads.combined(
        [
            flat,
            Subkernel(tuple(workloads.pointwise(256, 128, target=target)), 256 * 128),
            Subkernel(tuple(workloads.reduction(64, 2048, target=target)), 64 * 2048),
            Subkernel(tuple(workloads.persistent_reduction(32, 64, target=target)), 32 * 64),
            flat,
        ],
        equal_together=together,
    )
    assert told(ours) == theirs(known_inductor, target, together)
    assert set(ours[0].values) >= {"XBLOCK_0", "XBLOCK_1", "YBLOCK_1", "R0_BLOCK_2", "XBLOCK_3", "XBLOCK_4"}


def test_nothing_to_combine_is_refused() -> None:
    with pytest.raises(UsageError, match="no subkernels"):
        workloads.combined([])
    with pytest.raises(UsageError, match="has no configs"):
        Subkernel(())
    assert workloads.combined([Subkernel((Config((("XBLOCK", 8),)),))]) == [Config((("XBLOCK_0", 8),))]
