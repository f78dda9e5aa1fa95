"""Compares the accesses counted from PTX with those of the machine code; where they differ, traffic is unknown.

ptxas does not report the accesses that it removes, joins or repeats (`assembler` has the rules found so far). So the
occurrences of each access are compared, by kind, bytes per thread and source line. Those in a loop may be repeated,
since ptxas unrolls loops.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from kernellab.compile.types import Compiled
from kernellab.errors import plural
from kernellab.explain.code_lines import Line, machine_code
from kernellab.explain.traffic.execution import access_bytes
from kernellab.explain.traffic.relevance import (
    blocks_after,
    calls_out,
    is_access,
    is_shared,
    relevance_of,
    successors_by_block,
)
from kernellab.ir.graph import place_of
from kernellab.ir.instructions import SASS_BYTES
from kernellab.ir.ptx import PtxInstruction, PtxKernel

_SASS = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z]\w*)((?:\.\w+)*)")
_NEVER = "!PT"  # such a load only waits
_KINDS = {
    **dict.fromkeys(("LDG", "LD"), "load"),
    **dict.fromkeys(("STG", "ST"), "store"),
    **dict.fromkeys(("ATOMG", "ATOM", "RED", "REDG"), "atomic"),
    "LDGSTS": "copy to shared memory",
    "LDS": "load from shared memory",
    "STS": "store to shared memory",
    "ATOMS": "atomic in shared memory",
}
_OF_PTX = {"ld": "load", "ldu": "load", "st": "store", "atom": "atomic", "red": "atomic"}
_IN_SHARED = {"load": "load from shared memory", "store": "store to shared memory", "atomic": "atomic in shared memory"}
_WORD = 4
_COMBINABLE = frozenset({"add", "min", "max", "and", "or", "xor"})
_VOTES = frozenset({"vote", "activemask", "match", "elect"})


@dataclass(slots=True)
class CodeLine:
    """The machine code of one source line: its accesses by kind and bytes per thread.

    ``votes`` is True if it has votes of a warp; ``retries`` if it retries atomics until they succeed.
    """

    accesses: Counter[tuple[str, int]] = field(default_factory=Counter)
    votes: bool = False
    retries: bool = False


MachineCode = dict[Line, CodeLine]


def machine_code_of(compiled: Compiled) -> MachineCode | None:
    """Return the accesses of the machine code by source line; None where nothing disassembles it."""
    lines = machine_code(compiled)
    return None if lines is None else code_lines((line.text, line.place.line) for line in lines)


def code_lines(lines: Iterable[tuple[str, Line]]) -> MachineCode:
    """Return the accesses of disassembled lines by source line."""
    code: MachineCode = {}
    for text, line in lines:
        match = _SASS.match(text)
        if match is None or match[1] == _NEVER:
            continue
        name, modifiers, own = match[2], match[3].split("."), code.setdefault(line, CodeLine())
        own.votes |= name in {"VOTE", "VOTEU"}
        own.retries |= name.startswith("ATOM") and not {"CAS", "CAST"}.isdisjoint(modifiers)
        if name in _KINDS:
            size = next((SASS_BYTES[part] for part in modifiers if part in SASS_BYTES), _WORD)
            own.accesses[_access_class(_KINDS[name], size)] += 1
    return code


def _access_class(kind: str, size: int) -> tuple[str, int]:
    """Return the kind and size that accesses are compared by; sizes of atomics and asynchronous copies are ignored."""
    return kind, size if "load" in kind or "store" in kind else 0


def combined_atomics(kernel: PtxKernel, code: MachineCode | None) -> frozenset[int]:
    """Return the positions of integer atomics that ptxas combines within a warp into one update.

    It does so where all threads update one address, and finds the active ones by a vote.
    """
    voting = {_source_line(instruction) for instruction in kernel.instructions if instruction.name in _VOTES}
    lines = {line for line, line_code in (code or {}).items() if line_code.votes} - voting
    return frozenset(
        number
        for number, instruction in enumerate(kernel.instructions)
        if instruction.name in {"atom", "red"}
        and not is_shared(instruction)
        and _source_line(instruction) in lines
        and instruction.type[0] in "usb"
        and not _COMBINABLE.isdisjoint(instruction.parts)
    )


def _source_line(instruction: PtxInstruction) -> Line:
    return place_of(instruction.location).line


@dataclass(slots=True)
class _Occurrences:
    """The least and most occurrences of one kind of access in PTX, outside loops and in them.

    The least excludes those that no thread executed, since ptxas may have removed them.
    """

    outside: list[int] = field(default_factory=lambda: [0, 0])
    inside: list[int] = field(default_factory=lambda: [0, 0])

    def add(self, other: _Occurrences) -> None:
        """Add the occurrences of another line."""
        for own, more in ((self.outside, other.outside), (self.inside, other.inside)):
            own[:] = [count + added for count, added in zip(own, more, strict=True)]

    def fits(self, count: int) -> bool:
        """Whether ``count`` occurrences in machine code match; unrolling may repeat those of loops."""
        if not self.inside[1]:
            return self.outside[0] <= count <= self.outside[1]
        return any(
            count >= outside + inside and (count - outside) % inside == 0 if inside else count == outside
            for outside in range(self.outside[0], self.outside[1] + 1)
            for inside in range(self.inside[0], self.inside[1] + 1)
        )


def differences(
    kernel: PtxKernel, executed_positions: Collection[int], code: MachineCode | None
) -> list[tuple[Line, str]]:
    """Return the lines with other accesses in the machine code than were counted, each with a sentence.

    ``executed_positions`` are those of the accesses that any thread executed.
    """
    if code is None or any(map(calls_out, kernel.instructions)):
        return []
    counted = _ptx_occurrences(kernel, executed_positions)
    swapping = {_source_line(i) for i in kernel.instructions if i.name == "atom" and "cas" in i.parts}
    retried = {line for line, line_code in code.items() if line_code.retries} - swapping
    differing = [(line, _RETRIES) for line in sorted(retried, key=_line_order)]
    has_maps = any(instruction.name == "tensormap" for instruction in kernel.instructions)
    for kind, size in sorted({*counted} | {key for line_code in code.values() for key in line_code.accesses}):
        if has_maps and kind not in {"load", "store"}:
            continue  # setting a field of a map takes several
        if retried and kind == "load":
            continue  # a retried atomic loads first
        by_line, total = counted.get((kind, size), {}), _Occurrences()
        lines = sorted({*by_line, *code} - retried, key=_line_order)
        has = {line: code[line].accesses[kind, size] if line in code else 0 for line in lines}
        for line in lines:
            total.add(by_line.get(line, _Occurrences()))
        if total.fits(sum(has.values())):
            continue  # an access may have moved to the line of another
        for line, count in has.items():
            expected = by_line.get(line, _Occurrences())
            if not expected.fits(count):
                of_bytes = f" of {plural(size, 'byte')}" if size else ""
                traced = expected.outside[1] + expected.inside[1]
                differing.append((line, f"{kind}{of_bytes}: {count} in the machine code, {traced} counted"))
    return differing


_RETRIES = "the machine code tries an atomic there until it succeeds, and how often that is depends on timing"


def _line_order(line: Line) -> int:
    return line or 0


def _ptx_occurrences(
    kernel: PtxKernel, executed_positions: Collection[int]
) -> dict[tuple[str, int], dict[Line, _Occurrences]]:
    """Return the occurrences of each kind and size of access by source line."""
    dead, following = relevance_of(kernel).dead, successors_by_block(kernel)
    looped = {block for block in range(len(following)) if block in blocks_after(following, block)}
    occurrences: dict[tuple[str, int], dict[Line, _Occurrences]] = {}
    for number, instruction in enumerate(kernel.instructions):
        kind = _access_kind(instruction)
        if kind is not None and number not in dead:
            by_line = occurrences.setdefault(_access_class(kind, access_bytes(instruction)), {})
            own = by_line.setdefault(_source_line(instruction), _Occurrences())
            place = own.inside if instruction.block in looped else own.outside
            place[0] += number in executed_positions
            place[1] += 1
    return occurrences


def _access_kind(instruction: PtxInstruction) -> str | None:
    """Return the kind of an access; None for those that are not compared: matrices, boxes, local memory."""
    if not is_access(instruction) or "local" in instruction.parts or "bulk" in instruction.parts:
        return None
    if instruction.name == "cp":
        return "copy to shared memory"
    kind = _OF_PTX.get(instruction.name)
    return _IN_SHARED[kind] if kind is not None and is_shared(instruction) else kind
