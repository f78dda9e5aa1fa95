"""Stored launches compiled again under the Triton of this process, on arguments like those recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from kernellab.errors import KernellabError
from kernellab.explain.devices import device_of_table
from kernellab.explain.snapshot import failed_snapshot, resources_snapshot, snapshot_of, unknown_snapshot
from kernellab.registry import Session
from kernellab.registry.calls import call_of_launch, compile_call
from kernellab.store import RecordedLaunch, Snapshot, Version
from kernellab.upgrade.stages import LineOperations, stage_operations

OpenSession = Callable[[str | None], Session]
"""Opens the session of a target: `Lab.session`."""


@dataclass(frozen=True, slots=True)
class RecompiledLaunch:
    """A stored launch compiled by this process's Triton: its snapshot, and the operations of its stages by line."""

    snapshot: Snapshot
    stages: Mapping[str, LineOperations] = field(default_factory=dict)


def recompile(
    open_session: OpenSession,
    version: Version,
    launch: RecordedLaunch,
    config: Mapping[str, Any] = MappingProxyType({}),
    *,
    counts: bool = True,
) -> RecompiledLaunch:
    """Compile a recorded launch for its own target, with the values of ``config`` in place of its own.

    Without ``counts``, the snapshot has resources alone. A failure becomes a snapshot with the reason, as does
    a launch that cannot be made again.
    """
    try:
        call = call_of_launch(open_session(None), version, launch, "cpu", config)
    except KernellabError as error:
        return RecompiledLaunch(unknown_snapshot(error, launch.target))
    try:
        session = open_session(launch.target)
        implementation = compile_call(session, call, takes_best=False)
        compiled, device = implementation.kernel, device_of_table(session.target)
        snapshot = snapshot_of(implementation, device, launch) if counts else resources_snapshot(compiled)
        return RecompiledLaunch(snapshot, stage_operations(compiled))
    except KernellabError as error:
        return RecompiledLaunch(failed_snapshot(error, launch.target))
