"""The content of the explorer of a compiled kernel: source, stages, lines that belong together, badges of lines."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from kernellab.compile import ASSEMBLIES, STAGES
from kernellab.compile.types import Compiled
from kernellab.errors import StoreError, UsageError, plural
from kernellab.ir.effects import access_bytes
from kernellab.ir.graph import Location, calls_of, main_file, place_of, short_file
from kernellab.ir.instructions import InstructionKind, LineProfile, counts_instructions, hint_of_ptx, profiles_of
from kernellab.ir.lines import StageLine, stage_lines
from kernellab.ir.operations import Access
from kernellab.views.elements import MARKS
from kernellab.views.graph.dataflow import SourceText
from kernellab.workers.forks_and_interrupts import cached_property


def stage_text(compiled: Compiled, name: str) -> str:
    """Return the text of a stage, or the sentence that says why there is none."""
    try:
        text = compiled.text_of(name)
    except (UsageError, StoreError) as error:
        return error.message
    return text.rstrip("\n")


LineKey = tuple[str, int]  # the last part of a file's path, which is all that some stages know, and a line


def key_of(place: Location) -> LineKey | None:
    """Return a place as a key; None where its line is not known."""
    return (short_file(place.file), place.line) if place.line is not None else None


@dataclass(frozen=True)
class Stage:
    """One stage. ``seconds`` is the time of its making, ``bytes`` the size of its whole text, locations included.

    ``is_pending`` says that there is more to show than was read: SASS, before the disassembler was asked.
    """

    name: str
    lines: tuple[StageLine, ...]
    bytes: int
    seconds: float | None
    is_pending: bool = False

    @cached_property
    def places(self) -> Mapping[int, Location]:
        """The places of the lines by identity: thousands of lines share some hundred, which are slow to compare."""
        return {id(line.place): line.place for line in self.lines}

    @cached_property
    def profiles(self) -> Mapping[LineKey | None, LineProfile]:
        """The instructions of each source line; those without a line under None."""
        profiles = profiles_of(self.name, self.lines)
        return {key_of(Location(file, line)): profile for (file, line), profile in profiles.items()}

    def count(self, key: LineKey) -> int:
        """Return the number of instructions of a source line."""
        return self.profiles[key].instructions if key in self.profiles else 0

    @cached_property
    def instructions(self) -> int | None:
        """The number of instructions, or of operations of an IR; None of a stage without a reader of them."""
        if not counts_instructions(self.name):
            return None
        return sum(profile.instructions for profile in self.profiles.values())


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the kernel or of a function that was inlined into it."""

    key: LineKey
    text: str


@dataclass(frozen=True, slots=True)
class Exploration:
    """The stages of a compiled kernel and its source, one tuple of lines per function."""

    compiled: Compiled
    stages: tuple[Stage, ...]
    source: tuple[tuple[SourceLine, ...], ...]


def explore(
    compiled: Compiled, text: SourceText | None = None, *, sass: bool = True, pending: bool = False
) -> Exploration:
    """Return the stages of ``compiled`` with its source.

    ``text`` is the kernel's own; without it, it is read from the file that the stages name. Without ``sass``, nothing
    is disassembled; with ``pending``, a stage without lines stands for what would be.
    """
    stages = tuple(_stages(compiled, sass=sass))
    if pending and not sass and compiled.target.backend == "cuda":
        stages += (Stage("sass", (), 0, compiled.stage_seconds.get("cubin"), is_pending=True),)
    text = text or SourceText(None)
    functions = _functions(compiled, stages, text.own, text.file or main_file(compiled.graph))
    return Exploration(compiled, stages, tuple(functions))


def _stages(compiled: Compiled, *, sass: bool) -> Iterator[Stage]:
    texts = dict(compiled.stages)
    if sass and compiled.target.backend == "cuda":
        with suppress(UsageError, StoreError):  # there is no binary, or the disassembler cannot read it
            texts["sass"] = compiled.sass
    for name in STAGES:
        if name in texts:
            hint = hint_of_ptx(texts["ptx"]) if name == "sass" and "ptx" in texts else None
            lines = stage_lines(name, texts[name].rstrip("\n"), hint)
            seconds = compiled.stage_seconds.get("cubin" if name == "sass" else name)
            yield Stage(name, lines, len(texts[name].encode()), seconds)


def _functions(
    compiled: Compiled, stages: Iterable[Stage], own: Mapping[int, str], file: str | None
) -> Iterator[tuple[SourceLine, ...]]:
    """Yield the kernel's lines, then those of each function that any stage names, in the order of files and lines."""
    used, graph, home = _lines_by_file(stages), compiled.graph, short_file(file)
    lines = (graph.values[value].location.line for value in graph.kernel.arguments)
    definition = next((line for line in lines if line is not None), 0)
    for place in (place_of(operation.location) for operation in graph.operations):
        if place.line is not None:
            used.setdefault(place.file or "", set()).add(place.line)
    if own and home not in map(short_file, used):
        yield _lines(file, own, min(own), max(own))
    for name in sorted(used, key=lambda name: short_file(name) != home):
        is_own = short_file(name) == home
        texts = dict(enumerate((line.rstrip("\n") for line in linecache.getlines(name)), 1))
        spans = _spans(texts)
        if is_own and own:
            texts |= own
            spans = [(min(own), max(own)), *(span for span in spans if span[0] > max(own) or span[1] < min(own))]
        shown = {_span_of(line, spans) for line in used[name]}
        kernel = _span_of(definition, spans) if is_own and not own else None
        for span in sorted(shown, key=lambda span: (not (is_own and (span == kernel or span[0] in own)), span)):
            yield _lines(name, texts, *span)


def _lines_by_file(stages: Iterable[Stage]) -> dict[str, set[int]]:
    """Return the lines that the stages name, by file; of files that end alike, under the longest path."""
    paths: dict[str, str] = {}
    used: dict[str, set[int]] = {}
    for stage in stages:
        for line in stage.places.values():
            for place in (line, *calls_of(line)):
                if place.line is not None and place.file is not None:
                    short = short_file(place.file)
                    paths[short] = max(paths.get(short, ""), place.file, key=len)
                    used.setdefault(short, set()).add(place.line)
    return {paths[short]: lines for short, lines in used.items()}


def _lines(file: str | None, texts: Mapping[int, str], first: int, last: int) -> tuple[SourceLine, ...]:
    short = short_file(file)
    return tuple(SourceLine((short, number), texts.get(number, "")) for number in range(first, last + 1))


def _spans(texts: Mapping[int, str]) -> list[tuple[int, int]]:
    """Return the first and last line of each function, its decorators included; none of what is not Python."""
    try:
        tree = ast.parse("\n".join(texts.values()))
    except (SyntaxError, ValueError):
        return []
    return [
        (min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]), node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    ]


def _span_of(line: int, spans: Iterable[tuple[int, int]]) -> tuple[int, int]:
    inside = [span for span in spans if span[0] <= line <= span[1]]
    return max(inside, default=(line, line))  # the innermost starts last


WIDEST_BYTES = 16  # of one instruction of one thread, https://docs.nvidia.com/cuda/cuda-c-programming-guide/
_WIDTHS = {
    InstructionKind.LOAD: MARKS[Access.READ],
    InstructionKind.STORE: MARKS[Access.WRITE],
    InstructionKind.ASYNC_COPY: "cp.async",
}
_VERBS = {InstructionKind.LOAD: "loads", InstructionKind.STORE: "stores", InstructionKind.ASYNC_COPY: "copies"}
_MARKED = (
    (InstructionKind.BULK_COPY, "TMA", "copied by the tensor memory accelerator"),
    (InstructionKind.ATOMIC, MARKS[Access.ATOMIC], "atomic"),
    (InstructionKind.BARRIER, "bar", "waits at a barrier"),
)
_CONDITION = "if neighbours lay in one thread, at addresses known to be contiguous and aligned, under one mask"
_DOTS = frozenset({"tt.dot", "tt.dot_scaled"})


@dataclass(frozen=True, slots=True)
class Badge:
    """A few letters for a source line, with a tooltip; ``alarm`` marks room for improvement."""

    text: str
    tip: str
    alarm: bool = False


def badges_of(exploration: Exploration) -> Mapping[LineKey, tuple[Badge, ...]]:
    """Return the badges of each source line that has any."""
    # The lowest stage with exact source lines for its instructions.
    machine = next((stage for stage in exploration.stages if stage.name in ASSEMBLIES), None)
    if machine is None:
        return {}
    sass = next((stage.profiles for stage in exploration.stages if stage.name == "sass"), {})
    possible = _possible_bytes(exploration)
    slow = _slow_dots(exploration, machine)
    spill_bytes, nothing = exploration.compiled.resources.spill_bytes, LineProfile(0, ())
    badges: dict[LineKey, tuple[Badge, ...]] = {}
    for key in dict.fromkeys([*machine.profiles, *sass]):
        if key is not None:
            profile, binary = machine.profiles.get(key, nothing), sass.get(key, nothing)
            badges[key] = (
                *_widths(profile, possible.get(key, 0)),
                *_units(profile, is_slow_dot=key in slow),
                *_others(profile, binary, spill_bytes),
            )
    return {key: line_badges for key, line_badges in badges.items() if line_badges}


def _widths(profile: LineProfile, possible: int) -> Iterator[Badge]:
    for kind, mark in _WIDTHS.items():
        sizes = [instruction.bytes for instruction, _ in profile.of(kind)]
        if not sizes:
            continue
        narrow, wide = min(sizes), max(sizes)
        width = f"{wide} B" if narrow == wide else f"{narrow}-{wide} B"
        tip = f"each thread {_VERBS[kind]} {width.replace('B', 'bytes')} at a time: {_instructions(profile, kind)}"
        alarm = 0 < wide < min(possible, WIDEST_BYTES)
        if alarm:
            tip += f"; {min(possible, WIDEST_BYTES)} would fit, {_CONDITION}"
        yield Badge(f"{mark} {width}" if wide else mark, tip, alarm)


def _units(profile: LineProfile, *, is_slow_dot: bool) -> Iterator[Badge]:
    for unit in dict.fromkeys(instruction.unit for instruction, _ in profile.of(InstructionKind.TENSOR)):
        yield Badge(unit, f"on the tensor cores: {_instructions(profile, InstructionKind.TENSOR)}")
    if is_slow_dot:
        tip = "this dot did not reach the tensor cores: it is computed by ordinary multiplications and additions"
        yield Badge("no tensor cores", tip, alarm=True)


def _others(profile: LineProfile, binary: LineProfile, spill_bytes: int | None) -> Iterator[Badge]:
    for kind, mark, words in _MARKED:
        if profile.count(kind):
            yield Badge(mark, f"{words}: {_instructions(profile, kind)}")
    spilling = binary if binary.instructions else profile
    spills = spilling.count(InstructionKind.SPILL)
    if spills:
        is_stack = spill_bytes == 0
        what = "on the stack" if is_stack else f"{plural(spills, 'instruction')} for spilled registers or a stack"
        tip = f"{what}, in local memory: {_instructions(spilling, InstructionKind.SPILL)}"
        yield Badge(f"{'stack' if is_stack else 'spill'} {spills}", tip, alarm=not is_stack)


def _instructions(profile: LineProfile, kind: InstructionKind) -> str:
    counts = ((instruction.mnemonic, count) for instruction, count in profile.of(kind))
    return ", ".join(f"{count} {mnemonic}" if count > 1 else mnemonic for mnemonic, count in counts)


def _possible_bytes(exploration: Exploration) -> dict[LineKey, int]:
    """Return, per line, how many bytes of its smallest access fall to one thread, rounded down to a power of two."""
    compiled = exploration.compiled
    sizes: dict[LineKey, int] = {}
    for operation in compiled.graph.operations:
        key = key_of(place_of(operation.location))
        if key is not None and operation.name in {"tt.load", "tt.store"}:
            share = access_bytes(compiled.graph, operation) // compiled.resources.threads
            size = 1 << (share.bit_length() - 1) if share else 0
            sizes[key] = min(sizes.get(key, size), size)
    return sizes


def _slow_dots(exploration: Exploration, machine: Stage) -> frozenset[LineKey]:
    """Return the lines of dots without an instruction of the tensor cores; none where such stand on other lines."""
    operations = exploration.compiled.graph.operations
    dots = {key_of(place_of(operation.location)) for operation in operations if operation.name in _DOTS}
    fast = {key for key, profile in machine.profiles.items() if profile.count(InstructionKind.TENSOR)}
    return frozenset(key for key in dots - fast if key is not None) if fast <= dots else frozenset()
