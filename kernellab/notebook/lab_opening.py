"""The lab of a shell, opened in the background: ``%load_ext`` returns before Triton is imported.

Whoever needs the lab before that opens it, and imports wait for imports of the same module. So what opening it raises
comes where the lab is used, again at each use: an error in a thread would reach nobody.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from kernellab.errors import UsageError
from kernellab.workers.forks_and_interrupts import in_background, rlock, run_uninterrupted

if TYPE_CHECKING:
    from kernellab.lab import Lab

# The end of a session waits for one of these: one at a time.
_OF_A_LAB = ("kernellab._triton", "kernellab.lab")
_OF_ITS_FIRST_CELL = ("kernellab.notebook.cell", "kernellab.views.cards.card")


class LabOpening:
    """A lab that ``open_lab`` returns, once: in the background after `begin`, or at its first use.

    A fork that comes before the lab opens one of its own when it needs it.
    """

    def __init__(self, open_lab: Callable[[], Lab]) -> None:
        self._open_lab = open_lab
        self._lab: Lab | None = None
        self._is_closed = False
        self._lock = rlock()

    def begin(self) -> threading.Thread:
        """Open the lab in the background, and import what its first cell needs; return the thread."""
        before, after = ([partial(self._import, name) for name in names] for names in (_OF_A_LAB, _OF_ITS_FIRST_CELL))
        return in_background(*before, self._open, *after, name="kernellab-opening")

    def lab(self) -> Lab:
        """Return the lab, once it is open; an interrupt ends the waiting alone.

        Raises:
            KernellabError, ImportError: it cannot be opened.
            UsageError: it was closed.
        """
        return self._lab or run_uninterrupted(self._opened_lab)

    def close(self) -> None:
        """Close the lab, after its opening if that has begun; it opens no more."""
        run_uninterrupted(self._close)

    def _import(self, name: str) -> None:
        if not self._is_closed:
            with contextlib.suppress(Exception):  # who uses it imports it again
                import_module(name)

    def _open(self) -> None:
        if not self._is_closed:
            with contextlib.suppress(Exception):  # who uses the lab opens it again
                self._opened_lab()

    def _opened_lab(self) -> Lab:
        with self._lock:
            if self._is_closed:
                raise UsageError("The lab is closed: run %load_ext kernellab for another one.")
            if self._lab is None:
                self._lab = self._open_lab()
            return self._lab

    def _close(self) -> None:
        with self._lock:
            self._is_closed = True
            lab, self._lab = self._lab, None
        if lab is not None:
            lab.close()
