"""A cluster in this process, whose processes answer, keep silent, or are lost as a test says."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from kernellab.target import parse_target
from kernellab.timing.provenance import Device
from kernellab.tune.cluster_calls import ClusterCall
from kernellab.tune.executors import GpuOwner

H100 = Device(parse_target("cuda:90"), "H100", "570", {"triton": "3.9.0", "host": "here"}, 0)
A100 = Device(parse_target("cuda:80"), "A100", "570", {"triton": "3.9.0", "host": "here"}, 0)


class Lost(Exception):
    """A process is gone."""


@dataclass
class FakeCluster:
    """Processes by name, each with what it owns, answered in this process.

    ``loses`` are those that are lost by the next call which is not the question; ``silent`` those that never answer.
    """

    devices: dict[str, Device | None]
    is_addressed: bool = True
    loses: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)
    restarts_as: dict[str, str] = field(default_factory=dict)
    open: dict[str, Future[bytes]] = field(default_factory=dict)

    def names(self) -> frozenset[str]:
        """Return those that are there."""
        return frozenset(self.devices)

    def submit(self, name: str, data: bytes) -> Future[bytes]:
        """Answer at once."""
        future: Future[bytes] = Future()
        message = pickle.loads(data)
        if pickle.loads(message) == _QUESTION:
            device = self.devices[name]
            future.set_result(pickle.dumps(None if device is None else GpuOwner(device, f"GPU of {name}")))
            return future
        self.calls.append(name)
        if name in self.silent:
            self.open[name] = future
        elif name in self.loses:
            self.lose(name)
            future.set_exception(Lost(f"{name} is gone"))
        else:
            future.set_result(message)
        return future

    def lose(self, name: str) -> None:
        """Let a process go; one that is started again has another name."""
        device = self.devices.pop(name)
        self.loses.discard(name)
        if name in self.restarts_as:
            self.devices[self.restarts_as[name]] = device


_QUESTION = "which GPU?"


def asked(payload: None) -> str:
    """Return the question, which the cluster answers: it knows what the process owns that is called."""
    return _QUESTION


QUESTION = ClusterCall(asked, None, "the question")


def call(function: Callable[[Any], Any], payload: Any = None) -> ClusterCall:
    """Return a call."""
    return ClusterCall(function, payload, "The tuning of scale")


@dataclass
class Clock:
    """Goes on by a step at each look."""

    step_s: float = 1.0
    now_s: float = 0.0

    def __call__(self) -> float:
        """Return the time."""
        self.now_s += self.step_s
        return self.now_s
