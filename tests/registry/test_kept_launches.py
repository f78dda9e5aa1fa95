"""What the store keeps of the launches of a cell."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton

import kernellab
from kernellab.launch.symbolic import symbolic_grid
from kernellab.notebook.cell import CellOptions, run_cell
from kernellab.registry import argument_of
from kernellab.store import RecordedLaunch
from tests.labs import lab_fixture

ADD = """\
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + tl.load(y_ptr + offsets, mask=mask), mask=mask)

"""
lab = lab_fixture("cuda:80", "function")


def launched(lab: kernellab.Lab, text: str, check: str | None = None, **names: Any) -> list[RecordedLaunch]:
    run_cell(lab, ADD + text, names, "In[1]", CellOptions(check=check), lambda value: None)
    return [row.launch for row in lab.kernels.store.history.launches()]


def test_a_launch_is_kept_with_signature_grid_and_arguments(lab: kernellab.Lab) -> None:
    x, y = torch.linspace(-1, 2, 600)[::2], torch.zeros(300)
    out = torch.zeros(300)
    (launch,) = launched(lab, "add_kernel[(3,)](x, y, out, 300, BLOCK=128, num_warps=2)", x=x, y=y, out=out)
    assert launch.signature[0] == ("x_ptr", "*fp32")
    assert (launch.grid, launch.where, launch.target, launch.options["num_warps"]) == (
        (3, 1, 1),
        "interpreter",
        "cuda:80",
        2,
    )
    first = launch.argument("x_ptr")
    assert (first.shape, first.stride, first.dtype, first.device) == ((300,), (2,), "float32", "cpu")
    assert first.low == pytest.approx(-1)
    assert first.high == pytest.approx(2, abs=0.01)
    block = launch.argument("BLOCK")
    assert (block.value, block.constexpr) == (128, True)


@pytest.mark.slow
def test_repeats_are_one_launch_that_is_counted(lab: kernellab.Lab) -> None:
    names = {"x": torch.rand(300), "y": torch.rand(300), "out": torch.zeros(300)}
    launched(lab, "for i in range(3):\n    add_kernel[(3,)](x, y, out, 300, BLOCK=128)", **names)
    (row,) = lab.kernels.store.history.launches()
    assert row.count == 3
    ((_, result),) = lab.kernels.store.history.results()
    assert (result.reads, result.writes, result.complete) == (("x_ptr", "y_ptr"), ("out_ptr",), True)


def test_arguments_that_are_one_tensor_are_known_as_such(lab: kernellab.Lab) -> None:
    x = torch.rand(300)
    (launch,) = launched(lab, "add_kernel[(3,)](x, x, x, 300, BLOCK=128)", x=x)
    assert [argument.alias for argument in launch.arguments] == ["", "x_ptr", "x_ptr", "", ""]


def test_grid_and_check_are_kept_in_terms_of_the_parameters(lab: kernellab.Lab) -> None:
    names = {"a": torch.rand(300), "b": torch.rand(300), "c": torch.zeros(300), "count": 300}
    text = "add_kernel[lambda m: (triton.cdiv(count, m['BLOCK']),)](a, b, c, count, BLOCK=128)"
    (launch,) = launched(lab, text, check="torch.add(a, b)", **names)
    assert launch.grid_text == "lambda m: (triton.cdiv(n, m['BLOCK']),)"
    assert launch.check == "torch.add(x_ptr, y_ptr)"


def test_a_check_of_something_else_than_the_arguments_is_not_kept(lab: kernellab.Lab) -> None:
    names = {"a": torch.rand(300), "b": torch.rand(300), "c": torch.zeros(300)}
    names["d"] = names["a"] + names["b"]
    (launch,) = launched(lab, "add_kernel[(3,)](a, b, c, 300, BLOCK=128)", check="d", **names)
    assert (launch.check, launch.grid, launch.grid_text) == ("", (3, 1, 1), "")


def test_grids_take_symbolic_arguments_only_where_every_name_stands_for_something() -> None:
    x = torch.zeros(4, 6)
    arguments = {"x_ptr": x, "rows": 4, "also": 9, "BLOCK": 9}
    columns, nine, unknown = 6, 9, 17

    def rows_only(meta: dict[str, Any]) -> tuple[int]:
        """One program per row."""
        return (x.shape[0],)

    assert symbolic_grid(rows_only, arguments) == "lambda meta: (x_ptr.shape[0],)"
    assert (
        symbolic_grid(lambda m: (triton.cdiv(columns, 2),), arguments) == "lambda m: (triton.cdiv(x_ptr.shape[1], 2),)"
    )
    assert symbolic_grid(lambda m: (nine,), arguments) == ""
    assert symbolic_grid(lambda m: (unknown,), arguments) == ""


def test_a_grid_takes_no_stride_for_an_extent_of_the_same_value() -> None:
    x, rows = torch.zeros(64, 64), 64
    arguments = {"x_ptr": x, "stride": 64, "BLOCK": 16}
    assert symbolic_grid(lambda meta: (rows,), arguments) == ""
    assert symbolic_grid(lambda meta: (x.shape[0],), arguments) == "lambda meta: (x_ptr.shape[0],)"
    assert symbolic_grid(lambda meta: (64,), arguments) == ""
    stride = 64
    assert symbolic_grid(lambda meta: (stride,), arguments) == "lambda meta: (stride,)"


def test_a_grid_takes_no_number_that_rows_and_columns_have() -> None:
    a, b, m, n = torch.zeros(32, 48), torch.zeros(48, 32), 32, 48
    assert symbolic_grid(lambda meta: (m, n), {"a": a, "b": b}) == ""
    assert symbolic_grid(lambda meta: (a.shape[0], b.shape[1]), {"a": a, "b": b}) == (
        "lambda meta: (a.shape[0], b.shape[1])"
    )
    mean = torch.zeros(32)
    assert symbolic_grid(lambda meta: (m,), {"a": a, "mean": mean}) == "lambda meta: (a.shape[0],)"


def test_a_number_that_no_argument_has_is_one_of_the_grid_function() -> None:
    arguments = {"x_ptr": torch.zeros(300), "n": 300, "BLOCK": 64}
    assert symbolic_grid(lambda meta: (132,), arguments) == "lambda meta: (132,)"
    assert symbolic_grid(lambda meta: (min(132, triton.cdiv(300, meta["BLOCK"])),), arguments) == (
        "lambda meta: (min(132, triton.cdiv(n, meta['BLOCK'])),)"
    )


@pytest.mark.slow
def test_a_later_launch_by_a_function_is_kept_beside_equal_launches(lab: kernellab.Lab) -> None:
    scope: dict[str, Any] = {}
    run_cell(lab, ADD, scope, "In[1]", CellOptions(), lambda value: None)
    kernel, x, out = scope["add_kernel"], torch.rand(300), torch.zeros(300)
    grids = [(3,), lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),), lambda meta: (meta["out_ptr"].shape[0],)]
    for grid in [each for each in grids for _ in range(3)]:
        kernel[grid](x, x, out, 300, BLOCK=128)
    texts = [row.launch.grid_text for row in lab.kernels.store.history.launches()]
    assert texts == [
        "",
        "lambda meta: (triton.cdiv(meta['n'], meta['BLOCK']),)",
        "lambda meta: (meta['out_ptr'].shape[0],)",
    ]


def test_the_bounds_of_a_large_tensor_hold_its_ends_and_leave_out_what_is_not_finite() -> None:
    offsets = argument_of("offsets", torch.arange(1_000_001))
    assert (offsets.low, offsets.high) == (0, 1_000_000)
    values = torch.linspace(-2, 3, 1_000_001)
    values[1], values[2] = float("inf"), float("nan")
    found = argument_of("values", values)
    assert (found.low, found.high) == (-2.0, 3.0)
    assert argument_of("view", values[::2]).low is None
