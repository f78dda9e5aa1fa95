"""The card of a harvest: the kernels that take the most time, a row per case."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from kernellab.errors import plural, time_text
from kernellab.harvest.record import CaseTime, HarvestedCase, HarvestRecord
from kernellab.harvest.result import bound_ratio, timed_cases
from kernellab.registry import config_words
from kernellab.views.blocks import Block, Card, Message, Section, notes, table_of

_MOST_ROWS = 20
_MOST_DIFFERENCES = 3
_DIGITS = 8


def harvest_card(record: HarvestRecord) -> Card:
    """The cases with the most time, and the sentences about what is not counted by case."""
    rows = timed_cases(record)
    blocks: list[Block] = [Message(_headline(record))]
    if rows:
        shown = [(*row, differs) for row, differs in zip(rows, distinctions(rows[:_MOST_ROWS]), strict=False)]
        left = {"kernel", "sizes", "config", "differs in", "basis"}
        blocks.append(table_of(_COLUMNS_OF_CARD, shown, left=left))
    more = [f"{plural(len(rows) - _MOST_ROWS, 'more case')} in .frame."] if len(rows) > _MOST_ROWS else []
    return Card([Section(None, [*blocks, *notes([*more, *harvest_notes(record)])])])


def distinctions(rows: Sequence[tuple[HarvestedCase, CaseTime]]) -> list[str]:
    """For each case, in words, its types and layouts that differ between cases of one kernel, sizes and config."""
    alike = defaultdict[tuple[str, ...], list[dict[str, str]]](list)
    keys = [(case.kernel, str(case.sizes or case.shapes), str(case.config)) for case, _ in rows]
    for key, (case, _) in zip(keys, rows, strict=True):
        alike[key].append(case.traits)
    return [_difference(case, alike[key]) for key, (case, _) in zip(keys, rows, strict=True)]


def _difference(case: HarvestedCase, alike: list[dict[str, str]]) -> str:
    traits = case.traits
    own = {name: text for name, text in traits.items() if any(other.get(name) != text for other in alike)}
    if alike.count(traits) > 1:
        own["binary"] = case.launch.result[:_DIGITS]  # alignment, which is part of no type
    words = config_words(dict(list(own.items())[:_MOST_DIFFERENCES]))
    return words + ", ..." * (len(own) > _MOST_DIFFERENCES)


def harvest_notes(record: HarvestRecord) -> list[str]:
    """A sentence for each thing that was counted, but not by case, or not at all."""
    sentences = []
    if record.rest:
        total = sum(record.rest.values())
        names = ", ".join(sorted(filter(None, record.rest))[:5]) or "many kernels"
        sentences.append(f"{total:,} launches were of more cases than are kept, and are counted by kernel: {names}.")
    if record.unknown_replays:
        sentences.append(
            f"{plural(record.unknown_replays, 'replay')} of CUDA graphs captured before the harvest, or beyond its "
            "limit: their launches are not counted."
        )
    reasons = Counter(case.no_roofline for case in record.cases if case.prediction is None and case.no_roofline)
    sentences += [f"No roofline of {plural(count, 'case')}: {why}." for why, count in reasons.items()]
    if any(case.trials for case in record.cases):
        trials = sum(case.trials for case in record.cases)
        sentences.append(f"{trials:,} further launches timed the configs of autotuners.")
    return sentences


def _headline(record: HarvestRecord) -> str:
    kernels = len({(case.module, case.kernel) for case in record.cases})
    count = sum(case.count for case in record.cases) + sum(record.rest.values())
    programs = f" of {record.programs} programs" if record.programs > 1 else ""
    return f"{count:,} launches{programs}: {plural(kernels, 'kernel')}, {plural(len(record.cases), 'case')}"


_COLUMNS_OF_CARD: dict[str, Callable[[tuple[HarvestedCase, CaseTime, str]], str]] = {
    "kernel": lambda row: row[0].kernel,
    "sizes": lambda row: config_words(row[0].sizes or row[0].shapes),
    "config": lambda row: config_words(row[0].config),
    "differs in": lambda row: row[2],
    "count": lambda row: f"{row[0].count:,}",
    "share": lambda row: "" if row[1].share is None else f"{row[1].share:.1%}",
    "time": lambda row: "" if row[1].ms is None else time_text(row[1].ms / 1e3),
    "basis": lambda row: str(row[1].basis),
    "vs roofline": lambda row: "" if (ratio := bound_ratio(*row[:2])) is None else f"{ratio:.1f}x",
}
