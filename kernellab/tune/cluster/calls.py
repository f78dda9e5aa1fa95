"""What travels to a process behind an executor, and back: bytes alone, which Python itself unpacks there."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from kernellab.errors import KernellabError, UsageError, WorkerError
from kernellab.workers.forks_and_interrupts import lock
from kernellab.workers.worker import Failure, failure_of


@dataclass(frozen=True, slots=True)
class Call:
    """A function of a module, and what it is called with; functions of the notebook may be in that.

    ``subject`` is how messages name it: "the tuning of softmax".
    """

    function: Callable[[Any], Any]
    payload: Any
    subject: str

    def message(self) -> bytes:
        """Return the call as it travels.

        Raises:
            UsageError: something in it cannot travel.
        """
        try:
            import cloudpickle
        except ImportError as exc:
            raise UsageError(f"{self.subject} needs cloudpickle to travel; pip install cloudpickle.") from exc
        try:
            return bytes(cloudpickle.dumps((self.function, self.payload)))
        except Exception as exc:  # whatever an object of the user says when it is pickled
            reason = f"{type(exc).__name__}: {exc}"
            raise UsageError(f"{self.subject} cannot be sent to another process ({reason}).") from exc


@dataclass(frozen=True, slots=True)
class Declined:
    """The answer of a process that is not the one to ask: it owns a GPU of another kind."""

    kind: str


@dataclass(frozen=True, slots=True)
class _Travelling:
    """Is answered where it is unpickled, by `pickle.loads`, which every process knows.

    What a worker of dask is called with, and cannot unpickle, ends that worker, and the next.
    """

    message: bytes

    def __reduce__(self) -> tuple[Any, ...]:
        return answered, (self.message,)


def travelling(call: Call) -> bytes:
    """Return the bytes that a process answers when it calls `pickle.loads` with them.

    Raises:
        UsageError: something in the call cannot travel.
    """
    return pickle.dumps(_Travelling(call.message()))


def answered(message: bytes) -> bytes:
    """Do what a call asks in this process, which others call; one call at a time. An error comes back as data."""
    with _one_at_a_time():
        return pickle.dumps(_answer(message))


def _answer(message: bytes) -> Any:
    try:
        function, payload = pickle.loads(message)
    except Exception as exc:  # noqa: BLE001 - modules of the user that are not here say it each in their own way
        return failure_of(WorkerError(f"it cannot be unpacked there ({type(exc).__name__}: {exc})"))
    try:
        return function(payload)
    except KernellabError as exc:
        return failure_of(exc)
    except Exception as exc:  # noqa: BLE001 - this is the loop of a worker
        return failure_of(exc)


def answer_of(data: bytes) -> Any:
    """Return what a process answered, or a `KernellabError` if that was one."""
    found = pickle.loads(data)
    return found.exception() if isinstance(found, Failure) else found


@cache
def _one_at_a_time() -> threading.Lock:
    """Return what lets one thread of a process measure at a time: several share its GPU."""
    return lock()
