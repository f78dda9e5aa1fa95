"""Where an export goes that names no path, and what it may replace there: earlier exports, and nothing else."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from kernellab.errors import UsageError
from kernellab.export.exchange import is_bundle

_MODULE = re.compile(rb"^Exported by kernellab\b", re.MULTILINE)
_KERNEL_FILE = re.compile(rb"^def arguments\(", re.MULTILINE)  # what a user adds to launch an export at other sizes
_REPORT = re.compile(rb'<main>\n<h1>[^<]*@\d+</h1>\n<table class="facts">')
_CONFIGS = re.compile(rb'\{\s*"triton_version": ')
_DOCSTRING_BYTES = 2**16
_NAME_IT = "name the path to write: to=PATH of lab.export, --to PATH of %triton_export, -o PATH of kernellab export"


def export_path(default: str, name: str, source: Path | None = None) -> Path:
    """Return the default path of an export of a kernel; ``source`` is the file that the kernel is read from.

    Raises:
        UsageError: what is there is that file, or no export.
    """
    path = Path(default)
    if source is not None and path.exists() and path.samefile(source):
        raise UsageError(f"The kernel is read from {str(path)!r}, so its export does not replace that; {_NAME_IT}.")
    if os.path.lexists(path) and not _is_export(path, name):
        raise UsageError(f"{str(path)!r} is not an export, so it is not replaced; {_NAME_IT}.")
    return path


def replacement_notes(files: Mapping[Path, bytes]) -> tuple[str, ...]:
    """Return a remark if files that are about to be written differ from those that are there."""
    changed = [path for path, content in files.items() if path.is_file() and path.read_bytes() != content]
    return (f"An earlier export, {changed[0]}, is replaced; name a path to keep both",) if changed else ()


def _is_export(path: Path, name: str) -> bool:
    """Whether an export wrote a file, or the folder of binaries or configs of a kernel; an empty folder counts."""
    try:
        if path.is_dir():
            return _is_export_folder(path, name)
        if path.suffix == ".zip":
            return is_bundle(path)
        with path.open("rb") as file:
            return bool(_REPORT.search(file.read()) if path.suffix == ".html" else _is_module(file.read()))
    except OSError:
        return False


def _is_module(text: bytes) -> bool:
    return _MODULE.search(text, 0, _DOCSTRING_BYTES) is not None and _KERNEL_FILE.search(text) is None


def _is_export_folder(folder: Path, name: str) -> bool:
    if (folder / f"{name}.py").is_file():
        return _is_export(folder / f"{name}.py", name)
    return all(_CONFIGS.match(file.read_bytes()) for file in folder.iterdir())
