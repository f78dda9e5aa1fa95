"""Snapshots of launches, made in the compile workers: side by side, or while the notebook goes on."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from kernellab.errors import KernellabError
from kernellab.explain.argument_views import NeedsContents
from kernellab.explain.devices import device_of_table
from kernellab.explain.parallel_predictions import PredictionRequest, implementation_of_request, request_of
from kernellab.explain.snapshot import has_snapshot, snapshot_of
from kernellab.store import RecordedLaunch, Snapshot, Store, Version
from kernellab.store.decoding import launch_digest
from kernellab.timing.launches import Implementation
from kernellab.workers.forks_and_interrupts import ProgressCallback
from kernellab.workers.worker import Job, Pool


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """A recorded launch, compiled, as plain data."""

    compiled: PredictionRequest
    launch: RecordedLaunch


SnapshotJob = Job[SnapshotRequest, Snapshot | None]


def snapshot_job(implementation: Implementation, launch: RecordedLaunch) -> SnapshotJob | None:
    """The job of making a snapshot, without the memory of the arguments; None where a worker cannot have them."""
    request = request_of(implementation, device_of_table(implementation.kernel.target))
    if request is None:
        return None
    return Job(answer_snapshot, SnapshotRequest(request, launch), f"Counting what {request.name} executes")


def keep_answer(pool: Pool, timeout_s: float, store: Store, version: Version, job: SnapshotJob) -> None:
    """Have a worker make a snapshot and store it, once for each Triton."""
    launch = job.payload.launch
    if has_snapshot(store, version, launch):
        return
    with contextlib.suppress(KernellabError):  # `lab.upgrade` compares the resources, which are kept anyway
        snapshot = pool.run(job, timeout_s)
        if snapshot is not None:
            store.snapshots.add(version.id, launch_digest(launch), snapshot)


def answer_snapshot(request: SnapshotRequest, progress: ProgressCallback) -> Snapshot | None:
    """The snapshot of a request, in a worker; None if it depends on the contents of memory."""
    implementation = implementation_of_request(request.compiled)
    try:
        return snapshot_of(implementation, request.compiled.device, request.launch)
    except NeedsContents:
        return None
