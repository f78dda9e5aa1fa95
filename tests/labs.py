"""Labs on workers that all tests of a process share, for tests that are about something else than processes."""

from __future__ import annotations

import atexit
from functools import cache
from pathlib import Path
from typing import Any

from kernellab import Lab
from kernellab.compile.cache import COMPILE_WORKER
from kernellab.interpreter.runner import INTERPRET_WORKER, Interpreter
from kernellab.workers.worker import Pool, Worker


class _Lent:
    """A pool or a worker that many use and none of them closes."""

    def __init__(self, owned: Pool | Worker) -> None:
        self._owned = owned

    def __getattr__(self, name: str) -> Any:
        return getattr(self._owned, name)

    def close(self) -> None:
        """Leave it to the others."""


def shared_lab(target: str | None = None, store: str | Path | None = None) -> Lab:
    """Return a lab with a store and caches of its own, whose compile pool and interpreter worker are there already."""
    lab = Lab(target, store)
    pool, worker = _workers(lab.settings.compile_workers)
    lab._pool = lab.compiler.pool = pool
    lab._interpreter = Interpreter(worker, lab.settings.timeout_s)
    return lab


@cache
def _workers(count: int) -> tuple[Any, Any]:
    pool, worker = Pool(COMPILE_WORKER, count), Worker(INTERPRET_WORKER)
    for owned in (pool, worker):
        atexit.register(owned.close)
    return _Lent(pool), _Lent(worker)
