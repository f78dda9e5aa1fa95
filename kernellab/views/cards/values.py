"""The values of a launch, and a first difference, as cards."""

from __future__ import annotations

import linecache
from itertools import groupby

from kernellab.errors import plural
from kernellab.inside.births import births_in
from kernellab.inside.first_difference import FirstDifference
from kernellab.inside.values import Values
from kernellab.launch.recorded_values import RecordedValue
from kernellab.views.blocks import WARNING, Block, Card, Drawing, Fold, Heading, Message, Section, notes, table_of
from kernellab.views.elements import grid_words
from kernellab.views.figures.canvas import figure_block, value_text
from kernellab.views.figures.values import difference_figure, values_figure
from kernellab.views.values import ValuesPage

_MOST_ROWS = 60


def values_card(values: Values) -> Card:
    """A row per line and name of the first program, with figures of its last iteration; a picture of the last tile."""
    first = values.programs[0] if values.programs else (0, 0, 0)
    facts = [f"grid {grid_words(values.grid)}", f"program {first}", values.where]
    blocks: list[Block] = [Message(birth.sentence(), WARNING) for birth in births_in(values)]
    if values.failure:
        blocks.append(Message(f"The program stopped early: {values.failure}", "kl-alert"))
    columns = {
        "line": lambda value: str(value.line),
        "called in": lambda value: ", ".join(map(str, value.calls)),
        "name": lambda value: value.name or f"{value.kind.value} {value.argument or ''}",
        "iteration": lambda value: ", ".join(map(str, value.iteration)),
        "shape": lambda value: "x".join(map(str, value.shape)),
        "dtype": lambda value: value.dtype,
        "min": lambda value: value_text(value.summary.min),
        "max": lambda value: value_text(value.summary.max),
        "mean": lambda value: value_text(value.summary.mean),
        "NaN": lambda value: _count(value.summary.nan),
        "inf": lambda value: _count(value.summary.inf),
        "masked": lambda value: _count(value.summary.masked),
        "source": lambda value: _source(values, value),
    }
    rows = last_iterations([value for value in values.values if value.program == first])
    blocks.append(
        table_of(
            columns,
            rows,
            left=("called in", "name", "source"),
            code=("source",),
            most_lines=_MOST_ROWS,
            rest_is="in .frame",
        )
    )
    if values.values:
        blocks.append(
            Fold("Source with values", [Drawing(ValuesPage(values).html)], "of the first program, line by line")
        )
    blocks.append(figure_block(lambda dark: values_figure(values, dark=dark), "the last tile"))
    more = [f"{plural(len(values.programs), 'program')} recorded"] if len(values.programs) > 1 else []
    if values.values:
        more.append("kernellab.values_view(values) shows the tiles of every iteration and program")
    return Card([Section(Heading(values.kernel, facts), [*blocks, *notes((*more, *values.notes))])])


def last_iterations(values: list[RecordedValue]) -> list[RecordedValue]:
    """The last of the values that a line gave to a name, in the order of the lines."""

    def place(value: RecordedValue) -> tuple[int, tuple[int, ...], str]:
        return value.line, value.calls, value.name or value.argument or ""

    return [[*group][-1] for _, group in groupby(sorted(values, key=place), key=place)]


def _count(number: int) -> str:
    return f"{number:,}" if number else ""


def _source(values: Values, value: RecordedValue) -> str:
    for file, first_line, text in ((values.file, values.first_line, values.source), *values.helpers):
        lines = text.splitlines()
        if file == value.file and 0 <= value.line - first_line < len(lines):
            return lines[value.line - first_line].strip()
    return linecache.getline(value.file or "", value.line).strip()


def difference_card(difference: FirstDifference) -> Card:
    """The sentence of a first difference, both lines, and both tiles side by side."""
    facts = [f"{difference.compared:,} values compared", plural(len(difference.programs), "program")]
    blocks: list[Block] = [
        Message(difference.summary, "kl-alert" if difference or difference.failure else "kl-note kl-good")
    ]
    sides = zip(difference.names, (difference.left, difference.right), difference.texts, strict=True)
    rows = [(name, value, text) for name, value, text in sides if value is not None]
    columns = {
        "side": lambda row: row[0],
        "line": lambda row: str(row[1].line),
        "source": lambda row: row[2],
        "dtype": lambda row: row[1].dtype,
        "min": lambda row: value_text(row[1].summary.min),
        "max": lambda row: value_text(row[1].summary.max),
    }
    if rows:
        blocks.append(table_of(columns, rows, left=("side", "source"), code=("source",)))
        blocks.append(figure_block(lambda dark: difference_figure(difference, dark=dark), "both tiles"))
    blocks += notes(difference.notes)
    return Card([Section(Heading(" vs ".join(difference.names), facts), blocks)])
