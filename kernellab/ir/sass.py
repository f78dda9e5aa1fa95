"""Where SASS comes from, as far as the PTX that it was made of knows better.

Three things are lost on the way to SASS: who called the library (the debug information of some Triton versions has no
calls), the true line of inline assembly, which is how Triton loads and stores (see `kernellab.ir.lines.located`), and
in loops that ptxas reorders, the line of some instructions of the tensor cores.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernellab.ir.graph import Location
from kernellab.ir.instructions import Kind, instruction_of
from kernellab.ir.lines import Frame, Hint, located
from kernellab.ir.places import place_of

# What ptxas neither makes by itself nor turns into something else.
_TRACED = frozenset({Kind.LOAD, Kind.STORE, Kind.ASYNC_COPY, Kind.BULK_COPY, Kind.TENSOR, Kind.ATOMIC})
_Key = tuple[Frame | None, Kind | None]  # None stands for all


def hint_of_ptx(text: str) -> Hint:
    """Return what tells the place of a SASS instruction by the innermost frame of it.

    It knows a place where all PTX of that frame, or all of the same kind (loads, stores, ...), has one true place, and
    where the frame has none of that kind, but the whole kernel has it in one place. Of a library line that came from
    several lines of the user's, it does not know for which of them an instruction is.
    """
    found: dict[_Key, dict[Frame, Location]] = {}
    for frame, kind, place in _instructions(text):
        for key in ((frame, None), (frame, kind), (None, kind)):
            found.setdefault(key, {})[place.file, place.line] = place
    certain = {key: next(iter(places.values())) for key, places in found.items() if len(places) == 1}

    def hint(frame: Frame, line: str) -> Location | None:
        instruction = instruction_of("sass", line)
        kind = instruction.kind if instruction else Kind.OTHER
        if kind in _TRACED:
            return certain.get((frame, kind) if (frame, kind) in found else (None, kind))
        return certain.get((frame, None)) or certain.get((frame, kind))

    return hint


def _instructions(text: str) -> Iterator[tuple[Frame, Kind, Location]]:
    for line, named, true in located(text):
        instruction = instruction_of("ptx", line) if named.line is not None else None
        if instruction is not None:
            yield (named.file, named.line), instruction.kind, place_of(true)
