"""The kinds of files that a kept kernel is written as."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from kernellab.compile import Compiled
from kernellab.errors import KernellabError, UsageError, choice_message
from kernellab.export.bundle import bundle_bytes
from kernellab.export.inputs import made_inputs
from kernellab.export.module import Subject, module_text
from kernellab.export.report_page import report_page
from kernellab.export.subject import expectation, subject_of, values_of
from kernellab.export.torch_op import torch_op_text
from kernellab.registry.listing import listing
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
    """What an export compiles with, `Lab.compile`, and the device that launches run on."""

    compile: Callable[..., Compiled]
    device: str


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
    path = Path(to) if to else Path(f"{version.name}{_SUFFIX.get(kind or '', '.py')}")
    replace_file(path, content if isinstance(content, bytes) else content.encode())
    return Exported(path, version.label, kind or "module", _notes(subject))


def _content(kernels: Registry, bench: Bench, subject: Subject, kind: str) -> str | bytes:
    version = subject.version
    if kind == "report":
        return _report(kernels, bench, subject)
    if kind == "bundle":
        return bundle_bytes(kernels.store, version, _module_or_source(subject))
    known = replace(subject, expected=expectation(subject, _function(kernels, version), bench.device))
    if kind == "torch-op":
        return torch_op_text(known)
    return module_text(known, autotune=kind == "autotune")


def _report(kernels: Registry, bench: Bench, subject: Subject) -> str:
    version, history = subject.version, kernels.store.history
    (row,) = listing(kernels.store, 0.0, only=(version.id,)).rows
    return report_page(
        subject,
        row,
        compiled_again(kernels, bench, subject),
        history.launches(version.id),
        history.measurements(version.id),
        _previous(kernels, version),
    )


def compiled_again(kernels: Registry, bench: Bench, subject: Subject) -> Compiled | None:
    """Return the kernel as compiled for its last launch, or None where that cannot be made again."""
    if subject.launch is None:
        return None
    try:
        arguments = {**made_inputs(subject.launch, bench.device), **values_of(subject.launch)}
        return bench.compile(_function(kernels, subject.version), target=subject.launch.target, **arguments)
    except KernellabError:
        return None


def _previous(kernels: Registry, version: Version) -> Version | None:
    older = [v for v in kernels.store.versions() if v.name == version.name and v.version < version.version]
    return older[-1] if older else None


def _function(kernels: Registry, version: Version) -> Any:
    """Return the jit function, which takes the config that was recorded and no other."""
    from kernellab._triton.objects import jit_function  # keeps `import kernellab` light

    return jit_function(kernels[version.id])


def _module_or_source(subject: Subject) -> str:
    try:
        return module_text(subject, autotune=True)
    except UsageError:
        return module_text(replace(subject, launches=(), result=None), autotune=True)


def _notes(subject: Subject) -> tuple[str, ...]:
    if subject.launch is None:
        return ("no launch of it is known, so the file has neither a check nor a benchmark; launch it first",)
    return ()


def replace_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all.

    Raises:
        UsageError: it cannot be written.
    """
    scratch = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_bytes(content)
        os.replace(scratch, path)
    except OSError as exc:
        scratch.unlink(missing_ok=True)
        raise UsageError(f"{str(path)!r} cannot be written: {exc.strerror}.") from exc
