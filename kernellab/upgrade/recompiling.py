"""Stored launches compiled again under the Triton of this process, on arguments like those recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from kernellab._triton.kernel import jit_function
from kernellab._triton.loading import load
from kernellab.errors import CompileError, KernellabError, UsageError
from kernellab.explain.devices import device_of_table
from kernellab.explain.prediction_requests import snapshot_job
from kernellab.explain.snapshot import failed_snapshot, resources_snapshot, snapshot_of, unknown_snapshot
from kernellab.registry import Session
from kernellab.registry.calls import call_of_launch, compile_call
from kernellab.store import RecordedLaunch, Snapshot, Version
from kernellab.upgrade.stages import LineOperations, stage_operations
from kernellab.workers.forks_and_interrupts import Stop, run_in_parallel

OpenSession = Callable[[str | None], Session]
"""Opens the session of a target: `Lab.session`."""


@dataclass(frozen=True, slots=True)
class RecompiledLaunch:
    """A stored launch compiled by this process's Triton: its snapshot, and the operations of its stages by line."""

    snapshot: Snapshot
    stages: Mapping[str, LineOperations] = field(default_factory=dict)


def _revived_kernel(version: Version) -> Any:
    """The jit function of a version; helpers that were in its file stay in one file with it.

    So lines of helpers are those of the kept snapshot; the registry gives each function a file of its own.
    """
    files = {file: f"<{version.label}: {i}>" for i, file in enumerate(dict.fromkeys(_files_of(version)))}
    functions = (replace(function, file=files[function.file]) for function in version.closure.functions)
    return jit_function(load(replace(version.closure, functions=tuple(functions))).decorated)


def _files_of(version: Version) -> Iterator[str]:
    return (function.file for function in version.closure.functions)


@dataclass(frozen=True, slots=True)
class LaunchToCompile:
    """A recorded launch of a version, with the values of ``config`` in place of its own.

    Without ``counts``, its snapshot has resources alone.
    """

    version: Version
    launch: RecordedLaunch
    config: Mapping[str, Any] = field(default_factory=dict)
    counts: bool = True


def recompile_all(open_session: OpenSession, wanted: Sequence[LaunchToCompile]) -> list[RecompiledLaunch]:
    """Compile recorded launches for their own targets, side by side in the compile workers.

    A failure becomes a snapshot with the reason, as does a launch that cannot be made again.
    """
    places, workers = count(), len(open_session(None).compiler.pool.workers)

    def work(stop: Stop) -> Iterator[tuple[int, RecompiledLaunch]]:
        while not stop.why and (place := next(places)) < len(wanted):
            yield place, _recompile(open_session, wanted[place])

    outcomes = dict(run_in_parallel([work] * min(workers, len(wanted))))
    return [outcomes[place] for place in range(len(wanted))]


def _recompile(open_session: OpenSession, wanted: LaunchToCompile) -> RecompiledLaunch:
    version, launch = wanted.version, wanted.launch
    try:
        call = call_of_launch(open_session(None), version, launch, "cpu", wanted.config, fills_floats=False)
    except KernellabError as error:
        return RecompiledLaunch(unknown_snapshot(error, launch.target))
    try:
        session = open_session(launch.target)
        call = replace(call, kernel=_revived_kernel(version))
        implementation = compile_call(session, call, takes_best=False)
        compiled, compiler = implementation.kernel, session.compiler
        if not wanted.counts:
            return RecompiledLaunch(resources_snapshot(compiled), stage_operations(compiled))
        job = snapshot_job(implementation, launch)
        snapshot = None if job is None else compiler.pool.run(job, compiler.timeout_s)
        if snapshot is None:
            snapshot = _snapshot_by_contents(session, wanted, call.kernel)
        return RecompiledLaunch(snapshot, stage_operations(compiled))
    except (CompileError, UsageError) as error:
        return RecompiledLaunch(failed_snapshot(error, launch.target))
    except KernellabError as error:  # a worker that died or was too slow says nothing of the kernel
        return RecompiledLaunch(unknown_snapshot(error, launch.target))


def _snapshot_by_contents(session: Session, wanted: LaunchToCompile, kernel: Any) -> Snapshot:
    """The snapshot of a launch with traffic that depends on the contents of memory; these are redrawn."""
    try:
        call = call_of_launch(session, wanted.version, wanted.launch, "cpu", wanted.config)
    except KernellabError as error:  # no room for them
        return unknown_snapshot(error, wanted.launch.target)
    implementation = compile_call(session, replace(call, kernel=kernel), takes_best=False)
    return snapshot_of(implementation, device_of_table(session.target), wanted.launch)
