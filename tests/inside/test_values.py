"""The values of a launch: what is recorded, how it is asked for, and what is said where something is missing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.errors import LaunchError, UsageError
from kernellab.inside.values import Values, tensor_of
from kernellab.launch.recorded_values import RecordRequest, ValueKind, steps_within, summary_of
from tests.inside import kernels
from tests.labs import lab_fixture

lab = lab_fixture()


@pytest.fixture
def product_values(lab: kernellab.Lab) -> Values:
    a, b = torch.randn(32, 48), torch.randn(48, 32)
    arguments = (a, b, torch.zeros(32, 32), 32, 32, 48)
    return lab.values(kernels.product, (2, 2), *arguments, BLOCK=16, programs=[(0, 0), (1, 1)])


def line_of(values: Values, text: str) -> int:
    """The line of the file whose text starts so."""
    return values.first_line + next(
        number for number, line in enumerate(values.source.splitlines()) if line.strip().startswith(text)
    )


def test_a_tile_is_found_by_name_line_and_iteration(product_values: Values) -> None:
    line = line_of(product_values, "acc = tl.dot")
    first, last = product_values["acc", line, 0], product_values["acc", line, 2]
    assert first.shape == (16, 16)
    assert first.dtype == torch.float32
    assert not torch.equal(first, last)
    assert torch.equal(
        product_values["acc", line, 2, (1, 1, 0)], tensor_of(product_values.find("acc", line, 2, (1, 1, 0)))
    )
    assert torch.equal(product_values["acc"], torch.zeros(16, 16)), "the first value of the name"


def test_an_unknown_name_line_iteration_or_program_is_answered_with_those_that_there_are(
    product_values: Values,
) -> None:
    line = line_of(product_values, "acc = tl.dot")
    with pytest.raises(UsageError, match="name is 'akk'; expected one of acc"):
        product_values["akk"]
    with pytest.raises(UsageError, match=rf"acc has no value in line 3; lines with some: \d+, {line}"):
        product_values["acc", 3]
    with pytest.raises(UsageError, match=r"no value in iteration 9; recorded: \(0,\) to \(2,\)"):
        product_values["acc", line, 9]
    with pytest.raises(UsageError, match=r"Program \(0, 1, 0\) was not recorded; recorded: \(0, 0, 0\), \(1, 1, 0\)"):
        product_values["acc", line, 0, (0, 1, 0)]
    with pytest.raises(UsageError, match="Line 1 of product has no values"):
        product_values.at(1)


def test_the_frame_has_a_row_per_value_with_its_figures(product_values: Values) -> None:
    frame = product_values.frame
    assert len(frame) == len(product_values.values)
    columns = ["line", "name", "iteration", "shape", "dtype", "min", "max", "mean", "nan", "inf", "zeros", "masked"]
    assert set(columns) <= set(frame.columns)
    loads = frame[(frame["name"] == "x") & (frame["program"] == (0, 0, 0))]
    assert list(loads["iteration"]) == [(0,), (1,), (2,)]
    assert (loads["kind"] == "load").all()
    assert set(loads["argument"]) == {"a"}


def test_loads_and_stores_name_the_elements_of_their_argument(product_values: Values) -> None:
    store = product_values.find("c", program=(1, 1, 0))
    assert store.kind is ValueKind.STORE
    rows, columns = 16 + np.arange(16), 16 + np.arange(16)
    assert store.elements is not None
    np.testing.assert_array_equal(store.elements, rows[:, None] * 32 + columns)
    pointers = product_values.find("left", program=(1, 1, 0))
    assert (pointers.argument, pointers.dtype) == ("a", "*fp32")
    np.testing.assert_array_equal(pointers.data, rows[:, None] * 48 + np.arange(16))


def test_values_name_those_that_they_were_computed_from(product_values: Values) -> None:
    line = line_of(product_values, "acc = tl.dot")
    acc = product_values.find("acc", line, 1)
    names = [product_values.values[position].name for position in acc.reads]
    assert names == ["x", "y", "acc"]
    assert product_values.values[acc.reads[2]].iteration == (0,), "the accumulator of the iteration before"
    load = product_values.find("x", iteration=1)
    assert "left" in {product_values.values[position].name for position in load.reads}
    assert load.read_arguments == ("M",)


def test_masked_lanes_are_counted_and_left_out_of_the_figures(lab: kernellab.Lab) -> None:
    index = torch.tensor([3, -1, 2], dtype=torch.int32)
    values = lab.values(kernels.gather, (1,), torch.arange(8.0), index, torch.zeros(3), 3, BLOCK=4)
    picked = values.find("picked")
    assert picked.mask is not None
    assert list(picked.mask) == [True, False, True, False]
    assert (picked.summary.masked, picked.summary.min, picked.summary.max) == (2, 2.0, 3.0)


@triton.jit
def broken(x, out, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    value = tl.load(x + offsets)
    shifted = value + 1
    tl.store(out + offsets + 1000, shifted)


def test_a_program_that_fails_keeps_its_values_and_the_reason(lab: kernellab.Lab) -> None:
    values = lab.values(broken, (1,), torch.ones(8), torch.zeros(8), BLOCK=8)
    assert values.failure is not None
    assert "out of bounds" in values.failure or "outside" in values.failure
    assert torch.equal(values["shifted"], torch.full((8,), 2.0))


def test_only_lines_that_are_asked_for_are_recorded(lab: kernellab.Lab, product_values: Values) -> None:
    line = line_of(product_values, "acc = tl.dot")
    arguments = (torch.randn(32, 48), torch.randn(48, 32), torch.zeros(32, 32), 32, 32, 48)
    values = lab.values(kernels.product, (2, 2), *arguments, BLOCK=16, lines=[line])
    assert {(value.name, value.line) for value in values.values} == {("acc", line)}


def test_one_program_of_millions_is_run_alone(lab: kernellab.Lab) -> None:
    n = 1 << 20
    x, out = torch.arange(n, dtype=torch.int32), torch.zeros(n, dtype=torch.int32)
    values = lab.values(kernels.scan, (n // 8,), x, out, n, BLOCK=8, program=n // 8 - 1)
    assert values.programs == ((n // 8 - 1, 0, 0),)
    assert values["values"][0] == n - 8
    assert not out.any(), "no tensor changes"


@pytest.mark.parametrize("program", [(0, 1), -1, (0, 0, 0, 0), "first", (1 << 40,)])
def test_a_program_outside_the_grid_is_refused(lab: kernellab.Lab, program: object) -> None:
    with pytest.raises(UsageError, match=r"program"):
        lab.values(kernels.sort, (2,), torch.rand(32), torch.zeros(32), BLOCK=16, program=program)


@triton.autotune([triton.Config({"BLOCK": 8}), triton.Config({"BLOCK": 16})], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def tuned(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets) if EVEN else tl.load(x + offsets, mask=offsets < n)
    tl.store(out + offsets, value * 2, mask=offsets < n)


def test_of_an_autotuned_kernel_with_heuristics_the_first_config_is_recorded(lab: kernellab.Lab) -> None:
    values = lab.values(tuned, lambda meta: (triton.cdiv(16, meta["BLOCK"]),), torch.arange(16.0), torch.zeros(16), 16)
    assert values.grid == (2, 1, 1)
    assert torch.equal(values["value"], torch.arange(8.0))


def test_bf16_tiles_come_back_as_bf16(lab: kernellab.Lab) -> None:
    x = torch.randn(16).bfloat16()
    values = lab.values(kernels.sort, (1,), x, torch.zeros(16).bfloat16(), BLOCK=16)
    assert values["values"].dtype == torch.bfloat16
    assert torch.equal(values["values"], x)


def test_a_large_tile_is_sampled_and_its_figures_count_all() -> None:
    assert steps_within((128, 128), 4, 1 << 16) == ()
    assert steps_within((1024, 128), 4, 1 << 16) == (8, 1)
    assert steps_within((), 4, 1) == ()
    data = np.array([1.0, np.nan, -np.inf, 0.0, 5.0], np.float32)
    figures = summary_of(data, np.array([True, True, True, True, False]))
    assert (figures.min, figures.max, figures.mean) == (0.0, 1.0, 0.5)
    assert (figures.nan, figures.inf, figures.zeros, figures.masked) == (1, 1, 1, 1)
    assert summary_of(np.full(3, np.nan)).max is None
    assert RecordRequest().tile_bytes == 1 << 20


def test_a_sampled_tile_says_so(lab: kernellab.Lab) -> None:
    from kernellab.inside.recorded_launch import record_launch
    from kernellab.timing.config import NO_CONFIG
    from kernellab.timing.launches import Launches

    x, out = torch.rand(64), torch.zeros(64)
    session = lab.session()
    launches = Launches(lab.bind(kernels.sort), (1,), (x, out), {"BLOCK": 64}, session.target)
    values = record_launch(session, launches.of(NO_CONFIG), RecordRequest(tile_bytes=64), 60.0)
    ordered = values.find("ordered")
    assert ordered.is_sampled
    assert ordered.shape == (64,)
    assert torch.equal(tensor_of(ordered), x.sort().values[::4])
    assert ordered.summary.max == x.max()
    assert any("are sampled" in note for note in values.notes)


def test_a_kept_kernel_alone_is_recorded_on_inputs_like_its_latest_launch(lab: kernellab.Lab) -> None:
    lab.kernels.add(kernels.sort)
    lab.run(kernels.sort, (2,), torch.rand(32), torch.zeros(32), BLOCK=16)
    values = lab.values("sort", program=1)
    assert "new arguments" in values.notes[0]
    assert (values.kernel, values.programs, values["ordered"].shape) == ("sort", ((1, 0, 0),), (16,))


def test_arguments_that_do_not_fit_are_refused(lab: kernellab.Lab) -> None:
    with pytest.raises((UsageError, LaunchError), match="BLOCK"):
        lab.values(kernels.sort, (1,), torch.rand(16), torch.zeros(16))
