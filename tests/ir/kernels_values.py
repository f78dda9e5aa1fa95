"""Values of every type that pass through memory; what is loaded never makes its source written."""

import torch
import triton
import triton.language as tl

from tests.ir.expected import LENGTH, expect

BYTES = {"x": lambda: torch.zeros(LENGTH, dtype=torch.uint8), "y": lambda: torch.zeros(LENGTH, dtype=torch.uint8)}
BOOLS = {"x": lambda: torch.ones(LENGTH, dtype=torch.bool), "y": lambda: torch.zeros(LENGTH, dtype=torch.bool)}
BRAIN = {
    "x": lambda: torch.ones(LENGTH, dtype=torch.bfloat16),
    "y": lambda: torch.zeros(LENGTH, dtype=torch.bfloat16),
}
DOUBLE = {"x": lambda: torch.ones(LENGTH, dtype=torch.float64), "y": lambda: torch.zeros(LENGTH, dtype=torch.float64)}
STRIDED = {"x": lambda: torch.zeros(16, 16)[:, ::2], "n": 2}
OFFSET = {"x": lambda: torch.zeros(LENGTH)[7:], "y": lambda: torch.zeros(LENGTH)[9:]}


@triton.jit
def _copy(x, y, B: tl.constexpr):
    offs = tl.arange(0, B)
    tl.store(y + offs, tl.load(x + offs))


@expect(reads="x", writes="y", args=BYTES)
@triton.jit
def copies_bytes(x, y, B: tl.constexpr = 16):
    _copy(x, y, B)


@expect(reads="x", writes="y", args=BOOLS)
@triton.jit
def copies_booleans(x, y, B: tl.constexpr = 16):
    _copy(x, y, B)


@expect(reads="x", writes="y", args=BRAIN)
@triton.jit
def copies_bfloat16(x, y, B: tl.constexpr = 16):
    _copy(x, y, B)


@expect(reads="x", writes="y", args=DOUBLE)
@triton.jit
def copies_doubles(x, y, B: tl.constexpr = 16):
    _copy(x, y, B)


@expect(reads="x", writes="y", args=OFFSET)
@triton.jit
def copies_unaligned_views(x, y, B: tl.constexpr = 16):
    _copy(x, y, B)


@expect(reads="x", writes="y", args=STRIDED)
@triton.jit
def reads_a_strided_view(x, y, n, B: tl.constexpr = 8):
    offs = tl.arange(0, B)
    tl.store(y + offs, tl.load(x + offs * n))


@expect(reads="x", writes="y")
@triton.jit
def branches_on_a_loaded_value(x, y, B: tl.constexpr = 16):
    if tl.load(x) < 100.0:
        tl.store(y + tl.arange(0, B), 1.0)


@expect(reads="x idx", writes="y")
@triton.jit
def masks_by_a_loaded_value(x, idx, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    mask = tl.load(idx + offs) < 5
    tl.store(y + offs, tl.load(x + offs, mask=mask, other=0.0), mask=mask)


@expect(reads="idx x", writes="y")
@triton.jit
def loops_over_loaded_bounds(idx, x, y):
    for i in range(tl.load(idx + 1), tl.load(idx + 4)):
        tl.store(y + i, tl.load(x + i))


@expect(reads="idx", writes="y idx")
@triton.jit
def stores_back_what_it_indexed_by(idx, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    place = tl.load(idx + offs)
    tl.store(y + place, 1.0)
    tl.store(idx + offs, place)


@expect(reads="x y", writes="out")
@triton.jit
def selects_between_values(x, y, out, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    a, b = tl.load(x + offs), tl.load(y + offs)
    tl.store(out + offs, tl.where(a > b, a, b))


@expect(reads="x", writes="x y")
@triton.jit
def reads_again_what_it_wrote(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(x + offs, 3.0)
    tl.store(y + offs, tl.load(x + offs))


@expect(reads="long", writes="y")
@triton.jit
def uses_a_loaded_long_as_an_offset(long, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(y + (tl.load(long + offs) + 4) // 2 % 16, 1.0)


@expect(reads="x idx long", writes="y")
@triton.jit
def computes_with_everything_but_stores_once(x, idx, long, y, n, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    value = tl.load(x + offs).to(tl.int32) ^ tl.load(idx + offs) | (tl.load(long + offs).to(tl.int32) & n)
    tl.store(y + offs, (value >> 1).to(tl.float32, bitcast=True))
