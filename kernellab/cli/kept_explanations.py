"""What an explanation depends on, found without Triton: the call, versions, the machine, the files of the kernel."""

from __future__ import annotations

import hashlib
import json
import sys
from argparse import Namespace
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from kernellab import __version__
from kernellab.settings import compiler_environment, read_settings, visible_devices
from kernellab.source import is_installed

_LIBRARIES = ("triton", "torch")
_OF_GPUS = ("/proc/driver/nvidia/version", "/proc/driver/nvidia/gpus/*/information", "/sys/module/amdgpu/version")


def explanation_digest(args: Namespace, subject: str) -> str | None:
    """Return the digest of all that an explanation depends on, but for the files of the kernel.

    ``subject`` is the kernel: a file with its path, or a kept version with its launch. None where the answer is not
    kept: it has samples, or the driver of a GPU says nothing about itself.
    """
    gpus = _gpus_text()
    if args.samples or gpus is None:
        return None
    fields = {
        "schema": 1,
        "kernel": subject,
        **{name: sorted(getattr(args, name)) for name in ("size", "meta")},
        "target": args.target or read_settings().target,
        "gpus": gpus,
        "visible": visible_devices(),
        "compiler": compiler_environment(),
        "kernellab": __version__,
        **{name: metadata.version(name) for name in _LIBRARIES},
    }
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _gpus_text() -> str | None:
    """Return models and driver of the GPUs in words, "" without a GPU; None if they are not known."""
    files = [file for pattern in _OF_GPUS for file in sorted(Path("/").glob(pattern.removeprefix("/")))]
    text = "\n".join(file.read_text(encoding="utf-8", errors="replace") for file in files)
    has_gpu = any(True for pattern in ("nvidia[0-9]*", "kfd") for _ in Path("/dev").glob(pattern))
    return None if has_gpu and not text else text


def source_digests() -> dict[str, str]:
    """Return the SHA-256 of each imported file that belongs to no installed package, by its path."""
    modules = [(name, getattr(module, "__file__", None)) for name, module in list(sys.modules.items())]
    files = {str(Path(file).resolve()) for name, file in modules if file and not is_installed(name)}
    return {file: digest for file in sorted(files) if (digest := _digest_of(file))}


def are_unchanged(sources: Mapping[str, str]) -> bool:
    """Whether all files have the content that they had."""
    return all(_digest_of(file) == digest for file, digest in sources.items())


def _digest_of(file: str) -> str:
    """Return the SHA-256 of a file; "" if it is gone."""
    path = Path(file)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
