"""Checks of single launches: for NaN that a launch makes, switched on where it is asked for."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.errors import CheckFailed
from tests.labs import lab_fixture

lab = lab_fixture()


@triton.jit
def log_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.log(tl.load(x_ptr + offsets, mask=offsets < n)), mask=offsets < n)


@triton.jit
def root_in_place(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, tl.sqrt(tl.load(x_ptr + offsets, mask=offsets < n)), mask=offsets < n)


X = torch.tensor([1.0, -1.0, 2.0, -2.0])
NAN = float("nan")


@pytest.mark.slow
def test_a_launch_that_makes_nan_is_named_with_the_argument_and_the_element(lab: kernellab.Lab) -> None:
    kernel, out = lab.bind(log_kernel), torch.zeros(4)
    for _ in range(3):
        kernel[(1,)](X, out, 4, BLOCK=4)  # known launches, too, are checked once that is asked for
    with (
        lab.checking(),
        pytest.raises(CheckFailed, match=r"log_kernel made 2 of 4 elements of out_ptr NaN, the first at \[1\]"),
    ):
        kernel[(1,)](X, out, 4, BLOCK=4)
    torch.testing.assert_close(out, X.log(), equal_nan=True)
    kernel[(1,)](X, out, 4, BLOCK=4)


@pytest.mark.slow
def test_a_launch_that_updates_in_place_is_checked(lab: kernellab.Lab) -> None:
    kernel = lab.bind(root_in_place)
    with lab.checking(), pytest.raises(CheckFailed, match="root_in_place made 2 of 4 elements of x_ptr NaN"):
        kernel[(1,)](X.clone(), 4, BLOCK=4)


@pytest.mark.parametrize(
    ("x", "out", "n"),
    [
        (X.abs(), torch.zeros(4), 4),
        (torch.tensor([1.0, NAN, 1.0, 1.0]), torch.zeros(4), 4),  # it has come from elsewhere
        (torch.ones(4), torch.full((4,), NAN), 2),  # what is not written holds whatever it held
    ],
)
def test_what_a_launch_did_not_make_is_not_its_fault(
    lab: kernellab.Lab, x: torch.Tensor, out: torch.Tensor, n: int
) -> None:
    kept = out[n:].clone()
    with lab.checking():
        lab.bind(log_kernel)[(1,)](x, out, n, BLOCK=4)
    torch.testing.assert_close(out[n:], kept, equal_nan=True)
    torch.testing.assert_close(out[:n], x[:n].log(), equal_nan=True)


@pytest.mark.slow
def test_only_the_named_kernels_are_checked_and_programs_are_too(lab: kernellab.Lab) -> None:
    out = torch.zeros(4)
    with lab.capture() as program:
        lab.bind(log_kernel)[(1,)](X, out, 4, BLOCK=4)
    with lab.checking(kernels=["root_in_place"]):
        lab.bind(root_in_place)[(1,)](torch.ones(4), 4, BLOCK=4)
        program.run(X=X, out=out)
    with lab.checking(kernels=["log_kernel"]), pytest.raises(CheckFailed, match="log_kernel made 2"):
        program.run(X=X, out=out)


@pytest.mark.slow
def test_a_named_kernel_that_was_not_launched_is_told(lab: kernellab.Lab) -> None:
    said = "no log_kerne, unknown through the lab; it launched root_in_place"
    with pytest.warns(UserWarning, match=said) as told, lab.checking(kernels=["unknown", "log_kerne", "root_in_place"]):
        lab.bind(root_in_place)[(1,)](torch.ones(4), 4, BLOCK=4)
    assert told[0].filename == __file__
