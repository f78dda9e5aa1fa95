"""Two texts line by line: which lines are equal, which but for the names of registers, and which differ."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum
from itertools import pairwise, zip_longest

CONTEXT_LINES = 3
_MEETINGS_AT_MOST = 300_000


class Change(StrEnum):
    """How the two sides of a row compare."""

    SAME = "same"
    RENAMED = "renamed"
    CHANGED = "changed"
    REMOVED = "removed"
    ADDED = "added"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class DiffSide:
    """A line of one of the two texts; ``number`` counts from 1."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class DiffRow:
    """Lines that stand beside each other. A row that stands for ``skipped`` equal ones has no sides."""

    change: Change
    left: DiffSide | None = None
    right: DiffSide | None = None
    skipped: int = 0


# What compilers number afresh after any change: registers, SSA values, offsets and labels.
_NUMBERED = {
    "ttir": re.compile(r"%[\w#:-]+|#loc\d*"),
    "ttgir": re.compile(r"%[\w#:-]+|#loc\d*"),
    "llir": re.compile(r"%[\w.\"]+|#\d+|!\d+"),
    "ptx": re.compile(r"%[a-z]+\d+|\$L_\w+|(?<=//)\s.*"),
    "amdgcn": re.compile(r"\b[asv]\d+\b|\b[asv]\[[\d:]+\]|\.LBB\w+|(?<=;)\s.*"),
    "sass": re.compile(r"/\*[0-9a-f]{4,}\*/|\bU?[RP]\d+\b(?:\.reuse\b)?|\.L_x_\d+"),
}


def diff_rows(name: str, left: Sequence[str], right: Sequence[str]) -> tuple[DiffRow, ...]:
    """Return the rows of two texts of the stage ``name``, with `CONTEXT_LINES` equal ones around each difference."""
    return tuple(_with_context(list(_rows(left, right, _bare(name, left), _bare(name, right)))))


def _bare(name: str, lines: Sequence[str]) -> list[str]:
    pattern = _NUMBERED.get(name)
    if pattern is None:
        return list(lines)
    return [" ".join(pattern.sub("%", line).split()) for line in lines]


def _rows(left: Sequence[str], right: Sequence[str], bare: Sequence[str], other: Sequence[str]) -> Iterator[DiffRow]:
    """Compare runs of equal lines: assembly repeats some lines thousands of times, which difflib takes for junk."""
    one, two = _runs(bare), _runs(other)
    names, names_of_other = [bare[run[0]] for run in one], [other[run[0]] for run in two]
    autojunk = _meetings(names, names_of_other) > _MEETINGS_AT_MOST
    for tag, i, i_end, j, j_end in SequenceMatcher(None, names, names_of_other, autojunk).get_opcodes():
        pairs = [(_lines(one, i, i_end), _lines(two, j, j_end))]
        if tag == "equal":
            pairs = list(zip(one[i:i_end], two[j:j_end], strict=True))
        for lines, others in pairs:
            for at, to in zip_longest(lines, others):
                first = DiffSide(at + 1, left[at]) if at is not None else None
                second = DiffSide(to + 1, right[to]) if to is not None else None
                yield DiffRow(_change(tag, first, second), first, second)


def _runs(lines: Sequence[str]) -> list[range]:
    starts = [at for at, line in enumerate(lines) if at == 0 or line != lines[at - 1]]
    return [range(first, end) for first, end in pairwise([*starts, len(lines)])]


def _lines(runs: Sequence[range], first: int, end: int) -> range:
    return range(runs[first].start, runs[end - 1].stop) if first < end else range(0)


def _meetings(left: Sequence[str], right: Sequence[str]) -> int:
    """Return how many pairs of equal names there are: what an exact comparison takes time for."""
    one, two = Counter(left), Counter(right)
    return sum(count * two[line] for line, count in one.items())


def _change(tag: str, left: DiffSide | None, right: DiffSide | None) -> Change:
    if left is None:
        return Change.ADDED
    if right is None:
        return Change.REMOVED
    if tag == "equal":
        return Change.SAME if left.text == right.text else Change.RENAMED
    return Change.CHANGED


def _with_context(rows: Sequence[DiffRow]) -> Iterator[DiffRow]:
    differing = [at for at, row in enumerate(rows) if row.change not in {Change.SAME, Change.RENAMED}]
    near = {at for spot in differing for at in range(spot - CONTEXT_LINES, spot + CONTEXT_LINES + 1)}
    skipped = 0
    for at, row in enumerate(rows):
        if at in near:
            if skipped:
                yield DiffRow(Change.SKIPPED, skipped=skipped)
            skipped = 0
            yield row
        else:
            skipped += 1
    if skipped:
        yield DiffRow(Change.SKIPPED, skipped=skipped)


def changed_words(left: str, right: str) -> tuple[list[tuple[str, bool]], list[tuple[str, bool]]]:
    """Return both lines in pieces, each with whether it differs from the other line."""
    one, two = re.findall(r"\w+|\W", left), re.findall(r"\w+|\W", right)
    first, second = [], []
    for tag, i, i_end, j, j_end in SequenceMatcher(None, one, two, autojunk=False).get_opcodes():
        first.append(("".join(one[i:i_end]), tag != "equal"))
        second.append(("".join(two[j:j_end]), tag != "equal"))
    return [piece for piece in first if piece[0]], [piece for piece in second if piece[0]]
