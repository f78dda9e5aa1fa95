"""Stored launches compiled by another Python, which has another Triton: a process of its own, and JSON between them.

The other Python needs Triton, torch and what else the lab imports; the lab itself is that of this process.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

import kernellab.upgrade
from kernellab._triton import VERSION
from kernellab.errors import KernellabError, UsageError
from kernellab.registry import Session
from kernellab.settings import child_environment
from kernellab.source import MalformedData, parse_json
from kernellab.store import snapshot_from_jsonable
from kernellab.store.decoding import launch_digest
from kernellab.upgrade.recompiling import LaunchToCompile, RecompiledLaunch, recompile_all
from kernellab.upgrade.winners import Winner
from kernellab.workers.scratch import Scratch

_PROGRAM = (
    "import sys; from kernellab.lab import Lab; from kernellab.upgrade.other_python import write_compiles; "
    "write_compiles(Lab, *sys.argv[1:])"
)
_START_S, _EACH_S = 300.0, 120.0

LaunchKey = tuple[int, str]
"""The id of a version in the store, and the digest of a recorded launch."""


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
            raise KernellabError(f"{python} did not compile {len(winners)} launches in {exc.timeout:.0f} s.") from exc
        if process.returncode or not answer.exists():
            return _raise_failure(python, process.stderr)
        return _read_answer(answer)


def _raise_failure(python: str | Path, stderr: str) -> dict[LaunchKey, RecompiledLaunch]:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    reason = lines[-1].rstrip(".") if lines else "it ended without an answer"
    if "ModuleNotFoundError" in reason or "ImportError" in reason:
        raise UsageError(f"{python} lacks what kernellab imports: {reason}. Install kernellab's requirements there.")
    raise KernellabError(f"{python} failed to compile the stored launches: {reason}.", detail=stderr)


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
