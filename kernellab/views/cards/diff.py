"""Two compiled kernels side by side: versions, configs or targets of one kernel, in facts and in any stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from kernellab.compile.types import Compiled
from kernellab.errors import UsageError, choice_message
from kernellab.ir.instructions import Instruction, InstructionKind, profiles_of
from kernellab.ir.lines import stage_lines
from kernellab.views.cards.diff_rows import Change, DiffRow, DiffSide, changed_words, diff_rows
from kernellab.views.elements import style
from kernellab.views.explorers.exploration import STAGE_NAMES, explore, stage_text
from kernellab.views.wording import option_words, plural, resource_facts

DIFF_STAGES = ("source", "resources", *STAGE_NAMES)
Pair = tuple[str, str]
_CLOSE = 0.34  # lines that share less than this are shown as a whole
_MARKS = {Change.REMOVED: "-", Change.ADDED: "+"}
_ROWS_AT_MOST = 2500
_COLUMNS = "<colgroup><col /><col /><col /><col /></colgroup>"


def diff_html(
    left: Compiled, right: Compiled, stage: str = "source", *, names: Pair | None = None, sources: Pair | None = None
) -> str:
    """Return what differs between two compiled kernels, side by side.

    ``stage`` is one of `DIFF_STAGES`. ``names`` stand above the columns (``add@1``, ``add@2``), and ``sources`` are the
    texts of the two kernels; without them, the source is read from the files that the kernels come from.

    Raises:
        UsageError: there is no such stage.
    """
    _require(stage)
    heads = "".join(f"<th>{escape(name)}</th>" for name in names or _names(left, right))
    facts = "".join(_fact(pair) for pair in fact_pairs(left, right))
    body = [f'<table class="kd-facts"><thead><tr><th></th>{heads}</tr></thead><tbody>{facts}</tbody></table>']
    if stage != "resources":
        rows = _stage_rows(left, right, stage, sources)
        body.append(f'<p class="kd-sum">{escape(_summary(stage, rows))}</p>')
        lines = "".join(_row(row) for row in rows[:_ROWS_AT_MOST])
        if len(rows) > _ROWS_AT_MOST:
            lines += (
                f'<tr class="kd-skipped"><td></td><td colspan="3">{len(rows) - _ROWS_AT_MOST:,} more rows</td></tr>'
            )
        if any(row.change is not Change.SKIPPED for row in rows):
            body.append(
                f'<div class="kd-scroll"><table class="kd-lines">{_COLUMNS}<tbody>{lines}</tbody></table></div>'
            )
    return "\n".join(['<div class="kd">', style(__package__, "diff.css"), *body, "</div>"])


def diff_text(
    left: Compiled, right: Compiled, stage: str = "source", *, names: Pair | None = None, sources: Pair | None = None
) -> str:
    """Return the same as text: the facts that differ, then the lines that do, with ``-`` and ``+``."""
    _require(stage)
    first, second = names or _names(left, right)
    lines = [f"--- {first}", f"+++ {second}"]
    lines += [f"{pair.name}: {pair.left or 'none'} -> {pair.right or 'none'}" for pair in _differing(left, right)]
    if stage != "resources":
        rows = _stage_rows(left, right, stage, sources)
        lines += [_summary(stage, rows), *_unified(rows)]
    return "\n".join(lines)


def _require(stage: str) -> None:
    if stage not in DIFF_STAGES:
        raise UsageError(choice_message("stage", stage, DIFF_STAGES, owner="a comparison"))


def _names(left: Compiled, right: Compiled) -> Pair:
    """Name each by what sets it apart: kernel, target, options, else the start of its digest."""
    one, two = _words(left), _words(right)
    if one == two:
        return f"{one} ({left.digest[:8]})", f"{two} ({right.digest[:8]})"
    return one, two


def _words(compiled: Compiled) -> str:
    return ", ".join([compiled.kernel, str(compiled.target), *option_words(compiled)])


def _differing(left: Compiled, right: Compiled) -> Iterator[FactPair]:
    return (pair for pair in fact_pairs(left, right) if pair.differs)


def _stage_rows(left: Compiled, right: Compiled, stage: str, sources: Pair | None) -> tuple[DiffRow, ...]:
    if stage == "source":
        texts = sources or ("", "")
        return diff_rows(stage, _source(left, texts[0]), _source(right, texts[1]))
    return diff_rows(stage, _lines(left, stage), _lines(right, stage))


def _source(compiled: Compiled, given: str) -> list[str]:
    if given:
        return given.splitlines()
    functions = explore(compiled, sass=False).source
    return [line.text for function in functions for line in function]


def _lines(compiled: Compiled, stage: str) -> list[str]:
    return [line.text for line in stage_lines(stage, stage_text(compiled, stage))]


def _summary(stage: str, rows: Sequence[DiffRow]) -> str:
    title = stage if stage == "source" else stage.upper()
    removed = sum(row.change in {Change.REMOVED, Change.CHANGED} for row in rows)
    added = sum(row.change in {Change.ADDED, Change.CHANGED} for row in rows)
    if not removed and not added:
        return f"{title}: no difference" + ("" if stage == "source" else " but in the names of registers, if any")
    return f"{title}: {plural(removed, 'line')} removed, {plural(added, 'line')} added"


def _unified(rows: Sequence[DiffRow]) -> Iterator[str]:
    held: list[str] = []
    for row in rows:
        if row.change is Change.CHANGED and row.left and row.right:
            yield f"- {row.left.text}"
            held.append(f"+ {row.right.text}")
            continue
        yield from held
        held = []
        side = row.left or row.right
        if row.change is Change.SKIPPED:
            yield f"@@ {plural(row.skipped, 'equal line')} @@"
        elif side is not None:
            yield f"{_MARKS.get(row.change, ' ')} {side.text}"
    yield from held


def _fact(pair: FactPair) -> str:
    style = ' class="kd-differs"' if pair.differs else ""
    return f"<tr{style}><th>{escape(pair.name)}</th><td>{escape(pair.left)}</td><td>{escape(pair.right)}</td></tr>"


def _row(row: DiffRow) -> str:
    if row.change is Change.SKIPPED:
        return f'<tr class="kd-skipped"><td></td><td colspan="3">{plural(row.skipped, "equal line")}</td></tr>'
    left, right = _texts(row)
    sides = "".join(
        f"<td>{side.number if side else ''}</td><td>{text}</td>"
        for side, text in ((row.left, left), (row.right, right))
    )
    return f'<tr class="kd-{row.change}">{sides}</tr>'


def _texts(row: DiffRow) -> Pair:
    plain = _plain(row.left), _plain(row.right)
    if row.change is not Change.CHANGED or row.left is None or row.right is None:
        return plain
    first, second = changed_words(row.left.text, row.right.text)
    same = sum(len(text) for text, differs in first if not differs and text.strip())
    if same < _CLOSE * max(len(row.left.text.strip()), len(row.right.text.strip())):
        return plain
    return _marked(first), _marked(second)


def _plain(side: DiffSide | None) -> str:
    return escape(side.text) if side else ""


def _marked(pieces: Sequence[tuple[str, bool]]) -> str:
    return "".join(f"<mark>{escape(text)}</mark>" if differs else escape(text) for text, differs in pieces)


_OPTIONS = ("num_ctas", "maxnreg", "enable_fp_fusion", "waves_per_eu", "matrix_instr_nonkdim")
_SHOWN = (
    InstructionKind.LOAD,
    InstructionKind.STORE,
    InstructionKind.ASYNC_COPY,
    InstructionKind.BULK_COPY,
    InstructionKind.TENSOR,
    InstructionKind.ATOMIC,
    InstructionKind.BARRIER,
    InstructionKind.SPILL,
)


@dataclass(frozen=True, slots=True)
class FactPair:
    """One fact of two kernels, in words; "" where one of them has none."""

    name: str
    left: str
    right: str

    @property
    def differs(self) -> bool:
        """Whether the two kernels differ in it."""
        return self.left != self.right


def fact_pairs(left: Compiled, right: Compiled) -> tuple[FactPair, ...]:
    """Return the resources of both, and of all else what differs."""
    sections = [
        (_identity(left), _identity(right), False),
        (_options(left), _options(right), True),
        (_arguments(left), _arguments(right), True),
        (_resources(left), _resources(right), False),
        (_machine(left), _machine(right), True),
    ]
    return tuple(
        pair
        for one, two, only_differing in sections
        for name in dict.fromkeys([*one, *two])
        if (pair := FactPair(name, one.get(name, ""), two.get(name, ""))).differs or not only_differing
    )


def _identity(compiled: Compiled) -> Mapping[str, str]:
    options = {name: str(compiled.options.get(name, "")) for name in ("num_warps", "num_stages")}
    return {"target": str(compiled.target), **options}


def _options(compiled: Compiled) -> Mapping[str, str]:
    return {name: str(compiled.options[name]) for name in _OPTIONS if compiled.options.get(name) is not None}


def _arguments(compiled: Compiled) -> Mapping[str, str]:
    return {
        parameter.name: ", ".join(part for part in (parameter.type, parameter.specialization) if part)
        for parameter in compiled.parameters
    }


def _resources(compiled: Compiled) -> Mapping[str, str]:
    return {fact.name: f"{fact.value} {fact.detail}".strip() for fact in resource_facts(compiled.resources)}


def _machine(compiled: Compiled) -> Mapping[str, str]:
    """Return how many instructions of each notable kind the assembly has."""
    name = next((name for name in reversed(STAGE_NAMES) if name in compiled.stages), "")
    if name not in {"ptx", "amdgcn"}:
        return {}
    profiles = profiles_of(name, stage_lines(name, compiled.stages[name])).values()
    counts: Counter[str] = Counter()
    for profile in profiles:
        for instruction, count in profile.notable:
            if instruction.kind in _SHOWN:
                counts[_instruction_words(instruction)] += count
    total = sum(profile.instructions for profile in profiles)
    return {f"{name.upper()} instructions": f"{total:,}", **dict(_sorted(counts))}


def _sorted(counts: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    return ((words, f"{counts[words]:,}") for words in sorted(counts))


def _instruction_words(instruction: Instruction) -> str:
    if instruction.unit:
        return instruction.unit
    return f"{instruction.kind}, {instruction.bytes} B wide" if instruction.bytes else str(instruction.kind)
