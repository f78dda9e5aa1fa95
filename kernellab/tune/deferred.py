"""A bench that is made when something is to be measured: where every outcome is known, none is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kernellab.errors import UsageError, first_line
from kernellab.measure.implementations import Bench, Candidate, Measured


@dataclass(slots=True)
class DeferredBench:
    """Stands for the bench that ``make`` returns, which is asked for once.

    Raises:
        UsageError: it cannot be made, for want of memory, which is the fault of no config.
    """

    make: Callable[[], Bench]
    _bench: Bench | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get_ready(self) -> None:
        self._made().get_ready()

    def measure(self, candidate: Candidate, runs: int, stop_above_ms: float | None) -> Measured:
        return self._made().measure(candidate, runs, stop_above_ms)

    def interleave(self, candidates: Sequence[Candidate], rounds: int) -> list[tuple[float, ...]]:
        return self._made().interleave(candidates, rounds)

    def warm(self, candidates: Sequence[Candidate], runs: int) -> list[float]:
        return self._made().warm(candidates, runs)

    def close(self) -> None:
        if self._bench is not None:
            self._bench.close()

    def _made(self) -> Bench:
        with self._lock:
            if self._bench is None:
                try:
                    self._bench = self.make()
                except RuntimeError as exc:  # of torch: no memory for copies of the arguments on another GPU
                    text = f"The bench of a GPU cannot be set up: {first_line(exc)}"
                    raise UsageError(f"{text}; free memory there, or leave it out of devices.") from exc
            return self._bench
