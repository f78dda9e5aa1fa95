"""A compiled kernel as a folder of files: read, verified, and deleted to make room."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernellab.compile.disassembly import DISASSEMBLY
from kernellab.compile.types import Compiled, CompileJob, Parameter, parameters_of, resources_of
from kernellab.errors import UsageError
from kernellab.ir.effects import Effects, effects_from_json, effects_of
from kernellab.ir.graph import StoredGraph
from kernellab.target import Target, parse_target, well_formed_target
from kernellab.workers.scratch import write_whole

SUMMARY, GRAPH, EFFECTS, SUBJECT = "kernellab.json", "graph.json", "effects.json", "subject.json"
"""The lab's own files of a compiled kernel, next to those of Triton."""

Labels = tuple[tuple[str, str], ...]
"""Pairs of a file in locations and the user's name of it."""

Listing = tuple[tuple[str, int], ...]
"""The names and sizes of the files in a folder."""

UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, UsageError)
_SPARED_S = 3600.0


def read_entry(folder: Path, digest: str, job: CompileJob) -> Compiled:
    """Return the compiled kernel in a folder, with the user's file names.

    Raises:
        UNREADABLE: a file of it is absent, cut short or changed.
    """
    subject = Subject(job.closure.name, job.target, parameters_of(job), dict(job.options))
    return _read_files(folder, digest, subject, job.closure.labels)


def read_kept(folder: Path, digest: str, labels: Labels) -> Compiled | None:
    """Return a compiled kernel of another session from the folder of all; ``labels`` map its files to the user's names.

    None where it was deleted, is damaged, or comes from a release that did not write what was compiled with it.
    """
    path = entry_folder(folder, digest)
    if not digest.isalnum() or not path.is_dir():
        return None
    try:
        written = json.loads((path / SUBJECT).read_text())
        parameters = tuple(Parameter(*fields) for fields in written["parameters"])
        target = well_formed_target(written["target"]) or parse_target(written["target"])
        subject = Subject(written["kernel"], target, parameters, written["options"])
        return _read_files(path, digest, subject, labels)
    except UNREADABLE:
        return None


def subject_text(job: CompileJob) -> str:
    """Return the subject of a job as JSON, to be kept with the compiled kernel."""
    fields = {
        "kernel": job.closure.name,
        "target": str(job.target),
        "parameters": [[p.name, p.type, p.specialization] for p in parameters_of(job)],
        "options": dict(job.options),
    }
    return json.dumps(fields, default=str)


def entry_folder(folder: Path, digest: str) -> Path:
    """Return the folder of a compiled kernel in the folder of all."""
    return folder / digest[:2] / digest


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a compile: the kernel's name, the target, the specialized parameters, and the options."""

    kernel: str
    target: Target
    parameters: tuple[Parameter, ...]
    options: Mapping[str, Any]


def _read_files(folder: Path, digest: str, subject: Subject, labels: Labels) -> Compiled:
    summary = json.loads((folder / SUMMARY).read_text())
    for name, checksum in summary.get("checksums", {}).items():  # earlier releases kept none
        if zlib.crc32((folder / name).read_bytes()) != checksum:
            raise ValueError(f"{name} is cut short, or was changed")
    graph = StoredGraph(relabel_json((folder / GRAPH).read_text(), labels))
    effects = _read_effects(folder, labels)
    return Compiled(
        kernel=subject.kernel,
        target=subject.target,
        parameters=subject.parameters,
        options=subject.options,
        resources=resources_of(summary, subject.target, subject.options.get("num_ctas", 1)),
        seconds=summary["seconds"],
        stage_seconds=summary["stage_seconds"],
        effects=effects or effects_of(graph.graph),
        stored_graph=graph,
        folder=folder,
        digest=digest,
        labels=labels,
        from_cache=True,
    )


def _read_effects(folder: Path, labels: Labels) -> Effects | None:
    """Return the effects in a folder; None where there are none, or another analysis wrote them."""
    path = folder / EFFECTS
    return effects_from_json(relabel_json(path.read_text(), labels)) if path.exists() else None


def read_effects(folder: Path, digest: str, labels: Labels) -> Effects | None:
    """Return the kept effects of a kernel that need not be compiled; None where they are absent or damaged."""
    path = _effects_folder(folder, digest)
    try:
        effects = _read_effects(path, labels)
    except UNREADABLE:
        return None
    if effects is not None:
        mark_used(path)
    return effects


def keep_effects(folder: Path, digest: str, text: str) -> None:
    """Keep the effects of a kernel, as JSON, next to the compiled ones. What a full disk does not take is lost."""
    path = _effects_folder(folder, digest)
    with contextlib.suppress(OSError):
        path.mkdir(parents=True, exist_ok=True)
        write_whole(path / EFFECTS, text.encode())


def _effects_folder(folder: Path, digest: str) -> Path:
    return entry_folder(folder, digest).with_suffix(".effects")


def listing_of(folder: Path) -> Listing:
    """Return the names and sizes of the files in a folder; none if it is gone."""
    with contextlib.suppress(OSError), os.scandir(folder) as files:
        return tuple(sorted((file.name, file.stat().st_size) for file in files))
    return ()


def relabel_json(text: str, labels: Labels) -> str:
    """Return a graph as JSON with the user's file names."""
    for file, label in labels:
        if file != label:
            text = text.replace(json.dumps(file), json.dumps(label))
    return text


def triton_files(compiled: Compiled) -> dict[str, str]:
    """Return the paths of the files for Triton's own kernel handle, by Triton's names."""
    return {
        path.name: str(path)
        for path in compiled.folder.iterdir()
        if path.name not in {GRAPH, EFFECTS, SUMMARY, SUBJECT, DISASSEMBLY}
    }


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
            size = sum(size_bytes for _, size_bytes in listing_of(path))
            entries.append((path, path.stat().st_mtime, size))
    return entries
