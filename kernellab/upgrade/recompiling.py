"""Stored launches compiled again under the Triton of this process, on arguments like those recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernellab.errors import KernellabError
from kernellab.explain.devices import device_of_table
from kernellab.explain.snapshot import failed_snapshot, snapshot_of
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


def recompile(open_session: OpenSession, version: Version, launch: RecordedLaunch, **config: Any) -> RecompiledLaunch:
    """Compile a recorded launch for its own target, with the values of ``config`` in place of its own.

    A failure becomes a snapshot with the reason.
    """
    try:
        session = open_session(launch.target)
        call = call_of_launch(session, version, launch, "cpu", config)
        implementation = compile_call(session, call, takes_best=False)
        snapshot = snapshot_of(implementation, device_of_table(session.target))
        return RecompiledLaunch(snapshot, stage_operations(implementation.kernel))
    except KernellabError as error:
        return RecompiledLaunch(failed_snapshot(error, launch.target, ""))
