"""Kernels that call themselves are refused in words, not with the compiler's own trouble."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.compiler.errors import CompilationError

from kernellab._triton.closure import closure_of
from kernellab._triton.compiling import compile_error
from kernellab.ir.effects import effects_of
from kernellab.target import parse_target
from tests.ir.conftest import graphs_of


@triton.jit
def counts_down(p, n):
    tl.store(p, 1.0)
    if n > 0:
        counts_down(p, n - 1)


@triton.jit(noinline=True)
def counts_down_apart(p, n):
    tl.store(p, 1.0)
    if n > 0:
        counts_down_apart(p, n - 1)


@triton.jit
def calls_it(x, n):
    counts_down(x, n)


@triton.jit
def calls_it_apart(x, n):
    counts_down_apart(x, n)


@triton.jit
def counts_down_a_constexpr(p, N: tl.constexpr):
    tl.store(p + N, 1.0)
    if N > 0:
        counts_down_a_constexpr(p, N - 1)


@triton.jit
def calls_it_with_a_constexpr(x):
    counts_down_a_constexpr(x, 3)


@pytest.mark.parametrize(("kernel", "name"), [(calls_it, "counts_down"), (calls_it_apart, "counts_down_apart")])
def test_recursion_is_named_with_its_line(kernel: Any, name: str) -> None:
    with pytest.raises(CompilationError) as caught:
        graphs_of(kernel, {"x": torch.zeros(16), "n": 5})
    closure, _ = closure_of(kernel, ())
    error = compile_error(caught.value, closure, parse_target("cuda:90"))
    assert f"{name} calls itself" in error.message
    assert error.place is not None
    assert error.place.source_line().strip() == f"{name}(p, n - 1)"


def test_recursion_over_a_constexpr_is_no_recursion() -> None:
    for graph in graphs_of(calls_it_with_a_constexpr, {"x": torch.zeros(16)}):
        assert effects_of(graph).writes == {"x"}
