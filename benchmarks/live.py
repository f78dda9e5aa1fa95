"""What watching a tuning costs: the same list tuned anew with and without live progress, in turns.

Usage: python -m benchmarks.live. Needs a CUDA GPU. Compiled kernels are kept between turns, so that what is timed is
the part that a display could disturb: measuring. The display keeps what it is given, as a notebook's frontend would.
"""

from __future__ import annotations

import sys
import tempfile
import time
from statistics import median
from typing import Any

from benchmarks.tune_kernels import workload

TURNS = 7


class Kept:
    """A display that keeps every state, as bytes of a message would be kept."""

    def __init__(self) -> None:
        self.states: list[str] = []

    def __call__(self, shown: Any) -> Kept:
        self.update(shown)
        return self

    def update(self, shown: Any) -> None:
        self.states.append(str(shown._repr_mimebundle_()))

    def end(self) -> None:
        """Nothing is left to do."""


def main() -> None:
    import torch
    import triton

    import kernellab
    from kernellab.notebook.live import LiveProgress

    work, display = workload("matmul"), Kept()
    live = LiveProgress(display)
    seconds: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder, kernellab.Lab(store=folder) as lab:
        lab.start(wait=True)
        lab.tune(work.kernel, work.grid, *work.arguments)
        for turn in range(2 * TURNS):
            watched = bool(turn % 2)
            lab.launches.tuning_reporter = live.tuning if watched else None
            start = time.perf_counter()
            tuning = lab.tune(work.kernel, work.grid, *work.arguments, fresh=True)
            torch.cuda.synchronize()
            seconds[watched].append(time.perf_counter() - start)
    plain, watched_s = median(seconds[False]), median(seconds[True])
    print(f"Python {sys.version.split()[0]}, Triton {triton.__version__}, {torch.cuda.get_device_name()}")
    print(f"matmul, {len(tuning.rows)} configs measured anew, {TURNS} turns each, {len(display.states)} states shown")
    print(f"without live progress {plain:.3f} s, with it {watched_s:.3f} s: {watched_s / plain:.3f} x")


if __name__ == "__main__":
    main()
