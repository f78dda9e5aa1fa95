"""Compiling on whatever `concurrent.futures.Executor` the user has: processes, dask, ipyparallel, MPI.

What travels is a function of this module with plain data, a `CompileJob`, and comes back as the files of the compiled
kernel; so the executor's workers need kernellab and the same Triton, and share no disk with the notebook.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from kernellab.compile import CompileJob
from kernellab.errors import KernellabError, UsageError, WorkerDied, WorkerError, WorkerTimeout
from kernellab.worker import Failure, Job, Progress, failure_of

_MOST_WAITING = 32
_LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Built:
    """A compiled kernel as files, under the digest that its worker gives the job."""

    digest: str
    files: Mapping[str, bytes]


def built(job: CompileJob) -> Built | Failure:
    """Compile a job in this process, which runs for an executor; an error of the kernel comes back as data."""
    from kernellab.build import BuildRequest, compile_kernel  # what a notebook need not load

    try:
        own = replace(job)  # the digest depends on the Triton and the TRITON_* variables of this process
        with _one_at_a_time(), tempfile.TemporaryDirectory(prefix="kernellab-") as folder:
            compile_kernel(BuildRequest(own, Path(folder)), lambda progress: None)
            return Built(own.digest, {path.name: path.read_bytes() for path in Path(folder).iterdir()})
    except KernellabError as exc:
        return failure_of(exc)


@dataclass(slots=True)
class ExecutorPool:
    """Stands in for the pool of compile workers: its jobs run on an executor, which stays open.

    ``failure`` is the error that made the executor useless, if one did. An executor that finishes nothing for as long
    as a compile may take is given up.
    """

    executor: Executor
    failure: WorkerError | None = None
    _futures: set[Future[Any]] = field(default_factory=set)
    _last_s: float = field(default_factory=time.monotonic)
    _interrupted: bool = False

    def __post_init__(self) -> None:
        if not callable(getattr(self.executor, "submit", None)):
            raise UsageError(f"executor is {self.executor!r}; expected a concurrent.futures.Executor.")

    @property
    def workers(self) -> range:
        """As many entries as jobs are handed over at once."""
        count = getattr(self.executor, "_max_workers", None)
        return range(min(_MOST_WAITING, count + 1) if isinstance(count, int) else _MOST_WAITING)

    def run(self, job: Job, timeout_s: float, progress: Progress | None = None) -> Any:
        """Compile the kernel of a `BuildRequest` and write its files where that says.

        Raises:
            KernellabError: the kernel does not compile.
            WorkerError: the executor broke, finishes nothing, or has another Triton.
        """
        if self.failure is not None:
            raise self.failure
        request = job.payload
        result = self._result(job, request.job, timeout_s)
        if isinstance(result, Failure):
            raise result.exception()
        if result.digest != request.job.digest:
            raise self._failed(
                WorkerError("The executor's workers compile with another Triton, or with other TRITON_* variables.")
            )
        for name, content in result.files.items():
            (request.folder / name).write_bytes(content)

    def interrupt(self) -> None:
        """Let the executor forget what it has not begun."""
        self._interrupted = True
        for future in list(self._futures):
            future.cancel()

    def _result(self, job: Job, payload: CompileJob, timeout_s: float) -> Built | Failure:
        try:
            future = self.executor.submit(built, payload)
            self._futures.add(future)
            try:
                return self._awaited(future, job, timeout_s)
            finally:
                self._futures.discard(future)
        except KernellabError:
            raise
        except CancelledError as exc:
            raise WorkerDied(f"{job.subject} was interrupted.") from exc
        except BrokenExecutor as exc:
            text = f"The executor broke while configs compiled ({type(exc).__name__}: {exc})"
            hint = "A config may have ended the compiler; without executor=, each compiles in a worker of the lab."
            raise self._failed(WorkerError(f"{text}. {hint}")) from exc
        except ImportError as exc:
            raise self._failed(
                WorkerError(f"The executor's workers cannot import what they need ({exc}): install kernellab there.")
            ) from exc
        except Exception as exc:
            raise WorkerError(f"{job.subject} failed in the executor: {type(exc).__name__}: {exc}") from exc

    def _awaited(self, future: Future[Any], job: Job, timeout_s: float) -> Built | Failure:
        """Wait as long as the executor finishes anything."""
        begin_s = time.monotonic()
        while not wait([future], _LOOK_S).done:
            if self._interrupted:
                future.cancel()
                raise WorkerDied(f"{job.subject} was interrupted.")
            if time.monotonic() - max(begin_s, self._last_s) > timeout_s:
                future.cancel()
                raise self._failed(
                    WorkerTimeout(f"The executor finished no compile within {timeout_s:g} s; does it have workers?")
                )
        self._last_s = time.monotonic()
        result: Built | Failure = future.result()
        return result

    def _failed(self, error: WorkerError) -> WorkerError:
        self.failure = self.failure or error
        return error


@cache
def _lock() -> threading.Lock:
    return threading.Lock()


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Let one thread of a process compile at a time: Triton's front end keeps state of its own."""
    with _lock():
        yield
