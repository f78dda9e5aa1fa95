"""Live progress in a notebook or a terminal: one display that updates, and only where a launch takes its time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_DELAY_S = 1.0
_INTERVAL_S = 0.2

Report = Callable[[tuple[int, int]], None]


@dataclass(slots=True)
class Bar:
    """How far a launch on the CPU has come: programs done of all. Shows as a bar, and as text where there is none."""

    kernel: str
    done: int
    total: int

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        text = f"{self.kernel}: {self.done:,} of {self.total:,} programs"
        bar = f'<progress max="{self.total}" value="{self.done}" aria-label="programs done"></progress>'
        return {"text/plain": text, "text/html": f"<div>{bar} {text}</div>"}


class LiveProgress:
    """Makes a reporter per launch. ``show`` displays a bar and returns its handle, whose ``update`` takes the next."""

    def __init__(self, show: Callable[[Bar], Any], clock: Callable[[], float] = time.monotonic) -> None:
        self._show = show
        self._clock = clock

    def __call__(self, kernel: str) -> Report:
        """Return the function that a launch of ``kernel`` calls with (programs done, programs in all)."""
        begin = self._clock()
        handle: list[Any] = []
        shown_at = [begin + _DELAY_S - _INTERVAL_S]

        def report(progress: tuple[int, int]) -> None:
            now = self._clock()
            bar = Bar(kernel, *progress)
            if now - shown_at[0] < _INTERVAL_S and not (handle and bar.done == bar.total):
                return
            shown_at[0] = now
            if handle:
                handle[0].update(bar)
            else:
                handle.append(self._show(bar))

        return report


def notebook_progress() -> LiveProgress:
    """Return live progress for the shell that runs."""
    from IPython.display import display  # only in a shell

    return LiveProgress(lambda bar: display(bar, display_id=True))
