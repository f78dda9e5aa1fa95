"""Worker processes, which run everything that can crash, hang or print without end.

A worker is a separate Python process that imports only what its kind of job needs. It takes one job at a time, a
function of a module with a picklable payload, and answers with a result, a failure, or by dying. The caller never loses
more than the job.
"""

from __future__ import annotations

import contextlib
import math
import queue
import signal
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import kernellab.errors
from kernellab.errors import KernellabError, Place, UsageError, WorkerDied, WorkerTimeout, stopped_text
from kernellab.workers.forks_and_interrupts import (
    TICK_S,
    AtWork,
    ProgressCallback,
    Stop,
    at_fork,
    background_thread,
    hold_lock,
    lock,
    run_uninterrupted,
    run_uninterrupted_with_progress,
)
from kernellab.workers.process import (
    ChannelClosedError,
    DeadlineError,
    ForkServer,
    WorkerProcess,
    limit_of,
    pack_message,
    spawn,
)

_LAST_MOMENT_S = 5.0
_CLOSE_S = 30.0
_START_S = 20.0
CLOSED = "ended: its worker was closed"
_KILLED_FROM_OUTSIDE = {-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP}

Request = TypeVar("Request")
Answer = TypeVar("Answer")
Handler = Callable[[Request, ProgressCallback], Answer]


@dataclass(frozen=True, slots=True)
class Job(Generic[Request, Answer]):
    """A call for a worker: ``handler``, a function of a module, with ``payload`` and a progress function.

    Of a function that this process need not import, ``handler`` is the name, ``module:function``. ``subject`` is the
    job's name in messages: "kernel softmax".
    """

    handler: Handler[Request, Answer] | str
    payload: Request
    subject: str

    def message(self) -> bytes:
        """Return the job as bytes; the worker looks the function up by name."""
        handler = self.handler
        name = handler if isinstance(handler, str) else f"{handler.__module__}:{handler.__qualname__}"
        module, _, function = name.partition(":")
        return pack_message(WorkerCall(module, function, self.payload))


@dataclass(frozen=True, slots=True)
class WorkerCall:
    """A job as a worker receives it: module and name of the function, and its payload."""

    module: str
    function: str
    payload: Any


@dataclass(frozen=True, slots=True)
class WorkerKind:
    """How to start the processes of one kind: modules to import first and environment variables.

    ``preload`` names modules; of ``module:function:argument...``, the function is called as well, once, before the
    first job.
    """

    name: str
    preload: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules of ``preload``."""
        return tuple(entry.partition(":")[0] for entry in self.preload)


def answer_at_once(payload: None, progress: ProgressCallback) -> None:
    """Do nothing: the answer shows that the process has imported its modules."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception as plain data, to be sent between processes."""

    error: str
    message: str
    place: Place | None = None
    detail: str = ""
    kernel: str | None = None

    def exception(self) -> KernellabError:
        """Return the exception, of its own class if that is one of kernellab's."""
        cls = getattr(kernellab.errors, self.error, KernellabError)
        error: KernellabError = cls(self.message, place=self.place, detail=self.detail, kernel=self.kernel)
        return error


def failure_of(exc: BaseException, *, detail: str = "") -> Failure:
    """Return an exception as data; one that is not kernellab's keeps its type in the message."""
    if isinstance(exc, KernellabError):
        return Failure(type(exc).__name__, exc.message, exc.place, exc.detail or detail, exc.kernel)
    return Failure("WorkerError", f"{type(exc).__name__}: {exc}", detail=detail)


@dataclass(slots=True, weakref_slot=True, eq=False)
class Worker:
    """One process of a kind, started on demand and restarted after it died; forked by ``server``, if given.

    One that does not wait for a server which is not started is a new interpreter instead, and imports by itself. A fork
    of the owning process gets its own worker. All access to the process runs in threads that interrupts do not
    reach.
    """

    kind: WorkerKind
    server: ForkServer | None = None
    waits_for_server: bool = True
    _process: WorkerProcess | None = None
    _at_work: AtWork = field(default_factory=AtWork)
    _lock: threading.Lock = field(default_factory=lock)
    _prepared: set[Hashable] = field(default_factory=set)  # the jobs of `prepare` that it has run

    def __post_init__(self) -> None:
        at_fork(self, in_child=Worker._start_anew)

    @property
    def pid(self) -> int | None:
        """The process id, or None while none runs."""
        process = self._process
        return process.child.pid if process is not None and process.child.exit_code(0) is None else None

    def start(self) -> None:
        """Start the process without waiting until it is ready, nor for a job, which starts it as well."""

        def start_process() -> None:
            stop = Stop()
            with self._at_work.on(stop):
                if self._lock.acquire(blocking=False):
                    try:
                        self._running_process(_START_S, f"The {self.kind.name} worker", stop)
                    finally:
                        self._lock.release()

        run_uninterrupted(start_process)

    def run(
        self,
        job: Job[Request, Answer],
        timeout_s: float,
        progress: ProgressCallback | None = None,
        stop: Stop | None = None,
    ) -> Answer:
        """Run a job and return the handler's result.

        A worker that was killed from outside is replaced and the job tried once more. ``progress`` is called in this
        thread; ``stop``, asked in another one, ends the job.

        Raises:
            KernellabError: the job failed, as an exception of the class it failed with.
            WorkerTimeout: it took longer than ``timeout_s`` seconds; the process was stopped.
            WorkerDied: the process ended by itself, was killed twice, or the job was stopped.
            Interrupted: instead of a KeyboardInterrupt; the process was stopped.
        """
        require_seconds(timeout_s)
        message, asked = job.message(), stop or Stop()
        answer: Answer = run_uninterrupted_with_progress(
            lambda report: self._run(job, message, timeout_s, report, asked), asked, job.subject, progress
        )
        return answer

    def prepare(self, job: Job[Any, None], timeout_s: float) -> None:
        """Run a job that prepares the process, once per process; see `run`."""
        key = (job.handler, job.payload)
        if key not in self._prepared or self.pid is None:
            self.run(job, timeout_s)
            self._prepared.add(key)

    def close(self) -> None:
        """Stop the process, even at work."""

        def stop_process() -> None:
            self._at_work.ask(CLOSED)
            if self._lock.acquire(timeout=_CLOSE_S):  # what is stopped ends sooner
                try:
                    self._stop_process()
                finally:
                    self._lock.release()

        run_uninterrupted(stop_process)

    def _run(self, job: Job[Any, Any], message: bytes, timeout_s: float, report: ProgressCallback, stop: Stop) -> Any:
        with self._at_work.on(stop), hold_lock(self._lock, stop, job.subject):
            try:
                return self._attempt(job, message, timeout_s, report, stop)
            except _KilledFromOutside:
                try:
                    return self._attempt(job, message, timeout_s, report, stop)
                except _KilledFromOutside as exc:
                    raise WorkerDied(f"The worker of {job.subject} was killed twice ({exc}).") from exc

    def _start_anew(self) -> None:
        self._process, self._at_work = None, AtWork()
        self._prepared.clear()

    def _running_process(self, timeout_s: float, subject: str, stop: Stop) -> WorkerProcess:
        if self._process is not None and self._process.channel.has_news():
            self._stop_process()  # it has nothing to say between jobs: the other end is gone
        if self._process is None:
            stop.check(subject)
            if self.server is None or not (self.waits_for_server or self.server.is_started):
                self._process = spawn(self.kind.preload, self.kind.environment)
            else:
                self._process = self._forked_process(self.server, timeout_s, subject, stop)
        return self._process

    def _forked_process(self, server: ForkServer, timeout_s: float, subject: str, stop: Stop) -> WorkerProcess:
        """Return a fork that was sent its kind; one that could not be sent it takes no jobs."""
        process = server.fork(timeout_s, subject, stop)
        try:
            with contextlib.suppress(ChannelClosedError):  # then the job says how it ended
                process.channel.send(pack_message(self.kind), limit_of(timeout_s, subject, stop))
        except BaseException:
            process.stop()
            raise
        return process

    def _stop_process(self) -> int | None:
        process, self._process = self._process, None
        self._prepared.clear()
        return None if process is None else process.stop()

    def _attempt(
        self, job: Job[Any, Any], message: bytes, timeout_s: float, report: ProgressCallback, stop: Stop
    ) -> Any:
        process = self._running_process(timeout_s, job.subject, stop)
        start = process.printed_bytes()
        try:
            limit = limit_of(timeout_s, job.subject, stop)
            process.channel.send(message, limit)
            while (answer := process.channel.receive(limit))[0] == "progress":
                report(answer[1])
        except ChannelClosedError as exc:
            raise self._death_error(process, job, start) from exc
        except DeadlineError as exc:
            self._stop_process()
            raise WorkerTimeout(stopped_text(job.subject, timeout_s)) from exc
        except BaseException:
            self._stop_process()  # whatever the process is at, its answer would come out of turn
            raise
        kind, value = answer
        if kind == "failure":
            raise value.exception()
        return value

    def _death_error(self, process: WorkerProcess, job: Job[Any, Any], start: int) -> Exception:
        code = process.child.exit_code(_LAST_MOMENT_S)
        printed = process.tail(start)
        stopped = self._stop_process()
        code = stopped if code is None else code
        if code is None or code in _KILLED_FROM_OUTSIDE:
            return _KilledFromOutside(signal.Signals(-(code or -signal.SIGKILL)).name)
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        last = next((line for line in reversed(printed.splitlines()) if line.strip()), "")
        last_line = f": {last.strip()}" if last else "."
        return WorkerDied(f"{job.subject} ended its worker process ({how}){last_line}", detail=printed)


class _KilledFromOutside(Exception):
    """The process was killed by a signal from outside, of this name."""


class BackgroundJobs:
    """The threads of `in_background` that an owner has begun, and stops when it is closed."""

    def __init__(self) -> None:
        self._jobs: dict[threading.Thread, tuple[Stop, bool]] = {}

    def begin(
        self, *steps: Callable[[], object], name: str | None = None, stop: Stop | None = None, is_awaited: bool = False
    ) -> threading.Thread:
        """Run steps in a new thread; see `in_background`. `stop` gives those ``is_awaited`` some seconds to end."""
        asked = stop or Stop()
        thread = background_thread(*steps, name=name, stop=asked)
        for ended in [job for job in tuple(self._jobs) if job.ident is not None and not job.is_alive()]:
            self._jobs.pop(ended, None)
        self._jobs[thread] = asked, is_awaited  # first: what stops the jobs in between stops this one, too
        thread.start()
        return thread

    def stop(self, why: str) -> tuple[threading.Thread, ...]:
        """Ask the running jobs to stop, so that they start no process any more; return their threads."""
        running, end_s = tuple(self._jobs.items()), time.monotonic() + _LAST_MOMENT_S
        for _, (stop, is_awaited) in running:
            if not is_awaited:
                stop.ask(why)
        for thread, (stop, is_awaited) in running:
            if is_awaited and thread.ident is not None:
                thread.join(max(0.0, end_s - time.monotonic()))
            stop.ask(why)
        return tuple(thread for thread, _ in running if thread.is_alive())


class Pool:
    """Workers of one kind, forked from a server with preloaded modules.

    Each job takes the free one that was last at work: the second compile of a process is a fifth faster than its first.
    """

    def __init__(self, kind: WorkerKind, size: int) -> None:
        if size < 1:
            raise UsageError(f"A pool has {size} workers; expected at least 1.")
        self.server = ForkServer(kind.modules, kind.environment)
        self.workers = tuple(Worker(kind, self.server) for _ in range(size))
        self._at_work: AtWork
        self._free: queue.LifoQueue[Worker]
        self._background: BackgroundJobs
        self._start_anew()
        at_fork(self, in_child=Pool._start_anew)

    def start(self) -> None:
        """Start the server without waiting for it."""
        run_uninterrupted(self.server.start)

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until every process answers."""
        for worker in self.workers:
            worker.run(Job(answer_at_once, None, "Starting a worker"), timeout_s)

    def run(
        self,
        job: Job[Request, Answer],
        timeout_s: float,
        progress: ProgressCallback | None = None,
        stop: Stop | None = None,
    ) -> Answer:
        """Run a job on the next free worker; see `Worker.run`."""
        asked = stop or Stop()

        def run(report: ProgressCallback) -> Answer:
            with self._at_work.on(asked), self._borrow_worker(asked, job.subject) as worker:
                return worker.run(job, timeout_s, report, asked)

        return run_uninterrupted_with_progress(run, asked, job.subject, progress)

    def run_in_background(self, step: Callable[[], object], stop: Stop | None = None) -> threading.Thread:
        """Run ``step``, which waits for jobs, in the returned thread while the caller goes on.

        `close` asks ``stop`` at once; without one, it first waits a few seconds for the step, whose result is kept. No
        job of it starts a process later.
        """
        return self._background.begin(step, stop=stop, is_awaited=stop is None)

    def close(self) -> None:
        """Stop all processes and the server."""

        def stop_all() -> None:
            for thread in self._background.stop(CLOSED):
                thread.join(_LAST_MOMENT_S)
            self._at_work.ask(CLOSED)
            for worker in self.workers:
                worker.close()
            self.server.close()

        run_uninterrupted(stop_all)

    def _start_anew(self) -> None:
        self._at_work, self._free, self._background = AtWork(), queue.LifoQueue(), BackgroundJobs()
        for worker in self.workers:
            self._free.put(worker)

    @contextlib.contextmanager
    def _borrow_worker(self, stop: Stop, subject: str) -> Iterator[Worker]:
        worker: Worker | None = None
        while worker is None:
            stop.check(subject)
            with contextlib.suppress(queue.Empty):
                worker = self._free.get(timeout=TICK_S)
        try:
            yield worker
        finally:
            self._free.put(worker)


def require_seconds(timeout_s: float) -> None:
    """Refuse an invalid time limit.

    Raises:
        UsageError: it is not a number, or not above 0.
    """
    if not timeout_s > 0 or math.isinf(timeout_s):
        raise UsageError(f"The time limit is {timeout_s!r}; expected seconds, more than 0.")
