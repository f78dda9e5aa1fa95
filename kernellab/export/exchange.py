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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernellab.errors import StoreError, UnknownName, UsageError
from kernellab.registry import Registry, version_digest
from kernellab.source import (
    TEXT_BYTES,
    Closure,
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


def bundle_bytes(store: Store, version: Version, module: str) -> bytes:
    """Return a version with its tags, notes, launches and measurements as a zip; ``module`` goes along as text.

    Raises:
        UsageError: it is too large to be read again.
    """
    history = store.history
    content = {
        "schema": SCHEMA,
        "name": version.identifier,
        "digest": version.digest,
        "closure": closure_to_jsonable(version.closure),
        "tags": store.tags().get(version.id, ()),
        "notes": store.notes(version.id),
        "launches": [
            {"launch": launch_to_jsonable(row.launch), "seconds": row.seconds, "count": row.count}
            for row in history.launches(version.id)
        ],
        "measurements": [_fields(row.measurement) for row in history.measurements(version.id)],
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


@dataclass(frozen=True, slots=True)
class ExchangedKernel:
    """The line of a version: what is entered where the store lacks it. ``digest`` is its name in this file."""

    name: str
    digest: str
    closure: Closure


@dataclass(frozen=True, slots=True)
class ExchangedMeasurement:
    """The line of a measurement, of the version with this digest, and when it was made."""

    digest: str
    measurement: Measurement
    created: float


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
    found = [_parsed(path, number, line) for number, line in enumerate(_text(path).splitlines(), 1) if line.strip()]
    kernels = {each.digest: each for each in _checked(path, found)}
    rows: dict[str, list[tuple[Measurement, float | None]]] = {digest: [] for digest in kernels}
    for each in found:
        if isinstance(each, ExchangedMeasurement):
            rows[each.digest].append((each.measurement, each.created))
    return [
        Entry(each.name, each.closure, version_digest(each.closure), measurements=tuple(rows[digest]))
        for digest, each in kernels.items()
    ]


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


def _parsed(path: Path, number: int, line: str) -> ExchangedKernel | ExchangedMeasurement:
    try:
        with reading("it"):
            value = parsed_json(line)
            require(isinstance(value, dict), "it", value, "an object: it is no object")
            require(value.get("schema") == SCHEMA, "its schema", value.get("schema"), f"{SCHEMA}, that of this release")
            return _kernel(value) if "closure" in value else _measured(value)
    except Malformed as exc:
        raise _broken(path, number, str(exc)) from exc


def _kernel(value: Mapping[str, Any]) -> ExchangedKernel:
    require(is_name(value["kernel"]), "the name of the kernel", value["kernel"], "an identifier")
    return ExchangedKernel(value["kernel"], str(value["digest"]), closure_of_json(value["closure"]))


def _measured(value: Mapping[str, Any]) -> ExchangedMeasurement:
    for name in ("config", "details"):
        require(isinstance(value[name], dict), name, value[name], "an object")
    measurement = _measurement(value)
    device = parsed_json(measurement.key).get("device", measurement.device)
    require(device == measurement.device, "its device", measurement.device, f"{device!r}: its key names another")
    require_moment(value["created"], "created")
    return ExchangedMeasurement(str(value["digest"]), measurement, float(value["created"]))


def _checked(path: Path, found: Sequence[ExchangedKernel | ExchangedMeasurement]) -> Iterator[ExchangedKernel]:
    """Yield the kernels; every measurement stands below its kernel."""
    known: set[str] = set()
    for number, entry in enumerate(found, 1):
        if isinstance(entry, ExchangedKernel):
            known.add(entry.digest)
            yield entry
        elif entry.digest not in known:
            raise _broken(path, number, "no line before it holds its kernel")


def _broken(path: Path, number: int, reason: str) -> StoreError:
    return StoreError(f"Line {number} of {str(path)!r} is no measurement: {reason}. Nothing of the file was entered.")


def _dumped(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
