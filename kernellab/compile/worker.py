"""Inside a compile worker: one job from source text to a folder of stages, and its effects on the way."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernellab._triton.binary_tools import read_amd_resources, reading_resources, spill_bytes
from kernellab._triton.compiling import (
    CompileOutput,
    build,
    build_ttir,
    build_ttir_for_any_count,
    raw_module,
    translate_errors,
)
from kernellab._triton.loading import load
from kernellab._triton.mlir import flattened_parameters, graph_of_module
from kernellab._triton.specialize import Specialization
from kernellab.compile.entries import EFFECTS, GRAPH, SUBJECT, SUMMARY, subject_text
from kernellab.compile.types import CompileJob
from kernellab.errors import CompileError, StoreError
from kernellab.ir.effects import effects_of, effects_to_json
from kernellab.ir.graph import graph_to_json
from kernellab.settings import take_compiler_environment

_FULL = {errno.ENOSPC, errno.EDQUOT}


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """A job and the folder, existing and empty, that takes its files.

    ``temporary`` is a folder to be made for what the compiler keeps meanwhile. Whoever asks removes it as well: a
    compiler that is killed cleans up nothing.
    """

    job: CompileJob
    folder: Path
    temporary: Path | None = None


def compile_kernel(request: BuildRequest, progress: Callable[[Any], None]) -> None:
    """Compile a job to its binary and write stages, metadata, graph, effects and summary into the folder.

    Raises:
        CompileError: with the line of the closure that is responsible.
        EffectsError: a function of the kernel calls itself.
        StoreError: the folder, or that of the compiler's temporary files, cannot be written.
    """
    job, folder = request.job, request.folder
    with _report_full_disk(), _temporary_files_in(request.temporary):
        built = build(*_specialized_kernel(job), job.target, job.closure)
    try:
        _write(built, job, folder)
    except OSError as exc:
        raise unwritable(folder.parent, exc) from exc


def unwritable(folder: Path, exc: OSError) -> StoreError:
    """Return the error of a folder for compiled kernels that takes no files: a full disk, most of the time."""
    return StoreError(
        f"A compiled kernel cannot be written to {folder}: {exc.strerror or exc}. Free space there and run it again: "
        "nothing of this session is lost. Or restart with KERNELLAB_STORE set to a folder on another disk."
    )


@contextmanager
def _temporary_files_in(folder: Path | None) -> Iterator[None]:
    before = tempfile.tempdir
    with suppress(OSError):
        if folder is not None:
            folder.mkdir(mode=0o700)
            tempfile.tempdir = str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _report_full_disk() -> Iterator[None]:
    try:
        yield
    except CompileError as exc:
        if not _is_of_full_disk(exc):
            raise
        raise StoreError(
            f"The compiler cannot write its temporary files to {tempfile.gettempdir()}: {os.strerror(errno.ENOSPC)}. "
            "Free space there, or set TMPDIR to a folder on another disk and restart."
        ) from exc


def _is_of_full_disk(exc: CompileError) -> bool:
    cause: BaseException | None = exc
    while cause is not None and not (isinstance(cause, OSError) and cause.errno in _FULL):
        cause = cause.__cause__
    return cause is not None or os.strerror(errno.ENOSPC) in exc.detail  # ptxas says it in words


def _write(built: CompileOutput, job: CompileJob, folder: Path) -> None:
    files = dict(built.files)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    metadata = json.loads(next(c for n, c in built.files.items() if n.endswith(".json")))
    with _binary_summary(folder, job, built.ptxas_log) as binary:  # read while the rest is written
        files[GRAPH] = graph_to_json(built.graph).encode()
        (folder / GRAPH).write_bytes(files[GRAPH])
        (folder / EFFECTS).write_text(effects_to_json(effects_of(built.graph)))
        (folder / SUBJECT).write_text(subject_text(job))
        summary = {
            "seconds": sum(built.stage_seconds.values()),
            "stage_seconds": dict(built.stage_seconds),
            "shared_bytes": metadata["shared"],
            "tensor_memory_columns": metadata.get("tmem_size") or None,
            "threads": metadata["num_warps"] * job.target.warp_size,
            "checksums": {name: zlib.crc32(content) for name, content in files.items()},
            "binary": binary(),
        }
    (folder / SUMMARY).write_text(json.dumps(summary))


def graph_of_job(job: CompileJob, progress: Callable[[Any], None]) -> str:
    """Return the graph of a job's optimised TTIR as JSON; later stages are not compiled."""
    module, context = build_ttir(*_specialized_kernel(job), job.target, job.closure)
    return graph_to_json(graph_of_module(module, context, flattened_parameters(dict(job.signature))))


@dataclass(frozen=True, slots=True)
class EffectsText:
    """The effects of a job as JSON; ``for_any_count`` says that they are the same for all its `INTEGER_OPTIONS`."""

    text: str
    for_any_count: bool


def effects_of_job(job: CompileJob, progress: Callable[[Any], None]) -> EffectsText:
    """Return the effects of a job's optimised TTIR; later stages are not compiled."""
    module, context, for_any_count = build_ttir_for_any_count(*_specialized_kernel(job), job.target, job.closure)
    graph = graph_of_module(module, context, flattened_parameters(dict(job.signature)))
    return EffectsText(effects_to_json(effects_of(graph)), for_any_count)


def raw_graph_of_job(job: CompileJob, progress: Callable[[Any], None]) -> str:
    """Return the graph of a job's TTIR as the frontend makes it, before any pass, as JSON."""
    with translate_errors(job.closure, job.target):
        module, context, _ = raw_module(*_specialized_kernel(job), job.target)
    return graph_to_json(graph_of_module(module, context, flattened_parameters(dict(job.signature))))


def _specialized_kernel(job: CompileJob) -> tuple[Any, Specialization]:
    take_compiler_environment(job.variables)
    loaded = load(job.closure, name=job.symbol)
    constants = loaded.arguments(job.constants)
    return loaded.kernel, Specialization(dict(job.signature), constants, dict(job.attributes), dict(job.options))


@contextmanager
def _binary_summary(folder: Path, job: CompileJob, log: str) -> Iterator[Callable[[], Mapping[str, int | None] | None]]:
    """Read the resources of the binary; the function of the with statement waits for them."""
    if job.target.backend != "cuda":
        text = next(folder.glob("*.amdgcn")).read_text()
        yield lambda: read_amd_resources(text)
        return
    with reading_resources(next(folder.glob("*.cubin"))) as resources_of:

        def summary() -> Mapping[str, int | None] | None:
            resources = resources_of()
            if resources is None:
                return None
            ptx = next(folder.glob("*.ptx")).read_text()
            return {**asdict(resources), "spill_bytes": spill_bytes(resources.stack_bytes, log, ptx)}

        yield summary
