"""Rows of benchmarks as measurements of the history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from kernellab.benchmark.result import Row
from kernellab.store import Measurement
from kernellab.tune.records import key_of
from kernellab.tune.result import Status

_LEFT_OUT = {"point", "config", "options", "status", "time_ms"}


def measurements_of(rows: Sequence[Row], peers: Sequence[str], provenance: Mapping[str, Any]) -> list[Measurement]:
    """Return what the history keeps of the rows of a case; what was not measured is left out.

    Those of the kernel itself come last, since the listing of kernels shows the latest.
    """
    return [
        Measurement(
            key=_key(row, provenance),
            config=_config(row),
            device=str(provenance.get("device") or ""),
            status=str(row.status),
            time_ms=row.time_ms,
            details=_details(row),
        )
        for row in sorted(rows, key=lambda row: row.implementation not in peers)
        if row.status is not Status.NOT_TIMED
    ]


def _key(row: Row, provenance: Mapping[str, Any]) -> str:
    named = {"bench": row.implementation, "point": dict(row.point)}
    return key_of({**named, **{name: provenance.get(name) for name in ("device", "driver", "target", "triton")}})


def _config(row: Row) -> dict[str, Any]:
    parameters = {} if row.config is None else dict(row.config.parameters)
    return {**parameters, **{name: value for name, value in row.options.items() if value is not None}}


def _details(row: Row) -> dict[str, Any]:
    found = {f.name: getattr(row, f.name) for f in fields(row) if f.name not in _LEFT_OUT}
    return {**found, **{f"over.{name}": value for name, value in row.point}}
