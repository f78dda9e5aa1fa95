"""Values that the GPU wrote next to those of the CPU, for 26 kernels: a row each. It needs a GPU.

    python -m benchmarks.inside_gpu

Integers, masks and the addresses of accesses have to be equal, but for what atomics return and what is computed from
it; pointers are not compared, since past the end of an argument their addresses may be those of another. Of floats, the
largest difference is given in roundings of the largest magnitude of its tile: those of its type, or of TF32 where a
kernel has products. Allowed are 16.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.inside.values import Values
from kernellab.launch.recorded_values import RecordedValue, ValueKind
from tests.inside.test_inside_on_gpu import on_gpu
from tests.inside.transcripts import CASES
from tests.kernels.cases import all_cases

_ROUNDING = {"fp64": 2.0**-52, "fp32": 2.0**-23, "fp16": 2.0**-10, "bf16": 2.0**-7}
_TF32 = 2.0**-10
_ALLOWED = 16
_FROM_TESTS = ("add", "dropout", "softmax", "matmul", "layer_norm", "layer_norm_backward", "attention", "cumsum")


@triton.jit
def transpose(x, out, m, n, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tile = tl.load(x + rows[:, None] * n + columns[None, :], mask=inside, other=0.0)
    turned = tl.trans(tile)
    tl.store(out + columns[:, None] * m + rows[None, :], turned, mask=tl.trans(inside))


@triton.jit
def argmax(x, out, places, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    values = tl.load(x + row * n + columns, mask=columns < n, other=-float("inf"))
    high, place = tl.max(values, 0, return_indices=True)
    tl.store(out + row, high)
    tl.store(places + row, place)


@triton.jit
def hashes(x, out, rounds, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    state = tl.load(x + offsets).to(tl.uint32)
    for step in range(rounds):
        state = (state ^ (state >> 16)) * 0x85EBCA6B
        state = state ^ (state << 5) ^ step
    tl.store(out + offsets, state.to(tl.int32, bitcast=True))


@triton.jit
def grouped_product(a, b, c, M, N, K, BLOCK: tl.constexpr, GROUP: tl.constexpr):
    program = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK), tl.cdiv(N, BLOCK)
    group = program // (GROUP * tiles_n)
    height = min(tiles_m - group * GROUP, GROUP)
    row = group * GROUP + program % height
    column = program % (GROUP * tiles_n) // height
    rows, columns = row * BLOCK + tl.arange(0, BLOCK), column * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for step in range(0, K, BLOCK):
        inner = step + tl.arange(0, BLOCK)
        x = tl.load(a + rows[:, None] * K + inner[None, :])
        y = tl.load(b + inner[:, None] * N + columns[None, :])
        acc += tl.dot(x, y)
    tl.store(c + rows[:, None] * N + columns[None, :], acc.to(tl.float16))


@triton.jit
def counts(x, total, largest, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + offsets, mask=offsets < n, other=0)
    tl.atomic_add(total, tl.sum(values, 0))
    tl.atomic_max(largest, tl.max(values, 0))


@triton.jit
def rotated(x, out, angles, HALF: tl.constexpr):
    row = tl.program_id(0)
    lanes = tl.arange(0, HALF)
    angle = tl.load(angles + lanes) * row
    first, second = tl.load(x + row * 2 * HALF + lanes), tl.load(x + row * 2 * HALF + HALF + lanes)
    cosine, sine = tl.cos(angle), tl.sin(angle)
    tl.store(out + row * 2 * HALF + lanes, first * cosine - second * sine)
    tl.store(out + row * 2 * HALF + HALF + lanes, first * sine + second * cosine)


@dataclass(frozen=True)
class Launch:
    """A launch to look into."""

    name: str
    kernel: Any
    grid: tuple[int, ...]
    arguments: Callable[[], dict[str, Any]]


def _floats(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(shape[0]))


def _integers(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(high), dtype=torch.int32)


def _own() -> Iterator[Launch]:
    half = torch.float16
    yield Launch(
        "transpose",
        transpose,
        (2, 2),
        lambda: {"x": _floats(40, 50), "out": _floats(50, 40), "m": 40, "n": 50, "BLOCK": 32},
    )
    yield Launch(
        "argmax",
        argmax,
        (4,),
        lambda: {"x": _floats(4, 100), "out": _floats(4), "places": _integers(9, 4), "n": 100, "BLOCK": 128},
    )
    yield Launch(
        "hash",
        hashes,
        (4,),
        lambda: {"x": _integers(1 << 30, 512), "out": _integers(9, 512), "rounds": 4, "BLOCK": 128},
    )
    yield Launch(
        "grouped product",
        grouped_product,
        (12,),
        lambda: {
            "a": _floats(128, 64).to(half),
            "b": _floats(64, 96).to(half),
            "c": _floats(128, 96).to(half),
            "M": 128,
            "N": 96,
            "K": 64,
            "BLOCK": 32,
            "GROUP": 2,
        },
    )
    yield Launch(
        "scalar atomics",
        counts,
        (3,),
        lambda: {
            "x": _integers(100, 300),
            "total": _integers(1, 1),
            "largest": _integers(1, 1),
            "n": 300,
            "BLOCK": 128,
        },
    )
    yield Launch(
        "rotary", rotated, (4,), lambda: {"x": _floats(4, 64), "out": _floats(4, 64), "angles": _floats(32), "HALF": 32}
    )


def launches() -> Iterator[Launch]:
    """Yield the kernels of the tests of values, of the tests of launches, and more."""
    for case in CASES:
        yield Launch(case.name, case.kernel, case.grid, case.arguments)
    for name, case in all_cases().items():
        if name.rpartition("-")[0].removesuffix("-causal") in _FROM_TESTS and name.endswith("float32"):
            yield Launch(name, case.kernel, case.grid, lambda case=case: {**case.fresh_arguments(), **case.meta})  # type: ignore[misc]
    yield from _own()


def place(value: RecordedValue) -> tuple[Any, ...]:
    """Return where a value stands: two sides have to agree in it."""
    return value.kind, value.function, value.name, value.line, value.calls, value.iteration, value.shape, value.dtype


def row_of(name: str, gpu: Values, cpu: Values, has_products: bool) -> tuple[str, bool]:
    """Return the line of a kernel, and whether its values agree."""
    if list(map(place, gpu.values)) != list(map(place, cpu.values)):
        at = next(
            (i for i, (a, b) in enumerate(zip(gpu.values, cpu.values, strict=False)) if place(a) != place(b)), "length"
        )
        return f"{name:<26} other values: {len(gpu.values)} and {len(cpu.values)}, first at {at}", False
    worst, differing, integers, floats = 0.0, 0, 0, 0
    where = ""
    unordered: set[int] = set()  # what atomics returned, and what was computed from it
    for at, (value, other) in enumerate(zip(gpu.values, cpu.values, strict=True)):
        if unordered.intersection(other.reads):
            unordered.add(at)
            continue
        if value.kind is ValueKind.ATOMIC:
            unordered.add(at)
        if value.is_pointer:  # past the end of an argument, its address may be that of another; accesses are compared
            continue
        lanes = np.ones(value.shape, bool) if other.mask is None else other.mask
        if (value.mask is None) != (other.mask is None) or (
            value.elements is not None
            and other.elements is not None
            and (value.elements != other.elements)[lanes].any()
        ):
            differing += 1
        if value.data.dtype.kind != "f":
            integers += 1
            differing += int((value.data[lanes] != other.data[lanes]).any())
            continue
        floats += 1
        units = _units(value.data[lanes], other.data[lanes], value.dtype, has_products)
        if units > worst:
            worst, where = units, f" ({value.name or value.kind.value}, line {value.line})"
    unit = "TF32" if has_products and worst > 0 else "of the type"
    agrees = differing == 0 and worst <= _ALLOWED
    text = f"{name:<26}{integers:4} tiles of integers, {differing} differ; {floats:4} of floats, at most {worst:6.2f} "
    return f"{text}roundings {unit}{where}{'' if agrees else '  FAILS'}", agrees


def _units(one: Any, other: Any, dtype: str, has_products: bool) -> float:
    """The largest difference of two tiles, in roundings of the largest magnitude."""
    one, other = one.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(other)
    if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
        return float("inf")
    if not finite.any():
        return 0.0
    scale = float(np.abs(other[finite]).max()) or 1.0
    rounding = _ROUNDING.get(dtype, 2.0**-2)
    rounding = max(rounding, _TF32) if has_products else rounding
    return float(np.abs(one[finite] - other[finite]).max()) / scale / rounding


def main() -> None:
    """Print a row per kernel, and how many agree."""
    print(f"{torch.cuda.get_device_name()}, Triton {triton.__version__}, torch {torch.__version__}", flush=True)
    good = total = 0
    with kernellab.Lab(store=":memory:") as lab:
        for launch in launches():
            total += 1
            try:
                gpu = lab.values(launch.kernel, launch.grid, **on_gpu(launch.arguments()))
                cpu = lab.values(launch.kernel, launch.grid, **launch.arguments())
                has_products = "tl.dot" in gpu.source
                text, agrees = row_of(launch.name, gpu, cpu, has_products)
                same = any("same outputs" in note for note in gpu.notes)
                text += "" if same else "".join(f"; {note}" for note in gpu.notes)
            except kernellab.KernellabError as exc:
                text, agrees = f"{launch.name:<26} fails: {exc}", False
            good += agrees
            print(text, flush=True)
    print(f"{good} of {total} kernels agree: integers bitwise, floats within {_ALLOWED} roundings of the CPU's")
    sys.exit(good != total)


if __name__ == "__main__":
    main()
