"""The history as DataFrames: one tidy row per kernel version, launch or measurement."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from kernellab.errors import UsageError, choice_message
from kernellab.registry.listing import listing
from kernellab.store import Argument, Store

TABLES = ("kernels", "launches", "measurements")
SCHEMA = 1
Row = dict[str, Any]


def frame(store: Store, table: str) -> Any:
    """Return a table of the store as a DataFrame. Times are in UTC; nested values are JSON.

    Raises:
        UsageError: there is no such table.
    """
    import pandas as pd  # keeps `import kernellab` light

    if table not in TABLES:
        raise UsageError(choice_message("table", table, TABLES))
    rows = list(_ROWS[table](store))
    found = pd.DataFrame(rows, columns=None if rows else _COLUMNS[table])
    for name in ("created", "last"):
        if name in found:
            found[name] = pd.to_datetime(found[name].astype(float), unit="s", utc=True)
    found.attrs = {"table": table, "schema": SCHEMA, "store": str(store.path or ":memory:")}
    return found


def _kernels(store: Store) -> Iterator[Row]:
    for row in listing(store, 0.0).rows:
        name, _, version = row.label.rpartition("@")
        yield {
            "id": row.id,
            "name": name,
            "version": int(version),
            "cell": row.cell,
            "created": row.created,
            "launches": row.launches,
            "last": row.last_launch,
            "config": row.config,
            "best_ms": row.best_ms,
            "device": row.where,
            "tags": ", ".join(row.tags),
        }


def _launches(store: Store) -> Iterator[Row]:
    labels = {version.id: version.label for version in store.versions()}
    for row in store.history.launches():
        launch = row.launch
        yield {
            "id": row.id,
            "kernel": labels.get(row.version_id),
            "by": launch.by,
            "where": launch.where,
            "device": launch.device,
            "target": launch.target,
            "grid": json.dumps(launch.grid),
            "arguments": json.dumps({a.name: _argument(a) for a in launch.arguments}, default=str),
            "options": json.dumps(dict(launch.options), sort_keys=True),
            "config": launch.config,
            "seconds": row.seconds,
            "count": row.count,
            "created": row.created,
            "last": row.last,
        }


def _argument(argument: Argument) -> object:
    if argument.kind == "tensor":
        return {"dtype": argument.dtype, "shape": argument.shape, "stride": argument.stride}
    return [_argument(member) for member in argument.members] or argument.value


def _measurements(store: Store) -> Iterator[Row]:
    labels = {version.id: version.label for version in store.versions()}
    for row in store.history.measurements():
        made = row.measurement
        facts = {
            "id": row.id,
            "kernel": labels.get(row.version_id),
            "key": made.key,
            "device": made.device,
            "status": made.status,
            "time_ms": made.time_ms,
            "created": row.created,
        }
        details = {name: value for name, value in made.details.items() if name not in made.config}
        given = {
            name: value if _is_flat(value) else json.dumps(value) for name, value in {**made.config, **details}.items()
        }
        yield {**facts, **{f"config.{name}" if name in facts else name: value for name, value in given.items()}}


def _is_flat(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


_ROWS: dict[str, Callable[[Store], Iterator[Row]]] = {
    "kernels": _kernels,
    "launches": _launches,
    "measurements": _measurements,
}
_COLUMNS = {
    "kernels": ["id", "name", "version", "cell", "created", "launches", "last", "config", "best_ms", "device", "tags"],
    "launches": ["id", "kernel", "by", "where", "grid", "arguments", "options", "seconds", "count", "created", "last"],
    "measurements": ["id", "kernel", "key", "device", "status", "time_ms", "created"],
}
