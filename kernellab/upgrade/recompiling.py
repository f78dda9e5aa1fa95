"""Stored launches compiled again under the Triton of this process, on arguments like those recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from kernellab._triton.kernel import jit_function
from kernellab._triton.loading import load
from kernellab.errors import CompileError, KernellabError, UsageError
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


def _revived_kernel(version: Version) -> Any:
    """The jit function of a version, whose helpers lie in one file with it where they did.

    So lines of helpers are those of the kept snapshot; the registry gives each function a file of its own.
    """
    files = {file: f"<{version.label}: {i}>" for i, file in enumerate(dict.fromkeys(_files_of(version)))}
    functions = (replace(function, file=files[function.file]) for function in version.closure.functions)
    return jit_function(load(replace(version.closure, functions=tuple(functions))).decorated)


def _files_of(version: Version) -> Iterator[str]:
    return (function.file for function in version.closure.functions)


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
        call = replace(call, kernel=_revived_kernel(version))
        implementation = compile_call(session, call, takes_best=False)
        compiled, device = implementation.kernel, device_of_table(session.target)
        snapshot = snapshot_of(implementation, device, launch) if counts else resources_snapshot(compiled)
        return RecompiledLaunch(snapshot, stage_operations(compiled))
    except (CompileError, UsageError) as error:
        return RecompiledLaunch(failed_snapshot(error, launch.target))
    except KernellabError as error:  # a worker that died or was too slow says nothing of the kernel
        return RecompiledLaunch(unknown_snapshot(error, launch.target))
