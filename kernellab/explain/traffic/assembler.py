"""The changes to memory accesses that ptxas makes between PTX and machine code.

ptxas does not document them; the rules were derived from its machine code, and hold for the recorded launches:

- a repeated load, with no write or barrier between, is removed, unless it has a predicate;
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
    destination_of,
    is_access,
    is_shared,
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
    return instruction.name == "ld" and is_access(instruction) and not {"volatile", "acquire"} & set(instruction.parts)


# repeated loads


def _may_repeat(instruction: PtxInstruction) -> bool:
    return _is_plain_load(instruction) and instruction.guard is None


def _without_repeats(block: Sequence[PtxInstruction]) -> tuple[PtxInstruction, ...]:
    """Return a block in which moves replace repeated loads."""
    known: list[PtxInstruction] = []
    result: list[PtxInstruction] = []
    for instruction in block:
        if _separates_loads(instruction):
            known.clear()
        moves = (
            next((moves for load in known if (moves := _moves(instruction, load))), None)
            if _may_repeat(instruction)
            else None
        )
        if moves is not None:
            result += moves
            continue
        written = set(written_by(instruction))
        known = [load for load in known if not written & {*read_by(load), *written_by(load)}]
        if _may_repeat(instruction) and written.isdisjoint(read_by(instruction)):
            known.append(instruction)
        result.append(instruction)
    return tuple(result)


def _moves(load: PtxInstruction, first: PtxInstruction) -> list[PtxInstruction]:
    """Return the moves that replace a load of a part of what ``first`` loaded; none where it is no part of it."""
    here, there = _address(load), _address(first)
    size = width_of(load.type) // 8
    skipped, rest = divmod(here.offset_bytes - there.offset_bytes, size)
    members, loaded = _loaded_registers(load), _loaded_registers(first)
    same = (here.base, _load_kind(load)) == (there.base, _load_kind(first))
    if not same or rest or skipped < 0 or skipped + len(members) > len(loaded):
        return []
    parts = ("mov", f"b{max(16, width_of(load.type))}")
    pairs = zip(members, loaded[skipped:], strict=False)
    return [replace(load, parts=parts, operands=pair) for pair in pairs]


def _loaded_registers(load: PtxInstruction) -> tuple[Operand, ...]:
    return members_of(load.operands[0])


def _load_kind(load: PtxInstruction) -> tuple[str, ...]:
    return tuple(part for part in load.parts if part not in {"v2", "v4", "v8"})


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
        if (
            _is_plain_load(instruction)
            and is_shared(instruction)
            and instruction.guard is None
            and width_of(instruction.type) == 8 * _WORD
        ):
            groups.setdefault(_address(instruction).base, []).append((place, instruction))
    result: list[PtxInstruction | None] = list(window)
    for base, loads in groups.items():
        known = 0 if isinstance(base, Immediate) else _zeros_of_operand(base, zeros)
        aligned = min(_WIDEST, 1 << known)
        between = window[loads[0][0] : loads[-1][0]]
        if aligned > _WORD and not any(
            set(registers_in(base)) & set(written_by(instruction)) for instruction in between
        ):
            _widen_loads(loads, aligned, result)
    return [instruction for instruction in result if instruction is not None]


def _widen_loads(
    loads: Sequence[tuple[int, PtxInstruction]], aligned: int, result: list[PtxInstruction | None]
) -> None:
    """Replace loads in ``result`` by wider ones; one of 16 bytes may leave its last word unused."""
    words: dict[int, tuple[int, PtxInstruction, Operand]] = {}
    for place, load in loads:
        for index, member in enumerate(_loaded_registers(load)):
            words.setdefault(_address(load).offset_bytes + _WORD * index, (place, load, member))
    replaced: set[int] = set()
    for size in (_WIDEST, 2 * _WORD):
        if size > aligned:
            continue
        for start in sorted({offset // size * size for offset in words}):
            parts = [words.get(start + _WORD * index) for index in range(size // _WORD)]
            places = {part[0] for part in parts if part is not None}
            whole = None not in parts[: max(2, size // _WORD - 1)] and len(places) > 1 and not places & replaced
            if whole and _covers(loads, places, start, size):
                replaced |= places
                _insert_wide_load(parts, start, places, result)


def _covers(loads: Sequence[tuple[int, PtxInstruction]], places: set[int], start: int, size: int) -> bool:
    """Whether the loads at some places lie within a range of bytes."""
    covered = [load for place, load in loads if place in places]
    spans = [(_address(load).offset_bytes, _WORD * len(_loaded_registers(load))) for load in covered]
    return all(offset >= start and offset + length <= start + size for offset, length in spans)


def _insert_wide_load(
    parts: Sequence[tuple[int, PtxInstruction, Operand] | None],
    start: int,
    places: set[int],
    result: list[PtxInstruction | None],
) -> None:
    first = min(places)
    load = next(part[1] for part in parts if part is not None and part[0] == first)
    members = tuple(Symbol("_") if part is None else part[2] for part in parts)
    address = replace(_address(load), offset_bytes=start)
    name = ("ld", "shared", f"v{len(members)}", load.type)
    for place in places:
        result[place] = None
    result[first] = replace(load, parts=name, operands=(Vector(members), address))


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
    users = [each for each in tail if names & set(read_by(each))]
    operands = [operand for each in users for operand in each.operands if isinstance(operand, Address)]
    addresses = {name for operand in operands for name in registers_in(operand)}
    return all(each.name in {"st", "red", "atom"} for each in users) and not names & addresses


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
    first = [each for place, each in enumerate(tail) if place in early]
    return [*first, *(each for place, each in enumerate(tail) if place not in early)]


_ALL = 64
_SYMBOL_ZEROS = 4  # shared memory is declared with an alignment of 16


def known_zeros(kernel: PtxKernel) -> dict[str, int]:
    """Return the number of low zero bits of each register on all paths; registers without any are left out."""
    definitions: dict[str, list[PtxInstruction]] = {}
    for instruction in kernel.instructions:
        destination = destination_of(instruction)
        for name in _register_names(destination):
            definitions.setdefault(name, []).append(instruction)
    zeros = dict.fromkeys(definitions, _ALL)
    changed = True
    while changed:
        changed = False
        for name, makers in definitions.items():
            least = min(_zeros_of_result(instruction, zeros) for instruction in makers)
            if least < zeros[name]:
                zeros[name] = least
                changed = True
    return {name: count for name, count in zeros.items() if count}


def _register_names(destination: Operand | None) -> Sequence[str]:
    if isinstance(destination, Register):
        return (destination.name,)
    members = getattr(destination, "members", ())
    return tuple(member.name for member in members if isinstance(member, Register))


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
    "mov": lambda zeros, operands: zeros[0],
    "cvt": lambda zeros, operands: zeros[0],
    "cvta": lambda zeros, operands: zeros[0],
    "and": lambda zeros, operands: max(zeros),
    "or": lambda zeros, operands: min(zeros),
    "xor": lambda zeros, operands: min(zeros),
    "add": lambda zeros, operands: min(zeros),
    "sub": lambda zeros, operands: min(zeros),
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
    return rule([_zeros_of_operand(each, zeros) for each in operands], operands)
