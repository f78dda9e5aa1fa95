"""An timer that needs no GPU: what it answers is written down per implementation."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import kernellab
from kernellab._triton.kernel import jit_function
from kernellab.benchmark.result import Benchmark, Progress
from kernellab.benchmark.runner import BenchmarkContext, run_benchmark
from kernellab.benchmark.spec import BenchmarkSpec, peers_by_name, swept_values
from kernellab.timing.launches import Implementation
from kernellab.timing.stopwatch import DeviceState
from kernellab.timing.timer import Clocks
from tests.benchmark.frames import CEILINGS, PROVENANCE

Time = float | BaseException


@dataclass(slots=True)
class FakeTimer:
    """Times implementations as ``time_of`` says, with noise; an exception in place of a time is raised.

    ``wrong`` names those whose outputs differ, ``here`` says of kernels why they are timed in the notebook's process.
    What is asked is written to ``log``.
    """

    arguments: Mapping[str, Any]
    time_of: Callable[[Implementation, Mapping[str, Any]], Time]
    wrong: frozenset[str]
    log: list[tuple[str, tuple[str, ...]]]
    rng: random.Random = field(default_factory=lambda: random.Random(5))
    state: DeviceState = field(default_factory=lambda: DeviceState(1980, 41))
    notes: tuple[str, ...] = ()
    here: Mapping[str, str] = field(default_factory=dict)
    entry: Clocks | None = None

    def try_out(self, implementation: Implementation) -> str:
        self.log.append(("try", (implementation.name,)))
        answer = self.time_of(implementation, self.arguments)
        if isinstance(answer, BaseException):
            raise answer
        return "out_ptr differs" if implementation.name in self.wrong else ""

    def interleave(self, implementations: Sequence[Implementation], rounds: int) -> list[tuple[float, ...]]:
        self.log.append(("time", tuple(each.name for each in implementations)))
        return [tuple(self._time(each) for _ in range(rounds)) for each in implementations]

    def load_in_worker(self, implementation: Implementation) -> None:
        pass

    def why_here(self, implementation: Implementation) -> str:
        return self.here.get(implementation.name, "")

    def clocks(self) -> Clocks | None:
        return self.entry

    def close(self) -> None:
        self.log.append(("close", ()))

    def _time(self, implementation: Implementation) -> float:
        answer = self.time_of(implementation, self.arguments)
        if isinstance(answer, BaseException):
            raise answer
        return answer * (1 + abs(self.rng.gauss(0, 0.01)))


@dataclass(slots=True)
class FakeGpu:
    """A lab whose benchmarks happen in fake timers. ``log`` is what all of them were asked."""

    lab: kernellab.Lab
    time_of: Callable[[Implementation, Mapping[str, Any]], Time]
    wrong: frozenset[str] = frozenset()
    best: Callable[[Any], Any] = lambda launches: None
    log: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    progress: Progress | None = None
    here: Mapping[str, str] = field(default_factory=dict)
    entry: Clocks | None = None

    def bench(self, kernel: Any, grid: Any, *, given: Mapping[str, Any] | None = None, **asked: Any) -> Benchmark:
        bound = self.lab.bind(kernel)
        names = tuple(bound.arg_names)
        over = swept_values(asked.pop("over"), names, asked.get("inputs"))
        versus = peers_by_name(asked.pop("versus", None))
        spec = BenchmarkSpec(bound, grid, given or {}, over, versus=versus, **asked)
        return run_benchmark(self._environment(bound), spec, names)

    def _environment(self, kernel: Any) -> BenchmarkContext:
        kernels = self.lab.kernels
        version = kernels.known_version(kernel) or kernels.add(kernel)
        return BenchmarkContext(
            compiler=self.lab.compiler,
            target=self.lab.target,
            kernel_of=self._kernel_of,
            best=self.best,
            make_timer=lambda arguments, implementations: FakeTimer(
                arguments, self.time_of, self.wrong, self.log, here=self.here, entry=self.entry
            ),
            provenance=PROVENANCE,
            ceilings=CEILINGS,
            history=kernels.store.history,
            version_id=version.id,
            progress=self.progress,
        )

    def _kernel_of(self, given: Any) -> tuple[str, Any]:
        kernel = self.lab.kernels[given] if isinstance(given, str | int) else self.lab.bind(given)
        return (given if isinstance(given, str) else jit_function(kernel).__name__), kernel
