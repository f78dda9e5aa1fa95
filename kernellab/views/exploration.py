"""What the explorer shows of a compiled kernel: its source, its stages, and which lines belong together."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from kernellab.compile.types import Compiled
from kernellab.errors import UsageError
from kernellab.ir.graph import Location
from kernellab.ir.instructions import LineProfile, hint_of_ptx, profiles_of
from kernellab.ir.lines import StageLine, stage_lines
from kernellab.ir.locations import calls_of, place_of, short_file
from kernellab.views.places import main_file
from kernellab.views.stages import STAGE_NAMES
from kernellab.workers.forks import cached_property

LineKey = tuple[str, int]  # the last part of a file's path, which is all that some stages know, and a line


def key_of(place: Location) -> LineKey | None:
    return (short_file(place.file), place.line) if place.line is not None else None


@dataclass(frozen=True)
class Stage:
    """One stage. ``seconds`` is the time of its making, ``bytes`` the size of its whole text, locations included.

    ``is_pending`` tells that there is more to show than was read: SASS, before the disassembler was asked.
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
        """What the instructions of each source line do; those of no line under None."""
        found = profiles_of(self.name, self.lines)
        return {key_of(Location(file, line)): profile for (file, line), profile in found.items()}

    @cached_property
    def instructions(self) -> int:
        return sum(profile.instructions for profile in self.profiles.values())


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the kernel or of a function that was inlined into it."""

    key: LineKey
    text: str


@dataclass(frozen=True, slots=True)
class Exploration:
    """The stages of a compiled kernel beside its source. ``source`` has one tuple of lines per function."""

    compiled: Compiled
    stages: tuple[Stage, ...]
    source: tuple[tuple[SourceLine, ...], ...]

    def keys(self) -> Iterator[LineKey]:
        return (line.key for function in self.source for line in function)

    @property
    def machine(self) -> Stage | None:
        """The stage whose instructions are closest to the machine and still know their lines exactly."""
        return next((stage for stage in reversed(self.stages) if stage.name in {"ptx", "amdgcn"}), None)


def explore(
    compiled: Compiled,
    source_text: str = "",
    first_line: int = 1,
    file: str | None = None,
    *,
    sass: bool = True,
    pending: bool = False,
) -> Exploration:
    """Return the stages of ``compiled`` with its source.

    ``source_text`` is the kernel's own text, which starts at ``first_line`` of ``file``; without it, it is read from
    the file that the stages name. Without ``sass``, nothing is disassembled; with ``pending``, a stage without lines
    stands for what would be.
    """
    stages = tuple(_stages(compiled, sass=sass))
    if pending and not sass and compiled.target.backend == "cuda":
        stages += (Stage("sass", (), 0, compiled.stage_seconds.get("cubin"), is_pending=True),)
    file = file or main_file(compiled.graph)
    own = {first_line + at: text for at, text in enumerate(source_text.splitlines())}
    return Exploration(compiled, stages, tuple(_functions(compiled, stages, own, file)))


def _stages(compiled: Compiled, *, sass: bool) -> Iterator[Stage]:
    texts = dict(compiled.stages)
    if sass and compiled.target.backend == "cuda":
        with suppress(UsageError, StopIteration):  # there is no binary, or the disassembler cannot read it
            texts["sass"] = compiled.sass
    for name in STAGE_NAMES:
        if name in texts:
            hint = hint_of_ptx(texts["ptx"]) if name == "sass" and "ptx" in texts else None
            lines = stage_lines(name, texts[name].rstrip("\n"), hint)
            seconds = compiled.stage_seconds.get("cubin" if name == "sass" else name)
            yield Stage(name, lines, len(texts[name].encode()), seconds)


def _functions(
    compiled: Compiled, stages: Iterable[Stage], own: Mapping[int, str], file: str | None
) -> Iterator[tuple[SourceLine, ...]]:
    """Yield the kernel's lines, then those of each function that any stage names, in the order of files and lines."""
    used = _used(stages)
    for place in (place_of(operation.location) for operation in compiled.graph.operations):
        if place.line is not None:
            used.setdefault(place.file or "", set()).add(place.line)
    files = sorted(used, key=lambda name: short_file(name) != short_file(file))
    if own and not (files and short_file(files[0]) == short_file(file)):
        yield _lines(file, own, min(own), max(own))
    for name in files:
        is_own = short_file(name) == short_file(file)
        texts = dict(enumerate((line.rstrip("\n") for line in linecache.getlines(name)), 1))
        spans = _spans(texts)
        if is_own and own:
            texts |= own
            spans = [(min(own), max(own)), *(span for span in spans if span[0] > max(own) or span[1] < min(own))]
        shown = {_span_of(line, spans) for line in used[name]}
        kernel = _span_of(_definition(compiled) or 0, spans) if is_own and not own else None
        for span in sorted(shown, key=lambda span: (not (is_own and (span == kernel or span[0] in own)), span)):
            yield _lines(name, texts, *span)


def _used(stages: Iterable[Stage]) -> dict[str, set[int]]:
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


def _definition(compiled: Compiled) -> int | None:
    graph = compiled.graph
    lines = (graph.values[value].location.line for value in graph.kernel.arguments)
    return next((line for line in lines if line is not None), None)


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
