"""Reading MLIR's printed locations: files, names, call sites and fused ones.

See https://mlir.llvm.org/docs/Dialects/Builtin/#location-attributes for their forms.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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
