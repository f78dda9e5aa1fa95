"""Launches that cannot end well, each of another kind."""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import dataclass, field
from typing import Any

import torch
import triton
import triton.language as tl

from tests.interpreter import planted


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offs, 2 * tl.load(x + offs, mask=offs < n), mask=offs < n)


@triton.jit
def through_address(address, out):
    tl.store(out, tl.load(address.to(tl.pointer_type(tl.float32))))


@triton.jit
def store_through_address(address):
    tl.store(address.to(tl.pointer_type(tl.float32)), 1.0)


@triton.jit
def store_through_table(table):
    tl.store(tl.load(table).to(tl.pointer_type(tl.float32)), 1.0)


@triton.jit
def descriptor_of(x, out, rows, columns, stride, column, BLOCK: tl.constexpr):
    desc = tl.make_tensor_descriptor(x, [rows, columns], [stride, 1], [BLOCK, BLOCK])
    offs = tl.arange(0, BLOCK)
    tl.store(out + offs[:, None] * BLOCK + offs[None, :], desc.load([0, column]))


@triton.jit
def large_product(a, b, out, N: tl.constexpr):
    offs = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    total = tl.zeros((N, N), tl.float32)
    for k in range(8):
        total = tl.dot(tl.load(a + offs + k), tl.load(b + offs + k), total)
    tl.store(out + offs, total)


@triton.jit
def bits_of_float(x):
    tl.store(x, tl.load(x) & 1)


@triton.jit
def odd_range(x):
    tl.store(x + tl.arange(0, 3), 1.0)


@triton.jit
def static_condition(x, N: tl.constexpr):
    tl.static_assert(N > 4, "N is too small")
    tl.store(x, N)


@triton.jit
def bad_assembly(x):
    out = tl.inline_asm_elementwise(
        "no_such_instruction $0, $1;", "=r,r", [tl.load(x)], tl.float32, is_pure=False, pack=1
    )
    tl.store(x, out)


def block(*shape: int) -> torch.Tensor:
    return torch.ones(shape)


@dataclass(frozen=True, slots=True)
class Bad:
    """A launch that must raise; ``words`` are in the message."""

    kernel: Any
    grid: Any
    args: tuple[Any, ...]
    words: str
    meta: dict[str, Any] = field(default_factory=dict)
    timeout_s: float = 60.0


NOBODYS = mmap.mmap(-1, 1 << 12)  # which keeps its addresses from becoming a tensor's


def unowned_address() -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(NOBODYS))


def misaligned_view() -> torch.Tensor:
    return torch.ones(65)[1:].reshape(8, 8)


def grid_that_fails(meta: Any) -> tuple[int, ...]:
    return (meta["no_such_name"],)


def bad_launches() -> dict[str, Bad]:
    x, null = block(64), torch.zeros(1, dtype=torch.int64)
    return {
        "load one past": Bad(planted.load_at, (1,), (block(4), block(1), 4), "out of bounds"),
        "load far past": Bad(planted.load_at, (1,), (block(4), block(1), 10**9), "out of bounds"),
        "load far before": Bad(planted.load_at, (1,), (block(4), block(1), -(10**12)), "out of bounds"),
        "store one past": Bad(planted.store_at, (1,), (block(4), block(4), 4), "out of bounds"),
        "store far past": Bad(planted.store_at, (1,), (block(4), block(4), 10**12), "out of bounds"),
        "store before": Bad(planted.store_at, (1,), (block(4), block(4), -1), "out of bounds"),
        "atomic one past": Bad(planted.atomic_at, (1,), (block(4), block(4), 4), "out of bounds"),
        "atomic far past": Bad(planted.atomic_at, (1,), (block(4), block(4), 10**12), "out of bounds"),
        "null pointer read": Bad(planted.pointer_table, (1,), (null, block(1), block(1)), "no argument"),
        "null pointer written": Bad(store_through_table, (1,), (null,), "no argument"),
        "memory that no tensor owns read": Bad(through_address, (1,), (unowned_address(), block(1)), "no argument"),
        "memory that no tensor owns written": Bad(store_through_address, (1,), (unowned_address(),), "no argument"),
        "None for a tensor": Bad(planted.load_at, (1,), (None, block(1), 0), "load_at"),
        "misaligned address": Bad(planted.misaligned, (1,), (block(4), block(1)), "aligned"),
        "misaligned descriptor": Bad(descriptor_of, (1,), (misaligned_view(), x, 8, 8, 8, 0), "16 bytes", {"BLOCK": 8}),
        "odd stride of a descriptor": Bad(descriptor_of, (1,), (block(8, 9), x, 8, 9, 9, 0), "16 bytes", {"BLOCK": 8}),
        "endless loop": Bad(planted.endless, (1,), (torch.zeros(1),), "did not finish", timeout_s=1.0),
        "failed assert": Bad(planted.asserting, (1,), (torch.zeros(8), 8), "x must be positive", {"BLOCK": 8}),
        "too much shared memory": Bad(
            large_product, (1,), (block(128, 128),) * 3, "shared", {"N": 128, "num_stages": 4}
        ),
        "negative grid": Bad(double, (-1,), (x, x, 64), "negative", {"BLOCK": 64}),
        "grid of four": Bad(double, (1, 1, 1, 1), (x, x, 64), "one to three", {"BLOCK": 64}),
        "fractional grid": Bad(double, (1.5,), (x, x, 64), "integers", {"BLOCK": 64}),
        "wrong dtype": Bad(bits_of_float, (1,), (block(1),), "float"),
        "range that is no power of two": Bad(odd_range, (1,), (block(4),), "power of 2"),
        "failed static assert": Bad(static_condition, (1,), (block(4),), "N is too small", {"N": 2}),
        "tensor without data": Bad(double, (1,), (torch.empty(4, device="meta"), x, 4), "x", {"BLOCK": 4}),
        "missing argument": Bad(double, (1,), (x, x), "n", {"BLOCK": 64}),
        "argument too many": Bad(double, (1,), (x, x, 64, 64, 64, 64), "argument", {}),
        "unknown option": Bad(double, (1,), (x, x, 64), "no_such_option", {"BLOCK": 64, "no_such_option": 1}),
        "odd number of warps": Bad(double, (1,), (x, x, 64), "num_warps", {"BLOCK": 64, "num_warps": 3}),
        "an object for a number": Bad(double, (1,), (x, x, object()), "object", {"BLOCK": 64}),
        "bad assembly": Bad(bad_assembly, (1,), (block(1),), "no_such_instruction"),
    }
