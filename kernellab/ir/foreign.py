"""Code from outside Triton: what inline assembly and extern functions may do at an address that they get."""

from __future__ import annotations

import re

from kernellab.ir.operations import Access

# PTX ISA, "Data Movement and Conversion Instructions" and "Parallel Synchronization and Communication Instructions";
# AMD CDNA 3 instruction set, "Scalar Memory", "Vector Memory", "Flat Memory". Longer words that begin so count, too.
_READING = re.compile(r"\b(?:ld|ldu|tex|tld4|suld|prefetch|(?:global|flat|buffer|s|scratch)_load)\w*")
_WRITING = re.compile(r"\b(?:st|red|atom|sust|multimem|cp|call|mbarrier|\w*_(?:store|atomic)|s_swappc)\w*")


def foreign_accesses(assembly: str | None, *, pure: bool) -> tuple[Access, ...]:
    """Return what code may do to the memory of an argument whose address it gets.

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
