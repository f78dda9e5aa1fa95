"""Results of looking inside launches as cards: values, a first difference, a timeline, an equivalence."""

from __future__ import annotations

import linecache
from itertools import groupby

from kernellab.errors import plural, share_text, time_text
from kernellab.inside.births import births_in
from kernellab.inside.equivalence import Equivalence
from kernellab.inside.first_difference import FirstDifference
from kernellab.inside.timeline import Timeline, Wave
from kernellab.inside.values import Values
from kernellab.launch.recorded_values import RecordedValue
from kernellab.views.blocks import WARNING, Block, Card, Drawing, Fold, Heading, Message, Section, notes, table_of
from kernellab.views.elements import grid_words, number, value_name
from kernellab.views.figures.canvas import figure_block, value_text
from kernellab.views.figures.inside import difference_figure, overhead_sentence, timeline_figure, values_figure
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
        "name": value_name,
        "iteration": lambda value: ", ".join(map(str, value.iteration)),
        "shape": lambda value: "x".join(map(str, value.shape)),
        "dtype": lambda value: value.dtype,
        "min": lambda value: value_text(value.summary.min),
        "max": lambda value: value_text(value.summary.max),
        "mean": lambda value: value_text(value.summary.mean),
        "NaN": lambda value: number(value.summary.nan or None, ",d"),
        "inf": lambda value: number(value.summary.inf or None, ",d"),
        "masked": lambda value: number(value.summary.masked or None, ",d"),
        "source": lambda value: values.line_text(value) or linecache.getline(value.file or "", value.line).strip(),
    }
    rows = last_iterations([value for value in values.values if value.program == first])
    left = ("called in", "name", "source")
    blocks.append(table_of(columns, rows, left=left, code=("source",), most_lines=_MOST_ROWS))
    if values.values:
        page = Drawing(ValuesPage(values).html)
        blocks.append(Fold("Source with values", [page], "of the first program, line by line"))
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


def difference_card(difference: FirstDifference) -> Card:
    """The sentence of a first difference, both lines, and both tiles side by side."""
    facts = [f"{difference.compared:,} values compared", difference.coverage]
    style = "kl-alert" if difference or difference.failure else "kl-note kl-good"
    blocks: list[Block] = [Message(difference.summary, style)]
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


_MOST_WAVES, _MOST_LONG = 12, 5


def timeline_card(timeline: Timeline) -> Card:
    """Return a timeline with its sentences, its tables, and its picture."""
    facts = [timeline.device or "no GPU", f"grid {grid_words(timeline.grid)}"]
    blocks: list[Block] = [Message(sentence) for sentence in timeline_sentences(timeline)]
    blocks.append(Message(overhead_sentence(timeline), WARNING if timeline.has_high_overhead else "kl-note"))
    blocks.append(figure_block(lambda dark: timeline_figure(timeline, dark=dark), "SMs over time"))
    columns = {
        "wave": lambda wave: str(wave.number),
        "programs": lambda wave: f"{wave.programs:,}",
        "share": lambda wave: share_text(wave.share),
        "from": lambda wave: _us(wave.start_us),
        "to": lambda wave: _us(wave.end_us),
    }
    waves: list[Wave] = list(timeline.waves)
    blocks.append(table_of(columns, waves, most_lines=_MOST_WAVES, rest_is="in .waves"))
    if timeline.shares:
        parts = {"part": lambda part: part[0], "share of the programs' time": lambda part: share_text(part[1])}
        blocks.append(table_of(parts, list(timeline.shares.items()), left=("part",)))
    return Card([Section(Heading(timeline.kernel, facts), [*blocks, *notes(timeline.notes)])])


def timeline_sentences(timeline: Timeline) -> list[str]:
    """Return the times of a launch, of its gap and of its tail, and the programs that take long."""
    if not len(timeline.sm):
        return ["The grid is empty."]
    used, programs = len(set(timeline.sm.tolist())), plural(len(timeline.sm), "program")
    span, launch, gap = map(_us, (timeline.span_us, timeline.launch_us, timeline.gap_us))
    tail, idle = _us(timeline.tail_us), share_text(timeline.idle_share)
    times = ((timeline.program(n), float(timeline.end_us[n] - timeline.start_us[n])) for n in timeline.long_programs)
    slow = [f"{program} {_us(time)}" for program, time in times]
    more = f" and {len(slow) - _MOST_LONG} more" if len(slow) > _MOST_LONG else ""
    slowest = f"Slow programs (1.5x the median or more): {', '.join(slow[:_MOST_LONG])}{more}."
    return [
        f"{programs} on {used} of {timeline.multiprocessors} SMs; at most {timeline.places_per_sm} per SM at a time.",
        f"Launch {launch}: programs {span}, before and after them {gap}.",
        f"Tail: {tail} from the first idle SM to the end; SMs are idle {idle} of the time.",
        *([slowest] if slow else []),
        f"Clock resolution: {timeline.resolution_ns} ns.",
    ]


def _us(value: float) -> str:
    return time_text(value / 1e6)


def equivalence_card(equivalence: Equivalence) -> Card:
    """The answer in one sentence, the findings of both runs, and a row per output."""
    is_certain = equivalence.equal and not equivalence.unmodelled
    blocks: list[Block] = [Message(equivalence.summary, "kl-note kl-good" if is_certain else "kl-alert")]
    blocks += [Message(warning, "kl-alert") for warning in equivalence.warnings]
    columns = {
        "output": lambda row: row.name,
        "equal": lambda row: "yes" if row.equal else "no",
        "elements": lambda row: f"{row.elements:,}",
        "different": lambda row: f"{row.different:,}",
        "first": lambda row: "" if row.first is None else f"[{', '.join(map(str, row.first))}]",
    }
    blocks.append(table_of(columns, equivalence.outputs, left=("output",), code=("output",)))
    facts = [plural(len(equivalence.outputs), "output"), "without tolerance, on the CPU"]
    return Card([Section(Heading(" vs ".join(equivalence.names), facts), blocks)])
