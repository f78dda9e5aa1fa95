"""The advice of explanations, taken: what was promised shows in the traffic, the code and the resources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import kernellab
from kernellab.explain.access_rules import narrow_access, uncoalesced_access
from kernellab.explain.causes import Cause, PerformanceFinding
from kernellab.explain.explanation import Explanation
from kernellab.explain.memory_rules import shared_loads
from tests.explain import advised
from tests.explain.planted import KernelCall, Planted
from tests.explain.planted_compute import COMPUTE_PAIRS
from tests.explain.planted_memory import MEMORY_PAIRS
from tests.tables import every

PAIRS = {pair.name: pair for pair in (*MEMORY_PAIRS, *COMPUTE_PAIRS)}
BYTES = torch.int8
BLOCK = 2048


def blocks(n: int) -> tuple[int]:
    return (-(-n // BLOCK),)


def proposed(rule: Callable[..., PerformanceFinding | None], why: Explanation) -> PerformanceFinding:
    found = rule(why.facts)
    assert found is not None
    return found


def copied(lab: kernellab.Lab, kernel: Any, n: int, dtype: torch.dtype = BYTES, first: int = 0) -> Explanation:
    x = torch.zeros(n + first, dtype=dtype)[first:]
    return lab.explain(kernel, blocks(n), x, torch.zeros(n, dtype=dtype), n, BLOCK=BLOCK)


def requests(why: Explanation) -> float:
    return sum(each.requests for each in why.facts.accesses)


def sectors(why: Explanation) -> float:
    return sum(each.sectors for each in why.facts.accesses)


@pytest.mark.slow
def test_a_copy_that_is_narrow_by_its_mask_gets_wide_by_what_is_advised(lab: kernellab.Lab) -> None:
    n = BLOCK * 8 + 8
    slow = copied(lab, advised.copy_masked, n)
    text = proposed(narrow_access, slow).text
    assert "The mask compares with n (16,392)" in text
    assert "alignment" not in text
    assert "multiple_of on the offset does not help" in text
    assert requests(copied(lab, advised.copy_masked_with_hints, n)) == requests(slow)
    assert "Pad the data" in text
    padded = copied(lab, advised.copy_masked, n + 8)
    assert requests(padded) < requests(slow) / 12
    assert narrow_access(padded.facts) is None
    assert "in a branch of their own" in text
    assert requests(copied(lab, advised.copy_by_branch, n)) < requests(slow) / 8


@pytest.mark.slow
def test_a_length_that_is_a_multiple_of_what_fits_is_to_be_a_constexpr(lab: kernellab.Lab) -> None:
    n = BLOCK * 4 + 8
    slow = copied(lab, advised.copy_masked, n, torch.float32)
    assert "Declare n as tl.constexpr" in proposed(narrow_access, slow).text
    assert requests(copied(lab, advised.copy_of_known_length, n, torch.float32)) < requests(slow) / 3


@pytest.mark.slow
def test_a_constant_length_that_is_no_multiple_is_named(lab: kernellab.Lab) -> None:
    text = proposed(narrow_access, copied(lab, advised.copy_of_known_length, BLOCK + 4)).text
    assert "The mask compares with the constant 2,052" in text


@pytest.mark.slow
def test_a_tensor_that_starts_off_is_told_from_an_unknown_offset(lab: kernellab.Lab) -> None:
    n = BLOCK * 4
    slow = copied(lab, advised.copy_masked, n, first=1)
    text = proposed(narrow_access, slow).text
    assert "The address of x is not divisible by 16" in text
    assert "multiple_of" not in text
    assert narrow_access(copied(lab, advised.copy_masked, n, first=16).facts) is None


@pytest.mark.slow
@pytest.mark.parametrize(("stride", "columns"), [(1001, 1008), (1001, 1001)])
def test_rows_of_an_uneven_stride_are_to_be_padded(lab: kernellab.Lab, stride: int, columns: int) -> None:
    def why(stride: int, columns: int) -> Explanation:
        x, y = torch.zeros(64, 1008, dtype=BYTES), torch.zeros(64, 1008, dtype=BYTES)
        meta = {"ROWS": 4, "COLUMNS": 1024, "num_warps": 4}
        return lab.explain(advised.copy_rows, (8,), x, y, 32, columns, stride, **meta)

    slow = why(stride, columns)
    text = proposed(narrow_access, slow).text
    assert "stride = 1,001" in text
    assert ("The mask compares with columns" in text) == (columns == 1001)
    assert "pad the rows" in text.lower()
    assert narrow_access(why(1008, 1008).facts) is None


@pytest.mark.slow
def test_a_start_that_is_loaded_is_to_be_declared_aligned(lab: kernellab.Lab) -> None:
    pair = PAIRS["rows of unknown start, int8"]
    slow, fixed = halves(lab, pair)
    text = proposed(narrow_access, slow).text
    assert "it depends on what is loaded" in text
    assert "tl.multiple_of(offset" in text
    assert narrow_access(fixed.facts) is None


@pytest.mark.slow
def test_no_order_of_threads_is_promised_to_help_a_gather_whose_gaps_nobody_reads(lab: kernellab.Lab) -> None:
    def why(kernel: Any, stride: int) -> Explanation:
        x, y = torch.zeros(1 << 20), torch.zeros(1 << 16)
        return lab.explain(kernel, (64,), x, y, STRIDE=stride, BLOCK=1024)

    slow = why(advised.gather_with_stride, 16)
    text = proposed(uncoalesced_access, slow).text
    assert "another order of lanes does not help" in text
    assert "Make neighbouring lanes" not in text
    assert sectors(why(advised.gather_in_another_order, 16)) >= sectors(slow)
    assert "Change the data layout" in text
    side_by_side = why(advised.gather_with_stride, 1)
    assert sectors(side_by_side) == sum(each.ideal_sectors for each in slow.facts.accesses)
    assert uncoalesced_access(side_by_side.facts) is None


@pytest.mark.slow
@pytest.mark.parametrize(("size", "columns"), every(2, [(1 << 22, 8), (1 << 24, 64), (1 << 22, 256), (1 << 24, 256)]))
def test_a_row_per_thread_is_uncoalesced_and_a_tile_is_not(lab: kernellab.Lab, size: int, columns: int) -> None:
    rows = size // columns
    x, y = torch.zeros(rows, columns), torch.zeros(rows)
    meta = {"COLUMNS": columns, "BLOCK": 128}
    slow = lab.explain(advised.sums_by_thread, (rows // 128,), x, y, **meta)
    assert slow.findings[0].cause is Cause.UNCOALESCED
    assert "a tile of rows and columns instead of a row per thread" in slow.findings[0].text
    tiled = lab.explain(advised.sums_by_tile, (rows // 128,), x, y, PART=min(columns, 32), **meta)
    assert sectors(tiled) < 1.2 * sum(each.ideal_sectors for each in slow.facts.accesses)
    assert all(each.cause is not Cause.UNCOALESCED for each in tiled.findings)
    assert slow.findings[0].gain[0] <= slow.times.total / tiled.times.total


@pytest.mark.slow
def test_programs_that_each_load_all_are_told_and_gain_by_several_results_each(lab: kernellab.Lab) -> None:
    n, points = 1 << 13, 4096
    x, own, y = torch.zeros(n), torch.zeros(points), torch.zeros(points)

    def why(each: int) -> Explanation:
        return lab.explain(advised.nearest, (points // each,), x, own, y, n, EACH=each, BLOCK=1024)

    slow = why(1)
    found = proposed(shared_loads, slow)
    assert "Each of 4,096 programs loads all of x" in found.text
    assert "16 rows of a tile" in found.text
    loads = [sum(e.bytes for e in w.facts.accesses if e.argument == "x") for w in (slow, why(16))]
    assert loads[0] == pytest.approx(16 * loads[1], rel=0.01)


@pytest.mark.slow
def test_programs_that_share_only_a_little_are_left_alone(lab: kernellab.Lab) -> None:
    rows, columns = 1 << 15, 1024
    x, y = torch.zeros(rows, columns, dtype=BYTES), torch.zeros(rows, columns, dtype=BYTES)
    why = lab.explain(advised.copy_rows, (rows // 4,), x, y, rows, columns, columns, ROWS=4, COLUMNS=1024)
    assert shared_loads(why.facts) is None
    assert why.findings == ()


def halves(lab: kernellab.Lab, pair: Planted) -> tuple[Explanation, Explanation]:
    def why(call: KernelCall) -> Explanation:
        grid, arguments = call.of(pair.inputs(False, "cpu"))
        return lab.explain(call.kernel, grid, **arguments)

    return why(pair.slow), why(pair.fixed)


def code_of(lab: kernellab.Lab, pair: Planted, call: KernelCall) -> Any:
    _, arguments = call.of(pair.inputs(False, "cpu"))
    return lab.compile(call.kernel, **arguments)


MEASURES: dict[str, Callable[[Explanation], float]] = {
    "copy, columns first": sectors,
    "array of structures": sectors,
    "column sums, a column each": lambda why: sectors(why) / len(why.facts.accesses),
    "transpose by element": sectors,
    "shift of unknown alignment, int8": requests,
    "softmax in three passes": lambda why: sum(each.bytes for each in why.facts.accesses),
    "an atomic per element": lambda why: sum(each.updates for each in why.facts.atomics),
    "a histogram by atomics": lambda why: sum(each.updates for each in why.facts.atomics),
    "gather across one bank": lambda why: sum(each.wavefronts for each in why.facts.shared),
    "a long row in four warps": lambda why: why.facts.spill_bytes,
    "a wide tile in four warps": lambda why: why.facts.spill_bytes,
    "a reduction in every round": lambda why: sum(each.in_loop for each in why.facts.reductions),
    "an exponential in fp64": lambda why: sum(each.slow.get("fp64", 0.0) for each in why.facts.lines),
    "powers by libdevice": lambda why: sum(each.instructions for each in why.facts.lines),
    "64-bit divisions": lambda why: sum(each.instructions for each in why.facts.lines),
    "a block eight times the row": lambda why: max(each.lanes_off for each in why.facts.accesses),
    "tiles of 32": lambda why: sum(each.bytes for each in why.facts.accesses if each.operation == "load"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", every(4, MEASURES))
def test_what_a_cause_is_made_of_goes_down_as_its_advice_is_taken(lab: kernellab.Lab, name: str) -> None:
    slow, fixed = (MEASURES[name](why) for why in halves(lab, PAIRS[name]))
    assert slow > 1.2 * fixed, (slow, fixed)


@pytest.mark.slow
def test_products_that_are_advised_to_use_the_tensor_cores_do(lab: kernellab.Lab) -> None:
    for name in ("fp32 product, exact", "product by sums"):
        pair = PAIRS[name]
        assert ["mma" in code_of(lab, pair, call).ptx for call in (pair.slow, pair.fixed)] == [False, True], name
    pair = PAIRS["operands widened to fp32"]
    assert ".f16" in code_of(lab, pair, pair.fixed).ptx


@pytest.mark.slow
def test_loads_that_are_advised_to_run_ahead_do(lab: kernellab.Lab) -> None:
    for name in ("row sums, one load at a time", "product without stages"):
        pair = PAIRS[name]
        found = ["cp.async" in code_of(lab, pair, call).ptx for call in (pair.slow, pair.fixed)]
        assert found == [False, True], name
