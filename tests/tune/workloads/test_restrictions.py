"""What a kernel demands of configs, beside the filters of Inductor's heuristics."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernellab.errors import UsageError
from kernellab.measure.config import Config
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


@settings(max_examples=60, deadline=None)
@given(configs=CONFIGS, x=POWERS, r=POWERS)
def test_blocks_for_descriptors_are_inductors(known_inductor: Inductor, configs: list[Config], x: int, r: int) -> None:
    wanted = known_inductor.heuristics._maybe_filter_configs_for_tma_restrictions(
        {"tma_min_block_sizes": {"XBLOCK": x, "R0_BLOCK": r}}, [each.to_triton() for each in configs]
    )
    same(workloads.covering(configs, XBLOCK=x, R0_BLOCK=r), wanted)


@settings(max_examples=60, deadline=None)
@given(configs=CONFIGS, rows=POWERS, reduced=POWERS)
def test_least_blocks_are_inductors(known_inductor: Inductor, configs: list[Config], rows: int, reduced: int) -> None:
    wanted = known_inductor.heuristics._enforce_reduction_config_block_minimums(
        [each.to_triton() for each in configs], {"x": 1 << 20}, {"min_xblock": rows, "min_rblock": reduced}
    )
    same(workloads.floored(configs, rows=rows, reduced=reduced), wanted)


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
