"""Kernels with one planted bug each. The line of the bug ends in ``# bug``."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def copy_without_mask(x, out, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + offs)  # bug
    tl.store(out + offs, values, mask=offs < n)


@triton.jit
def store_without_mask(x, out, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + offs, mask=offs < n)
    tl.store(out + offs, values)  # bug


@triton.jit
def load_at(x, out, offset):
    tl.store(out, tl.load(x + offset))  # bug


@triton.jit
def store_at(x, out, offset):
    tl.store(out + offset, 1.0)  # bug


@triton.jit
def atomic_at(x, out, offset):
    tl.atomic_add(out + offset, 1.0)  # bug


@triton.jit
def cas_at(flags, offset):
    tl.atomic_cas(flags + offset, 0, 1)  # bug


@triton.jit
def wrong_mask(x, out, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + offs, mask=offs <= n)  # bug
    tl.store(out + offs, values, mask=offs < n)


@triton.jit
def wrong_stride(x, out, rows, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    mask = offs < columns
    values = tl.load(x + row * stride + offs, mask=mask)  # bug
    tl.store(out + row * columns + offs, values, mask=mask)


@triton.jit
def first_of_next(x, out, n):
    pid = tl.program_id(0)
    tl.store(out + pid, tl.load(x + pid - 1))  # bug


@triton.jit
def descriptor_too_large(x, out, rows, columns, BLOCK: tl.constexpr):
    desc = tl.make_tensor_descriptor(x, [rows + 1, columns], [columns, 1], [BLOCK, BLOCK])
    values = desc.load([rows - 4, 0])  # bug
    offs = tl.arange(0, BLOCK)
    tl.store(out + offs[:, None] * BLOCK + offs[None, :], values)


@triton.jit
def descriptor_store_too_large(out, rows, columns, BLOCK: tl.constexpr):
    desc = tl.make_tensor_descriptor(out, [rows * 2, columns], [columns, 1], [BLOCK, BLOCK])
    desc.store([rows - 4, 0], tl.zeros((BLOCK, BLOCK), tl.float32))  # bug


@triton.jit
def host_descriptor(desc, out, row, BLOCK: tl.constexpr):
    values = desc.load([row, 0])  # bug
    offs = tl.arange(0, BLOCK)
    tl.store(out + offs[:, None] * BLOCK + offs[None, :], values)


@triton.jit
def accumulate(x, out, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    mask = offs < n
    total = tl.load(out + offs, mask=mask)  # bug
    tl.store(out + offs, total + tl.load(x + offs, mask=mask), mask=mask)


@triton.jit
def atomics_on_uninitialised(x, out, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.atomic_add(out + offs % 4, tl.load(x + offs, mask=mask), mask=mask)  # bug


@triton.jit
def sum_without_atomic(x, out, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + offs, mask=offs < n, other=0.0))
    tl.store(out, total + pid)  # bug


@triton.jit
def first_program_clears(x, total, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    if pid == 0:
        tl.store(total, 0.0)
    tl.atomic_add(total, tl.sum(tl.load(x + pid * BLOCK + tl.arange(0, BLOCK))))  # bug


@triton.jit
def same_value(out, n):
    tl.store(out, n)  # bug


@triton.jit
def overlapping_blocks(out, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * (BLOCK - 1) + tl.arange(0, BLOCK)
    tl.store(out + offs, pid.to(tl.float32) + tl.zeros((BLOCK,), tl.float32))  # bug


@triton.jit
def neighbour_in_place(x, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    left = tl.load(x + offs - 1, mask=offs > 0, other=0.0)  # bug
    tl.store(x + offs, left)


@triton.jit
def row_of_large_matrix(x, out, row, stride, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out + offs, tl.load(x + row * stride + offs))  # bug


@triton.jit
def index_in_loop(x, out, stride, count, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(count, count + 1):
        total += tl.load(x + k * stride + offs)  # bug
    tl.store(out + offs, total)


@triton.jit
def shifted_copy(x, out, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(out + offs, tl.load(x + offs, mask=mask), mask=mask)  # bug


@triton.jit
def pointer_table(table, out, known):
    pointer = tl.load(table).to(tl.pointer_type(tl.float32))
    tl.store(out, tl.load(pointer))  # bug


@triton.jit
def asserting(x, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.device_assert(tl.load(x + offs) > 0, "x must be positive")  # bug


@triton.jit
def helper(x, offs):
    return tl.load(x + offs)  # bug


@triton.jit
def bug_in_helper(x, out, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out + offs, helper(x, offs))


@triton.jit
def no_such_name(x):
    tl.store(x, undefined_name)  # bug # noqa: F821


@triton.jit
def shapes_that_do_not_fit(x):
    tl.store(x, tl.sum(tl.arange(0, 4)[:, None] + tl.zeros((8, 8), tl.int32)))  # bug


@triton.jit
def inline_assembly(x):
    value = tl.load(x)
    asm = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [value], tl.float32, is_pure=True, pack=1)  # bug
    tl.store(x, asm)


@triton.jit
def reads_the_view_of_another(x, y, out, n):
    tl.store(out, tl.load(x + n))  # bug


@triton.jit
def printing(x):
    tl.device_print("value", tl.load(x))


@triton.jit
def right_neighbour_in_place(x, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    right = tl.load(x + offs + 1)
    tl.store(x + offs, right)  # bug


@triton.jit
def colliding_lanes(out, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out + offs // 2, offs)  # bug


@triton.jit
def endless(x):
    while tl.load(x) == 0:
        pass


@triton.jit
def slow(x, out, N: tl.constexpr):
    offs = tl.arange(0, N)
    total = tl.zeros((N,), tl.float32)
    for _ in range(20):
        total += tl.load(x + offs)
    tl.store(out + tl.program_id(0) * N + offs, total)


@triton.jit
def unwritten_tail(x, out, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out + offs, tl.load(x + offs, mask=offs < n - 1), mask=offs < n - 1)
    tl.store(out, tl.sum(tl.load(out + offs, mask=offs < n, other=0)))  # bug


@triton.jit
def guarded_by_and(x, out):
    pid = tl.program_id(0)
    if pid > 0 and tl.load(x + pid - 1) > 0:  # bug
        tl.store(out + pid, 1.0)


@triton.jit
def misaligned(x, out):
    bytes_of = x.to(tl.pointer_type(tl.int8)) + 2
    tl.store(out, tl.load(bytes_of.to(tl.pointer_type(tl.float32))))  # bug


@triton.jit
def fault_then_endless(x, out):
    pid = tl.program_id(0)
    if pid == 0:
        tl.store(out, tl.load(x + 100))  # bug
    while pid > 0:
        pid += 1
        if pid > 5:
            pid = 1


@triton.jit
def store_beside(x, out, other):
    tl.store(out, tl.load(x))


@triton.jit
def reset_while_counting(x, counts, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    tl.atomic_add(counts + tl.load(x + pid * BLOCK + tl.arange(0, BLOCK)), 1)
    if pid == 1:
        tl.store(counts + tl.arange(0, BLOCK), 0)  # bug


@triton.jit
def fills_the_gap(x, out, stride, BLOCK: tl.constexpr):
    row, offs = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + offs, mask=offs < 10)
    tl.store(out + row * stride + offs, values)  # bug


@triton.jit
def reads_the_gap(x, out, stride, BLOCK: tl.constexpr):
    row, offs = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + offs)  # bug
    tl.store(out + row * stride + offs, values, mask=offs < 10)


@triton.jit
def promises_multiples(x, out, stride, BLOCK: tl.constexpr):
    stride = tl.multiple_of(stride, 16)  # bug
    offs = tl.arange(0, BLOCK)
    tl.store(out + offs, tl.load(x + stride + offs))


@triton.jit
def promises_contiguous(index, x, out, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    places = tl.max_contiguous(tl.load(index + offs), 4)  # bug
    tl.store(out + offs, tl.load(x + places))


@triton.jit
def promises_constant(index, x, out, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    places = tl.max_constancy(tl.load(index + offs), 4)  # bug
    tl.store(out + offs, tl.load(x + places))


@triton.jit
def promises_aligned_pointers(x, out, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    pointers = tl.multiple_of(x + 1 + offs, 16)  # bug
    tl.store(out + offs, tl.load(pointers))


@triton.jit
def divides(x, y, out, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    quotients = tl.load(x + offs, mask=mask) // tl.load(y + offs, mask=mask)  # bug
    tl.store(out + offs, quotients, mask=mask)


@triton.jit
def remainder_decides(x, out, n):
    if tl.load(x) % n == 0:  # bug
        tl.store(out, 1)


@triton.jit
def shifts_too_far(x, out, by, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    shifted = tl.load(x + offs) >> by  # bug
    tl.store(out + offs, shifted)


@triton.jit
def gathers_beyond(x, index, out, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    taken = tl.gather(tl.load(x + offs), tl.load(index + offs), 0)  # bug
    tl.store(out + offs, taken)


@triton.jit
def takes_a_number(counter, out):
    tl.atomic_add(counter, 1)  # bug
    tl.store(out + tl.program_id(0), tl.load(counter))


@triton.jit
def reads_totals_too_early(x, totals, out, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    if tl.program_id(0) < 2:
        tl.atomic_add(totals + offs, tl.load(x + offs), sem="relaxed")
    else:
        tl.store(out + offs, tl.load(totals + offs))  # bug


@triton.jit
def writes_after_its_release(flag, data, out):
    if tl.program_id(0) == 0:
        tl.atomic_xchg(flag, 1)
        tl.store(data, 5.0)
    elif tl.atomic_add(flag, 0) == 1:
        tl.store(out, tl.load(data))  # bug
