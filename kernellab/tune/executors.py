"""Executors of the user: their processes, and compiling on any `concurrent.futures.Executor`.

Processes have names if the executor lists them (workers of dask, engines of ipyparallel), else numbers. Processes that
own a GPU measure; all of them have one kind of GPU, since times of two kinds are not comparable.

A `CompileJob` is sent as bytes that compile it when they are unpickled, and the files of the compiled kernel are
returned. So the workers need kernellab and the same Triton, and no disk in common with the notebook. A worker without
kernellab gives a clear error, since it is called with `pickle.loads`, which Python has.
"""

from __future__ import annotations

import pickle
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, wait
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from kernellab.compile.types import CompileJob
from kernellab.compile.worker import BuildRequest, compile_kernel
from kernellab.errors import (
    KernellabError,
    StoreError,
    UsageError,
    WorkerDied,
    WorkerError,
    WorkerTimeout,
    timeout_text,
    value_text,
)
from kernellab.workers.forks_and_interrupts import AtWork, ProgressCallback, Stop, lock
from kernellab.workers.scratch import Scratch
from kernellab.workers.worker import Failure, Job, failure_of

if TYPE_CHECKING:
    from kernellab.timing.provenance import Device


_EXPECTED = (
    "a concurrent.futures.Executor, a Client of dask, or a Client or a view of ipyparallel, such as "
    "client.load_balanced_view()"
)
_MOST_WAITING = 32
_POLL_S = 0.1
_EXAMPLES = ", such as client.get_executor() of dask, or client.load_balanced_view().executor of ipyparallel"


class Cluster(Protocol):
    """The processes of an executor; ``is_addressed`` says whether a call can go to a process by its name."""

    is_addressed: bool

    def names(self) -> frozenset[str]:
        """Return the names of the current processes."""

    def submit(self, name: str, data: bytes) -> Future[bytes]:
        """Call `pickle.loads` with some bytes in a process."""


def cluster_of(executor: Any) -> Cluster:
    """Return the processes behind an executor.

    Raises:
        UsageError: it is none.
    """
    client = getattr(executor, "_client", executor)
    if callable(getattr(client, "scheduler_info", None)):
        return DaskWorkers(client, getattr(executor, "_kwargs", {}))
    view = getattr(executor, "view", executor)
    if callable(getattr(view, "apply_async", None)):
        return Engines(view.client, view)
    if callable(getattr(executor, "load_balanced_view", None)):
        return Engines(executor)
    if not callable(getattr(executor, "submit", None)):
        raise UsageError(f"executor is {value_text(executor)}; expected {_EXPECTED}.")
    count = getattr(executor, "_max_workers", 1)
    return AnonymousProcesses(executor, count if isinstance(count, int) else 1)


def executor_of(executor: Any) -> Any:
    """Return the executor of a client or a view of dask or ipyparallel; any other object unchanged."""
    if callable(getattr(executor, "get_executor", None)):
        return executor.get_executor(pure=False)
    view = executor.load_balanced_view() if callable(getattr(executor, "load_balanced_view", None)) else executor
    return getattr(view, "executor", executor)


@dataclass(slots=True)
class DaskWorkers:
    """The workers of a client of dask; ``options`` are those of its executor: ``workers`` and ``resources``.

    Names are addresses, which change when a worker is started again.
    """

    client: Any
    options: Mapping[str, Any] = field(default_factory=dict)
    is_addressed: bool = True

    def names(self) -> frozenset[str]:
        """Return the current workers that the options of the executor select.

        Raises:
            WorkerError: the scheduler does not answer.
        """
        try:
            workers: Mapping[str, Any] = self.client.scheduler_info(n_workers=-1)["workers"]
        except (OSError, RuntimeError, ValueError) as exc:  # a closed client says it in several ways
            raise WorkerError(f"The scheduler of dask does not answer ({type(exc).__name__}: {exc}).") from exc
        return frozenset(address for address, worker in workers.items() if self._is_selected(address, worker))

    def submit(self, name: str, data: bytes) -> Future[bytes]:
        """Call `pickle.loads` on a worker; dask neither retries it nor moves it to another."""
        resources = {name: value for name, value in self.options.items() if name == "resources" and value}
        executor = self.client.get_executor(
            workers=[name], allow_other_workers=False, pure=False, retries=0, **resources
        )
        return executor.submit(pickle.loads, data)  # type: ignore[no-any-return]

    def _is_selected(self, address: str, worker: Mapping[str, Any]) -> bool:
        wanted, needed = self.options.get("workers") or (), self.options.get("resources") or {}
        wanted, has = {wanted} if isinstance(wanted, str) else set(wanted), worker.get("resources") or {}
        is_wanted = not wanted or bool(wanted & {address, worker.get("name"), worker.get("host")})
        return is_wanted and all(has.get(name, 0) >= amount for name, amount in needed.items())


@dataclass(slots=True)
class Engines:
    """The engines of an ipyparallel client, or those that a ``view`` selects; names are their numbers."""

    client: Any
    view: Any = None
    is_addressed: bool = True

    def names(self) -> frozenset[str]:
        """Return the numbers of the current engines."""
        targets = getattr(self.view, "targets", None)
        wanted = set(targets) if isinstance(targets, list | tuple) else {targets} if isinstance(targets, int) else set()
        return frozenset(str(number) for number in self.client.ids if not wanted or number in wanted)

    def submit(self, name: str, data: bytes) -> Future[bytes]:
        """Call `pickle.loads` on an engine."""
        return self.client[int(name)].apply_async(pickle.loads, data)  # type: ignore[no-any-return]


@dataclass(slots=True)
class AnonymousProcesses:
    """The processes of an executor that does not name them; the executor chooses which one runs a call."""

    executor: Executor
    count: int = 1
    is_addressed: bool = False

    def names(self) -> frozenset[str]:
        """Return a number for each process that there may be."""
        return frozenset(map(str, range(max(1, self.count))))

    def submit(self, name: str, data: bytes) -> Future[bytes]:
        """Call `pickle.loads` in some process."""
        return self.executor.submit(pickle.loads, data)


@dataclass(frozen=True, slots=True)
class GpuOwner:
    """A process with the one GPU that it uses.

    ``gpu`` is its UUID, the same for two processes that share it. ``visible`` is the number of GPUs that the process
    could use, ``multiprocessors`` that of this GPU, None if unknown.
    """

    device: Device
    gpu: str
    visible: int = 1
    multiprocessors: int | None = None

    @property
    def kind(self) -> str:
        """Model, driver, target and Triton; only measurements with the same kind are comparable."""
        device = self.device
        return f"{device.name}, driver {device.driver}, {device.target}, Triton {device.facts['triton']}"


@dataclass(frozen=True, slots=True)
class Owners:
    """The names of the processes that measure, and notes about those that do not."""

    kind: str
    names: tuple[str, ...]
    notes: tuple[str, ...]


def owners_of(candidates: Mapping[str, GpuOwner | None], target: str | None = None) -> Owners:
    """Choose the processes that measure: all of one kind, one for each GPU.

    Kinds with the ``target`` come first, then the most common kind, then the kind of the first name. Processes without
    a GPU (None) are left out without a note.
    """
    own: dict[str, GpuOwner] = {}
    first: dict[str, str] = {}
    notes: list[str] = []
    for name, owner in sorted(candidates.items()):
        if owner is not None and owner.gpu in first:
            notes.append(f"{name} shares the GPU of {first[owner.gpu]} and measures nothing; start one worker per GPU")
        elif owner is not None:
            first[owner.gpu], own[name] = name, owner
    counts = Counter(owner.kind for owner in own.values())
    targets = {owner.kind: str(owner.device.target) for owner in own.values()}
    kind = max(counts, key=lambda kind: (targets[kind] == target, counts[kind]), default="")
    names = tuple(name for name, owner in own.items() if owner.kind == kind)
    notes += [
        f"{name} has {owner.kind} and measures nothing: the others have {kind}, and times of two kinds are not compared"
        for name, owner in own.items()
        if owner.kind != kind
    ]
    notes += [
        f"{name} could use {own[name].visible} GPUs and measures on one; start one worker per GPU, each with its own "
        "CUDA_VISIBLE_DEVICES"
        for name in names
        if own[name].visible > 1
    ]
    return Owners(kind, names, tuple(notes))


@dataclass(frozen=True, slots=True)
class RemoteBuild:
    """The files of a compiled kernel, with the digest of its job in the worker."""

    digest: str
    files: Mapping[str, bytes]


@dataclass(slots=True)
class ExecutorPool:
    """A pool of compile workers that runs its jobs on an executor, which stays open.

    ``failure`` is the error that broke the executor, None while it works. An executor that finishes no compile within
    the timeout of one counts as broken.
    """

    executor: Executor
    failure: KernellabError | None = None
    _at_work: AtWork = field(default_factory=AtWork)
    _last_s: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        if not callable(getattr(self.executor, "submit", None)):
            raise UsageError(
                f"executor is {value_text(self.executor)}; expected a concurrent.futures.Executor{_EXAMPLES}."
            )

    @property
    def workers(self) -> range:
        """One entry per job that is submitted at once."""
        count = getattr(self.executor, "_max_workers", None)
        return range(min(_MOST_WAITING, count + 1) if isinstance(count, int) else _MOST_WAITING)

    def run(
        self,
        job: Job[BuildRequest, None],
        timeout_s: float,
        progress: ProgressCallback | None = None,
        stop: Stop | None = None,
    ) -> None:
        """Compile the kernel of a `BuildRequest`, and write its files to the request's folder.

        When it is stopped, jobs that have not begun are cancelled, and no job is waited for.

        Raises:
            KernellabError: the kernel does not compile.
            WorkerDied: it was stopped.
            WorkerError: the executor broke, timed out, or has another Triton.
        """
        if self.failure is not None:
            raise self.failure
        request = job.payload
        asked = stop or Stop()
        with self._at_work.on(asked):
            result = self._result(job, request.job, timeout_s, asked)
        if isinstance(result, Failure):
            raise result.exception()
        if not isinstance(result, RemoteBuild):
            text = f"The executor returned a {type(result).__name__} for a compile; expected one result."
            remedy = "A direct view of ipyparallel compiles on every engine: take client.load_balanced_view().executor."
            raise self._record_failure(UsageError(f"{text} {remedy}"))
        if result.digest != request.job.digest:
            text = "The executor's workers compile with another Triton, or with other TRITON_* variables."
            raise self._record_failure(WorkerError(text))
        for name, content in result.files.items():
            (request.folder / name).write_bytes(content)

    def interrupt(self) -> None:
        """Cancel the jobs that have not begun, without waiting."""
        self._at_work.ask()

    def _result(self, job: Job[BuildRequest, None], payload: CompileJob, timeout_s: float, stop: Stop) -> Any:
        stop.check(job.subject)
        future = self._submit(payload)
        try:
            return self._await_result(future, job, timeout_s, stop)
        except KernellabError:
            raise
        except CancelledError as exc:
            text = "The executor dropped a compile: its cluster was closed, or lost its workers."
            raise self._record_failure(WorkerError(text)) from exc
        except KeyboardInterrupt as exc:  # of the worker: in a notebook, an interrupt reaches processes as well
            raise WorkerDied(f"{job.subject} was interrupted in the executor.") from exc
        except BrokenExecutor as exc:
            raise self._record_failure(_broken_error(exc)) from exc
        except Exception as exc:
            if is_missing_module(exc):
                text = f"The executor's workers cannot import what they need ({exc}): install kernellab there."
                raise self._record_failure(WorkerError(text)) from exc
            raise WorkerError(f"{job.subject} failed in the executor: {type(exc).__name__}: {exc}") from exc

    def _submit(self, payload: CompileJob) -> Future[Any]:
        try:
            future = self.executor.submit(pickle.loads, pickle.dumps(RemoteCall(compile_job, payload)))
        except BrokenExecutor as exc:
            raise self._record_failure(_broken_error(exc)) from exc
        except Exception as exc:
            text = f"The executor takes no compiles ({type(exc).__name__}: {exc}); is it closed?"
            raise self._record_failure(WorkerError(text)) from exc
        if not isinstance(future, Future):
            text = f"submit() of the executor {value_text(self.executor)} returned a {type(future).__name__}"
            text += f"; expected the future of a concurrent.futures.Executor{_EXAMPLES}."
            raise self._record_failure(UsageError(text))
        return future

    def _await_result(self, future: Future[Any], job: Job[BuildRequest, None], timeout_s: float, stop: Stop) -> Any:
        """Wait for a result, at most ``timeout_s`` after the executor finished its last compile."""
        begin_s = time.monotonic()
        while not wait([future], _POLL_S).done:
            if stop.why:
                future.cancel()
                stop.check(job.subject)
            if time.monotonic() - max(begin_s, self._last_s) > timeout_s:
                future.cancel()
                late = timeout_text("The executor", timeout_s, "finished no compile")
                raise self._record_failure(
                    WorkerTimeout(
                        f"{late}; does it have workers? An interrupt of a notebook ends those that "
                        "the notebook started, of a LocalCluster of dask for instance."
                    )
                )
        self._last_s = time.monotonic()
        return future.result()

    def _record_failure(self, error: KernellabError) -> KernellabError:
        self.failure = self.failure or error
        return error


def compile_job(job: CompileJob) -> RemoteBuild | Failure:
    """Compile a job in this process for an executor; an error of the kernel comes back as data."""
    try:
        own = replace(job)  # the digest depends on the Triton and the TRITON_* variables of this process
        with process_lock("compile"), Scratch() as folder:
            compile_kernel(BuildRequest(own, folder), lambda progress: None)
            return RemoteBuild(own.digest, {path.name: path.read_bytes() for path in folder.iterdir()})
    except StoreError as exc:
        if not isinstance(exc.__cause__, OSError):
            return failure_of(exc)
        full = f"A worker of the executor cannot write to {tempfile.gettempdir()}: {exc.__cause__.strerror}."
        return failure_of(WorkerError(f"{full} Free space there, or set TMPDIR."))
    except KernellabError as exc:
        return failure_of(exc)


def _broken_error(exc: BrokenExecutor) -> WorkerError:
    text = f"The executor broke while configs compiled ({type(exc).__name__}: {exc})"
    return WorkerError(
        f"{text}. A config may have ended the compiler, or an interrupt a process of the pool; make a new one. "
        "Without executor=, each config compiles in a worker of the lab."
    )


def is_missing_module(exc: BaseException) -> bool:
    """Whether a worker could not import a module; ipyparallel gives an engine's error by its name."""
    return isinstance(exc, ImportError) or getattr(exc, "ename", "") in {"ModuleNotFoundError", "ImportError"}


@dataclass(frozen=True, slots=True)
class RemoteCall:
    """A function call that runs where this is unpickled, so that a process needs only `pickle.loads`.

    A call that a worker of dask cannot unpickle would kill the worker, and the next one.
    """

    function: Callable[[Any], Any]
    payload: Any

    def __reduce__(self) -> tuple[Any, ...]:
        return self.function, (self.payload,)


@cache
def process_lock(what: str) -> threading.Lock:
    """Return the lock of this process for a kind of work.

    ``compile``: Triton's front end has global state. ``measure``: threads share the GPU.
    """
    return lock()
