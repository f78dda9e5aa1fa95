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


def keep_snapshot_later(
    pool: Pool, timeout_s: float, store: Store, version: Version, launch: RecordedLaunch, implementation: Implementation
) -> None:
    """Have a worker make the snapshot of a recorded launch, and store it when it comes, once for each Triton.

    The workers' `close` waits a few seconds for it. There is none of a launch whose arguments a worker cannot have.
    """
    if has_snapshot(store, version, launch):
        return
    job = _job(implementation, launch)

    def keep() -> None:
        with contextlib.suppress(KernellabError):  # `lab.upgrade` compares the resources, which are kept anyway
            snapshot = None if job is None else pool.run(job, timeout_s)
            if snapshot is not None:
                store.snapshots.add(version.id, launch_digest(launch), snapshot)

    pool.run_in_background(keep)


def snapshot_by_worker(
    pool: Pool, timeout_s: float, implementation: Implementation, launch: RecordedLaunch
) -> Snapshot:
    """The snapshot of a recorded launch, from a worker where that can have its arguments."""
    job = _job(implementation, launch)
    snapshot = None if job is None else pool.run(job, timeout_s)
    return snapshot or snapshot_of(implementation, device_of_table(implementation.kernel.target), launch)


def _job(implementation: Implementation, launch: RecordedLaunch) -> Job[SnapshotRequest, Snapshot | None] | None:
    request = request_of(implementation, device_of_table(implementation.kernel.target))
    if request is None:
        return None
    return Job(answer_snapshot, SnapshotRequest(request, launch), f"Counting what {request.name} executes")


def answer_snapshot(request: SnapshotRequest, progress: ProgressCallback) -> Snapshot | None:
    """The snapshot of a request, in a worker; None if it depends on the contents of memory."""
    implementation = implementation_of_request(request.compiled)
    try:
        return snapshot_of(implementation, request.compiled.device, request.launch)
    except NeedsContents:
        return None
