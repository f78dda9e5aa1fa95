"""The lab of a shell, opened in the background: ``%load_ext`` returns before Triton is imported.

Whoever needs the lab before that opens it. What opening it raises comes where the lab is used, again at each use: an
error in a thread is shown to no user.

Modules of Triton import each other, and Python gives a thread a module that another one has half imported where both
would wait for each other (https://github.com/python/cpython/issues/91351). So one thread at a time imports Triton: the
lock is held meanwhile, and magics wait for the opening first.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING

from kernellab.errors import NO_LAB, KernellabError, UsageError, refused_by_system
from kernellab.workers.forks_and_interrupts import at_fork, in_background, lock, rlock, run_uninterrupted

if TYPE_CHECKING:
    from kernellab.lab import Lab

# The end of a session waits for one of these: one at a time.
_OF_A_LAB = ("kernellab._triton", "kernellab.lab")
_OF_A_CARD = ("kernellab.explain.prediction", "kernellab.views.bundles", "PIL.ImageDraw", "PIL.ImageFont")
_NO_COLLECTION = 2**31 - 1  # a threshold that no number of objects reaches
_MOST_FROZEN_BY_PYTHON = 1000  # 3.12 starts with 375 frozen objects; a user who freezes what lives has many more


class LabOpening:
    """Opens a lab once, by ``open_lab``: in the background after `begin`, or where the lab is first used.

    A process that is forked before the lab is open opens a lab of its own where it needs one.
    """

    def __init__(self, open_lab: Callable[[], Lab]) -> None:
        self._open_lab = open_lab
        self._lab: Lab | None = None
        self._is_closed = self._is_awaited = False
        self._lock = rlock()

    def begin(self) -> threading.Thread:
        """Open the lab in the background; return the thread."""
        imports = (partial(self._import, name) for name in _OF_A_LAB)
        return in_background(*imports, self._open, self._collect_garbage, name="kernellab-opening")

    def lab(self) -> Lab:
        """Wait until the lab is open, and return it. Ctrl-C stops the wait at once, and the lab goes on opening.

        Raises:
            KernellabError, ImportError: it cannot be opened; the next call tries again.
            UsageError: it was closed.
            Interrupted: instead of a KeyboardInterrupt.
        """
        if self._lab is None:
            self._is_awaited = True
            subject = "The wait for the lab, which goes on opening,"
            return run_uninterrupted(self._opened_lab, subject=subject, patience_s=0)
        return self._lab

    def await_triton(self) -> None:
        """Wait until Triton is imported: until the lab is open, or cannot be opened."""
        with contextlib.suppress(KernellabError, ImportError):  # who uses the lab gets it
            self.lab()

    def close(self) -> None:
        """Close the lab, after the step of its opening that runs; no other begins, and it opens no more.

        That step may import Triton, which the next cell must not do at the same time. Ctrl-C stops the wait at once,
        and the lab goes on closing.

        Raises:
            Interrupted: instead of a KeyboardInterrupt.
        """
        self._is_closed = True  # before the wait: between two steps, the lock goes to either thread
        run_uninterrupted(self._close, subject="The wait for the lab, which goes on closing,", patience_s=0)

    def _import(self, name: str) -> None:
        with self._lock:
            if not self._is_closed:
                _try_to_import(name)

    def _collect_garbage(self) -> None:
        """Collect what imports left, unless a cell runs, which would wait for it."""
        if not self._is_awaited:
            gc.collect()

    def _open(self) -> None:
        if not self._is_closed:
            with contextlib.suppress(Exception):  # who uses the lab opens it again
                self._opened_lab()

    def _opened_lab(self) -> Lab:
        with self._lock:
            if self._is_closed:
                raise UsageError("The lab is closed: run %load_ext kernellab for another one.")
            if self._lab is None:
                with _COLLECTION_PAUSE, refused_by_system(NO_LAB):
                    self._lab = self._open_lab()
            return self._lab

    def _close(self) -> None:
        with self._lock:
            lab, self._lab = self._lab, None
        if lab is not None:
            lab.close()


@cache
def load_card() -> None:
    """Load the modules and the layout engine of cards in the background, most of it while the first kernel compiles."""
    from kernellab.views.graph.diagram import warm  # imports no Triton

    def load() -> None:
        with _COLLECTION_PAUSE:
            for name in _OF_A_CARD:
                _try_to_import(name)
            warm()

    in_background(load)


def _try_to_import(name: str) -> None:
    with _COLLECTION_PAUSE, contextlib.suppress(Exception):  # who uses it imports it again
        import_module(name)


class _CollectionPause:
    """A pause of garbage collection in this process, but not in its forks, as long as a thread asks for it.

    It leaves `gc.enable` and `gc.disable` to the user, and does not undo thresholds that are set meanwhile.
    """

    def __init__(self) -> None:
        self._lock = lock()
        self._askers = 0
        self._before = gc.get_threshold()
        at_fork(self, in_child=_CollectionPause._end_in_child)

    def __enter__(self) -> None:
        with self._lock:
            self._askers += 1
            if self._askers == 1:
                self._before = gc.get_threshold()
                gc.set_threshold(_NO_COLLECTION, *self._before[1:])

    def __exit__(self, *exc_info: object) -> None:
        with self._lock:
            self._askers = max(0, self._askers - 1)  # 0 before in a fork of the thread that asked
            if not self._askers:
                self._end()

    def _end(self) -> None:
        """Restore the thresholds. What was allocated counts as old: to freeze and unfreeze it looks at none of it."""
        if gc.get_threshold() == (_NO_COLLECTION, *self._before[1:]):
            if gc.get_freeze_count() <= _MOST_FROZEN_BY_PYTHON:
                gc.freeze()
                gc.unfreeze()
            gc.set_threshold(*self._before)

    def _end_in_child(self) -> None:
        self._askers = 0
        self._end()


# What imports make stays, and a look at all of it takes 0.1 s.
_COLLECTION_PAUSE = _CollectionPause()
