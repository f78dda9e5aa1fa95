"""Two compiled kernels side by side: versions, configs or targets of one kernel, in facts and in any stage."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum
from html import escape
from itertools import groupby, zip_longest

from kernellab.compile import ASSEMBLIES, DIFF_STAGES
from kernellab.compile.types import Compiled
from kernellab.errors import UsageError, choice_message, plural
from kernellab.ir.instructions import kind_counts
from kernellab.ir.lines import stage_lines
from kernellab.views.compile_facts import is_pipelined, option_words, resource_facts
from kernellab.views.elements import Fact, code_line, runs_of, style
from kernellab.views.explorers.exploration import explore, stage_text

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
    """Two aligned lines; a row for ``skipped`` equal lines has no sides."""

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
    rows = list(_rows(left, right, _without_numbers(name, left), _without_numbers(name, right)))
    differing = [at for at, row in enumerate(rows) if row.change not in {Change.SAME, Change.RENAMED}]
    near = {at for spot in differing for at in range(spot - CONTEXT_LINES, spot + CONTEXT_LINES + 1)}
    shown = list[DiffRow]()
    for is_near, group in groupby(enumerate(rows), key=lambda pair: pair[0] in near):
        lines = [row for _, row in group]
        shown += lines if is_near else [DiffRow(Change.SKIPPED, skipped=len(lines))]
    return tuple(shown)


def _without_numbers(name: str, lines: Sequence[str]) -> list[str]:
    pattern = _NUMBERED.get(name)
    if pattern is None:
        return list(lines)
    return [" ".join(pattern.sub("%", line).split()) for line in lines]


def _rows(left: Sequence[str], right: Sequence[str], bare: Sequence[str], other: Sequence[str]) -> Iterator[DiffRow]:
    """Compare runs of equal lines: assembly repeats some lines thousands of times, which difflib takes for junk."""
    one, two = runs_of(bare), runs_of(other)
    names, names_of_other = [bare[run[0]] for run in one], [other[run[0]] for run in two]
    counts = Counter(names_of_other)
    autojunk = sum(counts[name] for name in names) > _MEETINGS_AT_MOST  # pairs of equal names: the cost to be exact
    for tag, i, i_end, j, j_end in SequenceMatcher(None, names, names_of_other, autojunk).get_opcodes():
        pairs = [(_run_lines(one, i, i_end), _run_lines(two, j, j_end))]
        if tag == "equal":
            pairs = list(zip(one[i:i_end], two[j:j_end], strict=True))
        for lines, others in pairs:
            for at, to in zip_longest(lines, others):
                first = DiffSide(at + 1, left[at]) if at is not None else None
                second = DiffSide(to + 1, right[to]) if to is not None else None
                yield DiffRow(_change(tag, first, second), first, second)


def _run_lines(runs: Sequence[range], first: int, end: int) -> range:
    return range(runs[first].start, runs[end - 1].stop) if first < end else range(0)


def _change(tag: str, left: DiffSide | None, right: DiffSide | None) -> Change:
    if left is None:
        return Change.ADDED
    if right is None:
        return Change.REMOVED
    if tag == "equal":
        return Change.SAME if left.text == right.text else Change.RENAMED
    return Change.CHANGED


def changed_words(left: str, right: str) -> tuple[list[tuple[str, bool]], list[tuple[str, bool]]]:
    """Return both lines in pieces, each with whether it differs from the other line."""
    one, two = re.findall(r"\w+|\W", left), re.findall(r"\w+|\W", right)
    first, second = [], []
    for tag, i, i_end, j, j_end in SequenceMatcher(None, one, two, autojunk=False).get_opcodes():
        first.append(("".join(one[i:i_end]), tag != "equal"))
        second.append(("".join(two[j:j_end]), tag != "equal"))
    return [piece for piece in first if piece[0]], [piece for piece in second if piece[0]]


Pair = tuple[str, str]
_CLOSE = 0.34  # lines that share less than this are shown as a whole
_MARKS = {Change.REMOVED: "-", Change.ADDED: "+"}
_ROWS_AT_MOST = 2500
_COLUMNS = "<colgroup><col /><col /><col /><col /></colgroup>"


def diff_html(
    left: Compiled, right: Compiled, stage: str = "source", *, names: Pair | None = None, sources: Pair | None = None
) -> str:
    """Return the differences of two compiled kernels, side by side.

    ``stage`` is one of `DIFF_STAGES`. ``names`` stand above the columns (``add@1``, ``add@2``), and ``sources`` are the
    texts of the two kernels; without them, the source is read from the files that the kernels come from.

    Raises:
        UsageError: there is no such stage.
    """
    _require(stage)
    heads = "".join(f"<th>{escape(name)}</th>" for name in names or _names(left, right))
    facts = ""
    for name, one, two in _fact_pairs(left, right):
        css = ' class="kd-differs"' if one != two else ""
        facts += f"<tr{css}><th>{escape(name)}</th><td>{escape(one)}</td><td>{escape(two)}</td></tr>"
    body = [f'<table class="kd-facts"><thead><tr><th></th>{heads}</tr></thead><tbody>{facts}</tbody></table>']
    if stage != "resources":
        rows = _stage_rows(left, right, stage, sources)
        body.append(f'<p class="kd-sum">{escape(_summary(stage, rows))}</p>')
        lines, rest = "".join(map(_row, rows[:_ROWS_AT_MOST])), len(rows) - _ROWS_AT_MOST
        lines += _skipped_row(f"{rest:,} more rows") if rest > 0 else ""
        if any(row.change is not Change.SKIPPED for row in rows):
            table = f'<table class="kd-lines">{_COLUMNS}<tbody>{lines}</tbody></table>'
            body.append(f'<div class="kd-scroll">{table}</div>')
    return "\n".join(['<div class="kd">', style(__package__, "diff.css"), *body, "</div>"])


def _skipped_row(words: str) -> str:
    return f'<tr class="kd-skipped"><td></td><td colspan="3">{words}</td></tr>'


def diff_text(
    left: Compiled, right: Compiled, stage: str = "source", *, names: Pair | None = None, sources: Pair | None = None
) -> str:
    """Return the same as text: the facts that differ, then the lines that do, with ``-`` and ``+``."""
    _require(stage)
    first, second = names or _names(left, right)
    facts = [f"{name}: {a or 'none'} -> {b or 'none'}" for name, a, b in _fact_pairs(left, right) if a != b]
    lines = [f"--- {first}", f"+++ {second}", *facts]
    if stage != "resources":
        rows = _stage_rows(left, right, stage, sources)
        lines += [_summary(stage, rows), *_unified_lines(rows)]
    return "\n".join(lines)


def _require(stage: str) -> None:
    if stage not in DIFF_STAGES:
        raise UsageError(choice_message("stage", stage, DIFF_STAGES, owner="a comparison"))


def _names(left: Compiled, right: Compiled) -> Pair:
    """Name each by what sets it apart: kernel, target, options, else its constexprs, else its side."""
    one, two = (", ".join([side.kernel, str(side.target), *option_words(side)]) for side in (left, right))
    if one != two:
        return one, two
    values, others = _constexprs(left), _constexprs(right)
    differing = [name for name in values if name in others and values[name] != others[name]]
    first, second = (", ".join(f"{name}={side[name]}" for name in differing) for side in (values, others))
    return f"{one}, {first or 'left'}", f"{two}, {second or 'right'}"


def _constexprs(side: Compiled) -> dict[str, str]:
    return {p.name: p.specialization for p in side.parameters if p.type == "constexpr"}


def _stage_rows(left: Compiled, right: Compiled, stage: str, sources: Pair | None) -> tuple[DiffRow, ...]:
    texts = sources or ("", "")
    return diff_rows(stage, _lines(left, stage, texts[0]), _lines(right, stage, texts[1]))


def _lines(compiled: Compiled, stage: str, source: str) -> list[str]:
    if stage != "source":
        return [line.text for line in stage_lines(stage, stage_text(compiled, stage))]
    read = explore(compiled, sass=False).source if not source else ()
    return source.splitlines() or [line.text for function in read for line in function]


def _summary(stage: str, rows: Sequence[DiffRow]) -> str:
    title = stage if stage == "source" else stage.upper()
    removed = sum(row.change in {Change.REMOVED, Change.CHANGED} for row in rows)
    added = sum(row.change in {Change.ADDED, Change.CHANGED} for row in rows)
    if not removed and not added:
        return f"{title}: no difference" + ("" if stage == "source" else " but in the names of registers, if any")
    return f"{title}: {plural(removed, 'line')} removed, {plural(added, 'line')} added"


def _unified_lines(rows: Sequence[DiffRow]) -> Iterator[str]:
    for change, group in groupby(rows, key=lambda row: row.change):
        sides = [(row.left, row.right, row.skipped) for row in group]
        if change is Change.CHANGED:
            yield from (f"- {left.text}" for left, _, _ in sides if left)
            yield from (f"+ {right.text}" for _, right, _ in sides if right)
        elif change is Change.SKIPPED:
            yield from (f"@@ {plural(skipped, 'equal line')} @@" for _, _, skipped in sides)
        else:
            texts = (side.text for left, right, _ in sides if (side := left or right))
            yield from (f"{_MARKS.get(change, ' ')} {text}" for text in texts)


def _row(row: DiffRow) -> str:
    if row.change is Change.SKIPPED:
        return _skipped_row(plural(row.skipped, "equal line"))
    pairs = zip((row.left, row.right), _texts(row), strict=True)
    sides = "".join(f"<td>{side.number if side else ''}</td><td>{text}</td>" for side, text in pairs)
    return f'<tr class="kd-{row.change}">{sides}</tr>'


def _texts(row: DiffRow) -> Pair:
    plain = tuple(code_line(side.text) if side else "" for side in (row.left, row.right))
    if row.change is not Change.CHANGED or row.left is None or row.right is None:
        return plain[0], plain[1]
    first, second = changed_words(row.left.text, row.right.text)
    same = sum(len(text) for text, differs in first if not differs and text.strip())
    if same < _CLOSE * max(len(row.left.text.strip()), len(row.right.text.strip())):
        return plain[0], plain[1]
    return _mark_pieces(first), _mark_pieces(second)


def _mark_pieces(pieces: Sequence[tuple[str, bool]]) -> str:
    shown = ((escape(text) if at else code_line(text), differs) for at, (text, differs) in enumerate(pieces))
    return "".join(f"<mark>{piece}</mark>" if differs else piece for piece, differs in shown)


_OPTIONS = ("num_ctas", "maxnreg", "enable_fp_fusion", "waves_per_eu", "matrix_instr_nonkdim")


def _fact_pairs(left: Compiled, right: Compiled) -> Iterator[tuple[str, str, str]]:
    """Yield name, left and right of the resources of both, and of all else what differs; "" where one has none."""
    for (one, is_shown), (two, is_shown_too) in zip(_sections(left), _sections(right), strict=True):
        for name in dict.fromkeys([*one, *two]):
            if is_shown or is_shown_too or one.get(name, "") != two.get(name, ""):
                yield name, one.get(name, ""), two.get(name, "")


def _sections(compiled: Compiled) -> Iterator[tuple[Mapping[str, str], bool]]:
    """Yield the facts of a kernel, with whether they show where they do not differ."""
    options = compiled.options
    yield {"target": str(compiled.target), "num_warps": str(options.get("num_warps", ""))}, True
    yield {"num_stages": str(options.get("num_stages", ""))}, is_pipelined(compiled)
    yield {name: str(options[name]) for name in _OPTIONS if options.get(name) is not None}, False
    yield {p.name: ", ".join(filter(None, (p.type, p.specialization))) for p in compiled.parameters}, False
    yield {fact.name: _fact_words(fact) for fact in resource_facts(compiled)}, True
    yield _machine(compiled), False


def _fact_words(fact: Fact) -> str:
    """Return ``16 per thread`` or ``50%, limited by registers``."""
    return f"{fact.value}{' ' if fact.share is None else ', '}{fact.detail}".rstrip(", ")


def _machine(compiled: Compiled) -> Mapping[str, str]:
    name = next((name for name in ASSEMBLIES if name in compiled.stages), None)
    if name is None:
        return {}
    counts = kind_counts(name, compiled.stages[name])
    total = counts.pop("all", 0)
    return {f"{name.upper()} instructions": f"{total:,}", **{words: f"{counts[words]:,}" for words in sorted(counts)}}
