"""Tensor descriptors of host and device, and block pointers where Triton still has them."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from tests.ir.expected import expect


def rows(block_rows=1):
    return TensorDescriptor(torch.ones(32, 16), [32, 16], [16, 1], [block_rows, 16])


TUPLE = {"pair": lambda: (rows(8), rows(8))}
AROUND = {"pair": lambda: (5, rows(8), torch.ones(256))}


@expect(reads="desc_x", writes="desc_y")
@triton.jit
def copies_by_host_descriptors(desc_x, desc_y, n):
    desc_y.store([8, 0], desc_x.load([n, 0]))


@expect(reads="desc_x", writes="y", args={"k": 4})
@triton.jit
def loads_by_descriptor_and_stores_by_pointer(n, desc_x, k, y):
    offs = tl.arange(0, 8)[:, None] * 16 + tl.arange(0, 16)[None, :]
    tl.store(y + offs, desc_x.load([n, k]))


@expect(reads="x", atomics="desc_y", interpreted=False)
@triton.jit
def adds_by_a_descriptor(x, desc_y):
    offs = tl.arange(0, 8)[:, None] * 16 + tl.arange(0, 16)[None, :]
    desc_y.atomic_add([0, 0], tl.load(x + offs))


@expect(reads="desc_x idx", writes="y", args={"desc_x": rows})
@triton.jit
def gathers_by_a_descriptor(desc_x, idx, y):
    rows = tl.load(idx + tl.arange(0, 8))
    offs = tl.arange(0, 8)[:, None] * 16 + tl.arange(0, 16)[None, :]
    tl.store(y + offs, desc_x.gather(rows, 0))


@expect(reads="x idx", writes="desc_y", args={"desc_y": rows})
@triton.jit
def scatters_by_a_descriptor(x, idx, desc_y):
    rows = tl.load(idx + tl.arange(0, 8))
    offs = tl.arange(0, 8)[:, None] * 16 + tl.arange(0, 16)[None, :]
    desc_y.scatter(tl.load(x + offs), rows, 0)


@expect(reads="x", writes="y")
@triton.jit
def makes_descriptors_on_the_device(x, y):
    source = tl.make_tensor_descriptor(x, [16, 16], [16, 1], [8, 16])
    sink = tl.make_tensor_descriptor(y, [16, 16], [16, 1], [8, 16])
    sink.store([0, 0], source.load([8, 0]))


@expect(reads="x", writes="y out", may="write:out")
@triton.jit
def chooses_the_base_of_a_descriptor(x, y, out, flag):
    source = tl.make_tensor_descriptor(x, [16, 16], [16, 1], [8, 16])
    base = y
    if flag > 100:
        base = out
    sink = tl.make_tensor_descriptor(base, [16, 16], [16, 1], [8, 16])
    sink.store([0, 0], source.load([0, 0]))


@expect(reads="x", writes="y")
@triton.jit
def moves_a_descriptor_in_a_loop(x, y, k):
    source = tl.make_tensor_descriptor(x, [16, 16], [16, 1], [4, 16])
    sink = tl.make_tensor_descriptor(y, [16, 16], [16, 1], [4, 16])
    for i in range(k):
        sink.store([i * 4, 0], source.load([i * 4, 0]))


@triton.jit
def copied(source, sink, row):
    sink.store([row, 0], source.load([row, 0]))


@triton.jit
def swapped(a, b):
    return b, a


@expect(reads="desc_x", writes="desc_y")
@triton.jit
def hands_descriptors_to_a_helper(desc_x, desc_y, n):
    copied(desc_x, desc_y, n)


@expect(reads="desc_y", writes="desc_x")
@triton.jit
def gets_descriptors_from_a_helper(desc_x, desc_y, n):
    source, sink = swapped(desc_x, desc_y)
    copied(source, sink, n)


@expect(reads="pair[0]", writes="pair[1]", args=TUPLE)
@triton.jit
def gets_descriptors_in_a_tuple(pair, n):
    copied(pair[0], pair[1], n)


@expect(reads="pair[1]", writes="pair[2]", args=AROUND)
@triton.jit
def gets_a_descriptor_among_other_members(pair, n):
    offs = tl.arange(0, 8)[:, None] * 16 + tl.arange(0, 16)[None, :]
    tl.store(pair[2] + offs, pair[1].load([pair[0], 0]))


@expect(reads="x", writes="y", until=(3, 8))
@triton.jit
def copies_by_block_pointers(x, y, B: tl.constexpr = 8):
    source = tl.make_block_ptr(x, (16, 16), (16, 1), (0, 0), (B, B), (1, 0))
    sink = tl.make_block_ptr(y, (16, 16), (16, 1), (0, 0), (B, B), (1, 0))
    tl.store(sink, tl.load(source))


@expect(reads="x", writes="y", until=(3, 8))
@triton.jit
def advances_block_pointers(x, y, k, B: tl.constexpr = 4):
    source = tl.make_block_ptr(x, (16, 16), (16, 1), (0, 0), (B, B), (1, 0))
    sink = tl.make_block_ptr(y, (16, 16), (16, 1), (0, 0), (B, B), (1, 0))
    for _ in range(k):
        tl.store(sink, tl.load(source, boundary_check=(0, 1)), boundary_check=(0,))
        source = tl.advance(source, (0, B))
        sink = tl.advance(sink, (B, 0))
