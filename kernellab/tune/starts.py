"""Where a descent starts: at the best config in the store, for this kind of launch or for the one most like it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from math import inf, log2
from typing import Any

from kernellab.measure.config import Config, Kept
from kernellab.measure.outcomes import Status
from kernellab.store import MeasurementRow
from kernellab.tune.result import Row, row_of

Fits = Callable[[Config], bool]


def best_known(rows: Mapping[Config, Row], fits: Fits) -> Config | None:
    """Return the fastest config that ran well and ``fits``, of those whose values the store keeps as they are."""
    good = [row for row in rows.values() if row.status is Status.OK and row.time_ms is not None]
    whole = [row for row in good if not any(isinstance(value, Kept) for value in row.config.values.values())]
    fitting = [row for row in whole if fits(row.config)]
    return min(fitting, key=lambda row: row.time_ms or 0.0).config if fitting else None


def best_nearby(entries: Iterable[MeasurementRow], key: str, fits: Fits) -> Config | None:
    """Return the best config of the launches most like those of ``key``, out of measurements of the same kernel.

    Like each other are launches on one model of device, with one signature, whose sizes are few doublings apart.
    """
    by_key: dict[str, dict[Config, Row]] = {}
    for entry in entries:
        row = row_of(entry.measurement)
        if row is not None and entry.measurement.key != key:
            by_key.setdefault(entry.measurement.key, {})[row.config] = row
    wanted = _fields(key)
    for _, other in sorted((_distance(wanted, _fields(other)), other) for other in by_key):
        found = best_known(by_key[other], fits)
        if found is not None:
            return found
    return None


def _fields(key: str) -> Mapping[str, Any]:
    try:
        found = json.loads(key)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _distance(wanted: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[bool, bool, float]:
    """Return how far two kinds of launches are apart: device, signature, doublings of the sizes."""
    device = other.get("device") != wanted.get("device")
    return device, other.get("signature") != wanted.get("signature"), _doublings(_sizes(wanted), _sizes(other))


def _sizes(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    found = fields.get("values")
    return found if isinstance(found, dict) else {}


def _doublings(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> float:
    """Return how many doublings lie between the sizes of two launches; infinitely many where their names differ."""
    if ours.keys() != theirs.keys():
        return inf
    return sum(_doublings_between(value, theirs[name]) for name, value in ours.items())


def _doublings_between(value: object, other: object) -> float:
    """Return how many doublings lie between two numbers that are kept as text; of other texts, 0 if equal, else 1."""
    try:
        first, second = abs(float(str(value))), abs(float(str(other)))
    except ValueError:
        return float(value != other)
    return abs(log2(first / second)) if first and second else float(first != second)
