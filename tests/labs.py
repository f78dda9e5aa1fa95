"""Labs on workers that all tests of a process share, for tests that are about something else than processes."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kernellab import Lab
from kernellab.compile.cache import COMPILE_WORKER
from kernellab.compile.worker import compile_kernel
from kernellab.interpreter.runner import INTERPRET_WORKER, Interpreter
from kernellab.settings import read_settings
from kernellab.workers.worker import Job, Pool, Worker


class _Lent:
    """A pool or a worker that many use and none of them closes."""

    def __init__(self, owned: Pool | Worker) -> None:
        self._owned = owned

    def __getattr__(self, name: str) -> Any:
        return getattr(self._owned, name)

    def close(self) -> None:
        """Leave it to the others."""


class _LentPool(_Lent):
    """A compile pool that many use; what one of them had compiled, another one is given without compiling it again."""

    def __init__(self, owned: Pool) -> None:
        super().__init__(owned)
        self._kept = tempfile.TemporaryDirectory(prefix="kernellab-compiled-")
        atexit.register(self._kept.cleanup)

    def run(self, job: Job[Any, Any], *limits: Any, **more: Any) -> Any:
        """Run a job on the next free worker, but one that compiles what is known."""
        if job.handler is not compile_kernel:
            return self._owned.run(job, *limits, **more)
        known = Path(self._kept.name) / job.payload.job.digest
        if known.is_dir():
            shutil.copytree(known, job.payload.folder, dirs_exist_ok=True)
            return None
        answer = self._owned.run(job, *limits, **more)
        shutil.copytree(job.payload.folder, known, dirs_exist_ok=True)
        return answer


def shared_lab(target: str | None = None, store: str | Path | None = None) -> Lab:
    """Return a lab with a store and caches of its own, whose compile pool and interpreter worker are there already."""
    lab = Lab(target, store)
    pool, worker = _workers(lab.settings.compile_workers)
    lab._pool = lab.compiler.pool = pool
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

    from kernellab.notebook.lab_opening import LabOpening
    from kernellab.notebook.magics import TritonMagics

    shell = InteractiveShell.instance()
    shell.register_magics(TritonMagics(shell, LabOpening(shared_lab)))  # the extension takes a lab that is there
    shell.run_line_magic("load_ext", "kernellab")
    try:
        yield shell
    finally:
        shell.run_line_magic("unload_ext", "kernellab")
        InteractiveShell.clear_instance()


@cache
def _workers(count: int) -> tuple[Any, Any]:
    pool = Pool(COMPILE_WORKER, count)
    pool.server.preload(INTERPRET_WORKER.modules)
    worker = Worker(INTERPRET_WORKER, pool.server)
    for owned in (pool, worker):
        atexit.register(owned.close)
    return _LentPool(pool), _Lent(worker)
