"""Measurements in a file, for another store: JSON lines, of which the first of each version holds the kernel.

A row keeps the key that it was measured under, and that names device, driver and Triton; so rows of another device come
into the history, and no tuning takes them for its own. Reading a file executes nothing.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernellab.errors import StoreError, UnknownName, UsageError
from kernellab.registry.table import Registry, version_digest
from kernellab.source import Closure, closure_from_jsonable, closure_to_jsonable
from kernellab.store import Measurement, MeasurementRow, Store, Version

SCHEMA = 1
_ROW = {"key": str, "config": dict, "device": str, "status": str, "details": dict, "created": int | float}


@dataclass(frozen=True, slots=True)
class Kernel:
    """The line of a version: what is entered where the store lacks it. ``digest`` is its name in this file."""

    name: str
    digest: str
    closure: Closure


@dataclass(frozen=True, slots=True)
class Measured:
    """The line of a measurement, of the version with this digest, and when it was made."""

    digest: str
    measurement: Measurement
    created: float


def write_measurements(kernels: Registry, key: str | int | None, path: Path) -> int:
    """Write the measurements of a version, of all versions of a name, or of all kernels; return how many there are.

    Raises:
        UnknownName: there is no such kernel.
        UsageError: the file cannot be written.
    """
    versions = _versions(kernels, key)
    lines: list[str] = []
    count = 0
    for version in versions:
        rows = kernels.store.history.measurements(version.id)
        if rows:
            lines.append(_dumped(_kernel_line(version)))
            lines += [_dumped(_row_line(version, row)) for row in rows]
            count += len(rows)
    try:
        _replace(path, "".join(f"{line}\n" for line in lines))
    except OSError as exc:
        raise UsageError(f"{str(path)!r} cannot be written: {exc.strerror or exc}.") from exc
    return count


def read_measurements(store: Store, path: Path) -> int:
    """Enter the measurements of a file, with their kernels; return how many are new. A broken file enters nothing.

    Raises:
        StoreError: a line is broken, or of a later release; its number is told.
        UsageError: the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"{str(path)!r} cannot be read: {exc}.") from exc
    found = [_parsed(path, number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    entries = dict(_checked(path, found))
    versions = {
        entry.digest: store.add(entry.closure, version_digest(entry.closure), entry.name) for entry in entries.values()
    }
    fresh: list[tuple[int, Measurement, float]] = []
    for digest, version in versions.items():
        known = {_identity(row.measurement, row.created) for row in store.history.measurements(version.id)}
        rows = [each for each in found if isinstance(each, Measured) and each.digest == digest]
        for each in rows:
            if _identity(each.measurement, each.created) not in known:
                fresh.append((version.id, each.measurement, each.created))
    store.history.enter_measurements(fresh)
    return len(fresh)


def _versions(kernels: Registry, key: str | int | None) -> Sequence[Version]:
    if key is None:
        return kernels.store.versions()
    if not isinstance(key, str) or "@" in key:
        return [kernels.version(key)]
    found = [version for version in kernels.store.versions() if version.name == key]
    if not found:
        raise UnknownName(f"No kernel is called {key!r}; %triton_ls lists them.")
    return found


def _kernel_line(version: Version) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "kernel": version.name,
        "digest": version.digest,
        "closure": closure_to_jsonable(version.closure),
    }


def _row_line(version: Version, row: MeasurementRow) -> dict[str, Any]:
    measurement = row.measurement
    return {
        "schema": SCHEMA,
        "digest": version.digest,
        **_provenance(measurement.key),
        "device": measurement.device,
        "key": measurement.key,
        "config": dict(measurement.config),
        "status": measurement.status,
        "time_ms": measurement.time_ms,
        "details": dict(measurement.details),
        "created": row.created,
    }


def _provenance(key: str) -> dict[str, Any]:
    """Return driver and Triton of a key, for who reads the file."""
    try:
        fields = json.loads(key)
    except ValueError:
        return {}
    return {name: fields.get(name) for name in ("driver", "triton")} if isinstance(fields, dict) else {}


def _parsed(path: Path, number: int, line: str) -> Kernel | Measured:
    try:
        value = json.loads(line)
        if not isinstance(value, dict):
            raise TypeError("it is no object")
        if value.get("schema") != SCHEMA:
            raise ValueError(f"its schema is {value.get('schema')!r}, and this release knows {SCHEMA}")
        return _kernel(value) if "closure" in value else _measured(value)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as exc:
        reason = f"it lacks {exc}" if isinstance(exc, KeyError) else str(exc)
        raise _broken(path, number, reason) from exc


def _kernel(value: Mapping[str, Any]) -> Kernel:
    return Kernel(str(value["kernel"]), str(value["digest"]), closure_from_jsonable(value["closure"]))


def _measured(value: Mapping[str, Any]) -> Measured:
    for name, kind in _ROW.items():
        if not isinstance(value[name], kind):
            raise TypeError(f"{name} is {value[name]!r}")
    if value["time_ms"] is not None and not isinstance(value["time_ms"], int | float):
        raise TypeError(f"time_ms is {value['time_ms']!r}")
    measurement = Measurement(
        value["key"], value["config"], value["device"], value["status"], value["time_ms"], value["details"]
    )
    if json.loads(value["key"]).get("device", value["device"]) != value["device"]:
        raise ValueError(f"its device is {value['device']!r}, and its key names another")
    return Measured(str(value["digest"]), measurement, float(value["created"]))


def _checked(path: Path, found: Sequence[Kernel | Measured]) -> Iterator[tuple[str, Kernel]]:
    """Yield the kernels by digest; every measurement stands below its kernel."""
    known: set[str] = set()
    for number, entry in enumerate(found, 1):
        if isinstance(entry, Kernel):
            known.add(entry.digest)
            yield entry.digest, entry
        elif entry.digest not in known:
            raise _broken(path, number, "no line before it holds its kernel")


def _broken(path: Path, number: int, reason: str) -> StoreError:
    return StoreError(f"Line {number} of {str(path)!r} is no measurement: {reason}. Nothing of the file was entered.")


def _identity(measurement: Measurement, created: float) -> str:
    return _dumped([measurement.key, dict(measurement.config), measurement.status, measurement.time_ms, created])


def _dumped(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _replace(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
