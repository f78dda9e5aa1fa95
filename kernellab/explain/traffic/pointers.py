"""Where the pointers come from that a kernel loads: the loads of addresses behind an access, by its PTX.

A kernel may load a pointer from a table in memory, such as a tensor of ``data_ptr()``s, and access what it points to.
"""

from __future__ import annotations

from kernellab.explain.traffic.arithmetic import width_of
from kernellab.explain.traffic.relevance import is_access, is_shared, read_by, registers_in, written_by
from kernellab.ir.ptx import Address, PtxInstruction, PtxKernel

_POINTER_BITS = 64


def pointer_loads(kernel: PtxKernel, access: PtxInstruction) -> frozenset[int]:
    """Return the positions of the loads of 64 bits from global memory that an access takes its address from."""
    instructions, writers = tuple(kernel.instructions), dict[str, list[int]]()
    for position, instruction in enumerate(instructions):
        for name in written_by(instruction):
            writers.setdefault(name, []).append(position)
    loads, seen = set[int](), set[str]()
    waiting = [name for operand in access.operands if isinstance(operand, Address) for name in registers_in(operand)]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for position in writers.get(name, ()):
            instruction = instructions[position]
            if not is_access(instruction):
                waiting += read_by(instruction)
            elif not is_shared(instruction) and width_of(instruction.type) == _POINTER_BITS:
                loads.add(position)
    return frozenset(loads)
