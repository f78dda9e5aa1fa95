"""What the interpreter computes is what a GPU computes, bit by bit where the language says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from kernellab.launch.run import Run
from tests.interpreter import features
from tests.interpreter.test_low_precision import arithmetic, bits, casts, comparisons, constants, dot, softmax, sums

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:Logical operators 'and' and 'or' are deprecated:UserWarning"),
]
Launch = Callable[..., Run]
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def special(dtype: torch.dtype) -> torch.Tensor:
    """Return values around every edge: zeros, infinities, NaN, the largest, the smallest, ties, integers."""
    limits = torch.finfo(dtype if dtype.itemsize > 1 else torch.float16)
    edges = [0.0, -0.0, float("inf"), float("-inf"), float("nan"), limits.max, limits.min, limits.tiny, 448, 464, 465]
    more = [57344, 61440, 65504, 1e9, -1e9, 2.0**31, -(2.0**31), 2.5, -2.5, 0.0625, 2.0**-10, 2.0**-17, 1.5 * 2.0**-17]
    known = torch.tensor([*edges, *more], dtype=torch.float64).to(torch.float32).to(dtype)
    noise = (random(256 - len(known), seed=7) * 50).to(dtype)
    return torch.cat([known, noise])


def compare(
    launch: Launch, kernel: Any, grid: tuple[int, ...], *args: Any, rtol: float = 0.0, atol: float = 0.0
) -> None:
    """Run a kernel on the CPU and on the GPU and compare every tensor."""
    on_gpu = [arg.to("cuda", copy=True) if isinstance(arg, torch.Tensor) else arg for arg in args]
    launch(kernel, grid, *args)
    kernel[grid](*on_gpu)
    for ours, theirs in zip(args, on_gpu, strict=True):
        if isinstance(ours, torch.Tensor):
            got, expected = (t.cpu().double() if t.is_floating_point() else t.cpu() for t in (ours, theirs))
            torch.testing.assert_close(
                got, expected, rtol=rtol, atol=atol, equal_nan=True, msg=difference(got, expected)
            )


def difference(got: torch.Tensor, expected: torch.Tensor) -> str:
    """Return the first places where two tensors differ, with both values."""
    places = ~torch.isclose(got, expected, rtol=0.0, atol=0.0, equal_nan=True)
    shown = [f"{tuple(i.tolist())}: CPU {got[tuple(i)]}, GPU {expected[tuple(i)]}" for i in places.nonzero()[:10]]
    return "; ".join(shown)


@pytest.mark.parametrize("dtype", FLOATS)
def test_arithmetic(launch: Launch, dtype: torch.dtype) -> None:
    a, b = random(64, dtype=dtype, seed=1), random(64, dtype=dtype, seed=2)
    # The GPU may fuse (a + b) * a - b in float32 only.
    compare(
        launch,
        arithmetic,
        (1,),
        a,
        b,
        torch.zeros(8, 64, dtype=dtype),
        64,
        rtol=1e-6 if dtype == torch.float32 else 1e-2,
        atol=1e-6,
    )


@pytest.mark.parametrize("wide", FLOATS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, *FP8])
def test_casts(launch: Launch, dtype: torch.dtype, wide: torch.dtype) -> None:
    x = special(wide)
    if (dtype, wide) == (torch.float8_e5m2, torch.bfloat16):
        x = x.nan_to_num(1.0, float("inf"), -float("inf"))  # Triton's software conversion makes a number of NaN
    compare(launch, casts, (1,), x, torch.zeros(256).to(dtype), torch.zeros(256, dtype=wide), 256, None)


@triton.jit
def to_integers(x, narrow, wide, unsigned, N: tl.constexpr):
    offs = tl.arange(0, N)
    values = tl.load(x + offs)
    tl.store(narrow + offs, values.to(tl.int32))
    tl.store(wide + offs, values.to(tl.int64))
    tl.store(unsigned + offs, values.to(tl.uint8).to(tl.int32))


@pytest.mark.parametrize("dtype", FLOATS)
def test_casts_to_integers(launch: Launch, dtype: torch.dtype) -> None:
    x = random(256, dtype=dtype).abs() * 50
    outs = [torch.zeros(256, dtype=d) for d in (torch.int32, torch.int64, torch.int32)]
    compare(launch, to_integers, (1,), x, *outs, 256)


@pytest.mark.parametrize("wide", [torch.float32, torch.float64])
@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.uint32, torch.int64])
def test_casts_to_integers_do_what_cvt_does_with_what_does_not_fit(
    launch: Launch, dtype: torch.dtype, wide: torch.dtype
) -> None:
    # Not uint8: LLVM packs pairs of these without cutting them to 8 bits, so one takes bits of the element before.
    x = special(torch.float32).to(wide)
    compare(launch, features.to_integer, (1,), x, torch.zeros(256, dtype=dtype), 256)


@pytest.mark.parametrize("dtype", [torch.bfloat16, *FP8])
def test_low_precision_dot(launch: Launch, dtype: torch.dtype) -> None:
    a, b = random(32, 32, dtype=dtype, seed=1), random(32, 32, dtype=dtype, seed=2)
    compare(launch, dot, (1,), a, b, torch.zeros(32, 32), 32, rtol=1e-3, atol=1e-2)


def test_low_precision_softmax_sums_and_bits(launch: Launch) -> None:
    x = random(4, 64, dtype=torch.bfloat16)
    compare(launch, softmax, (4,), x, torch.zeros_like(x), 64, rtol=2e-2, atol=1e-3)
    compare(launch, sums, (1,), x[0], torch.zeros(67), 64, rtol=1e-2, atol=1e-1)
    compare(launch, bits, (1,), x[1], torch.zeros(64, dtype=torch.bfloat16), 64)
    for dtype in (torch.bfloat16, torch.float16):
        compare(launch, constants, (1,), torch.zeros(2, 8, dtype=dtype), 8)
        compare(
            launch, comparisons, (1,), special(dtype), special(dtype).flip(0), torch.zeros(256, dtype=torch.int32), 256
        )


@triton.jit
def extremes(x, y, out, N: tl.constexpr):
    offs = tl.arange(0, N)
    a, b = tl.load(x + offs), tl.load(y + offs)
    tl.store(out + offs, tl.maximum(a, b))
    tl.store(out + N + offs, tl.minimum(a, b))
    tl.store(out + 2 * N + offs, tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out + 3 * N + offs, tl.where(a > b, a, b))
    tl.store(out + 4 * N + offs, tl.clamp(a, -1.0, 2.0))
    tl.store(out + 5 * N, tl.max(a))
    tl.store(out + 5 * N + 1, tl.min(a))
    tl.store(out + 5 * N + 2, tl.argmax(b, 0).to(tl.float32))


@pytest.mark.parametrize("dtype", FLOATS)
def test_extremes_with_nan(launch: Launch, dtype: torch.dtype) -> None:
    x, y = special(dtype), random(256, dtype=dtype, seed=3)
    compare(launch, extremes, (1,), x, y, torch.zeros(6, 256), 256)


def test_integers_random_numbers_and_counting(launch: Launch) -> None:
    a = torch.randint(-(2**31), 2**31 - 1, (64,), dtype=torch.int32)
    b = torch.randint(1, 2**20, (64,), dtype=torch.int32) * torch.tensor([1, -1], dtype=torch.int32).repeat(32)
    compare(launch, features.integer_operations, (1,), a, b, torch.zeros(5, 64, dtype=torch.int32), 64)
    compare(launch, features.high_products, (1,), a, b, torch.zeros(64, dtype=torch.int32), 64)
    compare(launch, features.wrapping_hash, (1,), a, torch.zeros(128, dtype=torch.int32), 64, 64)
    compare(launch, features.random_numbers, (1,), torch.zeros(2, 1024), 42, 1024, rtol=1e-5, atol=1e-5)
    keys = torch.tensor([0, 1, 1, 3, 9, -1, 2, 0], dtype=torch.int32)
    compare(launch, features.block_histogram, (1,), keys, torch.zeros(4, dtype=torch.int32), 7, 8, 4)


def test_sorting_reductions_and_scans(launch: Launch) -> None:
    x = random(2, 32)
    compare(launch, features.sort_rows, (2,), x, torch.zeros(2, 32), 32)
    compare(launch, features.topk, (1,), x, torch.zeros(8), 32, 8)
    compare(launch, features.reductions, (1,), random(4, 8), torch.zeros(8, 4), 4, 8, rtol=1e-5, atol=1e-6)
    compare(launch, features.linear_recurrence, (1,), x[0], x[1], torch.zeros(32), 32, False, rtol=1e-4, atol=1e-4)
    compare(launch, features.cumulative, (1,), x[0], torch.zeros(3, 32), 32, rtol=1e-4, atol=1e-4)
    compare(launch, features.join_and_split, (1,), x[0], torch.zeros(128), 32)


@pytest.mark.filterwarnings("ignore:builtin m.. on non-scalar tensor values is deprecated")  # by Triton 3.9
def test_control_flow_and_syntax(launch: Launch) -> None:
    compare(
        launch,
        features.collatz,
        (4,),
        torch.tensor([1, 2, 7, 27], dtype=torch.int32),
        torch.zeros(4, dtype=torch.int32),
    )
    compare(launch, features.boolean_operators, (1,), random(8), torch.zeros(4, 8), 6, 2, 8, True)
    compare(launch, features.builtin_extremes, (1,), random(8), random(8, seed=5), torch.zeros(8), 8)
    compare(launch, features.loop_variable_methods, (1,), random(4, 8), torch.zeros(8), 32, 8, rtol=1e-5, atol=1e-5)
    compare(launch, features.scalar_types, (1,), torch.zeros(6, dtype=torch.float64), 0.5, 2**40, -3, True, None, 3)


def test_mathematics(launch: Launch) -> None:
    v = random(16).abs() + 0.1
    compare(launch, features.math_functions, (1,), v, torch.zeros(4, 16), 16, rtol=1e-4, atol=1e-4)
    compare(launch, features.library_functions, (1,), v, torch.zeros(2, 16), 16, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_scaled_products(launch: Launch, name: str) -> None:
    dtype = torch.float8_e4m3fn if name == "e4m3" else torch.float8_e5m2
    a, b = random(128, 64, dtype=dtype, seed=1), random(64, 128, dtype=dtype, seed=2)
    scales = [torch.randint(120, 134, (128, 2), dtype=torch.uint8) for _ in range(2)]
    args = (a, scales[0], b, scales[1], torch.zeros(128, 128), 128, 128, 64, name)
    compare(launch, features.scaled_dot, (1,), *args, rtol=1e-2, atol=1e-1)
