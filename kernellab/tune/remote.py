"""Compiling on whatever `concurrent.futures.Executor` the user has: processes, dask, ipyparallel, MPI.

What travels is a `CompileJob`, as bytes that compile it when they are unpickled, and the files of the compiled kernel
come back. So the executor's workers need kernellab and the same Triton, and share no disk with the notebook; one that
has no kernellab says so, since what it is called with is a function of Python itself.

Tried with `ProcessPoolExecutor` (spawn), dask (``client.get_executor()``) and ipyparallel
(``client.load_balanced_view().executor``), from scripts and from cells:

- An interrupt comes back within a second with what was compiled, and the executor can be used again. Jupyter, though,
  interrupts the processes that a notebook started as well: that ends the workers of a ``LocalCluster`` of dask, and may
  break a process pool, whatever the cell was at. Make a new one then; engines of ipyparallel survive.
- A worker that dies costs dask nothing, which starts the compile anew, and ipyparallel the config at work, whose row
  says so; a process pool breaks, and what it had compiled counts.
- A config that ends the compiler costs dask four workers, which its cluster starts again, before its row says so.
- Of a cluster that is closed, what it had compiled counts, and the notes of the tuning say what became of the rest.
  Where all engines of ipyparallel die, that takes as long as a compile may take (``KERNELLAB_TIMEOUT``).
"""

from __future__ import annotations

import pickle
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, wait
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from kernellab.compile.types import CompileJob
from kernellab.compile.worker import BuildRequest, compile_kernel
from kernellab.errors import KernellabError, StoreError, UsageError, WorkerDied, WorkerError, WorkerTimeout
from kernellab.workers.forks_and_interrupts import AtWork, Scratch, Stop, lock
from kernellab.workers.worker import Failure, Job, Progress, failure_of

_MOST_WAITING = 32
_LOOK_S = 0.1
_SUCH_AS = ", such as client.get_executor() of dask, or client.load_balanced_view().executor of ipyparallel"


@dataclass(frozen=True, slots=True)
class RemoteBuilt:
    """A compiled kernel as files, under the digest that its worker gives the job."""

    digest: str
    files: Mapping[str, bytes]


def built(job: CompileJob) -> RemoteBuilt | Failure:
    """Compile a job in this process, which runs for an executor; an error of the kernel comes back as data."""
    try:
        own = replace(job)  # the digest depends on the Triton and the TRITON_* variables of this process
        with _one_at_a_time(), Scratch() as folder:
            compile_kernel(BuildRequest(own, folder), lambda progress: None)
            return RemoteBuilt(own.digest, {path.name: path.read_bytes() for path in folder.iterdir()})
    except StoreError as exc:
        if not isinstance(exc.__cause__, OSError):
            return failure_of(exc)
        full = f"A worker of the executor cannot write to {tempfile.gettempdir()}: {exc.__cause__.strerror}."
        return failure_of(WorkerError(f"{full} Free space there, or set TMPDIR."))
    except KernellabError as exc:
        return failure_of(exc)


@dataclass(frozen=True, slots=True)
class _Call:
    """Compiles a job where it is unpickled, by `pickle.loads`, which every worker knows.

    Arguments that a worker of dask cannot unpickle would end that worker, and the next.
    """

    job: CompileJob

    def __reduce__(self) -> tuple[Any, ...]:
        return built, (self.job,)


@dataclass(slots=True)
class ExecutorPool:
    """Stands in for the pool of compile workers: its jobs run on an executor, which stays open.

    ``failure`` is the error that made the executor useless, if one did. An executor that finishes nothing for as long
    as a compile may take is given up.
    """

    executor: Executor
    failure: KernellabError | None = None
    _at_work: AtWork = field(default_factory=AtWork)
    _last_s: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        if not callable(getattr(self.executor, "submit", None)):
            raise UsageError(f"executor is {self.executor!r}; expected a concurrent.futures.Executor{_SUCH_AS}.")

    @property
    def workers(self) -> range:
        """As many entries as jobs are handed over at once."""
        count = getattr(self.executor, "_max_workers", None)
        return range(min(_MOST_WAITING, count + 1) if isinstance(count, int) else _MOST_WAITING)

    def run(
        self,
        job: Job[BuildRequest, None],
        timeout_s: float,
        progress: Progress | None = None,
        stop: Stop | None = None,
    ) -> None:
        """Compile the kernel of a `BuildRequest` and write its files where that says.

        Where it is asked to stop, the executor forgets what it has not begun, and nothing of it is waited for.

        Raises:
            KernellabError: the kernel does not compile.
            WorkerDied: it was asked to stop.
            WorkerError: the executor broke, finishes nothing, or has another Triton.
        """
        if self.failure is not None:
            raise self.failure
        request = job.payload
        asked = stop or Stop()
        with self._at_work.on(asked):
            result = self._result(job, request.job, timeout_s, asked)
        if isinstance(result, Failure):
            raise result.exception()
        if not isinstance(result, RemoteBuilt):
            raise self._failed(
                UsageError(
                    f"The executor returned a {type(result).__name__} for a compile; expected one result. A direct "
                    "view of ipyparallel compiles on every engine: take client.load_balanced_view().executor."
                )
            )
        if result.digest != request.job.digest:
            raise self._failed(
                WorkerError("The executor's workers compile with another Triton, or with other TRITON_* variables.")
            )
        for name, content in result.files.items():
            (request.folder / name).write_bytes(content)

    def interrupt(self) -> None:
        """Let the executor forget what it has not begun, and wait for nothing of it."""
        self._at_work.ask()

    def _result(self, job: Job[BuildRequest, None], payload: CompileJob, timeout_s: float, stop: Stop) -> Any:
        stop.check(job.subject)
        future = self._submitted(payload)
        try:
            return self._awaited(future, job, timeout_s, stop)
        except KernellabError:
            raise
        except CancelledError as exc:
            text = "The executor dropped a compile: its cluster was closed, or lost its workers."
            raise self._failed(WorkerError(text)) from exc
        except KeyboardInterrupt as exc:  # of the worker: in a notebook, an interrupt reaches processes as well
            raise WorkerDied(f"{job.subject} was interrupted in the executor.") from exc
        except Exception as exc:
            raise self._told(exc, job) from exc

    def _submitted(self, payload: CompileJob) -> Future[Any]:
        try:
            future = self.executor.submit(pickle.loads, pickle.dumps(_Call(payload)))
        except BrokenExecutor as exc:
            raise self._failed(_broken(exc)) from exc
        except Exception as exc:
            text = f"The executor takes no compiles ({type(exc).__name__}: {exc}); is it closed?"
            raise self._failed(WorkerError(text)) from exc
        if not isinstance(future, Future):
            text = f"submit() of the executor {self.executor!r} returned a {type(future).__name__}"
            raise self._failed(UsageError(f"{text}; expected the future of a concurrent.futures.Executor{_SUCH_AS}."))
        return future

    def _awaited(self, future: Future[Any], job: Job[BuildRequest, None], timeout_s: float, stop: Stop) -> Any:
        """Wait as long as the executor finishes anything."""
        begin_s = time.monotonic()
        while not wait([future], _LOOK_S).done:
            if stop.why:
                future.cancel()
                stop.check(job.subject)
            if time.monotonic() - max(begin_s, self._last_s) > timeout_s:
                future.cancel()
                raise self._failed(
                    WorkerTimeout(
                        f"The executor finished no compile within {timeout_s:g} s; does it have workers? An interrupt "
                        "of a notebook ends those that the notebook started, of a LocalCluster of dask for instance."
                    )
                )
        self._last_s = time.monotonic()
        return future.result()

    def _told(self, exc: Exception, job: Job[BuildRequest, None]) -> KernellabError:
        """Return what a job failed with, where that was no error of the kernel."""
        if isinstance(exc, BrokenExecutor):
            return self._failed(_broken(exc))
        if _lacks_a_module(exc):
            return self._failed(
                WorkerError(f"The executor's workers cannot import what they need ({exc}): install kernellab there.")
            )
        return WorkerError(f"{job.subject} failed in the executor: {type(exc).__name__}: {exc}")

    def _failed(self, error: KernellabError) -> KernellabError:
        self.failure = self.failure or error
        return error


def _broken(exc: BrokenExecutor) -> WorkerError:
    text = f"The executor broke while configs compiled ({type(exc).__name__}: {exc})"
    return WorkerError(
        f"{text}. A config may have ended the compiler, or an interrupt a process of the pool; make a new one. "
        "Without executor=, each config compiles in a worker of the lab."
    )


def _lacks_a_module(exc: Exception) -> bool:
    """Tell whether a worker could not import something; ipyparallel gives the error of an engine by its name."""
    return isinstance(exc, ImportError) or getattr(exc, "ename", "") in {"ModuleNotFoundError", "ImportError"}


@cache
def _one_at_a_time() -> threading.Lock:
    """Return what lets one thread of a process compile at a time: Triton's front end keeps state of its own."""
    return lock()
