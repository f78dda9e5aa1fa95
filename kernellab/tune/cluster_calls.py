"""Calls to the executor's processes that own a GPU: one at a time each, repeated once where a process is lost.

Calls and answers are sent as bytes, which `pickle.loads` unpacks.
"""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass, field
from typing import Any

from kernellab.errors import KernellabError, UsageError, WorkerDied, WorkerError, first_line, timeout_text
from kernellab.tune.executors import Cluster, GpuOwner, RemoteCall, is_missing_module, owners_of, process_lock
from kernellab.workers.worker import Failure, failure_of

_TRIES = 2
_DECLINED_AT_MOST = 20
_WAIT_S = 0.1
_REFRESH_S = 1.0
_RESTART_S = 15.0  # a nanny of dask starts a worker again within seconds


@dataclass(frozen=True, slots=True)
class ClusterCall:
    """A function of a module with its argument, which may hold functions of the notebook.

    ``subject`` names it in messages: "the tuning of softmax".
    """

    function: Callable[[Any], Any]
    payload: Any
    subject: str

    def to_bytes(self) -> bytes:
        """Return the bytes of the call; a process runs it by `pickle.loads`.

        Raises:
            UsageError: a part of it cannot be pickled.
        """
        try:
            import cloudpickle
        except ImportError as exc:
            raise UsageError(f"{self.subject} needs cloudpickle to travel; pip install cloudpickle.") from exc
        try:
            message = cloudpickle.dumps((self.function, self.payload))
        except Exception as exc:  # whatever an object of the user says when it is pickled
            reason = f"{type(exc).__name__}: {exc}"
            raise UsageError(f"{self.subject} cannot be sent to another process ({reason}).") from exc
        return pickle.dumps(RemoteCall(serve, message))


@dataclass(frozen=True, slots=True)
class Refusal:
    """The answer of a process that owns a GPU of another kind than the call asks for."""

    kind: str


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of a call, a `KernellabError` if it failed, with the call's number and its process."""

    number: int
    result: Any
    name: str = ""


@dataclass(slots=True)
class _QueuedCall:
    number: int
    subject: str
    data: bytes
    lost_by: list[str] = field(default_factory=list)
    declined: int = 0


@dataclass(slots=True)
class CallQueue:
    """Distributes calls to the processes of a cluster that own a GPU of one kind.

    A process answers ``question`` with its `GpuOwner`, or None without a GPU; of several kinds, one with the ``target``
    is chosen. Later processes join if their GPU is of that kind. A call is repeated once if its process is lost.
    Everything runs in the thread that takes the results.
    """

    cluster: Cluster
    question: ClusterCall
    target: str | None = None
    limit_s: float = 120.0
    clock: Callable[[], float] = time.monotonic
    notes: list[str] = field(default_factory=list)
    failure: KernellabError | None = None
    _kind: str = ""
    _owners: dict[str, GpuOwner] = field(default_factory=dict)
    _questions: dict[str, tuple[Future[bytes], float]] = field(default_factory=dict)
    _waiting: deque[_QueuedCall] = field(default_factory=deque)
    _running: dict[str, tuple[_QueuedCall, Future[bytes]]] = field(default_factory=dict)
    _results: deque[CallResult] = field(default_factory=deque)
    _asked_names: set[str] = field(default_factory=set)
    _looked_s: float = 0.0
    _alone_s: float | None = None  # since when no process is left

    @property
    def lanes(self) -> int:
        """The number of calls that run side by side."""
        return max(1, len(self._owners))

    @property
    def owner(self) -> GpuOwner | None:
        """The GPU owner of the first process that measures; None without any."""
        return next(iter(self._owners.values()), None)

    def open(self) -> GpuOwner | None:
        """Ask all processes for the GPU that they own; return the first chosen owner, None without any.

        If no process owns a GPU, ``failure`` has the error.
        """
        names = sorted(self._names())
        for name in names if self.cluster.is_addressed else names[:1]:
            self._ask_owner(name)
        owners: dict[str, GpuOwner | None] = {}
        while self._questions:
            wait([future for future, _ in self._questions.values()], _WAIT_S, FIRST_COMPLETED)
            owners.update(self._collect_owners())
        chosen = owners_of(owners, self.target)
        self._kind, self._looked_s = chosen.kind, self.clock()
        self.notes.extend(chosen.notes)
        self._owners = {name: owner for name in chosen.names if (owner := owners[name]) is not None}
        if (owner := self.owner) is not None and not self.cluster.is_addressed:
            self._owners = dict.fromkeys(names, owner)
        return self.owner

    def put(self, number: int, call: ClusterCall) -> None:
        """Submit a call under a number.

        Raises:
            UsageError: a part of it cannot be pickled.
        """
        self._waiting.append(_QueuedCall(number, call.subject, call.to_bytes()))
        self._submit_calls()

    def take(self) -> CallResult:
        """Wait for the next call that ends; a failed one has its error as the result."""
        while not self._results:
            self._refresh_processes()
            self._submit_calls()
            self._fail_waiting_calls()
            if futures := self._futures():
                wait(futures, _WAIT_S, FIRST_COMPLETED)
            elif not self._results:
                assert self._waiting, "there is nothing to take"
                time.sleep(_WAIT_S)  # for a process that is started again
            self._collect()
        return self._results.popleft()

    def close(self) -> None:
        """Cancel all calls and questions, without waiting for any."""
        for future in self._futures():
            future.cancel()
        for forgotten in (self._running, self._questions, self._waiting):
            forgotten.clear()

    def _futures(self) -> list[Future[bytes]]:
        """Return the futures of all running calls and questions."""
        return [future for _, future in self._running.values()] + [future for future, _ in self._questions.values()]

    def _names(self) -> frozenset[str]:
        try:
            return self.cluster.names()
        except KernellabError as exc:
            self.failure = self.failure or exc
            return frozenset()

    def _ask_owner(self, name: str) -> None:
        self._asked_names.add(name)
        try:
            future = self.cluster.submit(name, self.question.to_bytes())
        except Exception as exc:  # noqa: BLE001 - an executor that is closed says it in its own way
            self.failure = self.failure or WorkerError(f"{name} takes no calls ({_error_text(exc)}).")
            return
        if isinstance(future, Future):
            self._questions[name] = future, self.clock()
        else:
            self.failure = self.failure or WorkerError(f"{name} returned a {type(future).__name__} and no future.")

    def _collect_owners(self) -> dict[str, GpuOwner | None]:
        """Return the new answers about GPUs by process; None for a process that failed or timed out."""
        owners: dict[str, GpuOwner | None] = {}
        for name, (future, since_s) in list(self._questions.items()):
            if not future.done() and self.clock() - since_s < self.limit_s:
                continue
            del self._questions[name]
            silence = WorkerError(timeout_text(name, self.limit_s, "said nothing"))
            answer = future_result(future) if future.done() else silence
            owners[name] = answer if isinstance(answer, GpuOwner) else None
            if isinstance(answer, KernellabError):
                self.failure = self.failure or answer
                self.notes.append(f"{name} measures nothing: {first_line(answer.message)}")
        return owners

    def _submit_calls(self) -> None:
        for name in [name for name in self._owners if name not in self._running]:
            waiting = next((call for call in self._waiting if self._may_take(name, call)), None)
            if waiting is None:
                continue
            self._waiting.remove(waiting)
            try:
                self._running[name] = waiting, self.cluster.submit(name, waiting.data)
            except Exception as exc:  # noqa: BLE001 - an executor that is closed says it in its own way
                self._retry_call(name, waiting, exc)

    def _may_take(self, name: str, waiting: _QueuedCall) -> bool:
        return not self.cluster.is_addressed or name not in waiting.lost_by

    def _collect(self) -> None:
        for name, (waiting, future) in list(self._running.items()):
            if not future.done():
                continue
            del self._running[name]
            error = _future_error(future)
            if error is not None:
                self._retry_call(name, waiting, error)
                continue
            answer = decode_answer(future.result())
            if isinstance(answer, Refusal) and waiting.declined < _DECLINED_AT_MOST:
                waiting.declined += 1
                self._waiting.append(waiting)
            elif isinstance(answer, Refusal):
                text = f"{waiting.subject} met no process with {self._kind}; the last one has {answer.kind}."
                self._results.append(CallResult(waiting.number, WorkerError(text), name))
            else:
                self._results.append(CallResult(waiting.number, answer, name))

    def _refresh_processes(self) -> None:
        """Refresh the list of processes, once a second."""
        for name, owner in self._collect_owners().items():
            self._add_owner(name, owner)
        now_s = self.clock()
        if not self.cluster.is_addressed or now_s - self._looked_s < _REFRESH_S:
            return
        self._looked_s = now_s
        names = self._names()
        for name in [name for name in self._questions if name not in names]:
            del self._questions[name]
        for name in [name for name in self._owners if name not in names]:
            waiting, future = self._running.get(name, (None, None))
            if waiting is None or future is None:
                del self._owners[name]
            elif not future.done():  # else it is collected: it may have answered before it went
                del self._running[name]
                future.cancel()
                self._retry_call(name, waiting, None)
        self._asked_names &= names
        for name in sorted(names - self._asked_names):
            self._ask_owner(name)

    def _add_owner(self, name: str, owner: GpuOwner | None) -> None:
        if owner is None:
            return
        if owner.kind == self._kind and owner.gpu not in {other.gpu for other in self._owners.values()}:
            self._owners[name] = owner
        else:
            self.notes.append(
                f"{name} came later with {owner.kind} and measures nothing: it is not another GPU like these"
            )

    def _retry_call(self, name: str, waiting: _QueuedCall, exc: BaseException | None) -> None:
        """Queue a call again after its process was lost; fail it the second time."""
        if self.cluster.is_addressed:
            self._owners.pop(name, None)
            self._asked_names.discard(name)  # if it is there after all, it will be asked again
        waiting.lost_by.append(name)
        if len(waiting.lost_by) < _TRIES:
            why = "" if exc is None else f" ({_error_text(exc)})"
            self.notes.append(f"{waiting.subject} lost {name}{why} and went elsewhere")
            self._waiting.appendleft(waiting)
            return
        reason = "they are gone" if exc is None else _error_text(exc)
        lost = " and ".join(dict.fromkeys(waiting.lost_by))
        text = f"{waiting.subject} was lost twice, by {lost}: {reason}."
        self._results.append(CallResult(waiting.number, WorkerDied(text), name))

    def _fail_waiting_calls(self) -> None:
        """Fail the waiting calls where no process is left, after the time that a restart takes."""
        can_go_on = any(self._may_take(name, call) for name in self._owners for call in self._waiting)
        if self._running or self._questions or not self._waiting or can_go_on:
            self._alone_s = None
            return
        now_s = self.clock()
        self._alone_s = now_s if self._alone_s is None else self._alone_s
        if self.cluster.is_addressed and now_s - self._alone_s < _RESTART_S:
            return
        for waiting in self._waiting:
            lost = f" after {waiting.lost_by[-1]} was lost" if waiting.lost_by else ""
            text = f"{waiting.subject} found no process with {self._kind or 'a GPU'}{lost}."
            self._results.append(CallResult(waiting.number, WorkerDied(text)))
        self._waiting.clear()


def serve(message: bytes) -> bytes:
    """Run one remote call in this process; an error comes back as data."""
    with process_lock("measure"):
        return pickle.dumps(_run_message(message))


def _run_message(message: bytes) -> Any:
    try:
        function, payload = pickle.loads(message)
    except Exception as exc:  # noqa: BLE001 - modules of the user that are not here say it each in their own way
        return failure_of(WorkerError(f"it cannot be unpacked there ({type(exc).__name__}: {exc})"))
    try:
        return function(payload)
    except Exception as exc:  # noqa: BLE001 - this is the loop of a worker
        return failure_of(exc)


def decode_answer(data: bytes) -> Any:
    """Return the answer in the bytes of a process, or the `KernellabError` that it failed with."""
    answer = pickle.loads(data)
    return answer.exception() if isinstance(answer, Failure) else answer


def _future_error(future: Future[bytes]) -> BaseException | None:
    """Return the error of a finished future; None if it succeeded."""
    return CancelledError() if future.cancelled() else future.exception()


def future_result(future: Future[bytes]) -> Any:
    """Return the answer of a finished future, or its error; a missing module's says what to install."""
    exc = _future_error(future)
    if exc is None:
        data = future.result()
        return decode_answer(data) if isinstance(data, bytes) else WorkerError(f"it answered {data!r}")
    if is_missing_module(exc):
        return WorkerError(f"it cannot import what it needs ({exc}): install kernellab there")
    return WorkerError(_error_text(exc))


def _error_text(exc: BaseException) -> str:
    return f"{type(exc).__name__}: {first_line(exc)}" if str(exc) else type(exc).__name__
