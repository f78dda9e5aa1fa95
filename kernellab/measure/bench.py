"""What the tuner asks of whoever times kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kernellab.compile.types import Compiled
from kernellab.measure.config import Config


@dataclass(frozen=True, slots=True)
class Candidate:
    """A config that was compiled and fits the target. ``index`` is its place among the rows."""

    index: int
    config: Config
    compiled: Compiled


@dataclass(frozen=True, slots=True)
class Measured:
    """Timings of one config, and which of the groups of equal outputs its outputs belong to.

    Groups are numbered as they are found; where a reference was given, group 0 is that of the reference, and
    ``difference`` says how the outputs of another group differ from it. Such a config is not timed.
    """

    times_ms: tuple[float, ...]
    group: int = 0
    difference: str = ""


class Bench(Protocol):
    """Times launches. Arguments are those of one launch; what they held is there again before each run.

    A launch that fails raises a `KernellabError`, after which the bench goes on to work for other configs:
    `WorkerTimeout` where it did not end, `LaunchError` where it could not start, else `RunError` or `WorkerDied`.
    """

    def get_ready(self) -> None:
        """Load what measuring needs, in the background: configs begin to compile."""

    def measure(self, candidate: Candidate, runs: int, stop_above_ms: float | None) -> Measured:
        """Launch once to compare the outputs, then time ``runs`` launches with a flushed L2.

        If both of the first two take more than ``stop_above_ms``, the rest is left out; one alone may be chance.
        """

    def interleave(self, candidates: Sequence[Candidate], rounds: int) -> list[tuple[float, ...]]:
        """Return the times of each candidate, one per round, with a flushed L2; each round launches all of them."""

    def warm(self, candidates: Sequence[Candidate], runs: int) -> list[float]:
        """Return the median time of each candidate where the L2 holds what the launch before left there."""

    def close(self) -> None:
        """Give back what the bench holds: memory, and what it has told a worker."""
