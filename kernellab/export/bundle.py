"""Kernels in one file, for another machine: a zip of JSON, with the kernel as a module for people to read.

Reading a bundle executes nothing. Launching a kernel out of it executes the code of whoever wrote it.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernellab.errors import UsageError
from kernellab.registry.table import version_digest
from kernellab.source import closure_from_jsonable, closure_to_jsonable
from kernellab.store import Measurement, Store, Version
from kernellab.store.history import launch_from_jsonable, launch_to_jsonable

SCHEMA = 1
_KERNEL = "kernel.json"
_TIME = (2000, 1, 1, 0, 0, 0)  # equal kernels make equal files


def bundle_bytes(store: Store, version: Version, module: str) -> bytes:
    """Return a version with its tags, notes, launches and measurements as a zip; ``module`` goes along as text."""
    history = store.history
    content = {
        "schema": SCHEMA,
        "name": version.name,
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
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(_KERNEL, _TIME), json.dumps(content, indent=1, default=str))
        archive.writestr(zipfile.ZipInfo(f"{version.name}.py", _TIME), module)
    return buffer.getvalue()


def read_bundle(store: Store, path: Path) -> Version:
    """Enter the kernel of a bundle into the store, with its history where it is new; return its version.

    Raises:
        UsageError: the file is no bundle, or one of a later release.
    """
    content = _content(path)
    known = {version.id for version in store.versions()}
    closure = closure_from_jsonable(content["closure"])
    version = store.add(closure, version_digest(closure), content["name"])
    store.tag(version.id, content["tags"])
    if version.id in known:
        return version
    for note in content["notes"]:
        store.note(version.id, note)
    for row in content["launches"]:
        launch = launch_from_jsonable(row["launch"])
        store.history.add_launch(version.id, launch, seconds=row["seconds"], count=row["count"])
    store.history.add_measurements(version.id, [Measurement(**row) for row in content["measurements"]])
    return version


def _content(path: Path) -> Mapping[str, Any]:
    try:
        with zipfile.ZipFile(path) as archive:
            content: Mapping[str, Any] = json.loads(archive.read(_KERNEL))
            schema = content["schema"]
    except (OSError, zipfile.BadZipFile, KeyError, ValueError) as exc:
        raise UsageError(f"{str(path)!r} is no bundle of a kernel: {exc}.") from exc
    if schema != SCHEMA:
        raise UsageError(f"{str(path)!r} has the schema {schema}, this release knows {SCHEMA}.")
    return content
