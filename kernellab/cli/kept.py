"""Answers from the store alone, without Triton and torch: kept kernels, one of them as a file, an explanation."""

from __future__ import annotations

import hashlib
import json
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from kernellab import __version__
from kernellab.errors import UsageError
from kernellab.settings import compiler_environment, in_memory, read_settings, visible_devices
from kernellab.source import is_installed
from kernellab.store import Store
from kernellab.views import data as as_data


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a command: data for JSON, a function that makes the text, the exit status."""

    data: Mapping[str, Any]
    text: Callable[[], str]
    status: int = 0


def answer_from_store(args: Namespace) -> Answer | None:
    """Return the answer of a command that needs the store alone; None where it needs a lab.

    Raises:
        KernellabError: there is no such kernel, or the file cannot be written.
    """
    command = COMMANDS.get(args.command)
    if command is None:
        return None
    folder = Path(args.store) if args.store else read_settings().store
    with closing(Store(None if in_memory(folder) else folder)) as store:
        return command(store, folder, args)


def is_file(kernel: str) -> bool:
    """Whether an argument names a kernel of a file, and no kept one."""
    return "::" in kernel or kernel.endswith(".py")


def refuse_launch_options(args: Namespace) -> None:
    """Raise `UsageError` where a call on a kept kernel has options of a file's launch."""
    if args.size or args.meta:
        raise UsageError(
            f"--size and --meta set how a FILE.py launches; {args.kernel!r} is kept with its recorded launch."
        )


def _list(store: Store, folder: Path, args: Namespace) -> Answer:
    from kernellab.registry.listing import search
    from kernellab.views.cards.listing import listing_card

    asked = {name: getattr(args, name) for name in ("name", "status", "notebook", "since", "every")}
    listing = search(store, args.search, **asked)
    return Answer(as_data.selected_fields(listing, "search", "rows"), lambda: listing_card(listing).text())


def _export(store: Store, folder: Path, args: Namespace) -> Answer | None:
    from kernellab.export.write import ExportContext, export
    from kernellab.registry.versions import kept_version, key_of
    from kernellab.views.cards.listing import exported_card

    if is_file(args.kernel):
        return None
    refuse_launch_options(args)
    version = kept_version(store, key_of(args.kernel))
    kind = f" --as {args.kind}" if args.kind else ""
    again = f"`kernellab export FILE.py::{version.identifier}{kind}` launches it first"
    context = ExportContext(store, folder / "artifacts", _report_page, again=again)
    exported = export(context, version, args.output, args.kind)
    return Answer(as_data.plain(exported), lambda: exported_card(exported).text())


def _explain(store: Store, folder: Path, args: Namespace) -> Answer | None:
    digest = explanation_digest(args, explained_subject(store, args))
    known = None if args.fresh or digest is None else store.explanations.find(digest)
    if known is None or any(_digest_of(file) != digest for file, digest in known[0].sources.items()):
        return None
    kept, when = known
    date = datetime.fromtimestamp(when, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")
    text = f"{kept.text}\nKept since {date}; --fresh explains it again."
    return Answer({**kept.data, "from_cache": True}, lambda: text)


def explained_subject(store: Store, args: Namespace) -> str:
    """Return the kernel of a call to explain: a file with its path, or a kept version with its latest launch.

    Raises:
        UnknownName: there is no such kept kernel.
    """
    from kernellab.registry import kept_version, latest_launch
    from kernellab.registry.versions import key_of

    if is_file(args.kernel):
        file, colons, name = args.kernel.partition("::")
        return f"{Path(file).resolve()}{colons}{name}"
    version = kept_version(store, key_of(args.kernel))
    return f"{version.digest} {latest_launch(store, version)!r}"


def _report_page(*parts: Any) -> str:
    from kernellab.views.cards.kernels import report_page  # loads all cards

    return report_page(*parts)


COMMANDS: Mapping[str, Callable[[Store, Path, Namespace], Answer | None]] = {
    "ls": _list,
    "export": _export,
    "explain": _explain,
}


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


def _digest_of(file: str) -> str:
    """Return the SHA-256 of a file; "" if it is gone."""
    path = Path(file)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
