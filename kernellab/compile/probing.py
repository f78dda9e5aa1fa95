"""Which targets the installed Triton compiles for: found out by compiling a small kernel for each, and kept."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from kernellab.compile.cache import Compiler, compile_job
from kernellab.compile.types import CompileJob
from kernellab.errors import CompileError, KernellabError, UnknownTarget, WorkerDied
from kernellab.target import Target, known_targets, parse_target, well_formed_target


def compiled_targets(compiler: Compiler) -> tuple[str, ...]:
    """Return the known targets that the installed Triton compiles for, in their order."""
    targets = known_targets()
    refused = refusals(compiler, [parse_target(text) for text in targets])
    return tuple(text for text in targets if not refused[text])


def named_target(compiler: Compiler, text: str) -> Target:
    """Return the target that ``text`` names: a known one, or any other that a compile for it shows to be one.

    Raises:
        UnknownTarget: the text has another form, or the installed Triton does not compile for it.
    """
    try:
        return parse_target(text)
    except UnknownTarget as exc:
        target = well_formed_target(text)
        if target is None:
            raise
        refused = refusals(compiler, [target])[str(target)]
        if not refused:
            return target
        raise UnknownTarget(f"{exc.message} A compile for it was tried: {refused}") from exc


def refusals(compiler: Compiler, targets: Sequence[Target]) -> Mapping[str, str]:
    """Return by target why the installed Triton does not compile for it, and "" where it does.

    What is found is kept beside the compiled kernels, for the version of Triton and the tools that it is told to use.

    Raises:
        KernellabError: a compile was stopped, or cannot be kept, which tells nothing of the target.
    """
    path = compiler.folder / f"targets-{_installed()}.json"
    known = _read(path)
    missing = [target for target in targets if str(target) not in known]
    jobs = [partial(_sample_job, target) for target in missing]
    for index, result in compiler.stream(jobs):
        known[str(missing[index])] = _refusal(result) if isinstance(result, KernellabError) else ""
    if missing:
        _write(path, known)
    return known


def _sample_job(target: Target) -> CompileJob:
    from kernellab._triton.specialize import sample_launch  # keeps `import kernellab` light

    function, arguments = sample_launch()
    return compile_job(function, target, arguments, {})


def _refusal(error: KernellabError) -> str:
    if isinstance(error, CompileError | WorkerDied):
        return error.message
    raise error


def _installed() -> str:
    import triton

    from kernellab._triton.specialize import compiler_variables

    fields = json.dumps([triton.__version__, compiler_variables()], sort_keys=True)
    return hashlib.sha256(fields.encode()).hexdigest()[:16]


def _read(path: Path) -> dict[str, str]:
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text())
        if isinstance(found, dict):
            return {str(name): str(reason) for name, reason in found.items()}
    return {}


def _write(path: Path, known: Mapping[str, str]) -> None:
    scratch = path.with_name(f".{uuid.uuid4().hex}")
    with suppress(OSError):  # what cannot be kept is found out again
        scratch.write_text(json.dumps(known, indent=1))
        os.replace(scratch, path)
