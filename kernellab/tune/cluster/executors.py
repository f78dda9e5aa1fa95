"""The processes behind an executor, by name where it tells: workers of dask, engines of ipyparallel, or so many.

Those measure that own a GPU each, all of one kind, since times of two kinds cannot be compared.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from kernellab.errors import UsageError, WorkerError
from kernellab.measure.provenance import Device

EXPECTED = (
    "a concurrent.futures.Executor, a Client of dask, or a Client or a view of ipyparallel, such as "
    "client.load_balanced_view()"
)


class Cluster(Protocol):
    """Where calls go. ``is_addressed`` tells whether one can be sent to a process by its name."""

    @property
    def is_addressed(self) -> bool:
        """Whether a name stands for one process."""

    def names(self) -> frozenset[str]:
        """Return the processes that are there now."""

    def submit(self, name: str, data: bytes) -> Future[bytes]:
        """Let a process call `pickle.loads` with some bytes."""


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
        raise UsageError(f"executor is {executor!r}; expected {EXPECTED}.")
    count = getattr(executor, "_max_workers", 1)
    return Unnamed(executor, count if isinstance(count, int) else 1)


def executor_of(given: Any) -> Any:
    """Return the executor of a client or a view of dask or ipyparallel; what is none of these as it is."""
    if callable(getattr(given, "get_executor", None)):
        return given.get_executor(pure=False)
    view = given.load_balanced_view() if callable(getattr(given, "load_balanced_view", None)) else given
    return getattr(view, "executor", given)


@dataclass(slots=True)
class DaskWorkers:
    """The workers of a client of dask; ``options`` are those of its executor: ``workers`` and ``resources``.

    Names are addresses, which change when a worker is started again.
    """

    client: Any
    options: Mapping[str, Any] = field(default_factory=dict)
    is_addressed: bool = True

    def names(self) -> frozenset[str]:
        """Return the workers that are there now, have the resources, and are among those that are asked for.

        Raises:
            WorkerError: the scheduler does not answer.
        """
        try:
            found: Mapping[str, Any] = self.client.scheduler_info(n_workers=-1)["workers"]
        except (OSError, RuntimeError, ValueError) as exc:  # a closed client says it in several ways
            raise WorkerError(f"The scheduler of dask does not answer ({type(exc).__name__}: {exc}).") from exc
        return frozenset(address for address, worker in found.items() if self._may_be_asked(address, worker))

    def submit(self, name: str, data: bytes) -> Future[bytes]:
        """Let a worker call `pickle.loads`; nothing else of dask happens to it, as to be tried again elsewhere."""
        resources = {name: value for name, value in self.options.items() if name == "resources" and value}
        executor = self.client.get_executor(
            workers=[name], allow_other_workers=False, pure=False, retries=0, **resources
        )
        return executor.submit(pickle.loads, data)  # type: ignore[no-any-return]

    def _may_be_asked(self, address: str, worker: Mapping[str, Any]) -> bool:
        wanted = self.options.get("workers")
        wanted = {wanted} if isinstance(wanted, str) else set(wanted or ())
        has = worker.get("resources") or {}
        needed = self.options.get("resources") or {}
        is_wanted = not wanted or bool(wanted & {address, worker.get("name"), worker.get("host")})
        return is_wanted and all(has.get(name, 0) >= amount for name, amount in needed.items())


@dataclass(slots=True)
class Engines:
    """The engines of a client of ipyparallel; those of a ``view``, if it names some. Names are their numbers."""

    client: Any
    view: Any = None
    is_addressed: bool = True

    def names(self) -> frozenset[str]:
        """Return the engines that are there now."""
        targets = getattr(self.view, "targets", None)
        wanted = set(targets) if isinstance(targets, list | tuple) else {targets} if isinstance(targets, int) else set()
        return frozenset(str(number) for number in self.client.ids if not wanted or number in wanted)

    def submit(self, name: str, data: bytes) -> Future[bytes]:
        """Let an engine call `pickle.loads`."""
        return self.client[int(name)].apply_async(pickle.loads, data)  # type: ignore[no-any-return]


@dataclass(slots=True)
class Unnamed:
    """The processes of an executor that tells nothing of them; which of them takes a call is its own choice."""

    executor: Executor
    count: int = 1
    is_addressed: bool = False

    def names(self) -> frozenset[str]:
        """Return a number for each process that there may be."""
        return frozenset(map(str, range(max(1, self.count))))

    def submit(self, name: str, data: bytes) -> Future[bytes]:
        """Let some process call `pickle.loads`."""
        return self.executor.submit(pickle.loads, data)


@dataclass(frozen=True, slots=True)
class GpuOwner:
    """What a process says of its GPU, which is the only one that it uses.

    ``gpu`` is the same for two processes that share one: its UUID. ``visible`` is how many the process could use,
    ``multiprocessors`` how many this GPU has, None where that is not known.
    """

    device: Device
    gpu: str
    visible: int = 1
    multiprocessors: int | None = None

    @property
    def kind(self) -> str:
        """Model, driver, target and Triton: what rows of measurements have to agree in to be compared."""
        device = self.device
        return f"{device.name}, driver {device.driver}, {device.target}, Triton {device.facts['triton']}"


@dataclass(frozen=True, slots=True)
class Owners:
    """The processes that measure, by name, and why others do not."""

    kind: str
    names: tuple[str, ...]
    notes: tuple[str, ...]


def owners_of(found: Mapping[str, GpuOwner | None], target: str | None = None) -> Owners:
    """Return the processes that are to measure: all of one kind, one for each GPU.

    That is a kind with the ``target`` if there is one, and of these the one that most have; with as many of two, that
    of the first name. What owns no GPU (None) is left out without a note.
    """
    own, notes = _one_for_each_gpu(found)
    counts = Counter(owner.kind for owner in own.values())
    targets = {owner.kind: str(owner.device.target) for owner in own.values()}
    kind = max(counts, key=lambda each: (targets[each] == target, counts[each]), default="")
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


def _one_for_each_gpu(found: Mapping[str, GpuOwner | None]) -> tuple[dict[str, GpuOwner], list[str]]:
    own: dict[str, GpuOwner] = {}
    first: dict[str, str] = {}
    notes: list[str] = []
    for name, owner in sorted(found.items()):
        if owner is None:
            continue
        if owner.gpu in first:
            notes.append(f"{name} shares the GPU of {first[owner.gpu]} and measures nothing; start one worker per GPU")
            continue
        first[owner.gpu] = name
        own[name] = owner
    return own, notes
