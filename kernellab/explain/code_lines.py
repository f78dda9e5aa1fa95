"""The instructions of a compiled kernel by the lines of its own file: as PTX and as machine code."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernellab.compile.types import Compiled
from kernellab.errors import KernellabError
from kernellab.ir.graph import Graph, Location, Operation, calls_of, main_file, place_of, short_file
from kernellab.ir.instructions import LineProfile, hint_of_ptx, instruction_of, profiles_of
from kernellab.ir.lines import StageLine, stage_lines

Line = int | None


def own_line_among(places: Sequence[tuple[str | None, Line]], file: str) -> Line:
    """Return the line in the kernel's own file among a place and its callers; else the line of the place."""
    own = (line for name, line in places if line is not None and short_file(name) == file)
    return next(own, places[0][1])


def own_line(place: Location, file: str) -> Line:
    """Return the line of a place in the kernel's own file: its own, or that of the call."""
    return own_line_among([(place.file, place.line), *((call.file, call.line) for call in calls_of(place))], file)


def line_of(graph: Graph, operation: Operation) -> Line:
    """Return the source line of an operation; of one inlined from another file, that of the call."""
    return own_line(place_of(operation.location), short_file(main_file(graph)))


@dataclass(frozen=True, slots=True)
class Code:
    """The instructions of a kernel by source line: as PTX, and as machine code where there is a disassembler.

    ``loops`` counts the branches back in the PTX.
    """

    ptx: Mapping[Line, LineProfile]
    machine: Mapping[Line, Counter[str]]
    loops: int = 0


def code_of(compiled: Compiled) -> Code:
    """Return the instructions of a kernel by line."""
    if "ptx" not in compiled.stages:
        return Code({}, {})
    text, file = compiled.stages["ptx"], short_file(main_file(compiled.graph))
    ptx = [StageLine(line.text, Location(file, own_line(line.place, file))) for line in stage_lines("ptx", text)]
    profiles = {line: profile for (_, line), profile in profiles_of("ptx", ptx).items()}
    try:
        sass = stage_lines("sass", compiled.sass, hint_of_ptx(text))
    except KernellabError:
        sass = ()
    machine: dict[Line, Counter[str]] = {}
    for line in sass:
        instruction = instruction_of("sass", line.text)
        if instruction is not None and not instruction.mnemonic.startswith("NOP"):
            machine.setdefault(own_line(line.place, file), Counter())[instruction.mnemonic] += 1
    return Code(profiles, machine, _backward_branches(text))


_LABEL = re.compile(r"^(\$\w+):")
_BRANCH = re.compile(r"\bbra(?:\.uni)?\s+(\$\w+)")


def _backward_branches(ptx: str) -> int:
    """Return the number of backward branches in PTX."""
    seen, count = set[str](), 0
    for line in ptx.splitlines():
        if label := _LABEL.match(line):
            seen.add(label[1])
        elif (branch := _BRANCH.search(line)) and branch[1] in seen:
            count += 1
    return count
