"""The instructions of a compiled kernel by the lines of its own file: as PTX and as machine code."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from kernellab.compile.types import Compiled
from kernellab.errors import KernellabError
from kernellab.ir.control_codes import ControlCode, WarpWait, control_codes, warp_waits
from kernellab.ir.graph import Graph, Location, Operation, calls_of, main_file, place_of, short_file
from kernellab.ir.instructions import LineProfile, instruction_of, profiles_of, sass_lines
from kernellab.ir.lines import StageLine, stage_lines

Line = int | None
LOOPS = frozenset({"scf.for", "scf.while"})


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


def loop_of(graph: Graph, operation: Operation) -> int | None:
    """Return the innermost loop around an operation, as the index of its operation."""
    return next((owner.index for owner in graph.owners(operation.block) if owner.name in LOOPS), None)


@dataclass(frozen=True, slots=True)
class Code:
    """The instructions of a kernel by source line: as PTX, and as machine code where there is a disassembler.

    ``waits`` are those of one warp by line, ``spill_bytes`` what one thread moves to and from local memory; ``loops``
    counts the branches back in the PTX.
    """

    ptx: Mapping[Line, LineProfile]
    machine: Mapping[Line, Counter[str]]
    waits: Mapping[Line, WarpWait]
    spill_bytes: Mapping[Line, int]
    loops: int = 0


def code_of(compiled: Compiled) -> Code:
    """Return the instructions of a kernel by line."""
    if "ptx" not in compiled.stages:
        return Code({}, {}, {}, {})
    text, file = compiled.ptx, short_file(main_file(compiled.graph))
    ptx = [StageLine(line.text, Location(file, own_line(line.place, file))) for line in stage_lines("ptx", text)]
    profiles = {line: profile for (_, line), profile in profiles_of("ptx", ptx).items()}
    placed = [(own_line(line.place, file), line.text) for line in machine_code(compiled) or ()]
    return Code(profiles, *_machine_lines(compiled, placed), _backward_branches(text))


def machine_code(compiled: Compiled) -> tuple[StageLine, ...] | None:
    """Return the machine code of a kernel, each line with its place; None where it cannot be disassembled."""
    try:
        return sass_lines(compiled.sass, compiled.ptx)
    except KernellabError:
        return None


def _machine_lines(
    compiled: Compiled, placed: Sequence[tuple[Line, str]]
) -> tuple[Mapping[Line, Counter[str]], Mapping[Line, WarpWait], Mapping[Line, int]]:
    """Return the machine instructions, waits and spilled bytes of each line.

    Of a line in a loop, only the loop with most of it counts: the main one, where ptxas unrolled it and added others
    for the remaining rounds.
    """
    graph = compiled.graph
    looped = {line_of(graph, operation) for operation in graph.operations if loop_of(graph, operation) is not None}
    parsed = [(line, text, instruction_of("sass", text)) for line, text in placed]
    regions = _innermost_loops([(instruction is not None, text) for _, text, instruction in parsed])
    instructions = [(line, instruction.mnemonic) for line, _, instruction in parsed if instruction is not None]
    lines = _lines_in_loops([line for line, _ in instructions], regions, looped)
    mains = _main_loops(lines, regions, looped)
    codes = control_codes(compiled.binary, compiled.kernel)
    if len(codes) != len(instructions):
        codes = (_USUAL_CODE,) * len(instructions)
    machine: dict[Line, Counter[str]] = {}
    waits, spilled = dict[Line, WarpWait](), Counter[Line]()
    all_waits = warp_waits(codes, [mnemonic for _, mnemonic in instructions])
    for line, (_, mnemonic), region, wait in zip(lines, instructions, regions, all_waits, strict=True):
        if mnemonic.startswith("NOP") or mains.get(line, region) != region:
            continue
        machine.setdefault(line, Counter())[mnemonic] += 1
        waits[line] = waits.get(line, WarpWait(0.0)) + wait
        if mnemonic.startswith(_SPILLS):
            spilled[line] += next((size for part, size in _WIDE.items() if mnemonic.endswith(part)), 4)
    return machine, waits, spilled


_SASS_LABEL = re.compile(r"\s*(\.L_x_\d+):")
_SASS_BRANCH = re.compile(r"\bBRA\S*\s.*`\((\.L_x_\d+)\)")


def _innermost_loops(texts: Sequence[tuple[bool, str]]) -> list[int | None]:
    """Return for each instruction the position of the branch that ends the innermost loop around it.

    ``texts`` are lines of SASS, and whether each is an instruction.
    """
    labels, regions, position = dict[str, int](), list[tuple[int, int]](), 0
    for is_instruction, text in texts:
        if label := _SASS_LABEL.match(text):
            labels[label[1]] = position
        if (branch := _SASS_BRANCH.search(text)) and branch[1] in labels:
            regions.append((labels[branch[1]], position))
        position += is_instruction
    innermost: list[int | None] = [None] * position
    for first, last in sorted(regions, key=lambda region: region[0] - region[1]):
        innermost[first : last + 1] = [last] * (last + 1 - first)
    return innermost


def _lines_in_loops(lines: Sequence[Line], regions: Sequence[int | None], looped: Set[Line]) -> list[Line]:
    """Return the lines of instructions, where those without a line have the last one before them in the same loop.

    Triton 3.6 names no callers of what is inlined twice, such as a sum in a helper.
    """
    filled, last = list(lines), dict[int, Line]()
    for index, (line, region) in enumerate(zip(lines, regions, strict=True)):
        if region is not None and line in looped:
            last[region] = line
        elif region is not None and line is None:
            filled[index] = last.get(region)
    return filled


def _main_loops(lines: Sequence[Line], regions: Sequence[int | None], looped: Set[Line]) -> dict[Line, int]:
    """Return the loop of the machine code with most instructions of each of the ``looped`` lines."""
    counts: dict[Line, Counter[int]] = {}
    for line, region in zip(lines, regions, strict=True):
        if region is not None and line in looped:
            counts.setdefault(line, Counter())[region] += 1
    return {line: max(counter, key=lambda region: counter[region]) for line, counter in counts.items()}


_USUAL_CODE = ControlCode(stall=2, sets=None, waits=())  # of machine code whose control codes are not found
_SPILLS = ("LDL", "STL")
_WIDE = {".64": 8, ".128": 16}  # bytes of a thread
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
