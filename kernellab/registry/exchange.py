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
from kernellab.source import (
    Closure,
    Malformed,
    closure_of_json,
    closure_to_jsonable,
    is_name,
    parsed_json,
    reading,
    require,
)
from kernellab.store import Entry, Measurement, MeasurementRow, Store, Version
from kernellab.store.serial import measurement_of, require_moment

SCHEMA = 1
_FILE_BYTES = 128 * 2**20


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
        UsageError: the file cannot be written, or would be larger than what can be read.
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
    text = "".join(f"{line}\n" for line in lines)
    if len(text) > _FILE_BYTES:
        raise UsageError(f"These are {len(text):,} bytes, and an import reads {_FILE_BYTES:,}; name one kernel.")
    try:
        _replace(path, text)
    except OSError as exc:
        raise UsageError(f"{str(path)!r} cannot be written: {exc.strerror or exc}.") from exc
    return count


def read_measurements(store: Store, path: Path) -> int:
    """Enter the measurements of a file, with their kernels; return how many are new. A broken file enters nothing.

    Raises:
        StoreError: a line is broken, or of a later release; its number is told.
        UsageError: the file cannot be read.
    """
    found = [_parsed(path, number, line) for number, line in enumerate(_text(path).splitlines(), 1) if line.strip()]
    entries = {each.digest: each for each in _checked(path, found)}
    rows: dict[str, list[tuple[Measurement, float | None]]] = {digest: [] for digest in entries}
    for each in found:
        if isinstance(each, Measured):
            rows[each.digest].append((each.measurement, each.created))
    entered = store.enter(
        [
            Entry(each.name, each.closure, version_digest(each.closure), measurements=tuple(rows[digest]))
            for digest, each in entries.items()
        ]
    )
    return sum(count for _, count in entered)


def _text(path: Path) -> str:
    try:
        if not path.is_file():
            raise UsageError(f"{str(path)!r} cannot be read: it is no file.")
        if path.stat().st_size > _FILE_BYTES:
            raise UsageError(f"{str(path)!r} has {path.stat().st_size:,} bytes; expected at most {_FILE_BYTES:,}.")
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as exc:
        raise UsageError(f"{str(path)!r} cannot be read: {exc}.") from exc


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
        "kernel": version.identifier,
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
        with reading("it"):
            value = parsed_json(line)
            require(isinstance(value, dict), "it", value, "an object: it is no object")
            require(value.get("schema") == SCHEMA, "its schema", value.get("schema"), f"{SCHEMA}, that of this release")
            return _kernel(value) if "closure" in value else _measured(value)
    except Malformed as exc:
        raise _broken(path, number, str(exc)) from exc


def _kernel(value: Mapping[str, Any]) -> Kernel:
    require(is_name(value["kernel"]), "the name of the kernel", value["kernel"], "an identifier")
    return Kernel(value["kernel"], str(value["digest"]), closure_of_json(value["closure"]))


def _measured(value: Mapping[str, Any]) -> Measured:
    for name in ("config", "details"):
        require(isinstance(value[name], dict), name, value[name], "an object")
    columns = ("key", "config", "device", "status", "time_ms", "details")
    measurement = measurement_of(*(value[name] for name in columns))
    device = parsed_json(measurement.key).get("device", measurement.device)
    require(device == measurement.device, "its device", measurement.device, f"{device!r}: its key names another")
    require_moment(value["created"], "created")
    return Measured(str(value["digest"]), measurement, float(value["created"]))


def _checked(path: Path, found: Sequence[Kernel | Measured]) -> Iterator[Kernel]:
    """Yield the kernels; every measurement stands below its kernel."""
    known: set[str] = set()
    for number, entry in enumerate(found, 1):
        if isinstance(entry, Kernel):
            known.add(entry.digest)
            yield entry
        elif entry.digest not in known:
            raise _broken(path, number, "no line before it holds its kernel")


def _broken(path: Path, number: int, reason: str) -> StoreError:
    return StoreError(f"Line {number} of {str(path)!r} is no measurement: {reason}. Nothing of the file was entered.")


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
