"""The table of operations: what each does to memory, and how the addresses among its operands reach its results.

Whatever stands in none of these tables, and belongs to none of the pure dialects, is not known: it makes the answer
unknown for the addresses that flow into it.

The rows follow the ``arguments``, ``results`` and memory effects in Triton's ``TritonOps.td`` and
https://mlir.llvm.org/docs/Dialects/ for the other dialects.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from types import MappingProxyType


class Access(StrEnum):
    """The memory access of an operation. An atomic counts neither as read nor as write."""

    READ = "read"
    WRITE = "write"
    ATOMIC = "atomic"


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """An operation that touches memory at the address in operand 0.

    ``mask`` is the operand that switches single lanes off, where there is one. ``clipped`` says that lanes outside
    the tensor that the operand describes are switched off. ``value`` is the operand that goes to memory.
    """

    access: Access
    mask: int | None = None
    value: int | None = None
    clipped: bool = False


MEMORY = MappingProxyType(
    {
        "tt.load": MemoryRow(Access.READ, mask=1),
        "tt.store": MemoryRow(Access.WRITE, mask=2, value=1),
        "tt.atomic_rmw": MemoryRow(Access.ATOMIC, mask=2, value=1),
        "tt.atomic_cas": MemoryRow(Access.ATOMIC, value=2),
        "tt.atomic_load": MemoryRow(Access.READ, mask=1),
        "tt.atomic_store": MemoryRow(Access.WRITE, mask=2, value=1),
        "tt.atomic_poll": MemoryRow(Access.READ),
        "tt.descriptor_load": MemoryRow(Access.READ, clipped=True),
        "tt.descriptor_gather": MemoryRow(Access.READ, clipped=True),
        "tt.descriptor_store": MemoryRow(Access.WRITE, value=1, clipped=True),
        "tt.descriptor_scatter": MemoryRow(Access.WRITE, value=3, clipped=True),
        "tt.descriptor_reduce": MemoryRow(Access.ATOMIC, value=1, clipped=True),
        "ttg.async_copy_global_to_local": MemoryRow(Access.READ, mask=2),
        "ttng.async_tma_copy_global_to_local": MemoryRow(Access.READ, clipped=True),
        "ttng.async_tma_copy_local_to_global": MemoryRow(Access.WRITE, clipped=True),
        "ttng.async_tma_gather": MemoryRow(Access.READ, clipped=True),
        "ttng.async_tma_scatter": MemoryRow(Access.WRITE, clipped=True),
        "ttng.async_tma_reduce": MemoryRow(Access.ATOMIC, clipped=True),
    }
)


class Flow(Enum):
    """How addresses pass from operands to results."""

    COPY = auto()
    """Each result is any of the operands, or of the elements of one."""
    FIRST = auto()
    """Each result is operand 0, or an element of it; the other operands are offsets, shapes or indices."""
    SELECT = auto()
    """The result is operand 1 or operand 2."""
    ADD = auto()
    SUBTRACT = auto()
    MULTIPLY = auto()
    SHIFT_LEFT = auto()
    OFFSET = auto()
    """Operand 0 plus operand 1 times the size of what operand 0 points to."""
    BITS = auto()
    """Bits of operand 0 set or flipped by operand 1, as alignment and tagging do; the address stays in its memory."""
    MASK = auto()
    """Bits of operand 0 cleared by operand 1: aligned down, or cut to a small number."""
    REMAINDER = auto()
    """A number below operand 1: an index, no address."""
    TRUNCATE = auto()
    NUMBER = auto()
    """Never an address, whatever goes in."""
    MIX = auto()
    """A number; where an address goes in, one that can no longer be followed."""
    UNDEFINED = auto()
    """No value at all."""


_FLOWING: dict[Flow, tuple[str, ...]] = {
    Flow.COPY: (
        *("tt.splat", "tt.unsplat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "tt.join", "tt.cat"),
        *("tt.bitcast", "tt.ptr_to_int", "tt.int_to_ptr", "arith.bitcast", "builtin.unrealized_conversion_cast"),
        *("arith.extsi", "arith.extui", "arith.index_cast", "arith.index_castui", "ttg.convert_layout"),
        *("arith.maxsi", "arith.maxui", "arith.minsi", "arith.minui"),
    ),
    Flow.FIRST: ("tt.gather", "tt.advance", "tt.make_tensor_ptr", "tt.make_tensor_descriptor"),
    Flow.SELECT: ("arith.select",),
    Flow.ADD: ("arith.addi",),
    Flow.SUBTRACT: ("arith.subi",),
    Flow.MULTIPLY: ("arith.muli",),
    Flow.SHIFT_LEFT: ("arith.shli",),
    Flow.OFFSET: ("tt.addptr",),
    Flow.BITS: ("arith.ori", "arith.xori"),
    Flow.MASK: ("arith.andi",),
    Flow.REMAINDER: ("arith.remsi", "arith.remui"),
    Flow.TRUNCATE: ("arith.trunci",),
    Flow.NUMBER: (
        *("arith.constant", "arith.cmpi", "arith.cmpf"),
        *("tt.get_program_id", "tt.get_num_programs", "tt.make_range", "tt.histogram"),
    ),
    Flow.UNDEFINED: ("ub.poison",),
    Flow.MIX: (
        *("tt.dot", "tt.dot_scaled", "tt.fp_to_fp", "tt.clampf", "tt.mulhiui"),
        *("tt.precise_sqrt", "tt.precise_divf", "tt.approx_divf"),
        # Of TTGIR, which kernels in Gluon begin at: shared and tensor memory belong to no argument, and whoever goes to
        # an address that lay there goes where nobody can tell. https://triton-lang.org/main/dialects/TritonGPUOps.html
        *("ttg.local_alloc", "ttg.local_load", "ttg.memdesc_index", "ttg.memdesc_subslice"),
        *("ttg.memdesc_trans", "ttg.memdesc_reshape", "ttg.memdesc_reinterpret"),
        *("ttng.tmem_alloc", "ttng.tmem_load", "ttng.tmem_subslice"),
        *("ttng.warp_group_dot", "ttng.warp_group_dot_wait"),
    ),
}
FLOWS = MappingProxyType({name: flow for flow, names in _FLOWING.items() for name in names})

PURE_DIALECTS = frozenset({"arith", "math"})
"""Every operation of theirs is free of memory effects; those not listed in `FLOWS` mix."""

SILENT = frozenset(
    {
        *("tt.print", "tt.assert", "tt.grid_dependency_wait", "tt.grid_dependency_launch_dependents"),
        *("llvm.intr.assume", "ub.unreachable", "gpu.barrier", "ttg.barrier", "ttg.local_store", "ttg.local_dealloc"),
        *("ttg.async_commit_group", "ttg.async_wait", "ttng.init_barrier", "ttng.inval_barrier"),
        *("ttng.barrier_expect", "ttng.wait_barrier", "ttng.arrive_barrier", "ttng.async_tma_store_wait"),
        *("ttng.fence_async_shared", "ttng.tmem_store", "ttng.tc_gen5_mma", "ttng.tc_gen5_mma_scaled"),
        *("ttng.tc_gen5_commit",),
    }
)
"""Operations without results of use that touch no argument's memory: they print, check, assume, wait, or go to memory
on the chip."""

TERMINATORS = frozenset(
    {
        *("tt.return", "tt.reduce.return", "tt.scan.return", "tt.map_elementwise.return", "scf.yield"),
        *("scf.condition", "ttg.warp_yield", "ttg.warp_return", "cf.br", "cf.cond_br", "ub.unreachable"),
    }
)
"""Operations that end a block; the operation or function that owns the block reads their operands."""

FOREIGN_CODE = frozenset({"tt.elementwise_inline_asm", "tt.extern_elementwise"})
"""Operations that run code from outside."""


def flow_of(name: str) -> Flow | None:
    """Return the flow of addresses through an operation, or None if the tables lack it."""
    flow = FLOWS.get(name)
    if flow is None and name.partition(".")[0] in PURE_DIALECTS:
        return Flow.MIX
    return flow


# PTX ISA, "Data Movement and Conversion Instructions" and "Parallel Synchronization and Communication Instructions";
# AMD CDNA 3 instruction set, "Scalar Memory", "Vector Memory", "Flat Memory". Longer words that begin so count, too.
_READING = re.compile(r"\b(?:ld|ldu|tex|tld4|suld|prefetch|(?:global|flat|buffer|s|scratch)_load)\w*")
_WRITING = re.compile(r"\b(?:st|red|atom|sust|multimem|cp|call|mbarrier|\w*_(?:store|atomic)|s_swappc)\w*")


def foreign_accesses(assembly: str | None, *, pure: bool) -> tuple[Access, ...]:
    """Return the possible accesses of foreign code through an address that it gets.

    ``assembly`` is None for an extern function, of which only its name is known. Assembly is looked through for
    instructions that go to memory. Pure code writes only where such an instruction says so; impure code may read and
    write unless it has reading instructions only.
    """
    reads = assembly is None or _READING.search(assembly) is not None
    writes = assembly is not None and _WRITING.search(assembly) is not None
    if pure:
        return (Access.READ,) * reads + (Access.WRITE,) * writes
    reads_only = assembly is not None and reads and not writes
    return (Access.READ,) if reads_only else (Access.READ, Access.WRITE)
