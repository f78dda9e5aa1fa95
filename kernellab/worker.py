"""Worker processes: whatever can crash, hang or print without end runs in one of them.

A worker is a Python process of its own that imports only what its kind of job needs. It takes one job at a time, a
function named ``module:function`` with a picklable payload, and answers with a result, a failure, or by dying. The
process that asks never loses more than the job.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import kernellab.errors
from kernellab.errors import KernellabError, Place, WorkerDied, WorkerTimeout
from kernellab.process import ForkServer, WorkerProcess, spawn

_LAST_MOMENT_S = 5.0
_KILLED_FROM_OUTSIDE = {-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP}

Progress = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker is asked to do: call ``handler`` (``module:function``) with ``payload`` and a progress function.

    ``subject`` is how messages name it: "kernel softmax".
    """

    handler: str
    payload: Any
    subject: str


@dataclass(frozen=True, slots=True)
class Kind:
    """How the processes of one kind are started: modules they import first, variables they find in the environment."""

    name: str
    preload: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def variables(self) -> dict[str, str]:
        return dict(self.environment)


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception on its way between processes, as plain data."""

    error: str
    message: str
    place: Place | None = None
    detail: str = ""
    kernel: str | None = None

    def exception(self) -> KernellabError:
        """Return the exception again, of its own class where that is one of kernellab's."""
        cls = getattr(kernellab.errors, self.error, KernellabError)
        error: KernellabError = cls(self.message, place=self.place, detail=self.detail, kernel=self.kernel)
        return error


def failure_of(exc: BaseException, *, detail: str = "") -> Failure:
    """Return an exception as data; one that is not kernellab's keeps its type in the message."""
    if isinstance(exc, KernellabError):
        return Failure(type(exc).__name__, exc.message, exc.place, exc.detail or detail, exc.kernel)
    return Failure("WorkerError", f"{type(exc).__name__}: {exc}", detail=detail)


class Interrupted(KeyboardInterrupt):
    """The user stopped what a worker did. Where the process stood in waiting for it tells nobody anything."""

    def _render_traceback_(self) -> list[str]:
        """Let IPython show one line."""
        return [f"KeyboardInterrupt: {self}"]


@dataclass(slots=True)
class Worker:
    """One process of a kind, started when first needed and again after it died; by ``server``, if there is one."""

    kind: Kind
    server: ForkServer | None = None
    _process: WorkerProcess | None = None
    _interrupted: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def pid(self) -> int | None:
        """The process id, or None while none runs."""
        process = self._process
        return process.child.pid if process is not None and process.child.exit_code(0) is None else None

    def start(self) -> None:
        """Start the process now, without waiting until it is ready."""
        with self._lock:
            self._running()

    def run(self, job: Job, timeout_s: float, progress: Progress | None = None) -> Any:
        """Return what the handler returns.

        A worker that was killed from outside is replaced and the job tried once more.

        Raises:
            KernellabError: the job failed, as an exception of the class it failed with.
            WorkerTimeout: it took longer than ``timeout_s`` seconds; the process was stopped.
            WorkerDied: the process ended by itself, or was killed twice.
        """
        with self._lock:
            self._interrupted = False
            try:
                return self._attempt(job, timeout_s, progress)
            except _Killed as exc:
                if self._interrupted:
                    raise WorkerDied(f"{job.subject} was interrupted.") from exc
                try:
                    return self._attempt(job, timeout_s, progress)
                except _Killed as exc:
                    raise WorkerDied(f"The worker of {job.subject} was killed twice ({exc.how}).") from exc

    def interrupt(self) -> None:
        """Stop the job that another thread runs on this worker; that thread gets `WorkerDied`."""
        process = self._process
        if process is not None and self._lock.locked():
            self._interrupted = True
            process.child.kill()

    def close(self) -> None:
        """Stop the process, whatever it does."""
        process, self._process = self._process, None
        if process is not None:
            process.stop()

    def _running(self) -> WorkerProcess:
        if self._process is not None and self._process.connection.poll():
            self.close()  # it has nothing to say between jobs: the other end is gone
        if self._process is None:
            self._process = self.server.fork() if self.server else spawn(self.kind.preload, self.kind.variables)
        return self._process

    def _attempt(self, job: Job, timeout_s: float, progress: Progress | None) -> Any:
        process = self._running()
        start = process.printed_bytes()
        deadline = time.monotonic() + timeout_s
        try:
            process.connection.send(job)
            for kind, value in _answers(process.connection, deadline):
                if kind == "progress" and progress is not None:
                    progress(value)
                elif kind == "result":
                    return value
                elif kind == "failure":
                    raise value.exception()
        except (EOFError, ConnectionError) as exc:
            raise self._death(job, start) from exc
        except BaseException as exc:
            if not isinstance(exc, KernellabError):
                self.close()  # interrupted: whatever the process is at, its answer would come out of turn
            if isinstance(exc, KeyboardInterrupt):
                raise Interrupted(f"{job.subject} was interrupted.") from None
            raise
        self.close()
        raise WorkerTimeout(f"{job.subject} did not finish within {timeout_s:g} s and was stopped.")

    def _death(self, job: Job, start: int) -> Exception:
        process, self._process = self._process, None
        if process is None:
            return WorkerDied(f"The worker of {job.subject} was closed.")
        code = process.child.exit_code(_LAST_MOMENT_S)
        printed = process.tail(start)
        stopped = process.stop()
        code = stopped if code is None else code
        if code in _KILLED_FROM_OUTSIDE:
            return _Killed(signal.Signals(-code).name)
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        last = next((line for line in reversed(printed.splitlines()) if line.strip()), "")
        said = f": {last.strip()}" if last else "."
        return WorkerDied(f"{job.subject} ended its worker process ({how}){said}", detail=printed)


class _Killed(Exception):
    """The process was killed by a signal that it cannot have raised itself."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how


class Pool:
    """Workers of one kind, forked from a server that has imported everything once; each job takes a free one."""

    def __init__(self, kind: Kind, size: int) -> None:
        self.server = ForkServer(kind.preload, kind.variables)
        self.workers = tuple(Worker(kind, self.server) for _ in range(size))
        self._free: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in self.workers:
            self._free.put(worker)

    def start(self) -> None:
        """Start the server, without waiting for it; its workers are there within milliseconds once it is."""
        self.server.start()

    def wait_ready(self, timeout_s: float) -> None:
        """Return once every process answers."""
        for worker in self.workers:
            worker.run(Job("kernellab.serve:ready", None, "Starting a worker"), timeout_s)

    def run(self, job: Job, timeout_s: float, progress: Progress | None = None) -> Any:
        """Run a job on the next free worker; see `Worker.run`."""
        with self._borrowed() as worker:
            return worker.run(job, timeout_s, progress)

    def interrupt(self) -> None:
        """Stop all jobs that other threads run on this pool."""
        for worker in self.workers:
            worker.interrupt()

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        self.server.close()

    @contextlib.contextmanager
    def _borrowed(self) -> Iterator[Worker]:
        worker = self._free.get()
        try:
            yield worker
        finally:
            self._free.put(worker)


def _answers(connection: Connection, deadline: float) -> Iterator[tuple[str, Any]]:
    """Yield what the child sends until the deadline."""
    while connection.poll(max(0.0, deadline - time.monotonic())):
        yield connection.recv()
