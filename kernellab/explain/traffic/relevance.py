"""The instructions of a kernel that decide its memory traffic; all others need not be computed.

A backward slice over registers, from the addresses and predicates of memory accesses and from branches. It leaves out
values that are loaded or computed only to be stored, which are most of a kernel. A branch is relevant if a relevant
instruction lies on a path from it to its join; else its threads jump to the join.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from kernellab.explain.traffic.arithmetic import width_of
from kernellab.ir.graph import reachable
from kernellab.ir.ptx import Address, Operand, PtxInstruction, PtxKernel, Register, Symbol, Vector

_BLOCK_ENDS = frozenset({"bra", "ret", "exit", "trap"})
_POINTER_BITS = 64


@dataclass(frozen=True, slots=True)
class Branch:
    """A conditional branch, the last instruction of ``block``.

    ``join`` is the first block that is on all paths, None where they meet only at the end of the kernel; ``inside`` are
    the blocks before it.
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
    following, end = successors_by_block(kernel), len(kernel.blocks)
    behind = post_dominators(following)
    branches = []
    for block, successors in enumerate(following):
        if len(successors) > 1:
            others = behind[block] - {block}
            join = next((c for c in range(end) if c in others and behind[c] == others), None)
            branches.append(Branch(block, join, blocks_after(following, block, join)))
    return tuple(branches)


def successors_by_block(kernel: PtxKernel) -> list[tuple[int, ...]]:
    """Return the blocks that may follow each block; the number of blocks stands for the end."""
    following: list[tuple[int, ...]] = []
    for number, block in enumerate(kernel.blocks):
        last = block[-1] if block else None
        if last is None or not leaves_block(kernel, last):
            following.append((number + 1,))
            continue
        target = target_of(kernel, last) if last.name == "bra" else len(kernel.blocks)
        following.append((target,) if last.guard is None else (target, number + 1))
    return following


def leaves_block(kernel: PtxKernel, instruction: PtxInstruction) -> bool:
    """Whether an instruction ends its block, and does not just go on to the next one."""
    if instruction.name == "bra":
        return target_of(kernel, instruction) != instruction.block + 1
    return instruction.name in _BLOCK_ENDS


def post_dominators(following: list[tuple[int, ...]]) -> list[frozenset[int]]:
    """Return for each block the blocks on all paths from it to the end, itself included."""
    end = len(following)
    everything = frozenset(range(end + 1))
    behind = [*[everything] * end, frozenset({end})]
    before: list[frozenset[int]] = []
    while before != behind:
        before = list(behind)
        for block in reversed(range(end)):
            behind[block] = everything.intersection(*(behind[successor] for successor in following[block])) | {block}
    return behind


def blocks_after(following: list[tuple[int, ...]], block: int, join: int | None = None) -> frozenset[int]:
    """Return the blocks that a block may lead to, as far as ``join`` or the end."""
    ends = {len(following)} if join is None else {len(following), join}
    return frozenset(reachable(following[block], following.__getitem__, ends))


_KERNELS_KEPT = 64
_INSTRUCTIONS_KEPT = 1 << 14
_NO_RESULT = frozenset(
    {
        *("st", "red", "cp", "bar", "barrier", "fence", "membar", "bra", "ret", "exit", "brx", "trap", "stmatrix"),
        *("tensormap", "prefetch", "prefetchu", "nanosleep", "griddepcontrol", "setmaxnreg", "discard", "pmevent"),
        *("applypriority", "brkpt", "tcgen05", "clusterlaunchcontrol", "multimem", "call"),
    }
)
_SHARED_WRITERS = frozenset({"st", "stmatrix", "atom", "red", "cp"})


def registers_in(operand: Operand) -> Iterator[str]:
    """Yield the names of the registers in an operand."""
    match operand:
        case Register(name):
            yield name
        case Vector(members):
            for member in members:
                yield from registers_in(member)
        case Address(base, _, coordinates):
            yield from registers_in(base)
            for coordinate in coordinates:
                yield from registers_in(coordinate)


def destination_of(instruction: PtxInstruction) -> Operand | None:
    """Return the operand that an instruction writes; None where it writes no register."""
    if instruction.name in _NO_RESULT or not instruction.operands:
        return None
    if instruction.name in {"wgmma", "mbarrier"} and isinstance(instruction.operands[0], Address):
        return None
    if instruction.name == "wgmma" and instruction.parts[1] != "mma_async":
        return None
    return instruction.operands[0]


@lru_cache(_INSTRUCTIONS_KEPT)
def written_by(instruction: PtxInstruction) -> tuple[str, ...]:
    """Return the registers that an instruction writes."""
    destination = destination_of(instruction)
    return () if destination is None else tuple(registers_in(destination))


def sources_of(instruction: PtxInstruction) -> tuple[Operand, ...]:
    """Return the operands that an instruction reads."""
    return instruction.operands if destination_of(instruction) is None else instruction.operands[1:]


def values_of(instruction: PtxInstruction) -> list[Operand]:
    """Return the value operands of a store or an atomic."""
    return [operand for operand in sources_of(instruction) if not isinstance(operand, Address)]


def read_by(instruction: PtxInstruction) -> list[str]:
    """Return the registers that an instruction reads, its guard included."""
    return _registers_of(instruction, sources_of(instruction))


def is_shared(instruction: PtxInstruction) -> bool:
    """Whether an instruction accesses shared memory."""
    return any(part.startswith("shared") for part in instruction.parts)


_ACCESSES = frozenset({"cp", "ld", "ldu", "st", "atom", "red", "ldmatrix", "stmatrix"})


def is_access(instruction: PtxInstruction) -> bool:
    """Whether an instruction is a load, store or atomic, or a copy that does both."""
    parts = instruction.parts
    if parts[0] not in _ACCESSES or "param" in parts or "const" in parts:
        return False
    return parts[0] != "cp" or ("async" in parts and any(isinstance(o, Address) for o in instruction.operands))


def calls_out(instruction: PtxInstruction) -> bool:
    """Whether an instruction calls a function that may access memory; printing and assertions do not count."""
    if instruction.parts[0] != "call":
        return False
    names = {operand.name for operand in instruction.operands if isinstance(operand, Symbol)}
    return not names & {"vprintf", "__assertfail"}


_LOADS = frozenset({"ld", "ldu", "atom", "ldmatrix"})


class Step(NamedTuple):
    """An instruction to follow, by its position: an access, a value to compute, or the end of a block."""

    position: int
    instruction: PtxInstruction
    is_access: bool
    ends_block: bool


@dataclass(frozen=True, slots=True)
class Relevance:
    """The instructions to compute, by position, and whether values in memory must be followed.

    ``dead`` are unused loads, which the assembler removes. ``skipped`` has the join of each irrelevant branch, by the
    block that the branch ends. ``steps`` are the instructions to follow, by block.
    """

    positions: frozenset[int]
    loads: frozenset[int]
    dead: frozenset[int]
    skipped: Mapping[int, int]
    follows_shared: bool
    follows_stores: bool
    steps: tuple[tuple[Step, ...], ...]

    @property
    def follows_global(self) -> bool:
        """Whether loaded values of global memory decide about later accesses."""
        return bool(self.loads)


@lru_cache(_KERNELS_KEPT)
def relevance_of(kernel: PtxKernel, *, follows_stores: bool = False) -> Relevance:
    """Return the part of a kernel that decides its traffic; ``follows_stores`` includes memory that it reads back.

    It does not depend on the path: a register that is needed anywhere is needed everywhere.
    """
    instructions = tuple(kernel.instructions)
    dead = _dead_loads(instructions)
    for follows_shared in (False, True):
        needed, skipped = _slice_of(kernel, dead, follows_shared, follows_stores)
        positions = frozenset(i for i, ptx in enumerate(instructions) if not needed.isdisjoint(written_by(ptx)))
        loads = frozenset(i for i in positions if instructions[i].name in _LOADS and is_access(instructions[i]))
        of_shared = frozenset(i for i in loads if is_shared(instructions[i]))
        if not of_shared:
            break
    steps = tuple(steps_by_block(kernel, positions))
    return Relevance(positions, loads - of_shared, dead, skipped, follows_shared, follows_stores, steps)


def steps_by_block(kernel: PtxKernel, positions: frozenset[int]) -> Iterator[tuple[Step, ...]]:
    """Yield the instructions to follow of each block: accesses, ends, and those that compute values, by position."""
    first = 0
    for block in kernel.blocks:
        kinds = [(ptx, _touches_memory(ptx), leaves_block(kernel, ptx)) for ptx in block]
        yield tuple(
            Step(position, ptx, touches, ends)
            for position, (ptx, touches, ends) in enumerate(kinds, first)
            if touches or ends or position in positions
        )
        first += len(block)


def _touches_memory(instruction: PtxInstruction) -> bool:
    return instruction.name == "tensormap" or is_access(instruction) or calls_out(instruction)


def _slice_of(
    kernel: PtxKernel, dead: frozenset[int], follows_shared: bool, follows_stores: bool
) -> tuple[set[str], dict[int, int]]:
    """Return the registers that accesses depend on, and the joins of irrelevant branches by the block that they end."""
    needed, blocks = set[str](), set[int]()  # the blocks have relevant instructions
    for position, instruction in enumerate(kernel.instructions):
        if position not in dead:
            needed.update(_needed_registers(instruction, follows_shared, follows_stores))
            if _touches_memory(instruction):
                blocks.add(instruction.block)
    waiting: Sequence[PtxInstruction] = [instruction for instruction in kernel.instructions if written_by(instruction)]
    undecided = branches_of(kernel)
    while True:
        waiting, computing = _grow_registers(needed, waiting)
        blocks.update(instruction.block for instruction in computing)
        relevant = [branch for branch in undecided if branch.join is None or not branch.inside.isdisjoint(blocks)]
        if not relevant:
            return needed, {branch.block: branch.join for branch in undecided if branch.join is not None}
        undecided = tuple(branch for branch in undecided if branch not in relevant)
        for branch in relevant:
            needed.update(_registers_of(kernel.blocks[branch.block][-1], ()))
            blocks.add(branch.block)


def skipped_blocks(kernel: PtxKernel, relevance: Relevance) -> frozenset[int]:
    """Return the blocks of irrelevant branches and loops, which are skipped; how often they run is unknown."""
    following = successors_by_block(kernel)
    inside = (blocks_after(following, block, join) for block, join in relevance.skipped.items())
    return frozenset().union(*inside)


def controlling_positions(kernel: PtxKernel, skipped: frozenset[int]) -> frozenset[int]:
    """Return the positions of the instructions that decide branches, without those at the end of ``skipped`` blocks."""
    instructions = tuple(kernel.instructions)
    ends = [block[-1] for number, block in enumerate(kernel.blocks) if block and number not in skipped]
    needed = {end.guard.name for end in ends if end.guard is not None and end.name in _BLOCK_ENDS}
    _grow_registers(needed, instructions)
    return frozenset(i for i, ptx in enumerate(instructions) if not needed.isdisjoint(written_by(ptx)))


def _grow_registers(
    needed: set[str], instructions: Sequence[PtxInstruction]
) -> tuple[Sequence[PtxInstruction], list[PtxInstruction]]:
    """Add to registers all that instructions read that write one of them; return the other instructions, and these."""
    computing: list[PtxInstruction] = []
    before = -1
    while before != len(computing):
        before, others = len(computing), list[PtxInstruction]()
        for instruction in reversed(instructions):
            if needed.isdisjoint(written_by(instruction)):
                others.append(instruction)
            else:
                needed.update(read_by(instruction))
                computing.append(instruction)
        instructions = others[::-1]
    return instructions, computing


def _needed_registers(instruction: PtxInstruction, follows_shared: bool, follows_stores: bool) -> Iterable[str]:
    """Return the registers that an instruction needs for its own accesses."""
    if instruction.name == "tensormap" or "tensor" in instruction.parts:
        return _registers_of(instruction, instruction.operands)
    if not is_access(instruction):
        return ()
    follows = follows_shared if is_shared(instruction) else follows_stores
    if instruction.name in _SHARED_WRITERS and follows:
        return read_by(instruction)
    addresses = [operand for operand in instruction.operands if isinstance(operand, Address)]
    sizes = instruction.operands[3:4] if instruction.name == "cp" else ()
    return _registers_of(instruction, (*addresses, *sizes))


def _registers_of(instruction: PtxInstruction, operands: Iterable[Operand]) -> list[str]:
    names = [name for operand in operands for name in registers_in(operand)]
    return names if instruction.guard is None else [*names, instruction.guard.name]


def _dead_loads(instructions: tuple[PtxInstruction, ...]) -> frozenset[int]:
    """Return the plain loads with unused results."""
    live: set[str] = set()
    waiting: list[PtxInstruction] = []
    for instruction in instructions:
        if not written_by(instruction) or instruction.name in {"atom", "mbarrier"} or is_volatile(instruction):
            live.update(read_by(instruction))
        else:
            waiting.append(instruction)
    _grow_registers(live, waiting)
    return frozenset(
        i
        for i, instruction in enumerate(instructions)
        if instruction.name in {"ld", "ldu"}
        and not is_volatile(instruction)
        and live.isdisjoint(written_by(instruction))
    )


def is_volatile(instruction: PtxInstruction) -> bool:
    """Whether ptxas keeps an access that repeats another or that nothing uses. PTX ISA, "Memory Consistency Model"."""
    return bool({"volatile", "acquire", "relaxed", "mmio"} & set(instruction.parts))


def pointer_loads(kernel: PtxKernel, access: PtxInstruction) -> frozenset[int]:
    """Return the positions of the loads of 64 bits from global memory that an access takes its address from.

    A kernel may load a pointer from a table in memory, such as a tensor of ``data_ptr()``s.
    """
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
