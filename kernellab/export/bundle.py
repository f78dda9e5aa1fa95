"""Kernels in one file, for another machine: a zip of JSON, with the kernel as a module for people to read.

Reading a bundle executes nothing, and enters all of it or nothing. Launching a kernel out of it executes the code of
whoever wrote it.
"""

from __future__ import annotations

import io
import json
import stat
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernellab.errors import UsageError
from kernellab.registry.table import version_digest
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
from kernellab.store import Entry, Launch, Store, Version
from kernellab.store.serial import (
    launch_from_jsonable,
    launch_to_jsonable,
    measurement_of,
    require_count,
    require_seconds,
)

SCHEMA = 1
_KERNEL = "kernel.json"
_TIME = (2000, 1, 1, 0, 0, 0)  # equal kernels make equal files
_FILE_BYTES = 16 * 2**20
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
        "measurements": [
            {
                "key": row.measurement.key,
                "config": dict(row.measurement.config),
                "device": row.measurement.device,
                "status": row.measurement.status,
                "time_ms": row.measurement.time_ms,
                "details": dict(row.measurement.details),
            }
            for row in history.measurements(version.id)
        ],
    }
    text, buffer = json.dumps(content, indent=1, default=str), io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(_KERNEL, _TIME), text)
        archive.writestr(zipfile.ZipInfo(f"{version.identifier}.py", _TIME), module)
    if len(text) > TEXT_BYTES or buffer.tell() > _FILE_BYTES:
        raise UsageError(f"The history of {version.label} is too large for a bundle: {len(text):,} bytes.")
    return buffer.getvalue()


def read_bundle(store: Store, path: Path) -> Version:
    """Enter the kernel of a bundle into the store, with its history where it is new; return its version.

    Raises:
        UsageError: the file is no bundle, or one of a later release; then nothing of it is entered.
    """
    try:
        content = parsed_json(_text(path))
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
        measurements=tuple(
            (measurement_of(*(row[name] for name in _COLUMNS)), None) for row in _listed(content, "measurements")
        ),
    )


def _listed(content: Mapping[str, Any], name: str) -> list[Any]:
    found = content[name]
    require(isinstance(found, list), name, found, "a list")
    return found  # type: ignore[no-any-return]


def _launch(row: Mapping[str, Any]) -> tuple[Launch, float | None, int]:
    require_seconds(row["seconds"], "the seconds of a launch")
    require_count(row["count"], "the count of a launch")
    return launch_from_jsonable(row["launch"]), row["seconds"], row["count"]


def _text(path: Path) -> str:
    """Return the JSON of a bundle; sizes are looked at before anything is unpacked."""
    if not path.is_file():
        raise Malformed("there is no such file")
    size = path.stat().st_size
    require(size <= _FILE_BYTES, "its size", size, f"at most {_FILE_BYTES:,} bytes")
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
