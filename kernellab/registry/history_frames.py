"""The history of the store as DataFrames: kernels, launches, measurements."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from kernellab.errors import UsageError, choice_message
from kernellab.registry.listing import listing
from kernellab.store import Argument, RecordedLaunch, Store, figures_of
from kernellab.workers.forks_and_interrupts import import_uninterrupted

TABLES = ("kernels", "launches", "measurements")
SCHEMA = 1
Row = dict[str, Any]


def frame(store: Store, table: str) -> Any:
    """A table of the store as a DataFrame. Times are in UTC; nested values are JSON.

    Raises:
        UsageError: there is no such table.
    """
    pd = import_uninterrupted("pandas")

    if table not in TABLES:
        raise UsageError(choice_message("table", table, TABLES))
    rows = list(_ROWS[table](store))
    table_frame = pd.DataFrame(rows, columns=None if rows else _COLUMNS[table])
    for name in ("created", "last"):
        if name in table_frame:
            table_frame[name] = pd.to_datetime(table_frame[name].astype(float), unit="s", utc=True)
    table_frame.attrs = {"table": table, "schema": SCHEMA, "store": str(store.path or ":memory:")}
    return table_frame


def _kernels(store: Store) -> Iterator[Row]:
    for row in sorted(listing(store, 0.0).rows, key=lambda row: row.id):
        name, _, version = row.label.rpartition("@")
        values = (row.id, name, int(version), row.cell, row.created, row.launches, row.last_launch, row.config)
        more = (row.best_ms, row.where, ", ".join(row.tags), row.notebook, str(row.status), row.last_config)
        yield dict(zip(_COLUMNS["kernels"], (*values, *more), strict=True))


def _launches(store: Store) -> Iterator[Row]:
    labels = {version.id: version.label for version in store.overview.outlines()}
    for row in store.history.launches():
        launch = row.launch
        yield {
            "id": row.id,
            "kernel": labels.get(row.version_id),
            **{name: getattr(launch, name) for name in ("by", "where", "device", "target")},
            "grid": json.dumps(launch.grid),
            "arguments": json.dumps({a.name: _argument_data(a) for a in launch.arguments}, default=str),
            "options": json.dumps(dict(launch.options), sort_keys=True),
            "config": launch.config,
            **{name: getattr(launch, name) for name in figures_of(launch)},
            **{name: getattr(row, name) for name in ("seconds", "count", "created", "last")},
        }


def _argument_data(argument: Argument) -> object:
    if argument.kind == "tensor":
        return {"dtype": argument.dtype, "shape": argument.shape, "stride": argument.stride}
    return [_argument_data(member) for member in argument.members] or argument.value


def _measurements(store: Store) -> Iterator[Row]:
    labels = {version.id: version.label for version in store.overview.outlines()}
    for row in store.history.measurements():
        measurement = row.measurement
        facts: Row = {"id": row.id, "kernel": labels.get(row.version_id)}
        facts |= {name: getattr(measurement, name) for name in ("key", "device", "status", "time_ms")}
        facts |= {"created": row.created}
        for name, value in {**measurement.config, **measurement.details, **measurement.config}.items():
            is_flat = value is None or isinstance(value, bool | int | float | str)
            column = f"config.{name}" if name in _COLUMNS["measurements"] else name
            facts[column] = value if is_flat else json.dumps(value)
        yield facts


_ROWS: dict[str, Callable[[Store], Iterator[Row]]] = {
    "kernels": _kernels,
    "launches": _launches,
    "measurements": _measurements,
}
_COLUMNS = {
    "kernels": [
        *("id", "name", "version", "cell", "created", "launches", "last", "config", "best_ms", "device", "tags"),
        *("notebook", "status", "last_config"),
    ],
    "launches": [
        *("id", "kernel", "by", "where", "device", "target", "grid", "arguments", "options", "config"),
        *(*figures_of(RecordedLaunch), "seconds", "count", "created", "last"),
    ],
    "measurements": ["id", "kernel", "key", "device", "status", "time_ms", "created"],
}
