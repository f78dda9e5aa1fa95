"""Comparisons with Triton's floating-point sanitizer: what is compiled with it, and the same bits on a GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import triton
import triton.language as tl
from triton import knobs

import kernellab
from kernellab._triton.compiling import sanitized_floats, sanitizer_problem
from kernellab.errors import CannotRun, UsageError
from kernellab.target import parse_target
from tests.labs import shared_lab

HAS_SANITIZER = not sanitizer_problem(parse_target("cuda:90"))
needs_sanitizer = pytest.mark.skipif(not HAS_SANITIZER, reason="this Triton has no floating-point sanitizer")


@triton.jit
def scaled_sum(x, y, out, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    tl.store(out + lanes, tl.load(x + lanes) * 2.5 + tl.load(y + lanes))


@pytest.fixture(scope="module")
def lab() -> Iterator[kernellab.Lab]:
    if torch.cuda.is_available():
        with kernellab.Lab(store=":memory:") as lab:
            yield lab
    else:
        with shared_lab("cuda:90", store=":memory:") as lab:
            yield lab


def arguments(device: str = "cpu") -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(64, generator=generator) for _ in range(2))
    return x.to(device), y.to(device), torch.zeros(64, device=device)


@needs_sanitizer
@pytest.mark.slow
def test_what_is_compiled_within_the_statement_has_integers_in_place_of_floats(lab: kernellab.Lab) -> None:
    with sanitized_floats():
        sanitized = lab.compile(scaled_sum, *arguments(), BLOCK=64)
    plain = lab.compile(scaled_sum, *arguments(), BLOCK=64)
    assert sanitized.stages["ttgir"].count("fpsan_embed") == 3
    assert "arith.addf" not in sanitized.stages["ttgir"]
    assert "fpsan" not in plain.stages["ttgir"]
    assert sanitized.digest != plain.digest


@needs_sanitizer
@pytest.mark.slow
def test_a_launch_within_the_statement_has_a_kernel_of_its_own(lab: kernellab.Lab) -> None:
    bound = lab.bind(scaled_sum)
    plain = bound.warmup(*arguments(), BLOCK=64, grid=(1,))
    with sanitized_floats():
        sanitized = bound.warmup(*arguments(), BLOCK=64, grid=(1,))
    assert "fpsan_embed" in sanitized.asm["ttgir"]
    assert sanitized.hash != plain.hash == bound.warmup(*arguments(), BLOCK=64, grid=(1,)).hash


def test_the_mode_ends_with_the_statement_also_by_an_error() -> None:
    before = knobs.compilation.instrumentation_mode
    modes = []

    def fail() -> None:
        with sanitized_floats():
            modes.append(knobs.compilation.instrumentation_mode)
            raise UsageError("stop")

    with pytest.raises(UsageError):
        fail()
    assert modes == ["fpsan"]
    assert knobs.compilation.instrumentation_mode == before


def test_targets_without_the_sanitizer_are_named() -> None:
    problem = sanitizer_problem(parse_target("hip:gfx942"))
    assert ("hip:gfx942" in problem) if HAS_SANITIZER else ("no floating-point sanitizer" in problem)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_comparison_on_a_gpu_needs_one(lab: kernellab.Lab) -> None:
    with pytest.raises(CannotRun, match="on_gpu=True launches scaled_sum on a GPU"):
        lab.equivalent(scaled_sum, {"num_warps": 8}, (1,), *arguments(), BLOCK=64, on_gpu=True)
