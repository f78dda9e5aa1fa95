"""Kernels and measurements in files, for another store or machine.

A bundle is a zip of JSON, with the kernel as a module for people to read. Measurements are JSON lines, of which the
first of each version holds the kernel. A row keeps the key that it was measured under, and that names device, driver
and Triton; so rows of another device come into the history, and no tuning takes them for its own.

Reading a file executes nothing, and enters all of it or nothing. Launching a kernel out of it executes the code of
whoever wrote it.
"""

from __future__ import annotations

import io
import json
import stat
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernellab.errors import StoreError, UnknownName, UsageError
from kernellab.registry import Registry, version_digest
from kernellab.source import (
    TEXT_BYTES,
    Malformed,
    closure_of_json,
    closure_to_jsonable,
    is_name,
    parsed_json,
    reading,
    require,
    require_type,
)
from kernellab.store import Entry, Measurement, MeasurementRow, RecordedLaunch, Store, Version, measurement_of
from kernellab.store.content import (
    launch_from_jsonable,
    launch_to_jsonable,
    require_count,
    require_moment,
    require_seconds,
)

SCHEMA = 1
_KERNEL = "kernel.json"
_TIME = (2000, 1, 1, 0, 0, 0)  # equal kernels make equal files
_BUNDLE_BYTES = 16 * 2**20
_LINES_BYTES = 128 * 2**20
_MEMBERS = 16
_COLUMNS = ("key", "config", "device", "status", "time_ms", "details")


def entry_of(store: Store, version: Version, tags: Sequence[str]) -> Entry:
    """Return a version with its tags, notes, launches and measurements, as another store enters it."""
    history = store.history
    return Entry(
        name=version.identifier,
        closure=version.closure,
        digest=version_digest(version.closure),
        tags=tuple(tags),
        notes=tuple(store.notes(version.id)),
        launches=tuple((row.launch, row.seconds, row.count) for row in history.launches(version.id)),
        measurements=tuple((row.measurement, row.created) for row in history.measurements(version.id)),
    )


def bundle_bytes(store: Store, version: Version, module: str) -> bytes:
    """Return a version with its tags, notes, launches and measurements as a zip; ``module`` goes along as text.

    Raises:
        UsageError: it is too large to be read again.
    """
    entry = entry_of(store, version, store.tags().get(version.id, ()))
    content = {
        "schema": SCHEMA,
        "name": entry.name,
        "digest": entry.digest,
        "closure": closure_to_jsonable(entry.closure),
        "tags": entry.tags,
        "notes": entry.notes,
        "launches": [
            {"launch": launch_to_jsonable(launch), "seconds": seconds, "count": count}
            for launch, seconds, count in entry.launches
        ],
        "measurements": [_fields(measurement) for measurement, _ in entry.measurements],
    }
    text, buffer = json.dumps(content, indent=1, default=str), io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(_KERNEL, _TIME), text)
        archive.writestr(zipfile.ZipInfo(f"{version.identifier}.py", _TIME), module)
    if len(text) > TEXT_BYTES or buffer.tell() > _BUNDLE_BYTES:
        raise UsageError(f"The history of {version.label} is too large for a bundle: {len(text):,} bytes.")
    return buffer.getvalue()


def read_bundle(store: Store, path: Path) -> Version:
    """Enter the kernel of a bundle into the store, with its history where it is new; return its version.

    Raises:
        UsageError: the file is no bundle, or one of a later release; then nothing of it is entered.
    """
    try:
        content = parsed_json(_bundled(path))
        with reading("it"):
            require(content["schema"] == SCHEMA, "its schema", content["schema"], f"{SCHEMA}, that of this release")
            entry = _entry(content)
    except (Malformed, OSError, zipfile.BadZipFile) as exc:
        raise UsageError(f"{str(path)!r} is no bundle of a kernel: {exc}. Nothing of it was entered.") from exc
    ((version, _),) = store.enter([entry])
    return version


def _entry(content: Mapping[str, Any]) -> Entry:
    require(is_name(content["name"]), "its name", content["name"], "an identifier")
    closure = closure_of_json(content["closure"])
    texts = {kind: tuple(_listed(content, kind)) for kind in ("tags", "notes")}
    for kind, found in texts.items():
        require_type(found, tuple[str, ...], kind)
    return Entry(
        name=content["name"],
        closure=closure,
        digest=version_digest(closure),
        **texts,
        launches=tuple(map(_launch, _listed(content, "launches"))),
        measurements=tuple((_measurement(row), None) for row in _listed(content, "measurements")),
    )


def _fields(measurement: Measurement) -> dict[str, Any]:
    """Return what a file holds of a measurement, by the names of the columns."""
    found = {name: getattr(measurement, name) for name in _COLUMNS}
    return {**found, "config": dict(measurement.config), "details": dict(measurement.details)}


def _measurement(row: Mapping[str, Any]) -> Measurement:
    return measurement_of(*(row[name] for name in _COLUMNS))


def _listed(content: Mapping[str, Any], name: str) -> list[Any]:
    found = content[name]
    require(isinstance(found, list), name, found, "a list")
    return found  # type: ignore[no-any-return]


def _launch(row: Mapping[str, Any]) -> tuple[RecordedLaunch, float | None, int]:
    require_seconds(row["seconds"], "the seconds of a launch")
    require_count(row["count"], "the count of a launch")
    return launch_from_jsonable(row["launch"]), row["seconds"], row["count"]


def _bundled(path: Path) -> str:
    """Return the JSON of a bundle; sizes are looked at before anything is unpacked."""
    if not path.is_file():
        raise Malformed("there is no such file")
    size = path.stat().st_size
    require(size <= _BUNDLE_BYTES, "its size", size, f"at most {_BUNDLE_BYTES:,} bytes")
    try:
        with zipfile.ZipFile(path) as archive:
            _require_members(archive)
            with archive.open(_KERNEL) as file:
                content = file.read(TEXT_BYTES + 1)
        return content.decode("utf-8")
    except Malformed:
        raise
    except (KeyError, ValueError, EOFError, RuntimeError, zlib.error, struct.error) as exc:
        raise Malformed(f"its archive cannot be read: {exc}") from exc


def _require_members(archive: zipfile.ZipFile) -> None:
    members = archive.infolist()
    require(len(members) <= _MEMBERS, "the number of its files", len(members), f"at most {_MEMBERS}")
    names = [member.filename for member in members]
    require(names.count(_KERNEL) == 1, f"the number of files called {_KERNEL}", names.count(_KERNEL), "one")
    for member in members:
        plain = not {"/", "\\", ":"} & set(member.filename) and member.filename not in {"", ".", ".."}
        require(plain, "the name of a file in it", member.filename, "a name without a folder")
        packed = member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        require(packed, f"the compression of {member.filename}", member.compress_type, "deflate")
        mode = member.external_attr >> 16
        require(not stat.S_IFMT(mode) or stat.S_ISREG(mode), "the kind of a file in it", member.filename, "no link")
        require(member.file_size <= TEXT_BYTES, f"the size of {member.filename}", member.file_size, f"{TEXT_BYTES:,}")


def measurement_lines(kernels: Registry, key: str | int | None) -> tuple[str, int]:
    """Return the measurements of a version, of all versions of a name, or of all kernels, and how many there are.

    Raises:
        UnknownName: there is no such kernel.
        UsageError: they take more than what can be read again.
    """
    lines: list[str] = []
    count = 0
    for version in _versions(kernels, key):
        rows = kernels.store.history.measurements(version.id)
        if rows:
            lines += [_dumped(_kernel_line(version)), *(_dumped(_row_line(version, row)) for row in rows)]
            count += len(rows)
    text = "".join(f"{line}\n" for line in lines)
    if len(text) > _LINES_BYTES:
        raise UsageError(f"These are {len(text):,} bytes, and an import reads {_LINES_BYTES:,}; name one kernel.")
    return text, count


def measurement_entries(path: Path) -> list[Entry]:
    """Return the kernels of a file of measurements, each with these; a broken file gives nothing.

    Raises:
        StoreError: a line is broken, or of a later release; its number is told.
        UsageError: the file cannot be read.
    """
    kernels: dict[str, Entry] = {}
    rows: dict[str, list[tuple[Measurement, float | None]]] = {}
    for number, line in enumerate(_text(path).splitlines(), 1):
        try:
            if line.strip():
                _take(line, kernels, rows)
        except Malformed as exc:
            raise StoreError(
                f"Line {number} of {str(path)!r} is no measurement: {exc}. Nothing of the file was entered."
            ) from exc
    return [replace(entry, measurements=tuple(rows[digest])) for digest, entry in kernels.items()]


def _take(line: str, kernels: dict[str, Entry], rows: dict[str, list[tuple[Measurement, float | None]]]) -> None:
    """Add what a line holds: a kernel, or a measurement of one above it; both by the digest that the file gives it."""
    with reading("it"):
        value = parsed_json(line)
        require(isinstance(value, dict), "it", value, "an object: it is no object")
        require(value.get("schema") == SCHEMA, "its schema", value.get("schema"), f"{SCHEMA}, that of this release")
        digest = str(value["digest"])
        if "closure" in value:
            require(is_name(value["kernel"]), "the name of the kernel", value["kernel"], "an identifier")
            closure = closure_of_json(value["closure"])
            kernels[digest] = Entry(value["kernel"], closure, version_digest(closure))
            rows.setdefault(digest, [])
        elif digest in kernels:
            rows[digest].append(_measured(value))
        else:
            raise Malformed("no line before it holds its kernel")


def _text(path: Path) -> str:
    try:
        if not path.is_file():
            raise UsageError(f"{str(path)!r} cannot be read: it is no file.")
        if path.stat().st_size > _LINES_BYTES:
            raise UsageError(f"{str(path)!r} has {path.stat().st_size:,} bytes; expected at most {_LINES_BYTES:,}.")
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
    return {
        "schema": SCHEMA,
        "digest": version.digest,
        **_provenance(row.measurement.key),
        **_fields(row.measurement),
        "created": row.created,
    }


def _provenance(key: str) -> dict[str, Any]:
    """Return driver and Triton of a key, for who reads the file."""
    try:
        fields = json.loads(key)
    except ValueError:
        return {}
    return {name: fields.get(name) for name in ("driver", "triton")} if isinstance(fields, dict) else {}


def _measured(value: Mapping[str, Any]) -> tuple[Measurement, float]:
    for name in ("config", "details"):
        require(isinstance(value[name], dict), name, value[name], "an object")
    measurement = _measurement(value)
    device = parsed_json(measurement.key).get("device", measurement.device)
    require(device == measurement.device, "its device", measurement.device, f"{device!r}: its key names another")
    require_moment(value["created"], "created")
    return measurement, float(value["created"])


def _dumped(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
