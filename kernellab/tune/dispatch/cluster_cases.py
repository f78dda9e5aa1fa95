"""Cases measured by processes of an executor that own a GPU each: whole cases, whose inputs are made there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kernellab._triton.kernel import Kernel
from kernellab.errors import KernellabError, WorkerError
from kernellab.registry.kept_times import fields_of_key
from kernellab.store import Measurement, Version
from kernellab.tune.cluster import Call, CallQueue, GpuOwner
from kernellab.tune.cluster_tuning import OpenEnvironment, SentWork, done_here, queue_of, sent_kernel
from kernellab.tune.dispatch.result import CaseMeasurer, CaseRequest, MeasuredCase
from kernellab.tune.result import Records
from kernellab.tune.tuning import Environment

MakeMeasurer = Callable[[Environment, Kernel], CaseMeasurer]
"""Makes what measures cases of a kernel in one process. It travels, with functions of the notebook that it holds."""


def measured_here(environment: Environment, kernel: Kernel, make: MakeMeasurer, request: CaseRequest) -> MeasuredCase:
    """Measure a case in this process."""
    with closing(make(environment, kernel)) as measurer:
        measurer.submit(request)
        return measurer.take()


@dataclass(slots=True)
class ClusterCases:
    """Measures cases in the processes of a queue, which is open; their rows enter the store here.

    ``owner`` is one of them, and the others have such a GPU. A process that is lost costs its case, which goes to
    another one, once; then it comes back with its ``failure``.
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
        """How many processes measure."""
        return self.queue.lanes

    @property
    def multiprocessors(self) -> int | None:
        """How many each of the GPUs has."""
        return self.owner.multiprocessors

    @property
    def notes(self) -> list[str]:
        """What the user should know: who measures nothing, and who was lost."""
        return self.queue.notes

    def submit(self, request: CaseRequest, /) -> None:
        """Hand a case over.

        Raises:
            UsageError: what it needs cannot travel, such as an ``inputs`` that holds an open file.
        """
        kernel = sent_kernel(self.version, self._known())
        work = partial(measured_here, make=self.measurer, request=request)
        self._count += 1
        self._requests[self._count] = request
        sizes = ", ".join(f"{name}={value}" for name, value in request.sizes.items())
        self.queue.put(
            self._count, Call(done_here, SentWork(self.open, self.owner.kind, kernel, work), f"The case {sizes}")
        )

    def take(self) -> MeasuredCase:
        """Wait for the next case that ends, in whatever order; its rows are in the store then."""
        answered = self.queue.take()
        request, found = self._requests.pop(answered.number), answered.result
        if not isinstance(found, MeasuredCase):
            reason = found.message if isinstance(found, KernellabError) else f"it came back as {found!r}"
            return MeasuredCase(request.number, request.sizes, failure=reason)
        self._enter(found)
        return found

    def close(self) -> None:
        """Give up what has not begun; a process that measures ends its case by itself."""
        self.queue.close()
        self._requests.clear()

    def _enter(self, case: MeasuredCase) -> None:
        if not case.key or not case.rows:
            return
        device = str(case.provenance.get("device") or self.owner.device.name)
        records = Records(self.environment.kernels.store.history, self.version.id, case.key, device)
        known = records.known()
        records.add([row for row in case.rows if known.get(row.config) != row])

    def _known(self) -> list[Measurement]:
        """Return what the store knows of the kernel on such a GPU."""
        found = self.environment.kernels.store.history.measurements(self.version.id)
        return [row.measurement for row in found if _is_of(row.measurement, self.owner)]


def cluster_cases(
    environment: Environment, executor: Any, opened: OpenEnvironment, kernel: Kernel, measurer: MakeMeasurer
) -> ClusterCases:
    """Return what measures cases of a kernel in the processes of an executor that own a GPU.

    Raises:
        UsageError: it is no executor.
        WorkerError: none of its processes owns a GPU, or can be asked.
    """
    queue = queue_of(environment, executor, opened)
    owner = queue.open()
    if owner is None:
        queue.close()
        why = f" {queue.failure.message}" if queue.failure is not None else ""
        raise WorkerError(
            f"No process of the executor owns a GPU, so nothing can be measured there.{why} Start one worker per GPU "
            "first, and wait for it: client.wait_for_workers(1) with dask."
        )
    return ClusterCases(queue, opened, environment, environment.kernels.current(kernel), measurer, owner)


def _is_of(measurement: Measurement, owner: GpuOwner) -> bool:
    device, fields = owner.device, fields_of_key(measurement.key)
    wanted = {"device": device.name, "driver": device.driver, "triton": device.facts["triton"]}
    return all(fields.get(name) == value for name, value in wanted.items())
