"""Triton functions that rewritten kernels call: they store times and values. They run on the device, never here.

Other rooms take their text. ``tl`` is Triton's language in a kernel, Gluon's in a kernel in Gluon.

Every thread of a program reads the same clock and SM number; of a scalar store, the first thread's counts. The
assembly is not pure and names memory as changed, so that compilers keep it where it stands
(https://docs.nvidia.com/cuda/parallel-thread-execution/#special-registers).
"""

# The names of Triton's language are filled in where the text is compiled, and its types are those of traced values.
# mypy: ignore-errors
# ruff: noqa: F821

from __future__ import annotations


def kl_program():
    """The number of the program in the grid, x first."""
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    return x.to(tl.int64) + tl.num_programs(0) * (y.to(tl.int64) + tl.num_programs(1) * z.to(tl.int64))


def kl_sm():
    """The number of the SM."""
    return tl.inline_asm_elementwise("mov.u32 $0, %smid;", "=r,~{memory}", [], dtype=tl.int32, is_pure=False, pack=1)


def kl_nanoseconds():
    """The time of the device in ns."""
    return tl.inline_asm_elementwise(
        "mov.u64 $0, %globaltimer;", "=l,~{memory}", [], dtype=tl.int64, is_pure=False, pack=1
    )


def kl_cycles():
    """The clock of the SM in cycles."""
    return tl.inline_asm_elementwise("mov.u64 $0, %clock64;", "=l,~{memory}", [], dtype=tl.int64, is_pure=False, pack=1)


def kl_begin(times, width: tl.constexpr):
    """Store SM and start of the program; its row of the table."""
    row = times + kl_program() * width
    tl.store(row, kl_sm().to(tl.int64))
    tl.store(row + 1, kl_nanoseconds())
    return row


def kl_end(row):
    """Store the end of the program, when all its warps are there."""
    tl.debug_barrier()
    tl.store(row + 2, kl_nanoseconds())


def kl_begin_parts(row):
    """The clock at the start of the first part, and the column of that part."""
    return kl_cycles(), tl.full((), 3, tl.int32)


def kl_mark(row, since, part, next_part: tl.constexpr):
    """Add the cycles since the last mark to the part that ends; the clock and the column of the next."""
    tl.debug_barrier()
    now = kl_cycles()
    tl.atomic_add(row + part, now - since, sem="relaxed")
    return now, tl.full((), next_part, tl.int32)
