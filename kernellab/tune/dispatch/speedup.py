"""The time of a program's launches before and after a tuning over sizes, with an interval of their ratio.

How often the program launches each case, and with which config now, are the weights and the baseline of the tuning.

Times that were measured err by their own interval and by what a repetition differs, independently. Forecasts and
predicted times err by their spread, and for one config alike on all cases: so their errors do not cancel in the sum.
A case whose config stays has the same time before and after, with the same error.

A measured launch finds an L2 full of dirty lines, which the flush before it has left; a launch in a program finds what
the launch before it has left, at best its own data. So it is faster by up to what a warm L2 saves its config, or where
that was not timed so, the finalists of its case; or where none was, by the time in which memory takes the dirty lines
that it evicts: all of them, or as many as it reads itself, whose writing then took half of its time. The share of it
that a program has is unknown, and the same for all its launches: the estimate takes half, and the interval all from
nothing to the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import hypot, isfinite, log
from numbers import Real
from typing import Any

import numpy as np

from kernellab.checking.reference import call_by_name
from kernellab.errors import UsageError, plural, value_text
from kernellab.store.columns import Status
from kernellab.timing.config import Config, configs_of
from kernellab.tune.dispatch.result import ProgramSpeedup, Regret, size_text
from kernellab.tune.dispatch.rule import Rule
from kernellab.tune.dispatch.table import CaseTable
from kernellab.tune.dispatch.time_model import Array, Fit

_DRAWS = 4000
_QUANTILES = (0.025, 0.975)
_REPEATED = 0.01  # standard deviation of a median's logarithm between a tuning and a program
_MEASURED_WIDTH = 2 * 1.96  # standard deviations from low_ms to high_ms: 95 % of the medians lie between
_PREDICTED_WIDTH = 2 * 1.28  # four of five lie between
_MOST_FLUSHED = 0.5  # of a time is the writing of dirty lines
_MOST_WARM = 0.9  # of a time is saved by a warm L2
_SHARES = (-0.025, 1.025)  # of the saving; the quantiles of an interval cut a fortieth off at both ends
Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _CellTime:
    """The time of a config on a case: logarithm of milliseconds, its standard deviation, whether it was measured.

    In a program, a launch may take ``saved_ms`` less, at most the share ``most_saved`` of its time.
    """

    log_ms: float
    spread: float
    is_measured: bool
    saved_ms: float
    most_saved: float

    def in_program(self, normal: Array | float, share: Array | float) -> Array:
        """Return the milliseconds at some standard deviations from the estimate, less a share of the saving."""
        times_ms = np.exp(self.log_ms + self.spread * normal)
        shorter: Array = times_ms - share * np.minimum(self.saved_ms, self.most_saved * times_ms)
        return shorter


def program_speedup(
    table: CaseTable, fit: Fit, rule: Rule, baseline: Sequence[int] = (), flush_ms: float = 0.0
) -> ProgramSpeedup:
    """Compare the rule with the ``baseline`` configs, one per case by place; without any, with the best single one.

    ``flush_ms`` is the time in which memory takes a whole L2 of dirty lines, for cases without warm times. Cases where
    the baseline or the rule's config failed are left out.
    """
    counts = np.array(table.counts)
    after = [table.places[rule.configs[rule.place(**sizes)]] for sizes in table.cases]
    before = list(baseline) or [best_single_config(table, fit)] * len(after)
    numbers = [
        case
        for case, pair in enumerate(zip(before, after, strict=True))
        if not any(table.is_hopeless(case, place) for place in pair)
    ]
    launched = [[(case, places_of[case]) for case in numbers] for places_of in (before, after)]
    times = {cell: _cell_time(table, fit, *cell, flush_ms) for cells in launched for cell in cells}
    drawn = _drawn_times(times)
    totals = [sum(counts[n] * times[n, place].in_program(0.0, 0.5) for n, place in cells) for cells in launched]
    sums = [sum(counts[n] * drawn[n, place] for n, place in cells) for cells in launched]
    low, high = np.quantile(sums[0] / sums[1], _QUANTILES) if numbers else (1.0, 1.0)
    configs = tuple(dict.fromkeys(table.configs[before[case]] for case in numbers))
    return ProgramSpeedup(
        before_ms=float(totals[0]),
        after_ms=float(totals[1]),
        low=float(low),
        high=float(high),
        baseline=configs,
        is_best_single=not baseline,
        left_out=tuple(table.cases[case] for case in range(len(after)) if case not in numbers),
    )


def best_single_config(table: CaseTable, fit: Fit) -> int:
    """Return the place of the timed config with the least time of the program; failures count ten times the best."""
    totals = np.zeros(len(table.configs))
    for case, count in enumerate(table.counts or ()):
        times_ms = np.exp(fit.log_times(case))
        for place, time_ms in table.times_of(case).items():
            times_ms[place] = time_ms
        best_ms = times_ms.min()
        for place in range(len(times_ms)):
            if table.is_hopeless(case, place):
                times_ms[place] = 10.0 * best_ms
        totals += count * times_ms
    return min(table.timed_configs, key=lambda place: float(totals[place]))


def with_shares(
    regrets: Sequence[Regret], table: CaseTable, fit: Fit | None, unmeasured: Mapping[int, float]
) -> tuple[Regret, ...]:
    """Add counts and shares of the program's time to the regrets, which are in the order of the cases."""
    if table.counts is None or fit is None:
        return tuple(regrets)
    shares, weighted = table.shares(fit), []
    numbers = {tuple(sizes.values()): case for case, sizes in enumerate(table.cases)}
    for regret in regrets:
        case = numbers[tuple(regret.sizes.values())]
        share = float(shares[case])
        skipped = f"not measured: about {share:.2%} of the program's time"
        reason = skipped if case in unmeasured else regret.reason
        weighted.append(replace(regret, reason=reason, weight=table.counts[case], share=share))
    return tuple(weighted)


def _cell_time(table: CaseTable, fit: Fit, case: int, place: int, flush_ms: float) -> _CellTime:
    """Return the time of a cell with the saving by a warm L2: its own, else the case's median, else ``flush_ms``."""
    rows = {config: row for (number, config), row in table.rows.items() if number == case and row.status is Status.OK}
    saved = {c: max(0.0, row.time_ms - row.warm_ms) for c, row in rows.items() if row.time_ms and row.warm_ms}
    saved_ms = saved.get(place, float(np.median(list(saved.values())))) if saved else flush_ms
    most_saved = _MOST_WARM if saved else _MOST_FLUSHED
    row = table.rows.get((case, place))
    if row is None or row.ranking_ms is None:
        log_ms, spread = float(fit.log_times(case)[place]), float(fit.spreads(case, with_case=False)[place])
        return _CellTime(log_ms, spread, False, saved_ms, most_saved)
    if is_measured := row.status is Status.OK:
        low, high, width = row.low_ms, row.high_ms, _MEASURED_WIDTH
    else:
        low, high, width = row.predicted_low_ms, row.predicted_high_ms, _PREDICTED_WIDTH
    spread = hypot(log(high / low) / width if low and high else 0.0, _REPEATED)
    return _CellTime(log(row.ranking_ms), spread, is_measured, saved_ms, most_saved)


def _drawn_times(cells: Mapping[tuple[int, int], _CellTime]) -> dict[tuple[int, int], Array]:
    """Draw the times of each cell: measured ones independently, others with one error for each config."""
    rng = np.random.default_rng(0)
    common = {place: rng.standard_normal(_DRAWS) for _, place in cells}
    share = rng.uniform(*_SHARES, _DRAWS)
    return {
        (case, place): cell.in_program(rng.standard_normal(_DRAWS) if cell.is_measured else common[place], share)
        for (case, place), cell in cells.items()
    }


def weights_of(weights: Any, over: Any, listed: Sequence[Sizes], cases: Sequence[Sizes]) -> tuple[float, ...] | None:
    """Return the weight of each case, its number of launches, in the order of ``cases``; None without weights.

    ``weights`` is a list in the order of ``listed``, a function of the sizes, or a mapping from tuples of sizes. If it
    is None, the attribute ``weights`` of ``over`` counts, which the cases of a harvest have. ``listed`` may repeat
    cases; their weights in a list add up.

    Raises:
        UsageError: a case has no weight, or it is not a positive number.
    """
    weights = getattr(over, "weights", None) if weights is None else weights
    if weights is None:
        return None
    if isinstance(weights, Mapping):
        return _from_mapping(weights, cases)
    if callable(weights):
        return tuple(_weight(call_by_name(weights, case, "weights", "the sizes are"), case) for case in cases)
    totals = dict.fromkeys(map(_key, cases), 0.0)
    for case, weight in zip(listed, _per_case(weights, "weights", len(listed)), strict=True):
        totals[_key(case)] += _weight(weight, case)
    return tuple(totals.values())


def baselines_of(
    baseline: Any, over: Any, listed: Sequence[Sizes], cases: Sequence[Sizes], effective: Callable[[Any], Config]
) -> tuple[tuple[Config, Any], ...]:
    """Return the config of each case before the tuning, by value and as a `triton.Config`; empty if it is unknown.

    ``baseline`` is a config, a function of the sizes such as `Dispatch.choose` of an earlier tuning, or a config for
    each of the ``listed`` cases. If it is None, the attribute ``baseline`` of ``over`` counts.

    Raises:
        UsageError: a case lacks one, or it is not a config.
    """
    baseline = getattr(over, "baseline", None) if baseline is None else baseline
    if baseline is None:
        return ()
    if isinstance(baseline, Sequence):
        listed_configs = zip(listed, _per_case(baseline, "baseline", len(listed)), strict=True)
        by_case = {_key(case): config for case, config in listed_configs}
        configs = [by_case[_key(case)] for case in cases]
    elif callable(baseline):
        configs = [call_by_name(baseline, case, "baseline", "the sizes are") for case in cases]
    else:
        configs = [baseline] * len(cases)
    originals = [configs_of([config])[0] for config in configs]
    return tuple((effective(original), original) for original in originals)


def _key(case: Sizes) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(case.items()))


def _per_case(values: Any, name: str, count: int) -> Sequence[Any]:
    values = values.tolist() if isinstance(values, np.ndarray) else values
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise UsageError(f"{name} is {value_text(values)}; expected one for each case, or a function of the sizes.")
    if len(values) != count:
        raise UsageError(
            f"{name} has {plural(len(values), 'value')} for {plural(count, 'case')}; expected one for each."
        )
    return values


def _from_mapping(weights: Mapping[Any, Any], cases: Sequence[Sizes]) -> tuple[float, ...]:
    by_sizes = {key if isinstance(key, tuple) else (key,): weight for key, weight in weights.items()}
    keys = [tuple(case.values()) for case in cases]
    names = ", ".join(cases[0])
    for key in by_sizes:
        if key not in keys:
            raise UsageError(f"weights has the sizes {key!r}, which over lacks; expected tuples of ({names}).")
    for key in keys:
        if key not in by_sizes:
            raise UsageError(f"weights lacks the sizes {key!r} of ({names}); give each case of over a weight.")
    return tuple(_weight(by_sizes[key], case) for key, case in zip(keys, cases, strict=True))


def _weight(weight: Any, case: Sizes) -> float:
    is_number = isinstance(weight, Real) and not isinstance(weight, bool)
    if not is_number or not isfinite(weight) or weight <= 0:
        text = f"The weight of {size_text(case)} is {value_text(weight)}"
        raise UsageError(f"{text}; expected a positive number of launches.")
    return float(weight)
