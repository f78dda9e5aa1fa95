"""Reading MLIR's printed locations: files, names, call sites and fused ones, and which of them is the user's own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from kernellab.ir.graph import Location

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
            return self._alias(alias[0]), alias.end()
        if text.startswith("callsite(", at):
            return self._read_callsite(text, at + len("callsite("))
        if text.startswith("fused", at):
            return self._read_fused(text, text.index("[", at) + 1)
        string = _STRING.match(text, at)
        if string:
            return self._read_quoted(text, string[1], string.end())
        return Location(), at + len("unknown")

    def _alias(self, name: str) -> Location:
        if name not in self._known:
            target = self.aliases.get(name)
            self._known[name] = Location() if target is None else self._read(target, 0)[0]
        return self._known[name]

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


_LIBRARY = ("triton/language/", "triton\\language\\", "triton/experimental/", "triton\\experimental\\")


def place_of(location: Location) -> Location:
    """Return the innermost place of a chain of calls that is not inside Triton's own library."""
    place = location
    while place.caller is not None and (place.line is None or is_library(place.file)):
        place = place.caller
    return place


def calls_of(place: Location) -> Iterator[Location]:
    """Yield the places outside Triton's library that called a place, from the inside out."""
    caller = place.caller
    while caller is not None:
        if caller.line is not None and not is_library(caller.file):
            yield caller
        caller = caller.caller


def is_library(file: str | None) -> bool:
    """Return whether a file is part of Triton's own library of kernel functions."""
    return file is not None and any(part in file for part in _LIBRARY)


def short_file(file: str | None) -> str:
    """Return a file's name without its folders; ``In[5]`` stays as it is."""
    return (file or "").replace("\\", "/").rpartition("/")[2]
