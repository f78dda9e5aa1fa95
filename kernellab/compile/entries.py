"""A compiled kernel as a folder of files: read, verified, and deleted to make room."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
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
SIZES = "sizes.json"
"""The sizes of compiled kernels by folder, next to these: to ask for those of all files takes a second for 10,000."""

_SPARED_S = 3600.0
_MOST_BYTES = 1 << 30  # of a compiled kernel, whose files take megabytes at most
_SETTLED_S = 10.0  # what is changed later has another time of change, on any file system


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
    entries = sorted(_measured_entries(folder, clock()), key=lambda entry: entry.used_ns)
    total = sum(entry.size_bytes for entry in entries)
    freed, oldest_spared_ns = 0, (clock() - _SPARED_S) * 1e9
    for entry in entries:
        if total - freed <= limit_bytes or entry.used_ns > oldest_spared_ns:
            break
        shutil.rmtree(entry.path, ignore_errors=True)
        freed += entry.size_bytes
    return freed


def mark_used(path: Path) -> None:
    """Count a compiled kernel as used now."""
    with contextlib.suppress(OSError):  # a folder that cannot be written is not evicted from either
        os.utime(path)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A compiled kernel, FOLDER/ab/abcd..., or a leftover of a build; ``used_ns`` is when it was used or changed."""

    path: str
    used_ns: int
    size_bytes: int


def _measured_entries(folder: Path, now: float) -> list[_Entry]:
    """Return all entries; the sizes of those that did not change are read from a file, which is written anew."""
    known, entries = _known_sizes(folder), []
    for path, used_ns in _folders_of_entries(folder):
        kept_ns, size_bytes = known.get(path, (0, 0))
        if kept_ns != used_ns:
            size_bytes = sum(size_bytes for _, size_bytes in listing_of(Path(path)))
        entries.append(_Entry(path, used_ns, size_bytes))
    settled_ns = (now - _SETTLED_S) * 1e9
    sizes = {
        entry.path: (entry.used_ns, entry.size_bytes)
        for entry in entries
        if entry.used_ns < settled_ns and entry.size_bytes <= _MOST_BYTES
    }
    if sizes != known:
        with contextlib.suppress(OSError):  # they are measured again
            write_whole(folder / SIZES, json.dumps(sizes, separators=(",", ":")).encode())
    return entries


def _known_sizes(folder: Path) -> dict[str, tuple[int, int]]:
    """Return (time of last use, bytes) by path, as `_measured_entries` wrote them; {} where the file is none of its.

    A size that no compiled kernel has is not believed: it would evict all the others.
    """
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        written = json.loads((folder / SIZES).read_text())
        sizes = {path: (int(used_ns), int(size)) for path, (used_ns, size) in written.items()}
        if all(0 <= size <= _MOST_BYTES for _, size in sizes.values()):
            return sizes
    return {}


def _folders_of_entries(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield each entry with the time of its last use, in nanoseconds since 1970."""
    for entry in _scan(folder):
        if entry.name.startswith("."):
            yield from _with_time(entry)
        elif len(entry.name) == 2:
            for kernel in _scan(entry.path):
                yield from _with_time(kernel)


def _scan(folder: Path | str) -> list[os.DirEntry[str]]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return list(entries)
    return []


def _with_time(entry: os.DirEntry[str]) -> Iterator[tuple[str, int]]:
    with contextlib.suppress(OSError):  # another process may be evicting, or building, at the same time
        yield entry.path, entry.stat().st_mtime_ns
