"""The lines of a stage, each with the source line that it comes from.

Every stage says so in its own way: TTIR and TTGIR by ``loc`` (https://mlir.llvm.org/docs/Dialects/Builtin/), LLVM IR
by ``!dbg`` (https://llvm.org/docs/SourceLevelDebugging.html), PTX and AMD's assembly by ``.file`` and ``.loc``, SASS by
the comments of nvdisasm. What only says that, and the debug sections, is left out of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kernellab._triton.locations import LocationTable
from kernellab.ir.graph import Location
from kernellab.views.places import is_library, place_of, short_file

_ALIAS = re.compile(r"(#loc\d*) = loc\((.*)\)")
_DEBUG = re.compile(r",? !dbg !(\d+)")
_METADATA = re.compile(r"!(\d+) = (?:distinct )?!\w+\((.*)\)")
_FIELD = re.compile(r'(\w+): (?:!(\d+)|"([^"]*)"|(\d+))')
_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?')
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*?inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")
_INLINED = re.compile(r"(\S+):(\d+):\d+")
_SASS = re.compile(r'\s*//## File "([^"]*)", line (\d+)')
_NOISE = re.compile(r"\s*(?:\.L|\$L_)_*(?:tmp|func_begin|func_end)\d+:")
_DEBUG_SECTION = re.compile(r"\s*\.section\s+\.debug")


@dataclass(frozen=True, slots=True)
class StageLine:
    """A line of text and the place in the user's source that it comes from, where the stage says so."""

    text: str
    place: Location


def stage_lines(name: str, text: str) -> tuple[StageLine, ...]:
    """Return the lines of a stage by its name; of another, or of a sentence, the lines without places."""
    reader = _READERS.get(name, _plain)
    return tuple(reader(text))


def _plain(text: str) -> Iterator[StageLine]:
    return (StageLine(line, Location()) for line in text.splitlines())


def _mlir(text: str) -> Iterator[StageLine]:
    lines = text.splitlines()
    aliases = {match[1]: match[2] for line in lines if (match := _ALIAS.fullmatch(line))}
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
        if (match := _METADATA.fullmatch(line))
    }
    for line in lines:
        if not line.startswith(("!", "; ModuleID", "source_filename")):
            match = _DEBUG.search(line)
            place = place_of(_debug_location(metadata, match[1])) if match else Location()
            yield StageLine(_DEBUG.sub("", line), place)


def _debug_location(metadata: dict[str, dict[str, str]], identity: str) -> Location:
    fields = metadata.get(identity, {})
    if "line" not in fields:
        return Location()
    scope = metadata.get(fields.get("scope", ""), {})
    while "file" not in scope and "scope" in scope:
        scope = metadata.get(scope["scope"], {})
    file = metadata.get(scope.get("file", ""), {})
    path = "/".join(part for part in (file.get("directory"), file.get("filename")) if part)
    caller = _debug_location(metadata, fields["inlinedAt"]) if "inlinedAt" in fields else None
    return Location(path or None, int(fields["line"]), caller=caller)


def _assembly(text: str) -> Iterator[StageLine]:
    lines = text.splitlines()
    files = {match[1]: "/".join(filter(None, match.groups()[1:])) for line in lines if (match := _FILE.match(line))}
    calls: dict[tuple[str, ...], tuple[str, ...]] = {}
    current = Location()
    for line in lines:
        if _DEBUG_SECTION.match(line):
            return
        match = _LOC.match(line)
        if match:
            current = place_of(_assembly_location(match, line, files, calls))
        elif not _FILE.match(line) and not _NOISE.match(line):
            yield StageLine(line, current)


def _assembly_location(
    match: re.Match[str], line: str, files: dict[str, str], calls: dict[tuple[str, ...], tuple[str, ...]]
) -> Location:
    """Return the place of a ``.loc`` with its callers: from ``inlined_at`` in PTX, from the comment for AMD."""
    here, caller = match.groups()[:3], match.groups()[3:]
    if caller[0] is not None:
        calls[here] = caller
    written = [(name, int(number)) for name, number in _INLINED.findall(line.partition("@[")[2])]
    if not written:
        while here in calls and len(written) < len(calls):
            here = calls[here]
            written.append((files.get(here[0], ""), int(here[1])))
    names = {short_file(path): path for path in files.values()}
    outer: Location | None = None
    for name, number in reversed(written):
        outer = Location(names.get(name, name), number, caller=outer)
    line_number = int(match[2])
    return Location(files.get(match[1]), line_number, caller=outer) if line_number else Location()


def _sass(text: str) -> Iterator[StageLine]:
    current = Location()
    for line in text.splitlines():
        if _DEBUG_SECTION.match(line):
            return
        match = _SASS.match(line)
        if match:
            # nvdisasm does not say where library code was inlined.
            current = Location() if is_library(match[1]) else Location(match[1], int(match[2]))
        else:
            yield StageLine(line, current)


_READERS: dict[str, Callable[[str], Iterator[StageLine]]] = {
    "ttir": _mlir,
    "ttgir": _mlir,
    "llir": _llvm,
    "ptx": _assembly,
    "amdgcn": _assembly,
    "sass": _sass,
}
