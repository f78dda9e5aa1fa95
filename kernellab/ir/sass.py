"""Where SASS comes from, as far as the PTX that it was made of knows better.

Two things are lost on the way to SASS: who called the library (the debug information of some Triton versions has no
calls), and the true line of inline assembly, which is how Triton loads and stores (see `kernellab.ir.lines.located`).
"""

from __future__ import annotations

from collections.abc import Iterator

from kernellab.ir.graph import Location
from kernellab.ir.instructions import Kind, instruction_of
from kernellab.ir.lines import Frame, Hint, located
from kernellab.ir.places import place_of


def hint_of_ptx(text: str) -> Hint:
    """Return what tells the place of a SASS instruction by the innermost frame of it.

    It knows a place where all PTX of that frame, or all of the same kind (loads, stores, ...), has one true place; of
    a library line that came from several lines of the user's, it does not know for which of them an instruction is.
    """
    found: dict[tuple[Frame, Kind | None], dict[Frame, Location]] = {}
    for frame, kind, place in _instructions(text):
        for key in (None, kind):
            found.setdefault((frame, key), {})[place.file, place.line] = place
    certain = {key: next(iter(places.values())) for key, places in found.items() if len(places) == 1}

    frames = {frame for frame, _ in found}

    def hint(frame: Frame, line: str) -> Location | None:
        if (frame, None) in certain or frame not in frames:
            return certain.get((frame, None))
        instruction = instruction_of("sass", line)
        return certain.get((frame, instruction.kind)) if instruction else None

    return hint


def _instructions(text: str) -> Iterator[tuple[Frame, Kind, Location]]:
    for line, named, true in located(text):
        instruction = instruction_of("ptx", line) if named.line is not None else None
        if instruction is not None:
            yield (named.file, named.line), instruction.kind, place_of(true)
