"""The kinds of files that a kept kernel is written as."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from kernellab.compile.types import Compiled
from kernellab.errors import KernellabError, UsageError, choice_message
from kernellab.export.exchange import bundle_bytes, measurement_lines
from kernellab.export.module import Subject, module_text
from kernellab.export.subject import expectation, subject_of, values_of
from kernellab.export.torch_op import torch_op_text
from kernellab.registry.listing import listing
from kernellab.registry.recorded_launches import made_inputs
from kernellab.registry.table import Registry
from kernellab.store import Version

Kind = Literal["module", "torch-op", "autotune", "report", "bundle"]
KINDS: tuple[str, ...] = get_args(Kind)
_SUFFIX = {"report": ".html", "bundle": ".zip"}


@dataclass(frozen=True, slots=True)
class Exported:
    """A file that was written: the version, its kind, and remarks for the user."""

    path: Path
    label: str
    kind: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bench:
    """What an export compiles with, `Lab.compile`, the device of launches, and what writes a report as HTML."""

    compile: Callable[..., Compiled]
    device: str
    report_page: Callable[..., str]


def export(kernels: Registry, bench: Bench, key: str | int, to: str | Path | None, kind: str | None) -> Exported:
    """Write a kept kernel as a file; ``to`` None means NAME.py, NAME.html or NAME.zip in the current folder.

    ``kind`` None is a module with the decorators that the kernel was launched with.

    Raises:
        UnknownName: there is no such kernel.
        UsageError: there is no such kind, or the kernel cannot be written as one.
    """
    if kind is not None and kind not in KINDS:
        raise UsageError(choice_message("--as", kind, KINDS))
    version = kernels.version(key)
    subject = subject_of(kernels.store, version)
    content = _content(kernels, bench, subject, kind or "autotune")
    path = Path(to) if to else Path(f"{version.identifier}{_SUFFIX.get(kind or '', '.py')}")
    replace_file(path, content if isinstance(content, bytes) else content.encode())
    return Exported(path, version.label, kind or "module", _notes(kernels, subject, kind or "autotune"))


def _content(kernels: Registry, bench: Bench, subject: Subject, kind: str) -> str | bytes:
    version = subject.version
    if kind == "report":
        return _report(kernels, bench, subject)
    if kind == "bundle":
        return bundle_bytes(kernels.store, version, _module_or_source(subject))
    kernel = _launched(kernels, version)
    known = subject if kernel is None else replace(subject, expected=expectation(subject, kernel, bench.device))
    if kind == "torch-op":
        return torch_op_text(known)
    return module_text(known, autotune=kind == "autotune")


def _report(kernels: Registry, bench: Bench, subject: Subject) -> str:
    version, history = subject.version, kernels.store.history
    (row,) = listing(kernels.store, 0.0, only=(version.id,)).rows
    return bench.report_page(
        subject,
        row,
        compiled_again(kernels, bench, subject),
        history.launches(version.id),
        history.measurements(version.id),
        _previous(kernels, version),
    )


def compiled_again(kernels: Registry, bench: Bench, subject: Subject) -> Compiled | None:
    """Return the kernel as compiled for its last launch.

    None where that cannot be made again, or the kernel was not launched in this session: compiling executes its text.
    """
    kernel = _launched(kernels, subject.version)
    if subject.launch is None or kernel is None:
        return None
    try:
        arguments = {**made_inputs(subject.launch, bench.device), **values_of(subject.launch)}
        return bench.compile(kernel, target=subject.launch.target, **arguments)
    except KernellabError:
        return None


def _previous(kernels: Registry, version: Version) -> Version | None:
    older = [v for v in kernels.store.versions() if v.name == version.name and v.version < version.version]
    return older[-1] if older else None


def _launched(kernels: Registry, version: Version) -> Any | None:
    """Return the jit function of a kernel of this session, which takes the config that was recorded and no other."""
    from kernellab._triton.objects import jit_function  # keeps `import kernellab` light

    kernel = kernels.of_session(version)
    return None if kernel is None else jit_function(kernel)


def _module_or_source(subject: Subject) -> str:
    try:
        return module_text(subject, autotune=True)
    except UsageError:
        return module_text(replace(subject, launches=(), result=None), autotune=True)


def _notes(kernels: Registry, subject: Subject, kind: str) -> tuple[str, ...]:
    launch, is_launched = subject.launch, kernels.of_session(subject.version) is not None
    if launch is None:
        return ("no launch of it is known, so the file has neither a check nor a benchmark; launch it first",)
    if is_launched or kind == "bundle" or (kind != "report" and launch.check):
        return ()
    lacks = "what was compiled" if kind == "report" else "what its outputs are compared with"
    return (f"it was not launched in this session, and so is not executed: launch it, and the file has {lacks}",)


def write_measurements(kernels: Registry, key: str | int | None, path: Path) -> int:
    """Write the measurements of a version, of all versions of a name, or of all kernels; return how many there are.

    Raises:
        UnknownName: there is no such kernel.
        UsageError: the file cannot be written, or would be larger than what can be read.
    """
    text, count = measurement_lines(kernels, key)
    replace_file(path, text.encode(), makes_folders=False)
    return count


def replace_file(path: Path, content: bytes, *, makes_folders: bool = True) -> None:
    """Write a file whole or not at all.

    Raises:
        UsageError: it cannot be written.
    """
    scratch = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        if makes_folders:
            path.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_bytes(content)
        os.replace(scratch, path)
    except OSError as exc:
        scratch.unlink(missing_ok=True)
        raise UsageError(f"{str(path)!r} cannot be written: {exc.strerror or exc}.") from exc
