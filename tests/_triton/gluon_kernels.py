"""Kernels in Gluon that use tensor cores of Hopper and Blackwell, and warps that do different things."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    tcgen05_commit,
    tcgen05_mma,
)
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

copy_in = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
copy_out = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global


@gluon.jit
def wgmma_product(a, b, c, K, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr):
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BN, 16])
    a_tile = gl.allocate_shared_memory(a.dtype, [BM, BK], a.layout)
    b_tile = gl.allocate_shared_memory(b.dtype, [BK, BN], b.layout)
    ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(ready, count=1)
    acc = gl.zeros([BM, BN], gl.float32, layout)
    row, column = gl.program_id(0) * BM, gl.program_id(1) * BN
    phase = 0
    for k in range(0, K, BK):
        mbarrier.expect(ready, a.block_type.nbytes + b.block_type.nbytes)
        copy_in(a, [row, k], ready, a_tile)
        copy_in(b, [k, column], ready, b_tile)
        mbarrier.wait(ready, phase=phase)
        phase ^= 1
        acc = warpgroup_mma(a_tile, b_tile, acc, is_async=True)
        acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
    mbarrier.invalidate(ready)
    c_tile = gl.allocate_shared_memory(c.dtype, [BM, BN], c.layout)
    c_tile.store(acc.to(c.dtype))
    fence_async_shared()
    copy_out(c, [row, column], c_tile)
    tma.store_wait(0)


@gluon.jit
def tcgen05_product(a, b, c, K, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, ROWS: gl.constexpr):
    a_tile = gl.allocate_shared_memory(a.dtype, [BM, BK], a.layout)
    b_tile = gl.allocate_shared_memory(b.dtype, [BK, BN], b.layout)
    ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    done = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(ready, count=1)
    mbarrier.init(done, count=1)
    acc = allocate_tensor_memory(gl.float32, [BM, BN], TensorMemoryLayout([BM, BN], col_stride=1))
    row, column = gl.program_id(0) * BM, gl.program_id(1) * BN
    phase, use = 0, False
    for k in range(0, K, BK):
        mbarrier.expect(ready, a.block_type.nbytes + b.block_type.nbytes)
        copy_in(a, [row, k], ready, a_tile)
        copy_in(b, [k, column], ready, b_tile)
        mbarrier.wait(ready, phase=phase)
        tcgen05_mma(a_tile, b_tile, acc, use_acc=use)
        tcgen05_commit(done)
        mbarrier.wait(done, phase=phase)
        use, phase = True, phase ^ 1
    mbarrier.invalidate(ready)
    mbarrier.invalidate(done)
    out = acc.load(ROWS)
    c_tile = gl.allocate_shared_memory(c.dtype, [BM, BN], c.layout)
    c_tile.store(out.to(c.dtype))
    fence_async_shared()
    copy_out(c, [row, column], c_tile)
    tma.store_wait(0)


@gluon.jit
def produce(source, tiles, full, empty, STEPS: gl.constexpr, SIZE: gl.constexpr):
    for step in range(STEPS):
        mbarrier.wait(empty, phase=(step & 1) ^ 1)
        mbarrier.expect(full, source.block_type.nbytes)
        copy_in(source, [0, step * SIZE], full, tiles)
        mbarrier.wait(full, phase=step & 1)


@gluon.jit
def consume(to, tiles, full, empty, STEPS: gl.constexpr, SIZE: gl.constexpr):
    for step in range(STEPS):
        mbarrier.wait(full, phase=step & 1)
        copy_out(to, [0, step * SIZE], tiles)
        tma.store_wait(0)
        mbarrier.arrive(empty, count=1)


@gluon.jit
def specialized(source, to, STEPS: gl.constexpr, SIZE: gl.constexpr):
    tiles = gl.allocate_shared_memory(source.dtype, [SIZE, SIZE], source.layout)
    full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(full, count=1)
    mbarrier.init(empty, count=1)
    own, other = (to, tiles, full, empty, STEPS, SIZE), (source, tiles, full, empty, STEPS, SIZE)
    gl.warp_specialize([(consume, own), (produce, other)], [1], [24])
    mbarrier.invalidate(full)
    mbarrier.invalidate(empty)
