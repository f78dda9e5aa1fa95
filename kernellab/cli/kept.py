"""Answers from the store alone, which load neither Triton nor torch: the kept kernels, and one of them as a file."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernellab.errors import UsageError
from kernellab.settings import read_settings
from kernellab.store import Store
from kernellab.views import data as as_data


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a command: data for JSON, a function that makes the text, the exit status."""

    data: Mapping[str, Any]
    text: Callable[[], str]
    status: int = 0


def answer_from_store(given: Namespace) -> Answer | None:
    """Return the answer of a command that needs the store alone; None where it needs a lab.

    Raises:
        KernellabError: there is no such kernel, or the file cannot be written.
    """
    command = COMMANDS.get(given.command)
    if command is None:
        return None
    folder = Path(given.store) if given.store else read_settings().store
    with closing(Store(None if given.store == ":memory:" else folder)) as store:
        return command(store, folder, given)


def is_file(kernel: str) -> bool:
    """Whether an argument names a kernel of a file, and no kept one."""
    return "::" in kernel or kernel.endswith(".py")


def _list(store: Store, folder: Path, given: Namespace) -> Answer:
    from kernellab.registry.listing import search
    from kernellab.views.cards.listing import listing_card

    listing = search(store, given.search)
    return Answer(as_data.listing_data(listing), lambda: listing_card(listing).text())


def _export(store: Store, folder: Path, given: Namespace) -> Answer | None:
    from kernellab.export.write import ExportContext, export
    from kernellab.registry.versions import kept_version, key_of
    from kernellab.views.cards.listing import exported_card

    if is_file(given.kernel):
        return None
    if given.size or given.meta:
        raise UsageError(
            f"--size and --meta set how a FILE.py launches; {given.kernel!r} is kept with its recorded launch."
        )
    context = ExportContext(store, folder / "artifacts", _report_page)
    exported = export(context, kept_version(store, key_of(given.kernel)), given.output, given.kind)
    return Answer(as_data.exported_data(exported), lambda: exported_card(exported).text())


def _report_page(*parts: Any) -> str:
    from kernellab.views.cards.kernels import report_page  # loads all cards

    return report_page(*parts)


COMMANDS: Mapping[str, Callable[[Store, Path, Namespace], Answer | None]] = {"ls": _list, "export": _export}
