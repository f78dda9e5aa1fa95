"""The lines of a stage, each with the source line that it comes from; the locations that MLIR prints.

Every stage says so in its own way: TTIR and TTGIR by ``loc`` (https://mlir.llvm.org/docs/Dialects/Builtin/), LLVM IR
by ``!dbg`` (https://llvm.org/docs/SourceLevelDebugging.html), PTX and AMD's assembly by ``.file`` and ``.loc``, SASS by
the comments of nvdisasm. What only says that, and the debug sections, is left out of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kernellab.ir.graph import Location, is_library, place_of, short_file

_ALIAS = re.compile(r"#loc\d*")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_POSITION = re.compile(r":(\d+):(\d+)(?: to (?:\d*:)?\d+)?")


@dataclass(slots=True)
class LocationTable:
    """The ``#locN`` aliases of a printed module, resolved on demand."""

    aliases: Mapping[str, str] = field(default_factory=dict)
    _known: dict[str, Location] = field(default_factory=dict)

    def resolve(self, text: str) -> Location:
        """Return the location that ``text`` describes, without its outer ``loc(...)``.

        Of an operation that was inlined, this is the place in the helper; ``caller`` is where it was called.
        """
        if text not in self._known:
            self._known[text] = self._read(text, 0)[0]
        return self._known[text]

    def _read(self, text: str, at: int) -> tuple[Location, int]:
        alias = _ALIAS.match(text, at)
        if alias:
            target = self.aliases.get(alias[0])
            return Location() if target is None else self.resolve(target), alias.end()
        if text.startswith("callsite(", at):
            return self._read_callsite(text, at + len("callsite("))
        if text.startswith("fused", at):
            return self._read_fused(text, text.index("[", at) + 1)
        string = _STRING.match(text, at)
        if string:
            return self._read_quoted(text, string[1], string.end())
        return Location(), at + len("unknown")

    def _read_quoted(self, text: str, quoted: str, at: int) -> tuple[Location, int]:
        position = _POSITION.match(text, at)
        if position:
            return Location(quoted, int(position[1]), int(position[2])), position.end()
        if text.startswith("(", at):
            inner, end = self._read(text, at + 1)
            return replace(inner, name=quoted), end + 1
        return Location(name=quoted), at

    def _read_callsite(self, text: str, at: int) -> tuple[Location, int]:
        callee, at = self._read(text, at)
        caller, at = self._read(text, at + len(" at "))
        if callee.line is None:
            return caller, at + 1
        outermost = caller if callee.caller is None else _called_from(callee.caller, caller)
        return replace(callee, caller=outermost), at + 1

    def _read_fused(self, text: str, at: int) -> tuple[Location, int]:
        parts: list[Location] = []
        while text[at - 1] != "]":
            part, at = self._read(text, at)
            parts.append(part)
            at += 2 if text.startswith(", ", at) else 1
        return next((part for part in parts if part.line is not None), parts[0]), at


def _called_from(callee: Location, caller: Location) -> Location:
    """Return ``callee`` with ``caller`` put at the outer end of its chain of calls."""
    return replace(callee, caller=caller if callee.caller is None else _called_from(callee.caller, caller))


Frame = tuple[str | None, int | None]  # the file and line of one level of a chain of calls
Hint = Callable[[Frame, str], Location | None]
_Position = tuple[str, str, str]  # the numbers of a file, a line and a column

_DEFINITION = re.compile(r"(#loc\d*) = loc\((.*)\)")
_DEBUG = ", !dbg !"
_SUBPROGRAM = re.compile(r" !dbg !(\d+)")
_METADATA = re.compile(r"!(\d+) = (?:distinct )?!DI\w+\((.*)\)")
_FIELD = re.compile(r'(\w+): (?:!(\d+)|"([^"]*)"|(\d+))')
_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?')
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*?inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")
_INLINED = re.compile(r"(\S+):(\d+):\d+")
_SASS = re.compile(r'\s*//## File "([^"]*)", line (\d+)( inlined at)?')
_NOISE = re.compile(r"\s*(?:\.L|\$L_)_*(?:tmp|func_begin|func_end)\d+:")
_DEBUG_SECTION = re.compile(r"\s*\.section\s+\.debug")


@dataclass(frozen=True, slots=True)
class StageLine:
    """A line of text and the place in the user's source that it comes from, where the stage says so.

    Of a line that was inlined from a helper, ``place`` is in the helper and its ``caller`` the place of the call.
    """

    text: str
    place: Location


def stage_lines(name: str, text: str, hint: Hint | None = None) -> tuple[StageLine, ...]:
    """Return the lines of a stage by its name; of another, or of a sentence, the lines without places.

    ``hint`` returns, for SASS, the place of an instruction by the innermost frame that SASS has of it, or None where
    it knows no better; see `kernellab.ir.instructions`.
    """
    if name == "sass":
        return tuple(_sass(text, hint or (lambda frame, text: None)))
    return tuple(_LINE_READERS.get(name, _plain)(text))


def _plain(text: str) -> Iterator[StageLine]:
    return (StageLine(line, Location()) for line in text.splitlines())


def _mlir(text: str) -> Iterator[StageLine]:
    lines = text.splitlines()
    aliases = {match[1]: match[2] for line in lines if (match := _DEFINITION.fullmatch(line))}
    table = LocationTable(aliases)
    for line in lines:
        if not line.startswith("#loc"):
            bare, last = _without_locations(line)
            yield StageLine(bare, place_of(table.resolve(last)) if last else Location())


def _without_locations(line: str) -> tuple[str, str]:
    """Return a line without its ``loc(...)``, and the text inside the one that ends it."""
    kept, last = "", ""
    at = 0
    while (start := line.find(" loc(", at)) >= 0:
        end, depth = start + 5, 1
        while depth and end < len(line):
            depth += {"(": 1, ")": -1}.get(line[end], 0)
            end += 1
        kept, last = kept + line[at:start], line[start + 5 : end - 1]
        at = end
    return kept + line[at:], last if at == len(line) else ""


def _llvm(text: str) -> Iterator[StageLine]:
    lines = text.splitlines()
    metadata = {
        match[1]: {field[1]: field[2] or field[3] or field[4] for field in _FIELD.finditer(match[2])}
        for line in lines
        if line.startswith("!") and (match := _METADATA.fullmatch(line))
    }
    places: dict[str, Location] = {}
    for line in lines:
        if line.startswith(("!", "; ModuleID", "source_filename")):
            continue
        bare, _, tail = line.rpartition(_DEBUG)
        if bare:
            identity, comma, rest = tail.partition(",")
            if identity not in places:
                places[identity] = place_of(_debug_location(metadata, identity))
            yield StageLine(bare + comma + rest, places[identity])
        else:
            yield StageLine(_SUBPROGRAM.sub("", line) if line.startswith("define") else line, Location())


def _debug_location(metadata: Mapping[str, Mapping[str, str]], identity: str) -> Location:
    fields = metadata.get(identity, {})
    if fields.get("line", "0") == "0":
        return Location()
    scope = metadata.get(fields.get("scope", ""), {})
    while "file" not in scope and "scope" in scope:
        scope = metadata.get(scope["scope"], {})
    file = metadata.get(scope.get("file", ""), {})
    path = "/".join(part for part in (file.get("directory"), file.get("filename")) if part)
    caller = _debug_location(metadata, fields["inlinedAt"]) if "inlinedAt" in fields else None
    return Location(path or None, int(fields["line"]), caller=caller)


def _assembly(text: str) -> Iterator[StageLine]:
    return (StageLine(line, place_of(location)) for line, _, location in lines_with_locations(text))


def lines_with_locations(text: str) -> Iterator[tuple[str, Location, Location]]:
    """Yield each line of an assembly with the location that its ``.loc`` names, and with its true one.

    They differ within inline assembly of several lines, which LLVM counts as if each stood on a source line of its own.
    """
    named = true = Location()
    is_inline = False
    for line, location in _assembly_lines(text):
        if location is not None:
            named = location
            true = true if is_inline else location
            continue
        if "inline asm" in line:
            is_inline = "begin inline asm" in line
            named = named if is_inline else true
        yield line, named, true


def location_of_line(text: str, number: int) -> Location:
    """Return the true location of a line of an assembly, by its number from 1."""
    lines = text.splitlines()
    mark = "// wanted"
    lines[number - 1 : number] = [f"{line} {mark}" for line in lines[number - 1 : number]]
    return next((true for line, _, true in lines_with_locations("\n".join(lines)) if line.endswith(mark)), Location())


def _assembly_lines(text: str) -> Iterator[tuple[str, Location | None]]:
    """Yield each line with None, and each ``.loc`` with the place that it names, up to the debug sections."""
    lines = text.splitlines()
    files = {
        match[1]: "/".join(filter(None, match.groups()[1:]))
        for line in lines
        if ".file" in line and (match := _FILE.match(line))
    }
    names = {short_file(path): path for path in files.values()}
    calls: dict[_Position, _Position] = {}
    for line in lines:
        if _DEBUG_SECTION.match(line):
            return
        match = _LOC.match(line)
        if match:
            yield line, _assembly_location(match, files, names, calls)
        elif not _NOISE.match(line) and not _FILE.match(line):
            yield line, None


def _assembly_location(
    match: re.Match[str], files: Mapping[str, str], names: Mapping[str, str], calls: dict[_Position, _Position]
) -> Location:
    """Return the place of a ``.loc`` with its callers.

    They stand in its comment, or else after ``inlined_at``: of that the outer levels are those of the last ``.loc``
    before it at that place, as PTX demands (https://docs.nvidia.com/cuda/parallel-thread-execution/, ``.loc``).
    """
    here: _Position = (match[1], match[2], match[3])
    if match[4] is not None:
        calls[here] = (match[4], match[5], match[6])
    frames = [(names.get(name, name), int(line)) for name, line in _INLINED.findall(match.string.partition("@[")[2])]
    if not frames:
        frames = [(files.get(file, ""), int(line)) for file, line, _ in _chain(here, calls)]
    outer = _call_chain(frames)
    return Location(files.get(match[1]), int(match[2]), caller=outer) if match[2] != "0" else Location()


def _chain(position: _Position, calls: Mapping[_Position, _Position]) -> Iterator[_Position]:
    for _ in calls:  # never longer, even where a line seems to be inlined into itself
        if position not in calls:
            return
        position = calls[position]
        yield position


def _sass(text: str, hint: Hint) -> Iterator[StageLine]:
    frames: list[tuple[str, int]] = []
    is_open = False
    current = Location()
    for line in text.splitlines():
        match = _SASS.match(line) if "//## File" in line else None
        if match:
            # One comment per level, from the inside out; each but the last ends in "inlined at".
            frames = [*(frames if is_open else ()), (match[1], int(match[2]))]
            is_open = match[3] is not None
            place = place_of(_call_chain(frames) or Location())
            current = Location() if is_library(place.file) else place
        elif _DEBUG_SECTION.match(line):
            return
        else:
            yield StageLine(line, hint(frames[0], line) or current if frames else current)


def _call_chain(frames: Sequence[tuple[str, int]]) -> Location | None:
    """Return the innermost of some frames, each called by the next, or None without any."""
    outer: Location | None = None
    for file, line in reversed(frames):
        outer = Location(file, line, caller=outer)
    return outer


_LINE_READERS: dict[str, Callable[[str], Iterator[StageLine]]] = {
    "ttir": _mlir,
    "ttgir": _mlir,
    "llir": _llvm,
    "ptx": _assembly,
    "amdgcn": _assembly,
}
