"""The timeline of a launch as a card: what it took, waves, tail, parts by line, and the picture of the SMs."""

from __future__ import annotations

from kernellab.errors import plural, share_text, time_text
from kernellab.inside.timeline import Timeline, Wave
from kernellab.views.blocks import WARNING, Block, Card, Heading, Message, Section, notes, table_of
from kernellab.views.elements import grid_words
from kernellab.views.figures.canvas import figure_block
from kernellab.views.figures.timeline import overhead_sentence, timeline_figure

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
    return [
        f"{programs} on {used} of {timeline.multiprocessors} SMs; at most {timeline.places_per_sm} per SM at a time.",
        f"Launch {launch}: programs {span}, before and after them {gap}.",
        f"Tail: {tail} from the first idle SM to the end; SMs are idle {idle} of the time.",
        *_long_sentence(timeline),
        f"Clock resolution: {timeline.resolution_ns} ns.",
    ]


def _long_sentence(timeline: Timeline) -> list[str]:
    long = timeline.long_programs
    if not long:
        return []
    first = [
        f"{timeline.program(n)} {_us(float(timeline.end_us[n] - timeline.start_us[n]))}" for n in long[:_MOST_LONG]
    ]
    more = f" and {len(long) - _MOST_LONG} more" if len(long) > _MOST_LONG else ""
    return [f"Slow programs (1.5x the median or more): {', '.join(first)}{more}."]


def _us(value: float) -> str:
    return time_text(value / 1e6)
