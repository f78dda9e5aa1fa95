"""Kernels that take addresses out of memory, or as numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def grouped_matmul(
    a_ptrs, b_ptrs, c_ptrs, sizes, groups, PROGRAMS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr
):  # fmt: skip
    """Multiply matrices of several sizes, as Triton's tutorial on grouped GEMMs does."""
    tile = tl.program_id(0)
    last = 0
    for g in range(groups):
        m = tl.load(sizes + g * 3)
        n = tl.load(sizes + g * 3 + 1)
        k = tl.load(sizes + g * 3 + 2)
        columns = tl.cdiv(n, BLOCK_N)
        tiles = tl.cdiv(m, BLOCK_M) * columns
        while tile >= last and tile < last + tiles:
            a_ptr = tl.load(a_ptrs + g).to(tl.pointer_type(tl.float16))
            b_ptr = tl.load(b_ptrs + g).to(tl.pointer_type(tl.float16))
            c_ptr = tl.load(c_ptrs + g).to(tl.pointer_type(tl.float16))
            rows = (tile - last) // columns * BLOCK_M + tl.arange(0, BLOCK_M)
            cols = (tile - last) % columns * BLOCK_N + tl.arange(0, BLOCK_N)
            inner = tl.arange(0, BLOCK_K)
            total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            for start in range(tl.cdiv(k, BLOCK_K)):
                ks = start * BLOCK_K + inner
                a_mask, b_mask = (rows[:, None] < m) & (ks[None, :] < k), (ks[:, None] < k) & (cols[None, :] < n)
                a = tl.load(a_ptr + rows[:, None] * k + ks[None, :], mask=a_mask, other=0.0)
                b = tl.load(b_ptr + ks[:, None] * n + cols[None, :], mask=b_mask, other=0.0)
                total += tl.dot(a, b)
            mask = (rows[:, None] < m) & (cols[None, :] < n)
            tl.store(c_ptr + rows[:, None] * n + cols[None, :], total.to(tl.float16), mask=mask)
            tile += PROGRAMS
        last += tiles


@triton.jit
def foreach_add(ptrs, lengths, step, BLOCK: tl.constexpr):
    """Add a number to each of several tensors, in place: one program per tensor."""
    p = tl.load(ptrs + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    n = tl.load(lengths + tl.program_id(0))
    for start in range(0, n, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        tl.store(p + offsets, tl.load(p + offsets, mask=offsets < n) + step, mask=offsets < n)


@triton.jit
def add_at(address, n, step, BLOCK: tl.constexpr):
    """Add a number to the float32 tensor at an address."""
    p = address.to(tl.pointer_type(tl.float32))
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(p + offsets, tl.load(p + offsets, mask=offsets < n) + step, mask=offsets < n)


@triton.jit
def add_through_two_tables(outer, step, BLOCK: tl.constexpr):
    """Add a number to a tensor whose address lies in a table whose address lies in a table."""
    inner = tl.load(outer + tl.program_id(0)).to(tl.pointer_type(tl.int64))
    p = tl.load(inner).to(tl.pointer_type(tl.float32))
    tl.store(p + tl.arange(0, BLOCK), tl.load(p + tl.arange(0, BLOCK)) + step)


@triton.jit
def walk(first, out, steps):
    """Follow a list, each of whose nodes holds the address of the next and a value."""
    node = first
    total = tl.zeros((), tl.int64)
    for _ in range(steps):
        total += tl.load(node + 1)
        node = tl.load(node).to(tl.pointer_type(tl.int64))
    tl.store(out, total)


@triton.jit
def add_at_shifted(table, step, BLOCK: tl.constexpr):
    """Add a number to a tensor whose address, divided by 16, lies in a table."""
    p = (tl.load(table) << 4).to(tl.pointer_type(tl.float32)) + tl.arange(0, BLOCK)
    tl.store(p, tl.load(p) + step)


@triton.jit
def pass_addresses_on(x, ptrs, out):
    """Store the address of an argument, and copy one from a table."""
    tl.store(out, x.to(tl.int64) + 8)
    tl.store(out + 1, tl.load(ptrs))


@triton.jit
def first_of_each(ptrs, out, BLOCK: tl.constexpr):
    """Gather the first elements of many tensors, by a block of addresses."""
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(tl.load(ptrs + offsets).to(tl.pointer_type(tl.float32))))


@triton.jit
def add_and_copy(ptrs, x, out, step, BLOCK: tl.constexpr):
    """Add a number to a tensor by its address, then copy ``x``."""
    offsets = tl.arange(0, BLOCK)
    p = tl.load(ptrs).to(tl.pointer_type(tl.float32)) + offsets
    tl.store(p, tl.load(p) + step)
    tl.debug_barrier()
    tl.store(out + offsets, tl.load(x + offsets))


@triton.jit
def add_at_both(addresses, step, BLOCK: tl.constexpr):
    """Add a number to two tensors whose addresses are a tuple."""
    offsets = tl.arange(0, BLOCK)
    one = addresses[0].to(tl.pointer_type(tl.float32)) + offsets
    two = addresses[1].to(tl.pointer_type(tl.float32)) + offsets
    tl.store(one, tl.load(one) + step)
    tl.store(two, tl.load(two) + step)


@dataclass(frozen=True, slots=True)
class Groups:
    """Products of several sizes, with the tables that `grouped_matmul` takes."""

    a: tuple[torch.Tensor, ...]
    b: tuple[torch.Tensor, ...]
    c: tuple[torch.Tensor, ...]
    sizes: torch.Tensor
    tables: tuple[torch.Tensor, ...]

    @classmethod
    def of(cls, sizes: list[tuple[int, int, int]], device: str) -> Groups:
        """Return groups of (m, n, k) with random factors."""
        generator = torch.Generator().manual_seed(0)

        def factor(rows: int, columns: int) -> torch.Tensor:
            return torch.randn(rows, columns, generator=generator).half().to(device)

        a, b = (tuple(factor(m, k) for m, _, k in sizes), tuple(factor(k, n) for _, n, k in sizes))
        c = tuple(torch.zeros(m, n, dtype=torch.float16, device=device) for m, n, _ in sizes)
        tables = tuple(torch.tensor([each.data_ptr() for each in group], device=device) for group in (a, b, c))
        return cls(a, b, c, torch.tensor(sizes, dtype=torch.int32, device=device).flatten(), tables)

    @property
    def arguments(self) -> tuple[Any, ...]:
        return *self.tables, self.sizes, len(self.a)

    @property
    def meta(self) -> dict[str, int]:
        return {"PROGRAMS": 4, "BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16}

    def check(self) -> None:
        """Assert that the products are those of torch."""
        for left, right, product in zip(self.a, self.b, self.c, strict=True):
            torch.testing.assert_close(product, (left.float() @ right.float()).half(), rtol=1e-2, atol=1e-2)
