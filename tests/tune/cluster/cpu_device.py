"""Stands in for a GPU in the processes of a cluster: kernels are compiled and interpreted, and the CPU's clock counts.

What is real in tests with it: the processes and their cluster, what travels, the kernel that is built anew from its
text, its compiles, its outputs, the rows and the store. What is not: the times are those of the interpreter.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import kernellab
from kernellab.checking.comparison import OutputDifference
from kernellab.errors import KernellabError
from kernellab.launch.runtime import Runtime
from kernellab.registry import Session
from kernellab.timing.bench import measure_singly
from kernellab.timing.bench_jobs import LaunchTimes
from kernellab.timing.launches import Implementation, Launches, launch_on_copies
from kernellab.timing.provenance import Device, device_of
from kernellab.tune.run_tuning import Environment
from tests.labs import shared_lab

MODEL = "an interpreter on the CPU"


@cache
def lab_here() -> kernellab.Lab:
    """Return the lab of this process."""
    return shared_lab("cuda:90", ":memory:")


def cpu_environment() -> Environment:
    """Return what a process measures with that counts as the owner of a GPU."""
    return _environment()


def dying_environment(marker: Path) -> Environment:
    """Return the same; the first process that has something to measure ends, and leaves a file as a marker."""
    return _environment(marker)


def formula_environment() -> Environment:
    """Return the same with times that are a formula of the launch, equal in all processes."""
    environment = _environment()  # of another name, so that it reuses no times of the interpreter
    device = replace(environment.device, name="a formula", facts={**environment.device.facts, "device": "a formula"})
    return replace(environment, device=device, make_bench=lambda *_: FormulaBench(lab_here().launches, 10.0))


def session_here() -> Session:
    """Return the session of this process."""
    return lab_here().session()


def no_environment() -> None:
    """Return that there is no GPU."""


def _environment(marker: Path | None = None) -> Environment:
    lab = lab_here()
    plain = device_of(lab.target, has_gpu=False)
    device = Device(lab.target, MODEL, "1.0", {**plain.facts, "device": MODEL, "driver": "1.0"})

    def bench(launches: Launches, timeout_s: float, index: int | None) -> InterpretedBench:
        if marker is not None and not marker.exists():
            marker.touch()
            os._exit(1)
        return InterpretedBench(lab.launches, timeout_s)

    return Environment(lab.compiler, lab.kernels, device, bench)


@dataclass(slots=True)
class InterpretedBench:
    """Launches on copies, in the interpreter's process; outputs are not compared with each other."""

    runtime: Runtime
    timeout_s: float

    def get_ready(self) -> None:
        """Load nothing."""

    def measure(self, implementation: Implementation, runs: int, stop_above_ms: float | None) -> LaunchTimes:
        """Launch once; that run counts, however slow."""
        return LaunchTimes((self._milliseconds(implementation),))

    def measure_all(
        self, implementations: Sequence[Implementation], runs: int, stop_above_ms: float | None, loser_factor: float
    ) -> list[LaunchTimes | KernellabError]:
        """Launch each once."""
        return measure_singly(self, implementations, runs, stop_above_ms)

    def compare(
        self, implementation: Implementation, others: Sequence[Implementation]
    ) -> list[tuple[OutputDifference, ...]]:
        """Say that outputs are equal."""
        return [() for _ in others]

    def interleave(self, implementations: Sequence[Implementation], rounds: int) -> list[tuple[float, ...]]:
        """Launch each as often as there are rounds, two at most."""
        return [tuple(self._milliseconds(each) for _ in range(min(rounds, 2))) for each in implementations]

    def warm(self, implementations: Sequence[Implementation], runs: int) -> list[float]:
        """Launch each once."""
        return [self._milliseconds(each) for each in implementations]

    def close(self) -> None:
        """Hold nothing."""

    def _milliseconds(self, implementation: Implementation) -> float:
        launch: Any = implementation.launch
        begin = time.perf_counter()
        launch_on_copies(self.runtime, launch, implementation.kernel.effects, "cpu", self.timeout_s)
        return 1e3 * (time.perf_counter() - begin)


class FormulaBench(InterpretedBench):
    """Launches nothing: a program takes 1 us, and each element of its block 10 ns."""

    def _milliseconds(self, implementation: Implementation) -> float:
        launch: Any = implementation.launch
        n, block = launch.arguments["n"], launch.arguments["BLOCK"]
        return float(-(-n // block) * (1e-3 + 1e-5 * block))
