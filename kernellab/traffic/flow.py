"""The control flow of a kernel: which blocks follow each other, and where the ways out of a branch come together."""

from __future__ import annotations

from dataclasses import dataclass

from kernellab.ir.ptx import PtxInstruction, PtxKernel, Register, Symbol

_ENDS = frozenset({"ret", "exit", "trap"})


@dataclass(frozen=True, slots=True)
class Branch:
    """A conditional branch, the last instruction of ``block``.

    ``inside`` are the blocks that threads may pass before all of them come to ``join``, the first block that all ways
    lead to. ``join`` is None where some way leads to none, as to the end of the kernel.
    """

    block: int
    join: int | None
    inside: frozenset[int]


def target_of(kernel: PtxKernel, instruction: PtxInstruction) -> int:
    """Return the block that a branch goes to."""
    operand = instruction.operands[0]
    assert isinstance(operand, Symbol | Register)
    return kernel.labels[operand.name]


def branches_of(kernel: PtxKernel) -> tuple[Branch, ...]:
    """Return the conditional branches of a kernel, in their order."""
    following = [_successors(kernel, block) for block in range(len(kernel.blocks))]
    end = len(kernel.blocks)
    behind = _post_dominators(following, end)
    found = []
    for block, successors in enumerate(following):
        if len(successors) > 1:
            join = _nearest(behind, block, end)
            found.append(Branch(block, join, _between(following, block, end if join is None else join)))
    return tuple(found)


def _successors(kernel: PtxKernel, block: int) -> tuple[int, ...]:
    """Return what may come after a block; the number of blocks stands for the end."""
    last = kernel.blocks[block][-1] if kernel.blocks[block] else None
    if last is not None and last.name == "bra":
        target = target_of(kernel, last)
        return (target,) if last.guard is None or target == block + 1 else (target, block + 1)
    if last is not None and last.name in _ENDS:
        return (len(kernel.blocks),) if last.guard is None else (len(kernel.blocks), block + 1)
    return (block + 1,)


def _post_dominators(following: list[tuple[int, ...]], end: int) -> list[int]:
    """Return for each block, as bits, the blocks that every way from it to the end passes, itself included."""
    everything = (1 << (end + 1)) - 1
    behind = [everything] * end + [1 << end]
    changed = True
    while changed:
        changed = False
        for block in range(end - 1, -1, -1):
            common = everything
            for each in following[block]:
                common &= behind[each]
            common |= 1 << block
            changed = changed or common != behind[block]
            behind[block] = common
    return behind


def _nearest(behind: list[int], block: int, end: int) -> int | None:
    """Return the block behind ``block`` that all others behind it come after."""
    rest = behind[block] & ~(1 << block)
    for each in range(end):
        if rest >> each & 1 and behind[each] == rest:
            return each
    return None


def _between(following: list[tuple[int, ...]], block: int, join: int) -> frozenset[int]:
    found: set[int] = set()
    ahead = list(following[block])
    while ahead:
        each = ahead.pop()
        if each not in found and each not in {join, len(following)}:
            found.add(each)
            ahead += following[each]
    return frozenset(found)
