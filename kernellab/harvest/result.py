"""The result of a harvest: a row per kernel and case, cases and inputs for a tuning, a card, and files."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernellab._triton.kernel import is_kernel, jit_function
from kernellab.display import Savable
from kernellab.errors import UsageError, plural, time_text, value_text
from kernellab.harvest.record import (
    CaseTime,
    HarvestedCase,
    HarvestRecord,
    case_times,
    merged_record,
    read_record,
    record_to_jsonable,
)
from kernellab.registry import config_words
from kernellab.registry.launches_from_store import regenerated_inputs, values_of
from kernellab.timing.config import Config
from kernellab.views.blocks import Block, Card, Message, Section, notes, table_of
from kernellab.workers.forks_and_interrupts import import_uninterrupted

if TYPE_CHECKING:
    import pandas
    import triton

    from kernellab._triton.kernel import Kernel


_MOST_ROWS = 20
_MOST_DIFFERENCES = 3
_DIGITS = 8


class HarvestedSizes(list[dict[str, int]]):
    """The sizes of cases, for ``over`` of `Lab.tune_over`, which reads ``weights``, ``baseline`` and ``notes``."""

    def __init__(
        self,
        sizes: list[dict[str, int]],
        weights: list[int],
        baseline: list[triton.Config] | None,
        notes: tuple[str, ...] = (),
    ) -> None:
        super().__init__(sizes)
        self.weights, self.baseline, self.notes = weights, baseline, notes


Predict = Callable[[HarvestRecord], HarvestRecord]
"""Adds predictions to the cases that take the most time."""


class Harvest(Savable):
    """The launches of a program by kernel and case, while it runs and after it; of `Lab.harvest`.

    ``read`` returns what is recorded so far; ``predict`` adds predicted times and rooflines where the kernels are at
    hand, as they are in the process that launched them. Saved as ``.json``, it can be loaded and merged.
    """

    def __init__(self, read: Callable[[], HarvestRecord], predict: Predict = lambda record: record) -> None:
        self._read, self._predict = read, predict
        self._predicted: dict[str, dict[str, Any]] = {}

    def __repr__(self) -> str:
        record = self.record
        kernels = len({(case.module, case.kernel) for case in record.cases})
        launches = sum(case.launches for case in record.cases) + sum(record.rest.values())
        return f"<Harvest of {kernels} kernels in {len(record.cases)} cases: {launches:,} launches>"

    @property
    def name(self) -> str:
        """The title of its page."""
        return "kernels of a program"

    @property
    def record(self) -> HarvestRecord:
        """The record so far, without new predictions."""
        record = self._read()
        if not self._predicted:
            return record
        cases = (
            case if case.prediction else replace(case, **self._predicted.get(case.key, {})) for case in record.cases
        )
        return replace(record, cases=tuple(cases))

    def predict(self) -> HarvestRecord:
        """Predict the cases that take the most time, and return the record with their rooflines."""
        record = self._predict(self.record)
        self._predicted = {
            case.key: {"prediction": case.prediction, "no_roofline": case.no_roofline}
            for case in record.cases
            if case.prediction or case.no_roofline
        }
        return record

    @property
    def frame(self) -> pandas.DataFrame:
        """A row per kernel and case as a DataFrame, those that take the most time first.

        ``share`` is that of the time of all rows, ``times_bound`` the milliseconds of a launch over those of its
        roofline. Cases are predicted for it when it is asked for, which takes seconds.
        """
        pd = import_uninterrupted("pandas")
        frame = pd.DataFrame(self.rows(), columns=list(_COLUMNS))
        record = self.record
        frame.attrs |= {"rest": dict(record.rest), "unknown_replays": record.unknown_replays}
        return frame

    def rows(self) -> list[dict[str, Any]]:
        """The rows of `frame`."""
        return [{name: write(*row) for name, write in _COLUMNS.items()} for row in timed_cases(self.predict())]

    def cases(self, kernel: Kernel | str, names: list[str] | None = None) -> HarvestedSizes:
        """The sizes of each case of a kernel, the cases that take the most time first.

        They go into ``lab.tune_over(kernel, grid, over=seen.cases(kernel), inputs=seen.inputs(kernel))``. ``names`` are
        the integers that distinguish cases; None takes all positive integer arguments and constexprs that differ
        between cases and that no autotuner sets, or all if none differs. The list has ``weights``, the launches of each
        case, and of an autotuned kernel ``baseline``, the config that each case was launched with. Launches with other
        dtypes or flags at the same sizes count to the case that takes the most time; ``notes`` say how many.

        Raises:
            UsageError: no such kernel was launched, or it takes no integers.
        """
        distinct = self._distinct(kernel, names)
        largest = [max((case for case, _ in group), key=lambda case: case.count) for _, group in distinct]
        are_tuned = all(case.config_names for case in largest)
        return HarvestedSizes(
            [sizes for sizes, _ in distinct],
            weights=[sum(case.count for case, _ in group) for _, group in distinct],
            baseline=[Config.of(case.config).to_triton() for case in largest] if are_tuned else None,
            notes=tuple(_notes_on_kinds([[case for case, _ in group] for _, group in distinct])),
        )

    def inputs(
        self, kernel: Kernel | str, names: list[str] | None = None, *, tuned: Sequence[str] = ()
    ) -> Callable[..., dict[str, Any]]:
        """A function of the sizes of a case that makes arguments like those that it was launched with, by name.

        What an autotuner sets is left to the tuning, and so are the constexprs in ``tuned``, such as ``["BLOCK"]``.
        Tensors have random contents, integer ones zeros and ones.
        """
        distinct = self._distinct(kernel, names)
        launches = {tuple(sorted(sizes.items())): group[0][0] for sizes, group in distinct}

        def inputs(**sizes: int) -> dict[str, Any]:
            case = launches.get(tuple(sorted(sizes.items())))
            if case is None:
                raise UsageError(f"No case of {case_names} was harvested with {config_words(sizes)}.")
            device = "cuda" if case.launch.where == "gpu" else "cpu"
            options = {*case.launch.options, *case.config_names, *tuned}
            constants = {name: value for name, value in values_of(case.launch).items() if name not in options}
            return {**regenerated_inputs(case.launch, device), **constants}

        case_names = kernel if isinstance(kernel, str) else jit_function(kernel).__name__
        parameters = [Parameter(name, Parameter.KEYWORD_ONLY) for name in distinct[0][0]]
        inputs.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        return inputs

    def merge(self, *others: Harvest) -> Harvest:
        """One harvest of this and others, such as those of all ranks: equal cases become one, counts are added."""
        strangers = [value for value in others if not isinstance(value, Harvest)]
        if strangers:
            raise UsageError(f"merge takes harvests, and got {value_text(strangers[0])}; Harvest.load reads a file.")
        record = merged_record([harvest.record for harvest in (self, *others)])
        return Harvest(lambda: record)

    @staticmethod
    def load(path: str | Path) -> Harvest:
        """Read a harvest that was saved as ``.json``; its kernels are known by name.

        Raises:
            UsageError: the file cannot be read, or is none.
        """
        record = read_record(Path(path))
        return Harvest(lambda: record)

    def card(self) -> Card:
        """The cases with the most time, and the sentences about what is not counted by case."""
        return harvest_card(self.predict())

    def as_json(self) -> str:
        """All that is recorded, with the predictions made so far."""
        return json.dumps({"result": "Harvest", **record_to_jsonable(self.record)}, indent=1, allow_nan=False)

    def _distinct(
        self, kernel: Kernel | str, names: list[str] | None
    ) -> list[tuple[dict[str, int], list[tuple[HarvestedCase, CaseTime]]]]:
        """The cases of a kernel by their sizes, the ones with the most time first."""
        rows = _of_kernel(self.record, kernel)
        rows = [row for row in rows if row[0].count] or rows  # without those that an autotuner tried alone
        groups: dict[tuple[int, ...], list[tuple[HarvestedCase, CaseTime]]] = {}
        own = _distinguishing_names([case for case, _ in rows]) if names is None else list(names)
        for case, time in rows:
            sizes = case.sizes
            missing = [name for name in own if name not in sizes]
            if missing:
                known = ", ".join(sizes) or "none"
                raise UsageError(f"{case.kernel} has no integer {missing[0]!r} in each case; it has {known}.")
            groups.setdefault(tuple(sizes[name] for name in own), []).append((case, time))
        return [(dict(zip(own, values, strict=True)), group) for values, group in groups.items()]


def _notes_on_kinds(groups: list[list[HarvestedCase]]) -> Iterator[str]:
    """A note on launches that differ from the first case of their sizes in dtypes or flags."""
    others = [(case, group[0]) for group in groups for case in group if case.count and case.types != group[0].types]
    if others:
        total, names = sum(case.count for group in groups for case in group), dict[str, None]()
        for case, first in others:
            names |= {name: None for name, _ in case.types.items() ^ first.types.items()}
        count = sum(case.count for case, _ in others)
        yield (
            f"{count:,} of {total:,} launches of {others[0][0].kernel} have other dtypes or flags at the same sizes "
            f"({', '.join(sorted(names))}): they are tuned as the others."
        )


def timed_cases(record: HarvestRecord) -> list[tuple[HarvestedCase, CaseTime]]:
    """The cases with their times, those that take the most time first, then those that are launched most."""
    rows = list(zip(record.cases, case_times(record), strict=True))
    return sorted(rows, key=lambda row: (-(row[1].total_ms or 0.0), -row[0].count))


def _of_kernel(record: HarvestRecord, kernel: Kernel | str) -> list[tuple[HarvestedCase, CaseTime]]:
    if isinstance(kernel, str):
        module, _, name = kernel.rpartition(".")
    elif is_kernel(kernel):
        function = jit_function(kernel)
        module, name = function.__module__, function.__name__
    else:
        raise UsageError(f"{value_text(kernel)} is not a Triton kernel; pass one, or the name of one.")
    rows = [r for r in timed_cases(record) if r[0].kernel == name and module in ("", r[0].module)]
    modules = sorted({case.module for case, _ in rows})
    if not rows:
        known = ", ".join(sorted({case.kernel for case in record.cases})) or "none"
        raise UsageError(f"No launch of {name} was harvested; launched were: {known}.")
    if len(modules) > 1:
        raise UsageError(f"{name} is a kernel of {' and of '.join(modules)}; pass one as {modules[0]}.{name}.")
    return rows


def _distinguishing_names(cases: list[HarvestedCase]) -> list[str]:
    """The positive integers that each case has and that differ between cases; all of them if none differs."""
    sizes = [case.sizes for case in cases]
    common = [name for name in sizes[0] if all(other.get(name, 0) > 0 for other in sizes)]
    if not common:
        raise UsageError(f"{cases[0].kernel} takes no positive integers, so that its cases have no sizes.")
    return [name for name in common if len({other[name] for other in sizes}) > 1] or common


def bound_ratio(case: HarvestedCase, time: CaseTime) -> float | None:
    """The time of a launch over its roofline bound, or None where either is unknown."""
    if case.prediction is None or time.ms is None or not case.prediction.bound_ms:
        return None
    return time.ms / case.prediction.bound_ms


_COLUMNS: Mapping[str, Callable[[HarvestedCase, CaseTime], Any]] = {
    "kernel": lambda case, time: case.kernel,
    "sizes": lambda case, time: config_words(case.sizes),
    "shapes": lambda case, time: config_words(case.shapes),
    "config": lambda case, time: config_words(case.config),
    "grid": lambda case, time: case.launch.grid,
    "count": lambda case, time: case.count,
    "share": lambda case, time: time.share,
    "ms": lambda case, time: time.ms,
    "total_ms": lambda case, time: time.total_ms,
    "basis": lambda case, time: str(time.basis),
    "samples": lambda case, time: case.samples,
    "bound_ms": lambda case, time: None if case.prediction is None else case.prediction.bound_ms,
    "times_bound": bound_ratio,
    "bound": lambda case, time: "" if case.prediction is None else case.prediction.bound,
    "no_roofline": lambda case, time: case.no_roofline,
    "launches": lambda case, time: case.launches,
    "trials": lambda case, time: case.trials,
    "captured": lambda case, time: case.captured,
    "replayed": lambda case, time: case.replayed,
    "origin": lambda case, time: case.origin,
    "module": lambda case, time: case.module,
    "file": lambda case, time: case.file,
    "line": lambda case, time: case.line,
}


def harvest_card(record: HarvestRecord) -> Card:
    """The cases with the most time, and the sentences about what is not counted by case."""
    rows = timed_cases(record)
    blocks: list[Block] = [Message(_headline(record))]
    if rows:
        shown = [(*row, differs) for row, differs in zip(rows, _distinctions(rows[:_MOST_ROWS]), strict=False)]
        left = {"kernel", "sizes", "config", "differs in", "basis"}
        blocks.append(table_of(_COLUMNS_OF_CARD, shown, left=left))
    more = [f"{plural(len(rows) - _MOST_ROWS, 'more case')} in .frame."] if len(rows) > _MOST_ROWS else []
    return Card([Section(None, [*blocks, *notes([*more, *_notes_on_record(record)])])])


def _distinctions(rows: Sequence[tuple[HarvestedCase, CaseTime]]) -> list[str]:
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


def _notes_on_record(record: HarvestRecord) -> list[str]:
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
    if trials := sum(case.trials for case in record.cases):
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
