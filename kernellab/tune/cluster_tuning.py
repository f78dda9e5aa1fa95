"""Tunings and cases measured in the executor's processes that own a GPU.

A process runs a whole tuning, or a case of a tuning over sizes with inputs that it makes itself.
"""

from __future__ import annotations

import fcntl
import io
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from kernellab._triton.kernel import Kernel
from kernellab.errors import KernellabError, WorkerError
from kernellab.registry import version_digest
from kernellab.registry.kept_times import fields_of_key
from kernellab.source import Closure
from kernellab.store import Measurement, Version
from kernellab.timing.launches import Launches
from kernellab.timing.provenance import Device
from kernellab.tune.cluster_calls import CallQueue, ClusterCall, Refusal
from kernellab.tune.dispatch.result import CaseMeasurer, CaseRequest, MeasuredCase, size_text
from kernellab.tune.executors import GpuOwner, cluster_of
from kernellab.tune.options import Options
from kernellab.tune.result import Records, Tuning, measurement_of
from kernellab.tune.run_tuning import Environment, prepare_launches, tune_launches
from kernellab.workers.forks_and_interrupts import Interrupted

OpenEnvironment = Callable[[], Environment | None]
"""Returns the environment of a process, None without a GPU. It runs there, so it must be a function of a module."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class SentKernel:
    """A kernel as text for another process; ``known`` are its measurements, which are not repeated there."""

    name: str
    closure: Closure
    known: tuple[Measurement, ...] = ()

    def register(self, environment: Environment) -> Kernel:
        """Add the kernel and its known measurements to the registry of this process; return the kernel."""
        kernels = environment.kernels
        version = kernels.store.add(self.closure, version_digest(self.closure), self.name)
        history = kernels.store.history
        here = {(row.measurement.key, str(row.measurement.config)) for row in history.measurements(version.id)}
        history.add_measurements(version.id, [m for m in self.known if (m.key, str(m.config)) not in here])
        return kernels[version.id]  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class RemoteWork:
    """Work on kernels for another process, in the environment that ``open`` returns there.

    ``kind`` is `GpuOwner.kind`; a process with another one declines. ``work`` takes the environment and each kernel; it
    is pickled, with functions of the notebook.
    """

    open: OpenEnvironment
    kind: str
    kernels: tuple[SentKernel, ...]
    work: Callable[..., Any]


def pack_arguments(args: tuple[Any, ...], meta: Mapping[str, Any]) -> bytes:
    """Return the arguments of a call as bytes; tensors that share memory still do after unpacking."""
    import torch  # a launch needs it anyway

    buffer = io.BytesIO()
    torch.save((args, dict(meta)), buffer)
    return buffer.getvalue()


def unpack_arguments(data: bytes, device: Device) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call from bytes, tensors on this process's GPU if it has one."""
    import torch  # a launch needs it anyway

    place = "cpu" if device.index is None else f"cuda:{device.index}"
    arguments: tuple[tuple[Any, ...], dict[str, Any]] = torch.load(
        io.BytesIO(data), map_location=place, weights_only=False
    )
    return arguments


def owner_here(opened: OpenEnvironment) -> GpuOwner | None:
    """Return the GPU owner that this process is; None without a GPU."""
    environment = opened()
    if environment is None or environment.make_bench is None:
        return None
    device = environment.device
    if device.index is None:
        return GpuOwner(device, f"process {os.getpid()}")
    import torch

    properties = torch.cuda.get_device_properties(device.index)
    uuid = getattr(properties, "uuid", None)
    gpu = f"{device.facts['host']} {device.index}" if uuid is None else str(uuid)
    return GpuOwner(device, gpu, torch.cuda.device_count(), properties.multi_processor_count)


def run_here(sent: RemoteWork) -> Any:
    """Run remote work in this process, under a lock of its GPU.

    Return its result, or `Refusal` for a GPU of another kind.
    """
    environment, owner = sent.open(), owner_here(sent.open)
    if environment is None or owner is None or owner.kind != sent.kind:
        return Refusal("no GPU" if owner is None else owner.kind)
    name = "".join(character if character.isalnum() else "-" for character in owner.gpu)
    with open(Path(tempfile.gettempdir()) / f"kernellab-{os.getuid()}-{name}.lock", "a", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # given back when the file is closed, or the process is gone
        if environment.device.index is not None:
            import torch

            torch.cuda.empty_cache()  # of the arguments before: the worker of the GPU needs room for copies
        return sent.work(environment, *(kernel.register(environment) for kernel in sent.kernels))


def tune_here(environment: Environment, kernel: Kernel, grid: Any, arguments: bytes, options: Options) -> Tuning:
    """Tune in this process, with arguments from `pack_arguments`; the result has configs in its rows only."""
    args, meta = unpack_arguments(arguments, environment.device)
    launches = Launches(kernel, grid, args, meta, environment.device.target)
    return replace(tune_launches(environment, launches, options), configs=())


def queue_of(environment: Environment, executor: Any, opened: OpenEnvironment) -> CallQueue:
    """Return a queue of calls to the executor's processes that own a GPU; it asks none of them yet.

    Raises:
        UsageError: it is not an executor.
    """
    question = ClusterCall(owner_here, opened, "the question which GPU a process owns")
    return CallQueue(cluster_of(executor), question, str(environment.device.target), environment.compiler.timeout_s)


def tune_elsewhere(
    environment: Environment, opened: OpenEnvironment, call: Launches, options: Options
) -> Tuning | None:
    """Tune in an executor's process that owns a GPU, and store the rows here; None without such a process.

    Raises:
        KernellabError: what the tuning raised there, or that its processes were lost.
        UsageError: it is not an executor.
    """
    queue = queue_of(environment, options.executor, opened)
    owner = queue.open()
    if owner is None:
        queue.close()
        return None
    launches = call.for_target(owner.device.target)
    version = environment.kernels.current_version(call.kernel)
    records = prepare_launches(replace(environment, device=owner.device), launches, options, version)
    before = {} if options.fresh else records.latest_rows()
    known = [measurement_of(row, records.key, records.device) for row in before.values()]
    sent = replace(options, executor=None, devices=None)
    work = partial(tune_here, grid=call.grid, arguments=pack_arguments(call.args, call.meta), options=sent)
    sent_work = RemoteWork(opened, owner.kind, (SentKernel(version.name, version.closure, tuple(known)),), work)
    tuning, name = result_of_call(queue, ClusterCall(run_here, sent_work, f"The tuning of {launches.name}"), Tuning)
    records.add([row for row in tuning.rows if before.get(row.config) != row])
    return replace(
        tuning,
        configs=tuple(launches.original(row.config) for row in tuning.rows),
        provenance={**tuning.provenance, "version": version.label},
        notes=tuple(dict.fromkeys((*tuning.notes, f"measured by {name}", *queue.notes))),
    )


def result_of_call(queue: CallQueue, call: ClusterCall, expected: type[Result]) -> tuple[Result, str]:
    """Run one call in a process of an open queue, and close the queue; return the result and the process's name.

    Raises:
        KernellabError: what the call raised there, or that its processes were lost.
    """
    try:
        queue.put(0, call)
        answer = queue.take()
    except KeyboardInterrupt:
        raise Interrupted(f"{call.subject} was interrupted; the process that measures ends it by itself.") from None
    finally:
        queue.close()
    if isinstance(answer.result, KernellabError):
        raise answer.result
    if not isinstance(answer.result, expected):
        raise WorkerError(f"{call.subject} came back as a {type(answer.result).__name__}.")
    return answer.result, answer.name


def require_owner(queue: CallQueue) -> GpuOwner:
    """Open a queue, and return the first GPU owner.

    Raises:
        WorkerError: no process owns a GPU, or can be asked.
    """
    owner = queue.open()
    if owner is not None:
        return owner
    queue.close()
    why = f" {queue.failure.message}" if queue.failure is not None else ""
    raise WorkerError(
        f"No process of the executor owns a GPU, so nothing can be measured there.{why} Start one worker per GPU "
        "first, and wait for it: client.wait_for_workers(1) with dask."
    )


MakeMeasurer = Callable[[Environment, Kernel], CaseMeasurer]
"""Makes the measurer of a kernel's cases in one process. It is pickled, with functions of the notebook."""


def measure_here(environment: Environment, kernel: Kernel, make: MakeMeasurer, request: CaseRequest) -> MeasuredCase:
    """Measure a case in this process."""
    with closing(make(environment, kernel)) as measurer:
        measurer.submit(request)
        return measurer.take()


@dataclass(slots=True)
class ClusterCases:
    """Measures cases in the processes of an open queue; their rows are stored here.

    All processes have a GPU of the same kind as ``owner``. The case of a lost process is measured by another one; if
    that is lost, too, the case is returned with its ``failure``.
    """

    queue: CallQueue
    open: OpenEnvironment
    environment: Environment
    version: Version
    measurer: MakeMeasurer
    owner: GpuOwner
    _requests: dict[int, CaseRequest] = field(default_factory=dict)
    _count: int = 0

    @property
    def lanes(self) -> int:
        """The number of processes that measure."""
        return self.queue.lanes

    @property
    def multiprocessors(self) -> int | None:
        """The number of SMs of each GPU; None if unknown."""
        return self.owner.multiprocessors

    @property
    def notes(self) -> list[str]:
        """Notes about processes that do not measure, or were lost."""
        return self.queue.notes

    def submit(self, request: CaseRequest, /) -> None:
        """Submit a case.

        Raises:
            UsageError: it cannot be pickled, for instance as its ``inputs`` holds an open file.
        """
        version, device = self.version, self.owner.device
        kind = {"device": device.name, "driver": device.driver, "triton": device.facts["triton"]}
        stored = (row.measurement for row in self.environment.kernels.store.history.measurements(version.id))
        known = tuple(entry for entry in stored if kind.items() <= fields_of_key(entry.key).items())
        work = partial(measure_here, make=self.measurer, request=request)
        self._count += 1
        self._requests[self._count] = request
        sent = RemoteWork(self.open, self.owner.kind, (SentKernel(version.name, version.closure, known),), work)
        self.queue.put(self._count, ClusterCall(run_here, sent, f"The case {size_text(request.sizes)}"))

    def take(self) -> MeasuredCase:
        """Wait for the next case that ends, in any order; its rows are stored before it is returned."""
        result = self.queue.take()
        request, case = self._requests.pop(result.number), result.result
        if not isinstance(case, MeasuredCase):
            reason = case.message if isinstance(case, KernellabError) else f"it came back as {case!r}"
            return MeasuredCase(request.number, request.sizes, failure=reason)
        if case.key and case.rows:
            device = str(case.provenance.get("device") or self.owner.device.name)
            records = Records(self.environment.kernels.store.history, self.version.id, case.key, device)
            known = records.latest_rows()
            records.add([row for row in case.rows if known.get(row.config) != row])
        return case

    def close(self) -> None:
        """Cancel the cases that have not begun; a process ends the case that it measures by itself."""
        self.queue.close()
        self._requests.clear()


def cluster_cases(
    environment: Environment, executor: Any, opened: OpenEnvironment, kernel: Kernel, measurer: MakeMeasurer
) -> ClusterCases:
    """Return a measurer of cases that runs in the executor's processes that own a GPU.

    Raises:
        UsageError: it is not an executor.
        WorkerError: none of its processes owns a GPU, or can be asked.
    """
    queue = queue_of(environment, executor, opened)
    owner = require_owner(queue)
    return ClusterCases(queue, opened, environment, environment.kernels.current_version(kernel), measurer, owner)
