"""Tuning over sizes on a table that was measured once: what it costs, and what its rule loses on unseen shapes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp, inf, log, log2
from statistics import fmean, geometric_mean, median

from benchmarks.tune_over_table import MULTIPROCESSORS, MeasuredTable, Shape, TableCases, table
from kernellab.timing.config import Config
from kernellab.tune.dispatch.over import OverSizes
from kernellab.tune.dispatch.plan import Plan, PlanPolicy
from kernellab.tune.dispatch.result import Dispatch
from kernellab.tune.dispatch.table import CaseTable

SPLITS, NOISE = 40, 0.01
_MUCH = 1.12
_STEADY = 0.1  # what pairs of configs that do the same work may differ by, as a logarithm
_MIXES, _MOST_LAUNCHES = 40, 1e4


@dataclass(frozen=True, slots=True)
class Replay:
    """A dispatch from the table, the share of cells and of milliseconds it took, and regrets on shapes."""

    dispatch: Dispatch
    cells: float
    milliseconds: float
    measured: list[float]
    unseen: list[float]


def replayed(
    measured: MeasuredTable, seen: Sequence[Shape], unseen: Sequence[Shape], policy: PlanPolicy | None = None
) -> Replay:
    """Tune over some shapes of the table, and look up what the rule picks for others."""
    known = CaseTable([shape.sizes for shape in seen], measured.configs, MULTIPROCESSORS)
    cases = TableCases(measured, seen)
    dispatch = OverSizes("matmul", known, Plan(known, policy or PlanPolicy()), cases).run()
    places = {config: place for place, config in enumerate(measured.configs)}
    tried = [(seen[number], places[config]) for number, configs in cases.tried.items() for config in configs]
    return Replay(
        dispatch=dispatch,
        cells=len(tried) / (len(seen) * len(places)),
        milliseconds=sum(shape.times_ms[place] or 0.0 for shape, place in tried)
        / sum(time_ms or 0.0 for shape in seen for time_ms in shape.times_ms),
        measured=[_regret(dispatch, shape, places) for shape in seen],
        unseen=[_regret(dispatch, shape, places) for shape in unseen],
    )


def _regret(dispatch: Dispatch, shape: Shape, places: dict[Config, int]) -> float:
    picked = dispatch.rule.configs[dispatch.rule.place(**shape.sizes)]
    time_ms = shape.times_ms[places[picked]]
    return float("inf") if time_ms is None else time_ms / shape.best_ms


def nearest_shape(seen: Sequence[Shape], unseen: Sequence[Shape]) -> list[float]:
    """Return what the best config of the nearest measured shape loses, with all of them measured."""
    found = []
    for shape in unseen:
        near = min(seen, key=lambda other: sum(abs(log2(shape.sizes[n] / other.sizes[n])) for n in shape.sizes))
        found.append((shape.times_ms[_best(near)] or float("inf")) / shape.best_ms)
    return found


def one_config(seen: Sequence[Shape], shapes: Sequence[Shape]) -> list[float]:
    """Return what the one config loses that is best on the measured shapes taken together."""
    count = len(seen[0].times_ms)

    def loss(place: int) -> float:
        return geometric_mean((shape.times_ms[place] or float("inf")) / shape.best_ms for shape in seen)

    place = min(range(count), key=loss)
    return [(shape.times_ms[place] or float("inf")) / shape.best_ms for shape in shapes]


def _best(shape: Shape) -> int:
    times = [float("inf") if time_ms is None else time_ms for time_ms in shape.times_ms]
    return times.index(min(times))


def in_words(regrets: Sequence[float]) -> str:
    """Return median, share within 5 %, and worst of some regrets."""
    within, count = sum(each <= 1.05 for each in regrets), len(regrets)
    return f"median {median(regrets):.3f}  within 5 %: {within:>3} of {count:<3}  worst {max(regrets):.3f}"


def report(measured: MeasuredTable | None = None) -> list[str]:
    """Return the lines of the report: the asked split, others, and random ones."""
    measured = measured or table()
    train, unseen, more = (measured.group(name) for name in ("train", "unseen", "more"))
    facts = measured.facts
    lines = [f"{facts['kernel']}, {len(measured.configs)} configs, as measured on an {facts['device']}:"]
    lines += _asked(measured, train, unseen)
    lines += ["", "other shapes seen and unseen"]
    for name, seen, others in (
        ("the same, others unseen", train, more),
        ("these others seen", more, [*train, *unseen]),
        ("half of the 24 and the 12 seen", [*unseen, *train[::2]], [*train[1::2], *more]),
    ):
        found = replayed(measured, seen, others)
        lines.append(f"  {name:<31} {in_words(found.unseen)}  cells {found.cells:.1%}")
    return [*lines, *_random(measured), *_programs(measured)]


def _asked(measured: MeasuredTable, train: Sequence[Shape], unseen: Sequence[Shape]) -> list[str]:
    found = replayed(measured, train, unseen)
    lines = [
        f"  cost: {found.cells:.1%} of the cells, {found.milliseconds:.1%} of the milliseconds of 24 whole tunings",
        f"  measured shapes: {in_words(found.measured)}  within 2 %: {sum(r <= 1.02 for r in found.measured)}",
        f"  unseen shapes:   {in_words(found.unseen)}  beyond 12 %: {sum(r > _MUCH for r in found.unseen)}",
        f"  nearest shape:   {in_words(nearest_shape(train, unseen))}",
        f"  one config:      {in_words(one_config(train, unseen))}",
        f"  rule of {len(found.dispatch.rule.costs)} configs:",
    ]
    lines += [f"    {config.text}" for config in found.dispatch.rule.configs]
    losing = [(shape, regret) for shape, regret in zip(unseen, found.unseen, strict=True) if regret > 1.02]
    return lines + [f"  lost on {tuple(shape.sizes.values())}: {regret:.3f}" for shape, regret in losing]


def _random(measured: MeasuredTable) -> list[str]:
    """Return what random splits lose, with noise on the times; what whole tables and the best of the rule's configs."""
    asked = [*measured.group("train"), *measured.group("unseen")]
    every = [*asked, *measured.group("more")]
    steady = [shape for shape in every if measured.twin_noise(shape) <= _STEADY]
    whole = PlanPolicy(share=1.0, first=len(measured.configs), at_least=len(measured.configs))
    lines = ["", f"{SPLITS} random splits each, {NOISE:.0%} of noise on the times that are seen"]
    lines += [
        f"recorded badly: {tuple(shape.sizes.values())}, where configs that do the same differ by {noise:.0%} (median)"
        for shape in every
        if (noise := measured.twin_noise(shape)) > _STEADY
    ]
    for words, shapes, seen, policy in (
        ("24 seen of the 36", asked, 24, PlanPolicy()),
        ("24 seen of the 36, all cells measured", asked, 24, whole),
        ("12 seen of the 36", asked, 12, PlanPolicy()),
        ("24 seen of 60", every, 24, PlanPolicy()),
        ("24 seen of 60, all cells measured", every, 24, whole),
        (f"24 seen of the {len(steady)} that were recorded steadily", steady, 24, PlanPolicy()),
    ):
        splits = [_split(measured, shapes, seen, policy, seed) for seed in range(SPLITS)]
        own, others, best = ([r for split in splits for r in split[part]] for part in range(3))
        estimated = [r.estimated for *_, found in splits for r in found.dispatch.regrets if r.estimated is not None]
        lines += [
            f"{words}: {max(found.cells for *_, found in splits):.1%} of the cells",
            f"  measured shapes:  {in_words(own)}  within 2 %: {sum(r <= 1.02 for r in own)}",
            f"  unseen shapes:    {in_words(others)}  beyond 12 %: {sum(r > _MUCH for r in others)}",
            f"  best of the rule: {in_words(best)}",
            f"  mean of unseen shapes {fmean(others):.4f}, estimated by leaving one out {fmean(estimated):.4f}",
        ]
    return lines


def _split(
    measured: MeasuredTable, shapes: Sequence[Shape], seen: int, policy: PlanPolicy, seed: int
) -> tuple[list[float], list[float], list[float], Replay]:
    """Return regrets on seen and unseen shapes, of the best config of the rule on the latter, and the replay."""
    rng = random.Random(seed)
    mixed = rng.sample(list(shapes), len(shapes))
    noisy = [replace(s, times_ms=tuple(t and t * exp(rng.gauss(0.0, NOISE)) for t in s.times_ms)) for s in mixed[:seen]]
    found = replayed(measured, noisy, mixed[seen:], policy)
    places = {config: place for place, config in enumerate(measured.configs)}
    own = [places[config] for config in found.dispatch.rule.configs]
    best = [min(s.times_ms[place] or inf for place in own) / s.best_ms for s in mixed[seen:]]
    return [_regret(found.dispatch, s, places) for s in mixed[:seen]], found.unseen, best, found


def _programs(measured: MeasuredTable) -> list[str]:
    """Return what tuning with weights gains on random launch mixes of 24 shapes, and what it predicts."""
    asked = [*measured.group("train"), *measured.group("unseen")]
    runs = [_program(measured, asked, seed) for seed in range(_MIXES)]
    count, left = sum(run.unmeasured for run in runs), fmean(run.left for run in runs)
    lines = [
        "",
        f"{_MIXES} programs of 24 shapes, 1 to {_MOST_LAUNCHES:.0f} launches each (log-uniform), rules of 3 configs",
        f"  cells measured: {fmean(run.cells for run in runs):.1%}",
        f"  shapes left unmeasured: {count} of {24 * _MIXES}, {left:.2%} of the time of their program",
    ]
    for words, losses in (
        ("with weights", [run.weighted for run in runs]),
        ("without", [run.alike for run in runs]),
        ("best single config", [run.single for run in runs]),
    ):
        lines.append(f"  program time, {words:<19} mean {fmean(losses):.4f} x the least, worst {max(losses):.4f}")
    for words, held in (
        ("the best single config", [run.holds_single for run in runs]),
        ("a named config, measured everywhere", [run.holds_named for run in runs]),
    ):
        lines.append(f"  the interval of the speedup over {words} has the real one in {sum(held)} of {len(held)}")
    return lines


@dataclass(frozen=True, slots=True)
class _Program:
    """One launch mix: cells and shapes measured, program times over the least, and whether intervals hold."""

    cells: float
    unmeasured: int
    left: float
    weighted: float
    alike: float
    single: float
    holds_single: bool
    holds_named: bool


def _program(measured: MeasuredTable, shapes: Sequence[Shape], seed: int) -> _Program:
    rng = random.Random(seed)
    seen = rng.sample(list(shapes), 24)
    counts = [float(round(exp(rng.uniform(0.0, log(_MOST_LAUNCHES))))) for _ in seen]
    noisy = [replace(s, times_ms=tuple(t and t * exp(rng.gauss(0.0, NOISE)) for t in s.times_ms)) for s in seen]
    least_ms = sum(n * shape.best_ms for n, shape in zip(counts, seen, strict=True))
    named = rng.randrange(len(measured.configs))
    while any(shape.times_ms[named] is None for shape in seen):
        named = rng.randrange(len(measured.configs))

    def time_of(pick: Callable[[Shape], int]) -> float:
        return sum(n * (shape.times_ms[pick(shape)] or inf) for n, shape in zip(counts, seen, strict=True))

    def pick_of(dispatch: Dispatch) -> Callable[[Shape], int]:
        places = {config: place for place, config in enumerate(measured.configs)}
        return lambda shape: places[dispatch.rule.configs[dispatch.rule.place(**shape.sizes)]]

    def tuned(weights: Sequence[float] | None, baseline: Sequence[int] = ()) -> tuple[Dispatch, TableCases]:
        table = CaseTable([s.sizes for s in noisy], measured.configs, MULTIPROCESSORS, counts=weights)
        cases = TableCases(measured, noisy)
        return OverSizes("matmul", table, Plan(table, PlanPolicy(max_configs=3), baseline), cases).run(), cases

    def holds(dispatch: Dispatch, before_ms: float) -> bool:
        speedup = dispatch.speedup
        return speedup is not None and speedup.low <= before_ms / time_of(pick_of(dispatch)) <= speedup.high

    (dispatch, cases), alike = tuned(counts), tuned(None)[0]
    over_named = tuned(counts, [named] * len(seen))[0]
    configs = range(len(measured.configs))
    own = dispatch.speedup
    compared = measured.configs.index(own.baseline[0]) if own is not None else 0
    return _Program(
        cells=sum(map(len, cases.tried.values())) / (len(seen) * len(measured.configs)),
        unmeasured=len(dispatch.unmeasured),
        left=sum(regret.share or 0.0 for regret in dispatch.unmeasured),
        weighted=time_of(pick_of(dispatch)) / least_ms,
        alike=time_of(pick_of(alike)) / least_ms,
        single=min(time_of(lambda _, place=place: place) for place in configs) / least_ms,
        holds_single=holds(dispatch, time_of(lambda _: compared)),
        holds_named=holds(over_named, time_of(lambda _: named)),
    )
