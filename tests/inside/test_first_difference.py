"""The first line that differs: of planted faults it is the faulty one, and of equal kernels there is none."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import triton

import kernellab
from kernellab.errors import UsageError
from kernellab.inside.first_difference import FirstDifference, difference_of_devices
from kernellab.inside.recorded_launch import launch_of_call, record_launch
from kernellab.launch.calls import UserCall
from kernellab.launch.recorded_values import RecordedValue, RecordRequest
from tests import samples
from tests.inside import more_faults, more_kernels
from tests.inside.planted_faults import EQUAL, FAULTS, Change
from tests.inside.transcripts import CASES
from tests.labs import lab_fixture
from tests.tables import every

CASE_OF = {case.name: case for case in CASES}
lab = lab_fixture()


def difference_of(lab: kernellab.Lab, change: Change, folder: Path) -> tuple[FirstDifference, int]:
    """The first difference of a change, and the line that was changed."""
    changed, line = change.apply(folder)
    case = CASE_OF.get(change.kernel)
    grid, arguments = (case.grid, case.arguments) if case is not None else more_faults.LAUNCHES[change.kernel]
    return lab.first_difference(getattr(change.module, change.kernel), changed, grid, **arguments()), line


@pytest.mark.parametrize("change", [*every(5, FAULTS), *every(9, more_faults.FAULTS)], ids=lambda change: change.name)
def test_the_faulty_line_is_the_first_that_differs(lab: kernellab.Lab, change: Change, tmp_path: Path) -> None:
    difference, line = difference_of(lab, change, tmp_path)
    assert difference, difference.summary
    assert difference.line in {line, *fed_by(change, line)}, difference.summary


def fed_by(change: Change, line: int) -> set[int]:
    """The line that a faulty loop or branch feeds directly: the first one in it."""
    text = inspect.getsource(change.module).splitlines()[line - 1].strip()
    return {line + 1} if text.startswith(("for", "if", "while")) else set()


@pytest.mark.parametrize("change", [*every(4, EQUAL), *every(4, more_faults.EQUAL)], ids=lambda change: change.name)
def test_kernels_that_only_round_otherwise_have_no_difference(
    lab: kernellab.Lab, change: Change, tmp_path: Path
) -> None:
    difference, _ = difference_of(lab, change, tmp_path)
    assert not difference, difference.summary
    assert difference.summary.startswith("No difference")


def test_no_difference_is_said_of_the_compared_programs_alone(lab: kernellab.Lab) -> None:
    x, y, out = torch.rand(1000), torch.rand(1000), torch.zeros(1000)
    for block, words in ((16, r"store in \d+ of 63 programs agrees"), (512, r"\(other\) store agrees")):
        grid = (triton.cdiv(1000, block),)
        difference = lab.first_difference(samples.add_kernel, samples.add_kernel, grid, x, y, out, 1000, BLOCK=block)
        assert re.search(words, difference.summary), difference.summary
    assert "2 programs" in str(difference.to_html())


def test_there_are_sixty_faults_and_twenty_equal_pairs() -> None:
    assert len({change.name for change in FAULTS}) >= 60
    assert len({change.name for change in EQUAL}) >= 20


def test_swapped_names_of_a_tuple_differ_in_their_line(lab: kernellab.Lab, tmp_path: Path) -> None:
    change = more_faults.Change("turned", "even, odd = tl.split(halves)", "odd, even = tl.split(halves)")
    difference, line = difference_of(lab, change, tmp_path)
    assert difference.line == line
    assert difference.right is not None
    assert difference.right.name == "even"


def test_another_atomic_on_the_same_operands_is_a_difference(lab: kernellab.Lab, tmp_path: Path) -> None:
    difference, line = difference_of(lab, more_faults.Change("buckets", "tl.atomic_max(", "tl.atomic_min("), tmp_path)
    assert (difference.reason, difference.line) == ("operation", line)
    assert "another atomic reaches highs: tl.atomic_min(" in difference.summary


def test_both_tiles_and_the_numbers_of_the_element_are_told(lab: kernellab.Lab, tmp_path: Path) -> None:
    change = Change("descriptors", "tile + tile", "tile * tile")
    difference, line = difference_of(lab, change, tmp_path)
    assert difference.left is not None
    assert difference.right is not None
    one, other = (side.data[difference.element] for side in (difference.left, difference.right))
    assert difference.numbers == (pytest.approx(one), pytest.approx(other))
    assert difference.texts == ("doubled = tile + tile", "doubled = tile * tile")
    assert f"line {line}" in difference.summary


def test_two_configs_with_equal_blocks_are_compared(lab: kernellab.Lab) -> None:
    case = CASE_OF["scan"]
    same = lab.first_difference(case.kernel, triton.Config({}, num_warps=8), case.grid, **case.arguments())
    assert not same
    other = lab.first_difference(case.kernel, {"n": 17}, case.grid, **case.arguments())
    assert other.reason == "mask"


def test_other_grids_cannot_be_compared(lab: kernellab.Lab) -> None:
    case = CASE_OF["scan"]
    with pytest.raises(UsageError, match="equal blocks"):
        lab.first_difference(case.kernel, {"BLOCK": 4}, lambda meta: (24 // meta["BLOCK"],), **case.arguments())


@triton.jit
def cancels(x, out, BLOCK: triton.language.constexpr):
    offsets = triton.language.arange(0, BLOCK)
    value = triton.language.load(x + offsets)
    large = value + 1000000.0
    small = large - 1000000.0
    triton.language.store(out + offsets, small)


@triton.jit
def inverts(x, out, BLOCK: triton.language.constexpr, FOR_ZERO: triton.language.constexpr):
    offsets = triton.language.arange(0, BLOCK)
    value = triton.language.load(x + offsets)
    triton.language.store(out + offsets, triton.language.where(value == 0, FOR_ZERO, 1 / value))


def test_a_finite_number_in_the_place_of_an_infinite_one_is_a_difference(lab: kernellab.Lab) -> None:
    arguments = {"x": torch.arange(16.0), "out": torch.zeros(16), "BLOCK": 16, "FOR_ZERO": float("inf")}
    assert not lab.first_difference(inverts, {"FOR_ZERO": float("inf")}, (1,), **arguments)
    for one, other in ((float("inf"), 3.0), (3.0, float("inf")), (float("inf"), -float("inf"))):
        arguments["FOR_ZERO"] = one
        difference = lab.first_difference(inverts, {"FOR_ZERO": other}, (1,), **arguments)
        assert difference.numbers == (one, other)


def test_a_line_that_loses_its_digits_is_found_against_float64(lab: kernellab.Lab) -> None:
    difference = lab.first_difference(cancels, "float64", (1,), torch.rand(16), torch.zeros(16), BLOCK=16)
    assert difference.texts[1] == "small = large - 1000000.0"
    product = CASE_OF["product"]
    assert not lab.first_difference(product.kernel, "float64", product.grid, **product.arguments())


def test_values_of_a_gpu_may_round_otherwise_and_nothing_else(lab: kernellab.Lab) -> None:
    case = CASE_OF["product"]
    session = lab.session()
    call = UserCall(lab.bind(case.kernel), case.grid, (), case.arguments())
    launch = launch_of_call(session, call)
    own, wide = (
        record_launch(session, launch, RecordRequest(((1, 1, 0),), is_wide=is_wide), 60.0) for is_wide in (False, True)
    )
    rounded = replace(own, values=tuple(_changed(value, 1 + 2.0**-21) for value in own.values))
    assert not difference_of_devices("product", rounded, own, wide)
    wrong = replace(own, values=tuple(_changed(v, 1.01) if v.name == "y" else v for v in own.values))
    assert difference_of_devices("product", wrong, own, wide).texts[1].startswith("y = tl.load")


def _changed(value: RecordedValue, factor: float) -> RecordedValue:
    return replace(value, data=value.data * np.float32(factor)) if value.data.dtype.kind == "f" else value


TURNED = Change("turned_and_scaled", "tl.trans(tile)", "tl.reshape(tile, [B, 2 * B])", module=more_kernels)
DEFAULT = replace(TURNED, old="factor=0.1", new="factor=0.2", function="scaled")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (TURNED, "flat has the shape (4, 8), not (8, 4)"),
        (DEFAULT, "factor is 0.2, not 0.1"),
    ],
    ids=["shape", "default"],
)
def test_shapes_and_defaults_that_differ_are_named_in_their_line(
    lab: kernellab.Lab, change: Change, words: str, tmp_path: Path
) -> None:
    changed, line = change.apply(tmp_path)
    difference = lab.first_difference(
        more_kernels.turned_and_scaled, changed, (1,), torch.rand(32), torch.zeros(32), 0, B=4
    )
    assert words in difference.summary
    assert difference.line == line


@pytest.mark.parametrize("other", ["float64", more_kernels.turned_and_scaled], ids=["float64", "kernel"])
def test_programs_that_stop_early_on_both_sides_are_said(lab: kernellab.Lab, other: object) -> None:
    difference = lab.first_difference(
        more_kernels.turned_and_scaled, other, (2,), torch.rand(32), torch.zeros(32), 99, B=4
    )
    assert not difference
    assert "up to where one stops: turned_and_scaled: load of x out of bounds" in difference.summary


@pytest.mark.slow
def test_a_loop_that_does_not_end_is_compared_up_to_where_it_is_stopped(lab: kernellab.Lab, tmp_path: Path) -> None:
    change = Change("halved", "value = value // 2", "value = value * 2 // 2", module=more_kernels)
    changed, line = change.apply(tmp_path)
    x = torch.arange(8, dtype=torch.int32)
    values = lab.values(changed, (1,), x, torch.zeros_like(x), B=8, timeout_s=2.0)
    assert "halved was stopped in program (0, 0, 0), which took too long" in str(values.failure)
    assert values.find("value", line, 5).summary.max == 7
    difference = lab.first_difference(more_kernels.halved, changed, (1,), x, torch.zeros_like(x), B=8, timeout_s=2.0)
    assert difference.line == line, difference.summary


def test_a_gpu_cannot_be_compared_without_its_tensors(lab: kernellab.Lab) -> None:
    case = CASE_OF["scan"]
    with pytest.raises(UsageError, match="pass tensors of a GPU"):
        lab.first_difference(case.kernel, "cpu", case.grid, **case.arguments())


def test_something_else_than_a_kernel_or_config_is_refused(lab: kernellab.Lab) -> None:
    case = CASE_OF["scan"]
    with pytest.raises(UsageError, match=r"other is 3\.5"):
        lab.first_difference(case.kernel, 3.5, case.grid, **case.arguments())
