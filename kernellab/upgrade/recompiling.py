"""Stored launches compiled again on arguments like those recorded: under this process's Triton or another Python's.

The other Python is a process of its own, with JSON in between. It needs Triton, torch and what else the lab imports;
the lab itself is that of this process.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import kernellab.upgrade
from kernellab._triton import VERSION
from kernellab._triton.kernel import jit_function
from kernellab._triton.loading import load
from kernellab.errors import CompileError, KernellabError, UsageError, plural, timeout_text
from kernellab.explain.devices import device_of_table
from kernellab.explain.prediction_requests import snapshot_job
from kernellab.explain.snapshot import failed_snapshot, resources_snapshot, snapshot_of, unknown_snapshot
from kernellab.registry import Session
from kernellab.registry.calls import call_of_launch, compile_call
from kernellab.settings import child_environment
from kernellab.source import MalformedData, parse_json
from kernellab.store import RecordedLaunch, Snapshot, Version, snapshot_from_jsonable
from kernellab.store.decoding import launch_digest
from kernellab.upgrade.comparison import LineOperations, stage_operations
from kernellab.upgrade.winners import Winner
from kernellab.workers.forks_and_interrupts import Stop
from kernellab.workers.parallel import run_in_parallel
from kernellab.workers.scratch import Scratch

OpenSession = Callable[[str | None], Session]
"""Opens the session of a target: `Lab.session`."""
_PROGRAM = (
    "import sys; from kernellab.lab import Lab; from kernellab.upgrade.recompiling import write_compiles; "
    "write_compiles(Lab, *sys.argv[1:])"
)
_START_S, _EACH_S = 300.0, 120.0

LaunchKey = tuple[int, str]
"""The id of a version in the store, and the digest of a recorded launch."""


@dataclass(frozen=True, slots=True)
class RecompiledLaunch:
    """A stored launch compiled by this process's Triton: its snapshot, and the operations of its stages by line."""

    snapshot: Snapshot
    stages: Mapping[str, LineOperations] = field(default_factory=dict)


def _revived_kernel(version: Version) -> Any:
    """The jit function of a version; helpers that were in its file stay in one file with it.

    So lines of helpers are those of the kept snapshot; the registry gives each function a file of its own.
    """
    functions = version.closure.functions
    files = {file: f"<{version.label}: {i}>" for i, file in enumerate(dict.fromkeys(f.file for f in functions))}
    renamed = tuple(replace(function, file=files[function.file]) for function in functions)
    return jit_function(load(replace(version.closure, functions=renamed)).decorated)


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
        job = snapshot_job(implementation, launch, device_of_table(compiled.target))
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


class OpensSessions(Protocol):
    """A lab."""

    def session(self, target: str | None = None) -> Session:
        """Return the session of a target."""


def compile_elsewhere(python: str | Path, store: Path, winners: Sequence[Winner]) -> dict[LaunchKey, RecompiledLaunch]:
    """Compile winners of the store in a folder by another Python; return what its Triton makes of them.

    Raises:
        UsageError: there is no such Python, or it lacks what the lab imports.
        KernellabError: its process failed.
    """
    with Scratch() as folder:
        request, answer = Path(folder, "request.json"), Path(folder, "answer.json")
        wanted = [[w.version.id, w.digest, w.before is None or not w.before.has_code] for w in winners]
        request.write_text(json.dumps(wanted), encoding="utf-8")
        packages = Path(folder, "packages")
        packages.mkdir()
        (packages / "kernellab").symlink_to(Path(kernellab.upgrade.__file__).resolve().parents[1])
        command = [str(python), "-c", _PROGRAM, str(store), str(request), str(answer)]
        environment = child_environment(PYTHONPATH=str(packages))
        try:
            limit_s = _START_S + _EACH_S * len(winners)
            process = subprocess.run(
                command, check=False, env=environment, capture_output=True, text=True, timeout=limit_s
            )
        except OSError as exc:
            raise UsageError(f"--python {str(python)!r} cannot be started: {exc.strerror or exc}.") from exc
        except subprocess.TimeoutExpired as exc:
            outcome = f"did not compile {plural(len(winners), 'launch')}"
            raise KernellabError(f"{timeout_text(str(python), limit_s, outcome)}.") from exc
        if process.returncode or not answer.exists():
            raise _failure(python, process.stderr)
        return _read_answer(answer)


def _failure(python: str | Path, stderr: str) -> KernellabError:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    reason = lines[-1].rstrip(".") if lines else "it ended without an answer"
    if "ModuleNotFoundError" in reason or "ImportError" in reason:
        return UsageError(f"{python} lacks what kernellab imports: {reason}. Install kernellab's requirements there.")
    return KernellabError(f"{python} failed to compile the stored launches: {reason}.", detail=stderr)


def _read_answer(path: Path) -> dict[LaunchKey, RecompiledLaunch]:
    try:
        entries = parse_json(path.read_text(encoding="utf-8"))
        return {
            (entry["version_id"], entry["launch"]): RecompiledLaunch(
                snapshot_from_jsonable(entry["snapshot"]), entry["stages"]
            )
            for entry in entries
        }
    except (MalformedData, KeyError, TypeError) as exc:
        raise KernellabError(f"The answer of the other Python cannot be read: {exc}.") from exc


def write_compiles(
    open_lab: Callable[..., AbstractContextManager[OpensSessions]], store: str, request: str, answer: str
) -> None:
    """Compile the launches of a request and write the answer: the program of the other Python.

    A request has, for each launch, the id of its version, its digest, and whether instructions and traffic are counted.
    """
    wanted = {(number, digest): counts for number, digest, counts in json.loads(Path(request).read_text("utf-8"))}
    with open_lab(store=store) as lab:
        entries = list(_entries(lab, wanted))
    Path(answer).write_text(json.dumps(entries), encoding="utf-8")


def _entries(lab: OpensSessions, wanted: Mapping[LaunchKey, bool]) -> Iterator[dict[str, object]]:
    kept = lab.session().kernels.store
    keys, launches = list[LaunchKey](), list[LaunchToCompile]()
    for number in dict.fromkeys(number for number, _ in wanted):
        version = kept.by_id(number)
        for row in kept.history.launches(number) if version is not None else ():
            key = number, launch_digest(row.launch)
            if version is not None and key in wanted:
                keys.append(key)
                launches.append(LaunchToCompile(version, row.launch, counts=wanted[key]))
    for (number, digest), compiled in zip(keys, recompile_all(lab.session, launches), strict=True):
        names = {"version_id": number, "launch": digest, "triton": VERSION}
        yield {**names, "snapshot": asdict(compiled.snapshot), "stages": compiled.stages}
