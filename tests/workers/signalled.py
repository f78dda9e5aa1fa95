"""Launch kernels while a signal handler launches others: once at each line of the lab that a launch runs, or every few.

Run as a script. It prints how many launches interrupted others, after it has seen that all launches were right.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import torch
import triton
import triton.language as tl

import kernellab

N = 50


@triton.jit
def add_one(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) + 1, mask=offsets < n)


@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def add_two(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) + 2, mask=offsets < n)


class Interrupter:
    """Raises a signal at every ``step``-th line of kernellab, the first time that this thread is there."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.lines: set[tuple[CodeType, int]] = set()
        self.is_busy = False

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Follow frames of kernellab line by line."""
        if not frame.f_globals.get("__name__", "").startswith("kernellab"):
            return None
        place = frame.f_code, frame.f_lineno
        if event == "line" and not self.is_busy and place not in self.lines:
            self.lines.add(place)
            if len(self.lines) % self.step == 0:
                signal.raise_signal(signal.SIGUSR1)
        return self.trace


def main(step: int = 1) -> None:
    """Interrupt launches of several kinds at every ``step``-th line."""
    folder = tempfile.TemporaryDirectory()
    lab = kernellab.Lab("cuda:90", store=folder.name)
    bound, tuned = lab.bind(add_one), lab.bind(add_two)
    lab.kernels.add(bound)
    lab.kernels.add(tuned)
    x = torch.zeros(N)
    bound[(1,)](x, N, BLOCK=64)
    interrupter, own = Interrupter(step), torch.zeros(N)
    launched = 0

    def handler(number: int, frame: Any) -> None:
        nonlocal launched
        interrupter.is_busy = True
        try:
            bound[(1,)](own, N, BLOCK=64)
            launched += 1
        finally:
            interrupter.is_busy = False

    signal.signal(signal.SIGUSR1, handler)
    calls: list[Callable[[Any], Any]] = [
        lambda y: bound[(1,)](y, N, BLOCK=64),
        lambda y: bound[(1,)](y, N, BLOCK=128),
        lambda y: [tuned[(1,)](y, N) for _ in range(4)],
        lambda y: lab.run(add_one, (1,), y, N, BLOCK=64),
    ]
    for call, added in zip(calls, (1, 1, 8, 1), strict=True):
        y = torch.zeros(N)
        sys.settrace(interrupter.trace)
        try:
            call(y)
        finally:
            sys.settrace(None)
        assert y.tolist() == [added] * N, calls.index(call)
    assert own.tolist() == [launched] * N
    lab.close()
    folder.cleanup()
    print(launched)


if __name__ == "__main__":
    main()
