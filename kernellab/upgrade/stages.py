"""The first stage of a compile at which two versions of Triton part, by source line.

What is compared are the operations of each line with their types: names of values, orders and locations do not count.
Layouts count by their definitions, not by the names that MLIR gives them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from kernellab.compile.types import Compiled
from kernellab.explain.code_lines import own_line
from kernellab.ir.graph import main_file, short_file
from kernellab.ir.instructions import instruction_of
from kernellab.ir.lines import stage_lines

COMPARED_STAGES = ("ttir", "ttgir", "llir", "ptx", "amdgcn")

LineOperations = Mapping[str, Mapping[str, int]]
"""The operations of a stage with their counts, by source line as a text; "" is the line of what has none."""

_ALIAS = re.compile(r"^(#[a-z_]\w*) = (.*)$", re.MULTILINE)
_NAMED = re.compile(r"#[a-z_]\w*")
_TYPES = re.compile(r" : (.*)$")
_MLIR = {"ttir", "ttgir"}
_WITHOUT_EFFECT = {"tt.return", "scf.yield", "tt.reduce.return", "tt.scan.return", "arith.constant"}


@dataclass(frozen=True, slots=True)
class PartingLine:
    """A source line with other operations: the gone and the new ones, with their counts."""

    line: int | None
    gone: tuple[tuple[str, int], ...]
    new: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        where = "without a line" if self.line is None else f"line {self.line}"
        return f"{where}: {_operation_words(self.gone)} -> {_operation_words(self.new)}"


@dataclass(frozen=True, slots=True)
class Parting:
    """The first stage at which two compiles differ, with the lines; ``stage`` is "" where none of them does."""

    stage: str
    lines: tuple[PartingLine, ...] = ()


def _operation_words(operations: tuple[tuple[str, int], ...]) -> str:
    return ", ".join(f"{count} x {name}" if count > 1 else name for name, count in operations) or "nothing"


def stage_operations(compiled: Compiled) -> dict[str, LineOperations]:
    """The operations of each stage of a compiled kernel by source line."""
    file = short_file(main_file(compiled.graph))
    return {
        stage: _operations_by_line(stage, compiled.stages[stage], file)
        for stage in COMPARED_STAGES
        if stage in compiled.stages
    }


def _operations_by_line(stage: str, text: str, file: str) -> LineOperations:
    layouts = dict(_ALIAS.findall(text)) if stage in _MLIR else {}
    lines: dict[str, Counter[str]] = {}
    for line in stage_lines(stage, text):
        instruction = instruction_of(stage, line.text)
        if instruction is None or instruction.mnemonic in _WITHOUT_EFFECT:
            continue
        place = own_line(line.place, file)
        types = "".join(_types_of(line.text, layouts)) if stage in _MLIR else ""
        lines.setdefault("" if place is None else str(place), Counter())[instruction.mnemonic + types] += 1
    return {place: dict(sorted(counts.items())) for place, counts in lines.items()}


def _types_of(text: str, layouts: Mapping[str, str]) -> Iterator[str]:
    """The types at the end of an operation of MLIR, with layouts by their definitions."""
    types = _TYPES.search(text)
    if types:
        yield " : "
        yield _NAMED.sub(lambda name: layouts.get(name[0], name[0]), types[1])


def first_parting(before: Mapping[str, LineOperations], after: Mapping[str, LineOperations]) -> Parting:
    """The first of the stages that both have in which the kernel has other operations, with their lines.

    An operation that moved to another line, as its location is reported otherwise, does not count.
    """
    for stage in COMPARED_STAGES:
        if stage in before and stage in after:
            was, now = _total(before[stage]), _total(after[stage])
            changed = (was - now).keys() | (now - was).keys()
            if changed:
                return Parting(stage, tuple(_parting_lines(before[stage], after[stage], changed)))
    return Parting("")


def _total(lines: LineOperations) -> Counter[str]:
    total: Counter[str] = Counter()
    for counts in lines.values():
        total.update(counts)
    return total


def _parting_lines(before: LineOperations, after: LineOperations, changed: Collection[str]) -> Iterator[PartingLine]:
    for place in sorted({*before, *after}, key=lambda text: int(text or 0)):
        was, now = (
            Counter({name: count for name, count in side.get(place, {}).items() if name in changed})
            for side in (before, after)
        )
        if was != now:
            gone, new = tuple(sorted((was - now).items())), tuple(sorted((now - was).items()))
            yield PartingLine(int(place) if place else None, gone, new)
