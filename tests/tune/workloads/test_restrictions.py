"""What a kernel demands of configs, beside the filters of Inductor's heuristics."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernellab.errors import UsageError
from kernellab.timing.config import Config
from kernellab.tune import workloads
from tests.tune.conftest import Inductor, same

POWERS = st.integers(0, 9).map(lambda power: 1 << power)
CONFIGS = st.lists(
    st.builds(
        lambda x, r, warps: Config((("XBLOCK", x), ("R0_BLOCK", r)), num_warps=warps, num_stages=1),
        POWERS, POWERS, st.sampled_from([1, 2, 4, 8]),
    ),
    min_size=1, max_size=9,
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(configs=CONFIGS, x=POWERS, r=POWERS)
def test_blocks_for_descriptors_are_inductors(known_inductor: Inductor, configs: list[Config], x: int, r: int) -> None:
    wanted = known_inductor.heuristics._maybe_filter_configs_for_tma_restrictions(
        {"tma_min_block_sizes": {"XBLOCK": x, "R0_BLOCK": r}}, [each.to_triton() for each in configs]
    )
    same(workloads.covering(configs, XBLOCK=x, R0_BLOCK=r), wanted)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(configs=CONFIGS, rows=POWERS, reduced=POWERS)
def test_least_blocks_are_inductors(known_inductor: Inductor, configs: list[Config], rows: int, reduced: int) -> None:
    wanted = known_inductor.heuristics._enforce_reduction_config_block_minimums(
        [each.to_triton() for each in configs], {"x": 1 << 20}, {"min_xblock": rows, "min_rblock": reduced}
    )
    same(workloads.floored(configs, rows=rows, reduced=reduced), wanted)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(configs=CONFIGS, contiguous=st.booleans())
def test_the_reproducible_config_is_inductors(
    known_inductor: Inductor, configs: list[Config], contiguous: bool
) -> None:
    wanted = known_inductor.heuristics.filter_reduction_configs_for_determinism(
        {"deterministic": True, "has_loadstore_with_contiguous_rdim": contiguous},
        [each.to_triton() for each in configs],
    )
    same(workloads.reproducible(list(dict.fromkeys(configs)), contiguous=contiguous), wanted)


def test_a_block_that_the_configs_lack_is_named() -> None:
    with pytest.raises(UsageError, match="covering got YBLOCK, which the configs lack; they have XBLOCK"):
        workloads.covering(workloads.pointwise(64), YBLOCK=16)
    assert workloads.covering([], XBLOCK=16) == []


def test_blocks_get_other_names_and_restrictions_know_the_reduced_one() -> None:
    configs = workloads.reduction(1024, 4096)
    renamed = workloads.rename_blocks(configs, R0_BLOCK="RBLOCK", XBLOCK="ROWS")
    assert [config.values.keys() - {"num_warps", "num_stages", "num_ctas", "maxnreg"} for config in renamed] == [
        {"ROWS", "RBLOCK"}
    ] * len(configs)
    short = workloads.rename_blocks(configs, R0_BLOCK="RBLOCK")
    for restrict in (lambda given: workloads.floored(given, reduced=64), workloads.reproducible):
        assert restrict(short) == workloads.rename_blocks(restrict(configs), R0_BLOCK="RBLOCK")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"R1_BLOCK": "RBLOCK"}, "rename_blocks got R1_BLOCK, which a config lacks; it has XBLOCK, R0_BLOCK"),
        ({"R0_BLOCK": "XBLOCK"}, "rename_blocks got XBLOCK for R0_BLOCK, and a config has that already"),
        ({"R0_BLOCK": "B", "XBLOCK": "B"}, "rename_blocks got one name for several blocks: R0_BLOCK, XBLOCK"),
        ({"R0_BLOCK": "no name"}, "expected the new name of each block"),
    ],
)
def test_names_that_blocks_cannot_have_are_errors(names: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        workloads.rename_blocks(workloads.reduction(64, 64), **names)
