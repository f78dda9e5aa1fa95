"""Weights of the cases of a tuning over sizes, and the configs that a program launches them with now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from numbers import Real
from typing import Any

import numpy as np

from kernellab.checking.reference import call_by_name
from kernellab.errors import UsageError, plural, value_text
from kernellab.timing.config import Config, configs_of

Sizes = Mapping[str, int]


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
        sizes = ", ".join(f"{name}={value}" for name, value in case.items())
        raise UsageError(f"The weight of {sizes} is {value_text(weight)}; expected a positive number of launches.")
    return float(weight)
