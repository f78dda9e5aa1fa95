"""Labs on workers that all tests of a process share, for tests that are about something else than processes."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kernellab import Lab
from kernellab.compile.cache import COMPILE_WORKER
from kernellab.compile.disassembly import DISASSEMBLY
from kernellab.compile.entries import entry_folder
from kernellab.compile.worker import compile_kernel, effects_of_job, graph_of_job, raw_graph_of_job
from kernellab.interpreter.runner import INTERPRET_WORKER, Interpreter
from kernellab.settings import read_settings
from kernellab.workers.scratch import write_whole
from kernellab.workers.worker import Job, Pool, Worker

COMPILED_FOLDER = "KERNELLAB_TESTS_COMPILED"  # the variable with the folder of what the processes of a run compile
_ANALYSES = effects_of_job, graph_of_job, raw_graph_of_job


class _Lent:
    """A pool or a worker that many use and none of them closes."""

    def __init__(self, owned: Pool | Worker) -> None:
        self._owned = owned

    def __getattr__(self, name: str) -> Any:
        return getattr(self._owned, name)

    def close(self) -> None:
        """Leave it to the others."""


class _LentPool(_Lent):
    """A compile pool that many use; what was compiled or disassembled for one lab is not made again for another one.

    What is compiled lies in a folder of all test processes of a run, graphs and effects in the memory of this one.
    """

    def __init__(self, owned: Pool) -> None:
        super().__init__(owned)
        self._kept = _folder_of_run()
        self._given: dict[Path, Path] = {}
        self._answers: dict[tuple[str, str], Any] = {}

    def run(self, job: Job[Any, Any], *limits: Any, **more: Any) -> Any:
        """Run a job on the next free worker, but one whose result is known."""
        if job.handler is compile_kernel:
            self._compile(job, *limits, **more)
            return None
        if job.handler not in _ANALYSES:
            return self._owned.run(job, *limits, **more)
        key = job.handler.__name__, job.payload.digest
        if key not in self._answers:
            self._answers[key] = self._owned.run(job, *limits, **more)
        return self._answers[key]

    def close(self) -> None:
        """Keep what a lab disassembled, while its folder is there, and leave the pool to others."""
        for folder, kept in list(self._given.items()):
            if not folder.is_dir():
                self._given.pop(folder, None)
            elif (folder / DISASSEMBLY).is_file() and not (kept / DISASSEMBLY).is_file():
                write_whole(kept / DISASSEMBLY, (folder / DISASSEMBLY).read_bytes())

    def _compile(self, job: Job[Any, Any], *limits: Any, **more: Any) -> None:
        digest, folder = job.payload.job.digest, job.payload.folder
        kept = self._kept / digest
        self._given[entry_folder(folder.parent, digest)] = kept
        if kept.is_dir():
            shutil.copytree(kept, folder, dirs_exist_ok=True)
            return
        self._owned.run(job, *limits, **more)
        copied = self._kept / f".{uuid.uuid4().hex}"
        shutil.copytree(folder, copied)
        with suppress(OSError):  # another process has compiled the same
            copied.rename(kept)


def shared_lab(target: str | None = None, store: str | Path | None = None) -> Lab:
    """Return a lab with a store and caches of its own, whose compile pool and interpreter worker are there already."""
    lab = Lab(target, store)
    pool, worker = _workers(lab.settings.compile_workers)
    lab._pool = lab.compiler.pool = lab._trials.compilers = pool
    lab._interpreter = Interpreter(worker, lab.settings.timeout_s)
    return lab


def shared_interpreter() -> Interpreter:
    """Return what runs kernels on the interpreter worker that is there already."""
    settings = read_settings()
    return Interpreter(_workers(settings.compile_workers)[1], settings.timeout_s)


def lab_fixture(
    target: str | None = None, scope: Any = "module", *, open_lab: Any = shared_lab, on_disk: bool = False
) -> Any:
    """The fixture ``lab`` of a file, with a store of its own: in memory, or ``on_disk``."""

    @pytest.fixture(scope=scope, name="lab")
    def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
        with open_lab(target, tmp_path_factory.mktemp("store") if on_disk else ":memory:") as opened:
            yield opened

    return lab


@contextmanager
def shell_with_extension() -> Iterator[Any]:
    """Give the one IPython shell of a process, with the extension loaded for a lab as of `shared_lab`."""
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    lend_lab(shell)
    shell.run_line_magic("load_ext", "kernellab")
    try:
        yield shell
    finally:
        shell.run_line_magic("unload_ext", "kernellab")
        InteractiveShell.clear_instance()


def lend_lab(shell: Any) -> None:
    """Give a shell a lab as of `shared_lab`, which the extension takes when it is loaded."""
    from kernellab.notebook.lab_opening import LabOpening
    from kernellab.notebook.magics import TritonMagics

    shell.register_magics(TritonMagics(shell, LabOpening(shared_lab)))


def _folder_of_run() -> Path:
    """Return the folder that test processes share, or one of this process where no run of tests made one."""
    shared = os.environ.get(COMPILED_FOLDER)
    if shared is not None:
        return Path(shared)
    own = tempfile.TemporaryDirectory(prefix="kernellab-compiled-")
    atexit.register(own.cleanup)
    return Path(own.name)


@cache
def _workers(count: int) -> tuple[Any, Any]:
    pool = Pool(COMPILE_WORKER, count)
    pool.server.preload(INTERPRET_WORKER.modules)
    worker = Worker(INTERPRET_WORKER, pool.server)
    for owned in (pool, worker):
        atexit.register(owned.close)
    return _LentPool(pool), _Lent(worker)
