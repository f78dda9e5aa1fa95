"""Regressions: launches measured under several versions of Triton, driver or kernel, with their speed changes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from kernellab.display import Displayable
from kernellab.registry.kept_times import (
    FAILED,
    FEW_SAMPLES,
    MARGIN,
    ConditionChange,
    Conditions,
    KeptTime,
    LaunchKind,
    changes_between,
    fastest,
    is_apart,
    is_within,
    kept_times,
    latest,
    launch_words,
    ratio_of,
)
from kernellab.registry.versions import moment_of
from kernellab.store.columns import Status
from kernellab.timing.stopwatch import Interval
from kernellab.workers.forks_and_interrupts import cached_property, import_uninterrupted

if TYPE_CHECKING:
    import pandas

    from kernellab.registry.kernels import Registry

FASTEST = "fastest"


class TimeChange(StrEnum):
    """The effect of a change on a launch.

    ``slower`` and ``faster``: the intervals are disjoint and the medians differ by more than the margin. ``same``: they
    differ by less. ``open``: more samples are needed. ``fails`` and ``works``: it does now, and did not before.
    ``incomparable``: see the reason.
    """

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"
    OPEN = "open"
    FAILS = "fails"
    WORKS = "works"
    INCOMPARABLE = "incomparable"


@dataclass(frozen=True, slots=True)
class ChangedTime:
    """A launch before and after a change of conditions.

    ``launch`` are its sizes in words. ``config`` is a config, or ``fastest``: the fastest of the configs that were
    measured before and after. ``changes`` are what differs; where there are several, which of them it was is not known.
    """

    kernel: str
    launch: str
    device: str
    config: str
    became: TimeChange
    before: KeptTime | None
    after: KeptTime | None
    changes: tuple[ConditionChange, ...] = ()
    ratio: Interval | None = None
    reason: str = ""

    @property
    def by(self) -> str:
        """The changes in words: ``Triton 3.6.0 to 3.9.0``."""
        return ", ".join(change.text for change in self.changes)


@dataclass(frozen=True, repr=False)
class Regressions(Displayable):
    """The changed times of launches that a store has under several conditions.

    ``rows`` begin with what became slower or fails. ``since`` is the moment from which changes count, in seconds since
    1970, ``margin`` the share by which medians must differ.
    """

    rows: tuple[ChangedTime, ...]
    kernel: str | None = None
    since: float | None = None
    margin: float = MARGIN

    def __repr__(self) -> str:
        """One line; the rows are in `frame`."""
        return f"<Regressions: {self.text}>"

    @property
    def text(self) -> str:
        """The number of launches per kind of change, in words; single configs do not count."""
        counts = Counter(row.became for row in self.rows if row.config == FASTEST)
        return ", ".join(f"{counts[kind]} {kind}" for kind in TimeChange if counts[kind]) or "nothing was measured"

    @property
    def slower(self) -> tuple[ChangedTime, ...]:
        """The launches that became slower, or fail, whichever config is taken."""
        lost = {TimeChange.SLOWER, TimeChange.FAILS}
        return tuple(row for row in self.rows if row.config == FASTEST and row.became in lost)

    @property
    def faster(self) -> tuple[ChangedTime, ...]:
        """The launches that became faster, or work now."""
        won = {TimeChange.FASTER, TimeChange.WORKS}
        return tuple(row for row in self.rows if row.config == FASTEST and row.became in won)

    @cached_property
    def frame(self) -> pandas.DataFrame:
        """One row per launch and change, and one per config of it, with the columns that `row_fields` returns."""
        pd = import_uninterrupted("pandas")

        frame = pd.DataFrame([row_fields(row) for row in self.rows], columns=COLUMNS)
        frame.attrs.update({"kernel": self.kernel, "since": self.since, "margin": self.margin})
        return frame


_SIDE = ("version", "triton", "driver", "config", "time_ms", "low_ms", "high_ms", "samples", "created")
COLUMNS = [
    *("kernel", "launch", "device", "config", "became", "by", "ratio", "ratio_low", "ratio_high", "reason"),
    *(f"{side}_{name}" for side in ("before", "after") for name in _SIDE),
]


def row_fields(row: ChangedTime) -> dict[str, Any]:
    """A row as plain data: ``ratio`` is the time after by the time before."""
    ratio = {} if row.ratio is None else asdict(row.ratio)
    values: tuple[Any, ...] = (row.kernel, row.launch, row.device, row.config, str(row.became), row.by)
    values += (ratio.get("median"), ratio.get("low"), ratio.get("high"), row.reason)
    return dict(zip(COLUMNS, (*values, *_side_values(row.before), *_side_values(row.after)), strict=True))


def _side_values(kept: KeptTime | None) -> tuple[Any, ...]:
    """The values of the columns `_SIDE`."""
    if kept is None:
        return (None,) * len(_SIDE)
    conditions, bounds = kept.conditions, (kept.time_ms, kept.low_ms, kept.high_ms)
    return kept.version, conditions.triton, conditions.driver, kept.words, *bounds, kept.samples, kept.created


def regressions_of(kernels: Registry, kernel: str | int | None, since: Any, margin: float) -> Regressions:
    """The regressions of all kernels of a registry, or of all versions of one.

    Raises:
        UnknownName: there is no such kernel.
        UsageError: ``since`` is not a moment.
    """
    name = None if kernel is None else kernels.version(kernel).name
    moment = None if since is None else moment_of(since, time.time())
    rows = changed_times(kept_times(kernels.store, name), moment, margin)
    return Regressions(tuple(rows), name, moment, float(margin))


def changed_times(times: Sequence[KeptTime], since: float | None, margin: float) -> list[ChangedTime]:
    """A row per launch and change, and per config of it: slower ones first, the largest ratio first.

    What was measured under new conditions is compared, for each of kernel, Triton and driver, with the latest earlier
    conditions that differ from it in that alone; where there are none, with the latest earlier ones that differ least.
    Conditions are in the order in which a launch was first measured under them; ``since`` leaves earlier ones out.
    """
    launches: dict[LaunchKind, list[KeptTime]] = {}
    for kept in times:
        launches.setdefault(kept.launch, []).append(kept)
    words = launch_words(launches)
    rows = []
    for launch, launch_times in launches.items():
        under: TimesByConditions = {}
        for kept in sorted(launch_times, key=lambda kept: (kept.created, kept.id)):
            under.setdefault(kept.conditions, []).append(kept)
        launch_rows = list(_change_rows(words[launch], under, since, margin))
        if not launch_rows and (since is None or any(kept.created >= since for kept in launch_times)):
            reason = _why_alone(launch, under, launches)
            launch_rows = [_incomparable(words[launch], reason, after=fastest(launch_times) or launch_times[-1])]
        rows += launch_rows
    return sorted(rows, key=_place)


_ORDER = (
    *(TimeChange.FAILS, TimeChange.SLOWER, TimeChange.FASTER, TimeChange.WORKS, TimeChange.OPEN, TimeChange.SAME),
    TimeChange.INCOMPARABLE,
)


def _place(row: ChangedTime) -> tuple[bool, int, float, str, str]:
    ratio = 1.0 if row.ratio is None else row.ratio.median
    return row.config != FASTEST, _ORDER.index(row.became), -max(ratio, 1 / ratio), row.kernel, row.launch


TimesByConditions = dict[Conditions, list[KeptTime]]


def _change_rows(words: str, under: TimesByConditions, since: float | None, margin: float) -> Iterator[ChangedTime]:
    order = list(under)
    for place, now in enumerate(order):
        if since is not None and under[now][0].created < since:
            continue
        for was in _baselines(order[:place], now):
            yield from _comparison_rows(words, latest(under[was]), latest(under[now]), margin)


def _baselines(earlier: Sequence[Conditions], now: Conditions) -> list[Conditions]:
    """The conditions to compare with: the latest that differ in one thing, per thing; else the most similar."""
    alone = {differing[0]: was for was in earlier if len(differing := _differing(was, now)) == 1}
    if alone:
        return list(alone.values())
    return [min(reversed(earlier), key=lambda was: len(_differing(was, now)))] if earlier else []


def _differing(was: Conditions, now: Conditions) -> list[str]:
    return [name for name, value in asdict(was).items() if getattr(now, name) != value]


def _comparison_rows(
    words: str, before: dict[str, KeptTime], after: dict[str, KeptTime], margin: float
) -> Iterator[ChangedTime]:
    """The row of the fastest configs, then one per config that was measured before and after."""
    shared = [config for config in before if config in after]
    if shared:
        pair = fastest([before[config] for config in shared]), fastest([after[config] for config in shared])
        first = [side or kept[shared[0]] for side, kept in zip(pair, (before, after), strict=True)]
        yield _row(words, FASTEST, first[0], first[1], margin)
    else:
        yield _without_shared(words, list(before.values()), list(after.values()), margin)
    for config in shared:
        yield _row(words, before[config].words or "no config", before[config], after[config], margin)


def _without_shared(words: str, before: Sequence[KeptTime], after: Sequence[KeptTime], margin: float) -> ChangedTime:
    """The row of launches without a common config: comparable if another version has other parameters."""
    old, new = fastest(before) or before[-1], fastest(after) or after[-1]
    changes = changes_between(old, new)
    if {change.what for change in changes} == {"kernel"} and old.parameters != new.parameters:
        row = _row(words, FASTEST, old, new, margin)
        reason = "; ".join(filter(None, [row.reason, "their configs have other parameters: the fastest of each"]))
        return replace(row, reason=reason)
    reason = "no config was measured both before and after"
    return _incomparable(words, reason, before=old, after=new, changes=changes)


def _row(words: str, config: str, before: KeptTime, after: KeptTime, margin: float) -> ChangedTime:
    ratio = ratio_of(before, after)
    became, reason = _became(before, after, ratio, margin)
    changes = changes_between(before, after)
    if len(changes) > 1 and became in {TimeChange.SLOWER, TimeChange.FASTER, TimeChange.FAILS, TimeChange.WORKS}:
        several = f"{len(changes)} conditions changed at once; measure again with one of them changed"
        reason = "; ".join(filter(None, [reason, several]))
    launch = after.launch
    return ChangedTime(launch.kernel, words, launch.device, config, became, before, after, changes, ratio, reason)


def _became(before: KeptTime, after: KeptTime, ratio: Interval | None, margin: float) -> tuple[TimeChange, str]:
    if ratio is not None:
        if is_within(ratio, margin):
            return TimeChange.SAME, ""
        if is_apart(ratio, margin):
            return (TimeChange.SLOWER if ratio.median > 1 else TimeChange.FASTER), ""
        return TimeChange.OPEN, "the intervals overlap; measure again with fresh=True"
    if before.status is Status.OK and after.status in FAILED:
        return TimeChange.FAILS, f"{after.status}: {after.reason}"
    if before.status in FAILED and after.status is Status.OK:
        return TimeChange.WORKS, f"it was {before.status}: {before.reason}"
    return TimeChange.INCOMPARABLE, "; ".join(
        filter(None, [_missing_time_reason(before, "before"), _missing_time_reason(after, "after")])
    )


def _missing_time_reason(kept: KeptTime, side: str) -> str:
    """The reason that a measurement has no time to compare, or ""."""
    if kept.interval is not None:
        return ""
    if kept.status is not Status.OK:
        return f"{kept.status} {side}: {kept.reason}" if kept.reason else f"{kept.status} {side}"
    if kept.samples < FEW_SAMPLES:
        return f"{kept.samples} samples {side}, and {FEW_SAMPLES} are needed"
    return f"no bounds of its time are kept {side}"


def _incomparable(
    words: str,
    reason: str,
    *,
    after: KeptTime,
    before: KeptTime | None = None,
    changes: tuple[ConditionChange, ...] = (),
) -> ChangedTime:
    launch, became = after.launch, TimeChange.INCOMPARABLE
    return ChangedTime(launch.kernel, words, launch.device, FASTEST, became, before, after, changes, None, reason)


_DIFFERENCES = (
    ("types", "its arguments had other types"),
    ("aligned", "its arguments were aligned otherwise"),
    ("manner", "it was launched or timed in another way: constants, options, CUDA graphs, a benchmark"),
    ("target", "it was compiled for another target"),
)


def _why_alone(launch: LaunchKind, under: TimesByConditions, launches: Collection[LaunchKind]) -> str:
    """The reason that a launch has no counterpart: one set of conditions, or no change since `since`."""
    if len(under) > 1:
        return "its conditions have not changed since"
    own = [other for other in launches if other.kernel == launch.kernel and other != launch]
    here = [other for other in own if other.device == launch.device]
    alike = [other for other in here if other.sizes == launch.sizes]
    for name, words in _DIFFERENCES:
        others = [other for other in alike if getattr(other, name) != getattr(launch, name)]
        if others:
            return f"measured under one Triton, driver and version; else {words}"
    if here:
        return "measured under one Triton, driver and version; else at other sizes"
    return f"measured {'on this device ' if own else ''}under one Triton, driver and version alone"
