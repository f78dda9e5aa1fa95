"""The changes to memory accesses that ptxas makes between PTX and machine code.

ptxas does not document them; the rules were derived from its machine code, and hold for the recorded launches:

- a repeated load, with no write or barrier between, is removed, unless it has a predicate or is volatile or relaxed;
- neighbouring loads from shared memory become one of 8 or 16 bytes, where they are known to be aligned;
- after the last barrier of a kernel, threads without a store leave early. A value that is loaded there from shared
  memory and only stored is then loaded by the storing threads alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from kernellab.explain.traffic.arithmetic import width_of
from kernellab.explain.traffic.relevance import (
    is_access,
    is_shared,
    is_volatile,
    read_by,
    registers_in,
    sources_of,
    written_by,
)
from kernellab.ir.ptx import (
    Address,
    Immediate,
    Operand,
    PtxInstruction,
    PtxKernel,
    Register,
    Symbol,
    Vector,
    members_of,
)

_KERNELS_KEPT = 64
_WORD = 4
_WIDEST = 16


@lru_cache(_KERNELS_KEPT)
def assembled_kernel(kernel: PtxKernel) -> PtxKernel:
    """Return a kernel with the accesses of its machine code."""
    zeros = known_zeros(kernel)
    blocks = tuple(_without_repeats(_join_shared_loads(block, zeros)) for block in kernel.blocks)
    return replace(kernel, blocks=_with_early_ends(blocks))


def _separates_loads(instruction: PtxInstruction) -> bool:
    """Whether an instruction may change loaded values: a write, a barrier, a call."""
    if instruction.name in {"bar", "barrier", "membar", "fence", "call", "mbarrier", "tensormap", "cp", "wgmma"}:
        return True
    return is_access(instruction) and instruction.name not in {"ld", "ldu", "ldmatrix"}


def _is_plain_load(instruction: PtxInstruction) -> bool:
    """Whether an instruction is a load that may be removed or joined: without a predicate, of no volatile memory."""
    is_plain = instruction.guard is None and not is_volatile(instruction)
    return instruction.name == "ld" and is_access(instruction) and is_plain


# repeated loads


def _without_repeats(block: Sequence[PtxInstruction]) -> tuple[PtxInstruction, ...]:
    """Return a block in which moves replace repeated loads."""
    known: list[PtxInstruction] = []
    result: list[PtxInstruction] = []
    for instruction in block:
        if _separates_loads(instruction):
            known.clear()
        is_load = _is_plain_load(instruction)
        moves = next(filter(None, (_moves(instruction, load) for load in known)), None) if is_load else None
        if moves is not None:
            result += moves
            continue
        written = set(written_by(instruction))
        known = [load for load in known if not written & {*read_by(load), *written_by(load)}]
        if is_load and written.isdisjoint(read_by(instruction)):
            known.append(instruction)
        result.append(instruction)
    return tuple(result)


def _moves(load: PtxInstruction, first: PtxInstruction) -> list[PtxInstruction]:
    """Return the moves that replace a load of a part of what ``first`` loaded; none where it is not a part of it."""
    here, there = _address(load), _address(first)
    size = width_of(load.type) // 8
    skipped, rest = divmod(here.offset_bytes - there.offset_bytes, size)
    members, loaded = members_of(load.operands[0]), members_of(first.operands[0])
    kinds = [[part for part in instruction.parts if part not in {"v2", "v4", "v8"}] for instruction in (load, first)]
    is_same = here.base == there.base and kinds[0] == kinds[1]
    if not is_same or rest or skipped < 0 or skipped + len(members) > len(loaded):
        return []
    parts = ("mov", f"b{max(16, width_of(load.type))}")
    pairs = zip(members, loaded[skipped:], strict=False)
    return [replace(load, parts=parts, operands=pair) for pair in pairs]


# neighbouring loads from shared memory


def _join_shared_loads(block: Sequence[PtxInstruction], zeros: dict[str, int]) -> tuple[PtxInstruction, ...]:
    result: list[PtxInstruction] = []
    window: list[PtxInstruction] = []
    for instruction in block:
        if _separates_loads(instruction):
            result += _join_neighbours(window, zeros)
            window = []
        window.append(instruction)
    return (*result, *_join_neighbours(window, zeros))


def _join_neighbours(window: Sequence[PtxInstruction], zeros: dict[str, int]) -> list[PtxInstruction]:
    """Return instructions without writes, with loads of neighbouring words joined at the place of the first."""
    groups: dict[Operand, list[tuple[int, PtxInstruction]]] = {}
    for place, instruction in enumerate(window):
        if _is_plain_load(instruction) and is_shared(instruction) and width_of(instruction.type) == 8 * _WORD:
            groups.setdefault(_address(instruction).base, []).append((place, instruction))
    result: list[PtxInstruction | None] = list(window)
    for base, loads in groups.items():
        known = 0 if isinstance(base, Immediate) else _zeros_of_operand(base, zeros)
        aligned, own = min(_WIDEST, 1 << known), set(registers_in(base))
        between = window[loads[0][0] : loads[-1][0]]
        if aligned > _WORD and own.isdisjoint(name for instruction in between for name in written_by(instruction)):
            _widen_loads(loads, aligned, result)
    return [instruction for instruction in result if instruction is not None]


def _widen_loads(
    loads: Sequence[tuple[int, PtxInstruction]], aligned: int, result: list[PtxInstruction | None]
) -> None:
    """Replace loads in ``result`` by wider ones; one of 16 bytes may leave its last word unused."""
    words: dict[int, tuple[int, Operand]] = {}
    spans: dict[int, tuple[int, int]] = {}
    for place, load in loads:
        begin, members = _address(load).offset_bytes, members_of(load.operands[0])
        spans[place] = (begin, begin + _WORD * len(members))
        for index, member in enumerate(members):
            words.setdefault(begin + _WORD * index, (place, member))
    replaced: set[int] = set()
    for size in (size for size in (_WIDEST, 2 * _WORD) if size <= aligned):
        for start in sorted({offset // size * size for offset in words}):
            parts = [words.get(start + _WORD * index) for index in range(size // _WORD)]
            places = {part[0] for part in parts if part is not None}
            whole = None not in parts[: max(2, size // _WORD - 1)] and len(places) > 1 and not places & replaced
            if whole and all(start <= spans[place][0] and spans[place][1] <= start + size for place in places):
                replaced |= places
                load = dict(loads)[min(places)]
                members = tuple(Symbol("_") if part is None else part[1] for part in parts)
                operands = (Vector(members), replace(_address(load), offset_bytes=start))
                for place in places:
                    result[place] = None
                result[min(places)] = replace(
                    load, parts=("ld", "shared", f"v{len(members)}", load.type), operands=operands
                )


def _address(load: PtxInstruction) -> Address:
    operand = load.operands[1]
    assert isinstance(operand, Address)
    return operand


# threads that leave early


def _with_early_ends(blocks: tuple[tuple[PtxInstruction, ...], ...]) -> tuple[tuple[PtxInstruction, ...], ...]:
    """Return the blocks of a kernel with the predicate of its last stores on the loads that only feed these."""
    last = max((index for index, block in enumerate(blocks) if block), default=None)
    if last is None or blocks[last][-1].name != "ret":
        return blocks
    block = blocks[last]
    barriers = [place for place, instruction in enumerate(block) if instruction.name in {"bar", "barrier"}]
    if not barriers:
        return blocks
    tail = block[barriers[-1] + 1 :]
    effects = [instruction for instruction in tail if _separates_loads(instruction)]
    guards = {(instruction.guard, instruction.negated) for instruction in effects}
    if len(guards) != 1 or (None, False) in guards:
        return blocks
    ((guard, negated),) = guards
    changed = tuple(
        replace(instruction, guard=guard, negated=negated)
        if instruction.name == "ld"
        and is_shared(instruction)
        and instruction.guard is None
        and _is_only_stored(instruction, tail)
        else instruction
        for instruction in _guard_first(tail, guard)
    )
    return (*blocks[:last], (*block[: barriers[-1] + 1], *changed), *blocks[last + 1 :])


def _is_only_stored(load: PtxInstruction, tail: Sequence[PtxInstruction]) -> bool:
    """Whether the only use of a loaded value is to be stored."""
    names = set(written_by(load))
    users = [instruction for instruction in tail if names & set(read_by(instruction))]
    operands = (operand for user in users for operand in user.operands if isinstance(operand, Address))
    addresses = {name for operand in operands for name in registers_in(operand)}
    return all(user.name in {"st", "red", "atom"} for user in users) and not names & addresses


def _guard_first(tail: Sequence[PtxInstruction], guard: Register | None) -> list[PtxInstruction]:
    """Return instructions with those that compute a predicate before all others."""
    needed = set() if guard is None else {guard.name}
    early: set[int] = set()
    for place in range(len(tail) - 1, -1, -1):
        if needed & set(written_by(tail[place])):
            early.add(place)
            needed |= set(read_by(tail[place]))
    if any(is_access(tail[place]) for place in early):
        return list(tail)
    first = [instruction for place, instruction in enumerate(tail) if place in early]
    return [*first, *(instruction for place, instruction in enumerate(tail) if place not in early)]


_ALL = 64
_SYMBOL_ZEROS = 4  # shared memory is declared with an alignment of 16


def known_zeros(kernel: PtxKernel) -> dict[str, int]:
    """Return the number of low zero bits of each register on all paths; registers without any are left out."""
    definitions: dict[str, list[PtxInstruction]] = {}
    for instruction in kernel.instructions:
        for name in written_by(instruction):
            definitions.setdefault(name, []).append(instruction)
    zeros = dict.fromkeys(definitions, _ALL)
    before: dict[str, int] = {}
    while before != zeros:
        before = dict(zeros)
        for name, makers in definitions.items():
            zeros[name] = min(zeros[name], *(_zeros_of_result(instruction, zeros) for instruction in makers))
    return {name: count for name, count in zeros.items() if count}


def _zeros_of_operand(operand: Operand, zeros: dict[str, int]) -> int:
    match operand:
        case Immediate(bits):
            return _ALL if bits == 0 else (bits & -bits).bit_length() - 1
        case Register(name):
            return zeros.get(name, 0)
        case Symbol():
            return _SYMBOL_ZEROS
    return 0


def _shift_of(operand: Operand) -> int:
    return operand.bits if isinstance(operand, Immediate) else 0


_RULES: dict[str, Callable[[Sequence[int], Sequence[Operand]], int]] = {
    **dict.fromkeys(("mov", "cvt", "cvta"), lambda zeros, operands: zeros[0]),
    **dict.fromkeys(("or", "xor", "add", "sub"), lambda zeros, operands: min(zeros)),
    "and": lambda zeros, operands: max(zeros),
    "mul": lambda zeros, operands: min(_ALL, zeros[0] + zeros[1]),
    "mad": lambda zeros, operands: min(zeros[0] + zeros[1], zeros[2]),
    "shl": lambda zeros, operands: min(_ALL, zeros[0] + _shift_of(operands[1])),
    "shr": lambda zeros, operands: max(0, zeros[0] - _shift_of(operands[1])) if _shift_of(operands[1]) else 0,
    "selp": lambda zeros, operands: min(zeros[:2]),
}


def _zeros_of_result(instruction: PtxInstruction, zeros: dict[str, int]) -> int:
    rule = _RULES.get(instruction.name)
    if rule is None or instruction.type.startswith(("f", "bf", "pred")) or "hi" in instruction.parts:
        return 0
    operands = sources_of(instruction)
    return rule([_zeros_of_operand(operand, zeros) for operand in operands], operands)
