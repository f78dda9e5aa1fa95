"""bf16 and fp8 on the CPU: the casts bit by bit, the arithmetic against torch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from kernellab.interpreter.values import FP8, decode, encode, round_to_type
from kernellab.launch.run import Run

Launch = Callable[..., Run]

TORCH = {
    "bf16": torch.bfloat16,
    "fp8e4nv": torch.float8_e4m3fn,
    "fp8e5": torch.float8_e5m2,
    "fp8e4b8": torch.float8_e4m3fnuz,
    "fp8e5b16": torch.float8_e5m2fnuz,
}
FORMATS = {"bf16": (np.uint16, torch.uint16), **{name: (np.uint8, torch.uint8) for name in TORCH if name != "bf16"}}


def all_codes(name: str) -> np.ndarray:
    dtype = FORMATS[name][0]
    return np.arange(np.iinfo(dtype).max + 1, dtype=dtype)


def torch_values(codes: np.ndarray, name: str) -> torch.Tensor:
    return torch.from_numpy(codes.view(f"i{codes.itemsize}")).view(TORCH[name]).float()


@pytest.mark.parametrize("name", TORCH)
def test_every_code_decodes_to_what_torch_says(name: str) -> None:
    codes = all_codes(name)
    torch.testing.assert_close(
        torch.from_numpy(decode(codes, name)), torch_values(codes, name), rtol=0, atol=0, equal_nan=True
    )


@pytest.mark.parametrize("name", TORCH)
def test_every_code_survives_a_copy(name: str) -> None:
    codes = all_codes(name)
    assert np.array_equal(encode(decode(codes, name), name), codes)


@pytest.mark.parametrize("name", TORCH)
def test_rounding_is_to_nearest_even_as_in_torch(name: str) -> None:
    finite = torch_values(all_codes(name), name)
    finite = finite[finite.isfinite()].sort().values
    middles = (finite[1:].double() + finite[:-1].double()) / 2
    near = torch.cat([finite.double(), middles, torch.nextafter(middles.float(), finite[1:]).double()]).float()
    near = near[near.abs() <= finite.max()]
    noise = torch.randn(20000, generator=torch.Generator().manual_seed(0)) * 4
    values = torch.cat([near, noise])
    torch.testing.assert_close(
        torch.from_numpy(round_to_type(values.numpy(), name)), values.to(TORCH[name]).float(), rtol=0, atol=0
    )


@pytest.mark.parametrize("name", FP8)
def test_fp8_saturates_as_the_hardware_does(name: str) -> None:
    largest = decode(np.array([FP8[name].max_code], np.uint8), name)[0]
    beyond = np.array([largest * 4, np.inf, -np.inf, -largest * 2], np.float32)
    assert round_to_type(beyond, name).tolist() == [largest, largest, -largest, -largest]


def test_bf16_overflows_to_infinity_and_keeps_nan() -> None:
    values = np.array([3.4e38, -3.4e38, np.nan, np.inf], np.float32)
    assert np.array_equal(round_to_type(values, "bf16"), [np.inf, -np.inf, np.nan, np.inf], equal_nan=True)


def test_rounding_towards_zero() -> None:
    values = np.array([1.99999, -1.99999], np.float32)
    assert round_to_type(values, "bf16", toward_zero=True).tolist() == [1.9921875, -1.9921875]
    assert round_to_type(values, "fp8e4nv", toward_zero=True).tolist() == [1.875, -1.875]
    assert round_to_type(values, "fp8e5", toward_zero=True).tolist() == [1.75, -1.75]


@triton.jit
def arithmetic(x, y, out, N: tl.constexpr):
    offs = tl.arange(0, N)
    a, b = tl.load(x + offs), tl.load(y + offs)
    tl.store(out + offs, a + b)
    tl.store(out + N + offs, a * b)
    tl.store(out + 2 * N + offs, a - b)
    tl.store(out + 3 * N + offs, -a)
    tl.store(out + 4 * N + offs, tl.maximum(a, b))
    tl.store(out + 5 * N + offs, tl.where(a > b, a, b))
    tl.store(out + 6 * N + offs, tl.abs(a))
    tl.store(out + 7 * N + offs, (a + b) * a - b)


def expected_arithmetic(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    def low(value: torch.Tensor) -> torch.Tensor:
        return value.to(a.dtype).float()

    x, y = a.float(), b.float()
    larger = torch.maximum(x, y)
    rows = [low(x + y), low(x * y), low(x - y), -x, larger, larger, x.abs(), low(low(low(x + y) * x) - y)]
    return torch.stack(rows)


@pytest.mark.parametrize("dtype", TORCH.values())
def test_arithmetic_rounds_after_each_operation(launch: Launch, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(64, generator=generator).to(dtype) for _ in range(2))
    out = torch.zeros(8, 64).to(dtype)
    run = launch(arithmetic, (1,), a, b, out, 64)
    torch.testing.assert_close(out.float(), expected_arithmetic(a, b), rtol=0, atol=0)
    assert any("emulated in float32" in note for note in run.notes)


@triton.jit
def sums(x, out, N: tl.constexpr):
    values = tl.load(x + tl.arange(0, N))
    tl.store(out, tl.sum(values))
    tl.store(out + 1, tl.max(values))
    tl.store(out + 2, tl.min(values))
    tl.store(out + 3 + tl.arange(0, N), tl.cumsum(values, 0))


def test_bf16_reductions_and_scans(launch: Launch) -> None:
    x = torch.randn(128, generator=torch.Generator().manual_seed(2)).bfloat16()
    out = torch.zeros(131)
    launch(sums, (1,), x, out, 128)
    expected = torch.cat([torch.stack([x.float().sum(), x.float().max(), x.float().min()]), x.float().cumsum(0)])
    torch.testing.assert_close(out, expected, rtol=1e-2, atol=1e-1)


@triton.jit
def softmax(x, out, N: tl.constexpr):
    offs = tl.program_id(0) * N + tl.arange(0, N)
    values = tl.load(x + offs)
    powers = tl.exp((values - tl.max(values)).to(tl.float32)).to(values.dtype)
    tl.store(out + offs, powers / tl.sum(powers))


def test_bf16_softmax(launch: Launch) -> None:
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(3)).bfloat16()
    out = torch.zeros_like(x)
    launch(softmax, (4,), x, out, 64)
    torch.testing.assert_close(out, x.softmax(1), rtol=2e-2, atol=1e-3)


@triton.jit
def dot(a, b, out, N: tl.constexpr):
    offs = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    product = tl.dot(tl.load(a + offs), tl.load(b + offs))
    tl.store(out + offs, product.to(out.dtype.element_ty))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_low_precision_dot_accumulates_in_float32(launch: Launch, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(4)
    a, b = (torch.randn(32, 32, generator=generator).to(dtype) for _ in range(2))
    out = torch.zeros(32, 32)
    launch(dot, (1,), a, b, out, 32)
    torch.testing.assert_close(out, a.float() @ b.float(), rtol=1e-5, atol=1e-5)


@triton.jit
def casts(x, out, back, N: tl.constexpr, ROUNDING: tl.constexpr):
    offs = tl.arange(0, N)
    low = tl.load(x + offs).to(out.dtype.element_ty, fp_downcast_rounding=ROUNDING)
    tl.store(out + offs, low)
    tl.store(back + offs, low.to(back.dtype.element_ty))


@pytest.mark.parametrize("wide", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_casts_agree_with_torch(launch: Launch, dtype: torch.dtype, wide: torch.dtype) -> None:
    x = (torch.randn(256, generator=torch.Generator().manual_seed(5)) * 8).to(wide)
    out, back = torch.zeros(256).to(dtype), torch.zeros(256).to(wide)
    launch(casts, (1,), x, out, back, 256, None)
    assert torch.equal(out.float(), x.to(dtype).float())
    assert torch.equal(back, x.to(dtype).to(wide))


@triton.jit
def copy(x, out, N: tl.constexpr):
    offs = tl.arange(0, N)
    tl.store(out + offs, tl.load(x + offs))


@pytest.mark.parametrize("dtype", TORCH.values())
def test_a_copy_keeps_every_bit(launch: Launch, dtype: torch.dtype) -> None:
    codes = (
        torch.arange(256, dtype=torch.uint8)
        if dtype.itemsize == 1
        else torch.arange(2**16, dtype=torch.int32).to(torch.int16)
    )
    out = torch.zeros_like(codes)
    launch(copy, (1,), codes.view(dtype), out.view(dtype), codes.numel())
    assert torch.equal(out, codes)


@triton.jit
def bits(x, out, N: tl.constexpr):
    offs = tl.arange(0, N)
    raw = tl.load(x + offs).to(tl.int16, bitcast=True)
    tl.store(out + offs, (raw ^ 1).to(tl.bfloat16, bitcast=True))


def test_bitcasts_see_the_bits(launch: Launch) -> None:
    x = torch.randn(64).bfloat16()
    out = torch.zeros_like(x)
    launch(bits, (1,), x, out, 64)
    assert torch.equal(out.view(torch.int16), x.view(torch.int16) ^ 1)


@triton.jit
def add_atomically(x, out, N: tl.constexpr):
    offs = tl.arange(0, N)
    tl.atomic_add(out + offs % 4, tl.load(x + offs))


def test_bf16_atomics(launch: Launch) -> None:
    x, out = torch.ones(64, dtype=torch.bfloat16) * 0.5, torch.zeros(4, dtype=torch.bfloat16)
    run = launch(add_atomically, (2,), x, out, 64)
    assert out.tolist() == [16.0] * 4
    assert run.findings == ()


@triton.jit
def constants(out, N: tl.constexpr):
    offs = tl.arange(0, N)
    tl.store(out + offs, tl.full((N,), 1.7, out.dtype.element_ty) * 2)
    tl.store(out + N + offs, tl.zeros((N,), out.dtype.element_ty) + 0.3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_constants_of_low_precision(launch: Launch, dtype: torch.dtype) -> None:
    out = torch.zeros(2, 8, dtype=dtype)
    launch(constants, (1,), out, 8)
    assert torch.equal(out[0], torch.full((8,), 1.7, dtype=dtype) * 2)
    assert torch.equal(out[1], torch.full((8,), 0.3, dtype=dtype))


@triton.jit
def comparisons(x, y, out, N: tl.constexpr):
    offs = tl.arange(0, N)
    a, b = tl.load(x + offs), tl.load(y + offs)
    tl.store(out + offs, (a > b).to(tl.int32) + 2 * (a == b).to(tl.int32) + 4 * (a < b).to(tl.int32))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_comparisons(launch: Launch, dtype: torch.dtype) -> None:
    x = torch.tensor([-2.0, -1.0, 0.0, 0.5, 1.0, 2.0, float("nan"), -0.0]).to(dtype)
    y = torch.tensor([-1.0, -1.0, 0.5, -0.5, 1.0, 3.0, 1.0, 0.0]).to(dtype)
    out = torch.zeros(8, dtype=torch.int32)
    launch(comparisons, (1,), x, y, out, 8)
    assert out.tolist() == [4, 2, 4, 1, 2, 4, 0, 2]
