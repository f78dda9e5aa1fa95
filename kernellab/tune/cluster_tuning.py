"""A whole tuning in a process of an executor, which owns a GPU: what is sent there, what it does, what comes back."""

from __future__ import annotations

import fcntl
import io
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from kernellab._triton.kernel import Kernel
from kernellab.errors import KernellabError, WorkerError
from kernellab.launch.calls import UserCall
from kernellab.measure.launches import Launches
from kernellab.measure.provenance import Device
from kernellab.registry import version_digest
from kernellab.source import Closure
from kernellab.store import Measurement, Version
from kernellab.tune.cluster import Call, CallQueue, Declined, GpuOwner, cluster_of
from kernellab.tune.result import Tuning, measurement_of
from kernellab.tune.tuning import Environment, Options, prepared, tuned
from kernellab.workers.forks_and_interrupts import Interrupted

OpenEnvironment = Callable[[], Environment | None]
"""Returns what a process measures with; None where it owns no GPU. It is called there, and has to be of a module."""


@dataclass(frozen=True, slots=True)
class SentKernel:
    """A kernel as it travels: its closure, and the name under which the store has it.

    ``known`` are measurements of it, which the process that gets it does not make again.
    """

    name: str
    closure: Closure
    known: tuple[Measurement, ...] = ()

    def entered(self, environment: Environment) -> Kernel:
        """Enter the kernel into the registry of this process, with what is known of it; return it."""
        kernels = environment.kernels
        version = kernels.store.add(self.closure, version_digest(self.closure), self.name)
        history = kernels.store.history
        here = {(row.measurement.key, str(row.measurement.config)) for row in history.measurements(version.id)}
        history.add_measurements(version.id, [m for m in self.known if (m.key, str(m.config)) not in here])
        return kernels[version.id]  # type: ignore[no-any-return]


def sent_kernel(version: Version, known: Sequence[Measurement] = ()) -> SentKernel:
    """Return the kernel of a version as it travels."""
    return SentKernel(version.name, version.closure, tuple(known))


@dataclass(frozen=True, slots=True)
class SentWork:
    """What another process is to do with a kernel, in an environment that ``open`` returns there.

    ``kind`` is that of the GPU, as `GpuOwner` says it; a process with another one declines. ``work`` travels with what
    it holds, such as functions of the notebook.
    """

    open: OpenEnvironment
    kind: str
    kernel: SentKernel
    work: Callable[[Environment, Kernel], Any]


def packed_arguments(args: tuple[Any, ...], meta: Mapping[str, Any]) -> bytes:
    """Return the arguments of a call as bytes; views of one memory stay that."""
    import torch  # a launch needs it anyway

    buffer = io.BytesIO()
    torch.save((args, dict(meta)), buffer)
    return buffer.getvalue()


def unpacked_arguments(data: bytes, device: Device) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments again, their tensors on the GPU of this process if there is one."""
    import torch  # a launch needs it anyway

    place = "cpu" if device.index is None else f"cuda:{device.index}"
    found: tuple[tuple[Any, ...], dict[str, Any]] = torch.load(io.BytesIO(data), map_location=place, weights_only=False)
    return found


def owner_here(opened: OpenEnvironment) -> GpuOwner | None:
    """Return what this process says of its GPU, None where it owns none."""
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


def question(opened: OpenEnvironment) -> Call:
    """Return the call that asks a process for its GPU."""
    return Call(owner_here, opened, "the question which GPU a process owns")


@contextmanager
def measuring(opened: OpenEnvironment, kind: str) -> Iterator[Environment | Declined]:
    """Give what to measure with in this process, while no other one on this machine measures on its GPU.

    Where the GPU is of another kind, that is `Declined`.
    """
    environment, owner = opened(), owner_here(opened)
    if environment is None or owner is None or owner.kind != kind:
        yield Declined("no GPU" if owner is None else owner.kind)
        return
    name = "".join(each if each.isalnum() else "-" for each in owner.gpu)
    with open(Path(tempfile.gettempdir()) / f"kernellab-{os.getuid()}-{name}.lock", "a", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # given back when the file is closed, or the process is gone
        if environment.device.index is not None:
            import torch

            torch.cuda.empty_cache()  # of the arguments before: the worker of the GPU needs room for copies
        yield environment


def done_here(sent: SentWork) -> Any:
    """Do what was sent in this process, which an executor calls; return what that gives, or that it declines."""
    with measuring(sent.open, sent.kind) as environment:
        if isinstance(environment, Declined):
            return environment
        return sent.work(environment, sent.kernel.entered(environment))


def tuned_here(environment: Environment, kernel: Kernel, grid: Any, arguments: bytes, options: Options) -> Tuning:
    """Tune in this process, with arguments as `packed_arguments` makes them; the configs are in the rows alone."""
    args, meta = unpacked_arguments(arguments, environment.device)
    return replace(tuned(environment, kernel, grid, args, meta, options), configs=())


def queue_of(environment: Environment, executor: Any, opened: OpenEnvironment) -> CallQueue:
    """Return the queue of calls to the processes of an executor that own a GPU; nobody is asked yet.

    Raises:
        UsageError: it is no executor.
    """
    limit_s = environment.compiler.timeout_s
    return CallQueue(cluster_of(executor), question(opened), str(environment.device.target), limit_s)


def tuned_elsewhere(
    queue: CallQueue, opened: OpenEnvironment, environment: Environment, call: UserCall, options: Options
) -> Tuning:
    """Tune in a process of the queue, which is open. The rows enter the store.

    Raises:
        KernellabError: what the tuning raised there, or that its processes were lost.
    """
    owner = queue.owner
    assert owner is not None, "somebody owns a GPU"
    launches = Launches(call.kernel, call.grid, call.args, call.meta, owner.device.target)
    version = environment.kernels.current(call.kernel)
    records = prepared(replace(environment, device=owner.device), launches, options, version).records
    before = {} if options.fresh else records.known()
    known = [measurement_of(row, records.key, records.device) for row in before.values()]
    sent = replace(options, executor=None, devices=None)
    work = partial(tuned_here, grid=call.grid, arguments=packed_arguments(call.args, call.meta), options=sent)
    sent_work = SentWork(opened, owner.kind, sent_kernel(version, known), work)
    tuning = _answer(queue, Call(done_here, sent_work, f"The tuning of {launches.name}"))
    records.add([row for row in tuning.rows if before.get(row.config) != row])
    return replace(
        tuning,
        configs=tuple(launches.original(row.config) for row in tuning.rows),
        provenance={**tuning.provenance, "version": version.label},
        notes=tuple(dict.fromkeys((*tuning.notes, *queue.notes))),
    )


def _answer(queue: CallQueue, call: Call) -> Tuning:
    try:
        queue.put(0, call)
        answered = queue.take()
    except KeyboardInterrupt:
        raise Interrupted(f"{call.subject} was interrupted; the process that measures ends it by itself.") from None
    finally:
        queue.close()
    if isinstance(answered.result, KernellabError):
        raise answered.result
    if not isinstance(answered.result, Tuning):
        raise WorkerError(f"{call.subject} came back as a {type(answered.result).__name__}.")
    return replace(answered.result, notes=(*answered.result.notes, f"measured by {answered.name}"))
