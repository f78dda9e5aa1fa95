"""Kernels and measurements in files, for another store or machine.

A bundle is a zip of JSON, plus the kernel as a readable module. Measurements are JSON lines; the first line of each
version holds the kernel. A row keeps its measurement key, which names device, driver and Triton; so rows of another
device enter the history, but no tuning uses them.

Reading a file executes nothing, and enters all of it or nothing. Launching a kernel from it executes its author's code.
"""

from __future__ import annotations

import io
import json
import stat
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernellab.errors import StoreError, UnknownName, UsageError
from kernellab.registry import version_digest
from kernellab.source import (
    TEXT_BYTES,
    MalformedData,
    closure_of_json,
    closure_to_jsonable,
    is_name,
    parse_json,
    reading,
    require,
    require_type,
)
from kernellab.store import Entry, Measurement, MeasurementRow, RecordedLaunch, Store, Version, measurement_of
from kernellab.store.decoding import (
    canonical_json,
    launch_from_jsonable,
    launch_to_jsonable,
    require_count,
    require_moment,
    require_seconds,
)

if TYPE_CHECKING:
    from kernellab.registry import Registry

SCHEMA = 1
_KERNEL = "kernel.json"
_TIME = (2000, 1, 1, 0, 0, 0)  # equal kernels make equal files
_BUNDLE_BYTES = 16 * 2**20
_LINES_BYTES = 128 * 2**20
_MEMBERS = 16
_COLUMNS = ("key", "config", "device", "status", "time_ms", "details")


def entry_of(store: Store, version: Version, tags: Sequence[str]) -> Entry:
    """Return a version with its tags, notes, launches and measurements, ready for another store."""
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
    """Return a version and its history as a zip, with the text of its ``module``.

    Raises:
        UsageError: it is larger than an import reads.
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
        "measurements": [_measurement_fields(measurement) for measurement, _ in entry.measurements],
    }
    text, buffer = json.dumps(content, indent=1, default=str), io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(_KERNEL, _TIME), text)
        archive.writestr(zipfile.ZipInfo(f"{version.identifier}.py", _TIME), module)
    if len(text) > TEXT_BYTES or buffer.tell() > _BUNDLE_BYTES:
        raise UsageError(f"The history of {version.label} is too large for a bundle: {len(text):,} bytes.")
    return buffer.getvalue()


def is_bundle(path: Path) -> bool:
    """Whether a file is a zip with the kernel of a bundle in it; OSError if it cannot be read."""
    try:
        return isinstance(parse_json(_read_bundle_text(path)), dict)
    except (MalformedData, zipfile.BadZipFile):
        return False


def read_bundle(store: Store, path: Path) -> Version:
    """Enter the kernel of a bundle into the store, with its history where it is new; return its version.

    Raises:
        UsageError: the file is not a bundle, or one of a later release; then nothing of it is entered.
    """
    try:
        content = parse_json(_read_bundle_text(path))
        with reading("it"):
            require(content["schema"] == SCHEMA, "its schema", content["schema"], f"{SCHEMA}, that of this release")
            entry = _parse_entry(content)
    except (MalformedData, OSError, zipfile.BadZipFile) as exc:
        raise UsageError(f"{str(path)!r} is not a bundle of a kernel: {exc}. Nothing of it was entered.") from exc
    ((version, _),) = store.enter([entry])
    return version


def _parse_entry(content: Mapping[str, Any]) -> Entry:
    require(is_name(content["name"]), "its name", content["name"], "an identifier")
    closure = closure_of_json(content["closure"])
    tags, notes = (tuple(_require_list(content, kind)) for kind in ("tags", "notes"))
    require_type(tags, tuple[str, ...], "tags")
    require_type(notes, tuple[str, ...], "notes")
    return Entry(
        name=content["name"],
        closure=closure,
        digest=version_digest(closure),
        tags=tags,
        notes=notes,
        launches=tuple(map(_parse_launch, _require_list(content, "launches"))),
        measurements=tuple((_measurement_of_row(row), None) for row in _require_list(content, "measurements")),
    )


def _measurement_fields(measurement: Measurement) -> dict[str, Any]:
    columns = {name: getattr(measurement, name) for name in _COLUMNS}
    return {**columns, "config": dict(measurement.config), "details": dict(measurement.details)}


def _measurement_of_row(row: Mapping[str, Any]) -> Measurement:
    return measurement_of(*(row[name] for name in _COLUMNS))


def _require_list(content: Mapping[str, Any], name: str) -> list[Any]:
    value = content[name]
    require(isinstance(value, list), name, value, "a list")
    return value  # type: ignore[no-any-return]


def _parse_launch(row: Mapping[str, Any]) -> tuple[RecordedLaunch, float | None, int]:
    require_seconds(row["seconds"], "the seconds of a launch")
    require_count(row["count"], "the count of a launch")
    return launch_from_jsonable(row["launch"]), row["seconds"], row["count"]


def _read_bundle_text(path: Path) -> str:
    if not path.is_file():
        raise MalformedData("there is no such file")
    size = path.stat().st_size
    require(size <= _BUNDLE_BYTES, "its size", size, f"at most {_BUNDLE_BYTES:,} bytes")
    try:
        with zipfile.ZipFile(path) as archive:
            _require_members(archive)
            with archive.open(_KERNEL) as file:
                content = file.read(TEXT_BYTES + 1)
        return content.decode("utf-8")
    except MalformedData:
        raise
    except (KeyError, ValueError, EOFError, RuntimeError, zlib.error, struct.error) as exc:
        raise MalformedData(f"its archive cannot be read: {exc}") from exc


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
        UsageError: the text is larger than an import reads.
    """
    lines: list[dict[str, Any]] = []
    count = 0
    for version in _versions_of_key(kernels, key):
        rows = kernels.store.history.measurements(version.id)
        if rows:
            kernel = {"kernel": version.identifier, "closure": closure_to_jsonable(version.closure)}
            common = {"schema": SCHEMA, "digest": version.digest}
            lines += [{**common, **fields} for fields in (kernel, *map(_row_fields, rows))]
            count += len(rows)
    text = "".join(f"{canonical_json(line)}\n" for line in lines)
    if len(text) > _LINES_BYTES:
        raise UsageError(f"These are {len(text):,} bytes, and an import reads {_LINES_BYTES:,}; name one kernel.")
    return text, count


def measurement_entries(path: Path) -> list[Entry]:
    """Return the kernels of a file of measurements, each with its measurements; a broken file gives nothing.

    Raises:
        StoreError: a line is broken, or of a later release; the message has its number.
        UsageError: the file cannot be read.
    """
    kernels: dict[str, Entry] = {}
    rows: dict[str, list[tuple[Measurement, float | None]]] = {}
    for number, line in enumerate(_read_lines_text(path).splitlines(), 1):
        try:
            if line.strip():
                _add_line(line, kernels, rows)
        except MalformedData as exc:
            raise StoreError(
                f"Line {number} of {str(path)!r} is not a measurement: {exc}. Nothing of the file was entered."
            ) from exc
    return [replace(entry, measurements=tuple(rows[digest])) for digest, entry in kernels.items()]


def _add_line(line: str, kernels: dict[str, Entry], rows: dict[str, list[tuple[Measurement, float | None]]]) -> None:
    """Add the kernel or the measurement of one line; a measurement follows its kernel, by the digest of the file."""
    with reading("it"):
        value = parse_json(line)
        require(isinstance(value, dict), "it", value, "an object")
        require(value.get("schema") == SCHEMA, "its schema", value.get("schema"), f"{SCHEMA}, that of this release")
        digest = str(value["digest"])
        if "closure" in value:
            require(is_name(value["kernel"]), "the name of the kernel", value["kernel"], "an identifier")
            closure = closure_of_json(value["closure"])
            kernels[digest] = Entry(value["kernel"], closure, version_digest(closure))
            rows.setdefault(digest, [])
        elif digest in kernels:
            rows[digest].append(_parse_measurement_line(value))
        else:
            raise MalformedData("no line before it holds its kernel")


def _read_lines_text(path: Path) -> str:
    try:
        if not path.is_file():
            raise UsageError(f"{str(path)!r} cannot be read: it is not a file.")
        if path.stat().st_size > _LINES_BYTES:
            raise UsageError(f"{str(path)!r} has {path.stat().st_size:,} bytes; expected at most {_LINES_BYTES:,}.")
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as exc:
        raise UsageError(f"{str(path)!r} cannot be read: {exc}.") from exc


def _versions_of_key(kernels: Registry, key: str | int | None) -> Sequence[Version]:
    if key is None:
        return kernels.store.versions()
    if not isinstance(key, str) or "@" in key:
        return [kernels.version(key)]
    versions = [version for version in kernels.store.versions() if version.name == key]
    if not versions:
        raise UnknownName(f"No kernel is called {key!r}; %triton_ls lists them.")
    return versions


def _row_fields(row: MeasurementRow) -> dict[str, Any]:
    """A measurement as fields, with the driver and the Triton that its key names."""
    provenance: Any = None
    with suppress(ValueError):
        provenance = json.loads(row.measurement.key)
    named = {name: provenance.get(name) for name in ("driver", "triton")} if isinstance(provenance, dict) else {}
    return {**named, **_measurement_fields(row.measurement), "created": row.created}


def _parse_measurement_line(value: Mapping[str, Any]) -> tuple[Measurement, float]:
    for name in ("config", "details"):
        require(isinstance(value[name], dict), name, value[name], "an object")
    measurement = _measurement_of_row(value)
    device = parse_json(measurement.key).get("device", measurement.device)
    require(device == measurement.device, "its device", measurement.device, f"{device!r}: its key names another")
    require_moment(value["created"], "created")
    return measurement, float(value["created"])
