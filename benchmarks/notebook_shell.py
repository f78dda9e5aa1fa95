"""A shell that shows results as that of a notebook does, and when each display showed.

kernellab takes a shell with a ``kernel`` for a notebook, whose displays can be replaced. Here the kernel is a stand-in
that nothing is asked of, and displays are noted where ipykernel would send them to the front end: formatted, not sent.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output


@dataclass(frozen=True, slots=True)
class Ran:
    """A cell: the seconds until it first showed something, and until it ended; what it displayed, by MIME type.

    ``updates`` replaced the first display.
    """

    shown_s: float
    end_s: float
    displays: tuple[dict[str, Any], ...]
    updates: int


@dataclass(slots=True)
class _Displays:
    times_s: list[float] = field(default_factory=list)
    bundles: list[dict[str, Any]] = field(default_factory=list)
    updates: int = 0


class _NotingPublisher(DisplayPublisher):
    """Notes displays and updates in place of sending them."""

    noted: _Displays

    def publish(self, data: Any, *others: Any, update: bool = False, **more: Any) -> None:
        """Note a display, or the update of one."""
        self.noted.times_s.append(time.perf_counter())
        self.noted.bundles.append(data)
        self.noted.updates += update


def notebook_shell() -> InteractiveShell:
    """Return the shell of this process as one of a notebook; call it before ``%load_ext kernellab``."""
    shell = InteractiveShell.instance()
    shell.kernel = object()
    shell.display_pub = _NotingPublisher()
    return shell


def run_cell(shell: InteractiveShell, cell: str) -> Ran:
    """Run a cell of a `notebook_shell`; raise what it raises."""
    noted = shell.display_pub.noted = _Displays()
    with capture_output(display=False):
        begin_s = time.perf_counter()
        shell.run_cell(cell, store_history=True).raise_error()
        end_s = time.perf_counter()
    shown_s = next(iter(noted.times_s), end_s)
    return Ran(shown_s - begin_s, end_s - begin_s, tuple(noted.bundles), noted.updates)
