"""A compiled kernel as a folder of files: read, verified, and deleted to make room."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
import zlib
from collections.abc import Callable
from pathlib import Path

from kernellab.compile.types import Compiled, CompileJob, parameters_of, resources_of
from kernellab.compile.worker import EFFECTS, GRAPH, SUMMARY
from kernellab.errors import UsageError
from kernellab.ir.effects import effects_from_json, effects_of
from kernellab.ir.graph import graph_from_json

Listing = tuple[tuple[str, int], ...]
"""The names and sizes of the files in a folder."""

UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, UsageError)
_SPARED_S = 3600.0


def read_entry(folder: Path, digest: str, job: CompileJob) -> Compiled:
    """Return the compiled kernel in a folder, with the user's file names.

    Raises:
        UNREADABLE: a file of it is absent, cut short or changed.
    """
    summary = json.loads((folder / SUMMARY).read_text())
    for name, checksum in summary.get("checksums", {}).items():  # earlier releases kept none
        if zlib.crc32((folder / name).read_bytes()) != checksum:
            raise ValueError(f"{name} is cut short, or was changed")
    graph = graph_from_json(relabel_json((folder / GRAPH).read_text(), job))
    path = folder / EFFECTS
    effects = effects_from_json(path.read_text(), graph) if path.exists() else None
    return Compiled(
        kernel=job.closure.name,
        target=job.target,
        parameters=parameters_of(job),
        options=dict(job.options),
        resources=resources_of(summary, job.target, dict(job.options).get("num_ctas", 1)),
        seconds=summary["seconds"],
        stage_seconds=summary["stage_seconds"],
        graph=graph,
        effects=effects or effects_of(graph),
        folder=folder,
        digest=digest,
        labels=job.closure.labels,
        from_cache=True,
    )


def listing_of(folder: Path) -> Listing:
    """Return the names and sizes of the files in a folder; none if it is gone."""
    with contextlib.suppress(OSError), os.scandir(folder) as files:
        return tuple(sorted((file.name, file.stat().st_size) for file in files))
    return ()


def relabel_json(text: str, job: CompileJob) -> str:
    """Return a graph as JSON with the user's file names."""
    for file, label in job.closure.labels:
        if file != label:
            text = text.replace(json.dumps(file), json.dumps(label))
    return text


def triton_files(compiled: Compiled) -> dict[str, str]:
    """Return the paths of the files for Triton's own kernel handle, by Triton's names."""
    return {path.name: str(path) for path in compiled.folder.iterdir() if path.name not in {GRAPH, EFFECTS, SUMMARY}}


def evict(folder: Path, limit_bytes: int, *, clock: Callable[[], float] = time.time) -> int:
    """Delete the least recently used compiled kernels until ``folder`` takes less; return the bytes freed.

    Entries used within the last hour stay: a session may use them.
    """
    entries = sorted(_entries(folder), key=lambda entry: entry[1])
    total = sum(size for _, _, size in entries)
    freed, oldest_spared = 0, clock() - _SPARED_S
    for path, used, size in entries:
        if total - freed <= limit_bytes or used > oldest_spared:
            break
        shutil.rmtree(path, ignore_errors=True)
        freed += size
    return freed


def mark_used(path: Path) -> None:
    """Count a compiled kernel as used now."""
    with contextlib.suppress(OSError):  # a folder that cannot be written is not evicted from either
        os.utime(path)


def _entries(folder: Path) -> list[tuple[Path, float, int]]:
    """Return (path, time of last use, bytes) of every compiled kernel: FOLDER/ab/abcd..., or a leftover of a build."""
    entries = []
    for path in [*folder.glob("??/*"), *folder.glob(".*")]:
        with contextlib.suppress(OSError):  # another process may be evicting, or building, at the same time
            size = sum(file.stat().st_size for file in path.rglob("*"))
            entries.append((path, path.stat().st_mtime, size))
    return entries
