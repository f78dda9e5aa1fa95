"""A stage in runs of lines that come from one source line, long ones folded until the whole has a bearable size."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from kernellab.ir.graph import Location
from kernellab.ir.instructions import instruction_of
from kernellab.ir.locations import calls_of
from kernellab.views.exploration import LineKey, Stage, key_of
from kernellab.views.wording import plural

STAGE_BYTES_AT_MOST = 100_000
_LINE_AT_MOST = 220
_KEPT = (None, 120, 40, 16, 6, 2)  # lines of a run, from the least folding to the most
_NAMED = 4
_RUN_BYTES = 60  # of the HTML around a run
_SASS_GAP = re.compile(r"^\s*(/\*[0-9a-f]{4,}\*/)\s+")


@dataclass(frozen=True, slots=True)
class Run:
    """Successive lines that come from one source line, ``key``, inlined where ``calls`` tell, from the inside out."""

    lines: tuple[str, ...]
    key: LineKey | None
    calls: tuple[LineKey, ...]


def fitted(stage: Stage) -> tuple[Run, ...]:
    """Return the runs of a stage, folded so far that they stay below `STAGE_BYTES_AT_MOST`, if that is possible.

    Every run keeps its first lines, so that every source line can still be followed to what it became.
    """
    runs = tuple(_runs(stage))
    kept = next((kept for kept in _KEPT if sum(_size(run, kept) for run in runs) < STAGE_BYTES_AT_MOST), _KEPT[-1])
    return tuple(_fold(stage.name, run, kept) for run in runs)


def _runs(stage: Stage) -> Iterator[Run]:
    places = {name: (key_of(place), _calls(place)) for name, place in stage.places.items()}
    for (key, calls), group in groupby(stage.lines, key=lambda line: places[id(line.place)]):
        yield Run(tuple(_shortened(stage.name, line.text) for line in group), key, calls)


def _calls(place: Location) -> tuple[LineKey, ...]:
    keys = (key_of(call) for call in calls_of(place))
    return tuple(dict.fromkeys(key for key in keys if key is not None))


def _size(run: Run, kept: int | None) -> int:
    return _RUN_BYTES + sum(map(len, run.lines[:kept])) + len(run.lines[:kept])


def _fold(name: str, run: Run, kept: int | None) -> Run:
    if kept is None or len(run.lines) <= kept + 2:
        return run
    return replace(run, lines=(*run.lines[:kept], f"    … {_folded(name, run.lines[kept:])}"))


def _shortened(name: str, line: str) -> str:
    if name == "sass":
        line = _SASS_GAP.sub(r"\1 ", line)
    if len(line) <= _LINE_AT_MOST:
        return line
    return f"{line[:_LINE_AT_MOST]} … {len(line) - _LINE_AT_MOST:,} more characters"


def _folded(name: str, lines: Iterable[str]) -> str:
    found = [instruction_of(name, f" {line}") for line in lines]
    counts = Counter(instruction.mnemonic for instruction in found if instruction is not None)
    most = ", ".join(f"{count} {mnemonic}" for mnemonic, count in counts.most_common(_NAMED))
    rest = ", ..." if len(counts) > _NAMED else ""
    return f"{plural(len(found), 'more line')}{': ' if most else ''}{most}{rest}"
