"""Where an operation stands in the user's own source, and the text of that line."""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from dataclasses import dataclass, field

from kernellab.ir.graph import Graph, Location
from kernellab.ir.locations import place_of, short_file


def main_file(graph: Graph) -> str | None:
    """Return the file that the kernel itself stands in."""
    places = [graph.values[value].location for value in graph.kernel.arguments]
    places += [place_of(operation.location) for operation in graph.operations]
    return next((place.file for place in places if place.file is not None), None)


@dataclass(frozen=True, slots=True)
class SourceText:
    """The text of source lines: ``own`` for lines of ``file``, what Python can still read for all others."""

    file: str | None
    own: Mapping[int, str] = field(default_factory=dict)

    def line(self, place: Location) -> str:
        """Return the stripped text of a line, or "" where there is none."""
        if place.file is None or place.line is None:
            return ""
        if self.is_own(place) and place.line in self.own:
            return self.own[place.line].strip()
        return linecache.getline(place.file, place.line).strip()

    def is_own(self, place: Location) -> bool:
        """Return whether a place is in ``file``; some stages know only the last part of a path."""
        return place.file == self.file or (bool(place.file) and place.file == short_file(self.file))

    def other(self, place: Location) -> str:
        """Return the last part of the path of a place outside ``file``, "" for one inside it or nowhere."""
        return "" if place.file is None or self.is_own(place) else short_file(place.file)

    def words(self, place: Location) -> str:
        """Return ``line 12``, ``line 12 of other.py``, or "" where the line is not known."""
        if place.line is None:
            return ""
        other = self.other(place)
        return f"line {place.line} of {other}" if other else f"line {place.line}"
