"""The bench in this process: for hooks, and for memory, that the GPU worker cannot reach.

A kernel that faults here costs the session, and one that hangs cannot be stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from kernellab.errors import KernellabError
from kernellab.gpu.ipc import IpcExport
from kernellab.measure.bench_jobs import (
    BenchKernel,
    BenchTiming,
    CompareJob,
    MeasureJob,
    RoundsJob,
    bound_hooks,
    hook_calls,
)
from kernellab.measure.bench_memory import TooLarge, copied, in_place
from kernellab.measure.bench_setup import CommonMemory, bench_kernel, bytes_of
from kernellab.measure.bench_worker import Workbench
from kernellab.measure.comparison import OutputDifference
from kernellab.measure.launches import BenchOptions, Implementation, Measured, measured_singly, require_good


@dataclass(slots=True)
class LocalBench:
    """Times launches in this process, on copies of the arguments where they fit."""

    options: BenchOptions
    _bench: Workbench | None = None
    _names: Mapping[int, Sequence[str]] = field(default_factory=dict)
    _common: CommonMemory = field(default_factory=CommonMemory)
    _founders: list[Implementation] = field(default_factory=list)

    def get_ready(self) -> None:
        """Load nothing: the notebook's process has what it needs."""

    def measure(self, implementation: Implementation, runs: int, stop_above_ms: float | None) -> Measured:
        """Launch once to compare the outputs, then time; see `Bench.measure`."""
        bench = self._ready([implementation])
        references = tuple(map(self._kernel, self._founders))
        kernel = self._kernel(implementation)
        job = MeasureJob(bench.memory.setup, kernel, runs, stop_above_ms, references, self.options.manner)
        timing = bench.measure(job)
        if timing.damages:
            self.close()
        require_good(timing, implementation, self._names)
        return entered(timing, implementation, self.options, self._founders)

    def measure_all(
        self, implementations: Sequence[Implementation], runs: int, stop_above_ms: float | None, loser_factor: float
    ) -> list[Measured | KernellabError]:
        """Measure one after the other; see `Bench.measure_all`."""
        return measured_singly(self, implementations, runs, stop_above_ms)

    def compare(
        self, implementation: Implementation, others: Sequence[Implementation]
    ) -> list[tuple[OutputDifference, ...]]:
        """Return how the outputs of others differ from those of one; see `Bench.compare`."""
        bench = self._ready([implementation, *others])
        job = CompareJob(bench.memory.setup, self._kernel(implementation), tuple(map(self._kernel, others)))
        timings = bench.compare(job)
        if timings[-1].damages:
            self.close()
        require_good(timings[-1], others[len(timings) - 1], self._names)
        return [timing.differing for timing in timings]

    def interleave(self, implementations: Sequence[Implementation], rounds: int) -> list[tuple[float, ...]]:
        """Return the times of each in turns; see `Bench.interleave`."""
        return self._rounds(implementations, rounds, warm=False)

    def warm(self, implementations: Sequence[Implementation], runs: int) -> list[float]:
        """Return the median times with a warm L2; see `Bench.warm`."""
        return [median(times) for times in self._rounds(implementations, runs, warm=True)]

    def close(self) -> None:
        """Give the copies back, and leave the user's own memory as it was found."""
        if self._bench is not None:
            self._bench.memory.give_back()
            self._bench = None

    def _rounds(self, implementations: Sequence[Implementation], rounds: int, *, warm: bool) -> list[tuple[float, ...]]:
        bench = self._ready(implementations)
        kernels, by_graph = tuple(map(self._kernel, implementations)), self.options.manner.by_graph
        timings = bench.rounds(RoundsJob(bench.memory.setup, kernels, rounds, warm, by_graph))
        for timing in timings:
            require_good(timing, implementations[0])
            self.options.notes.extend([timing.note] if timing.note else [])
        return [timing.times_ms for timing in timings]

    def _ready(self, implementations: Sequence[Implementation]) -> Workbench:
        import torch

        device = torch.cuda.current_device()
        launches = map(self.options.launch_of, implementations)
        found = [self._common.take(*pair, device) for pair in zip(implementations, launches, strict=True)]
        if any(found):
            self.close()
        if self._bench is None:
            self._bench = self._made(device)
        return self._bench

    def _made(self, device: int) -> Workbench:
        exported = IpcExport(device, self._common.mutated, behind=self._common.behind)
        values = IpcExport(device, frozenset())
        setup = self._common.setup("local", self.options, exported, values, stays=True)
        self._names = exported.names
        originals = [bytes_of(storage) for storage in exported.storages]
        try:
            memory = copied(setup, originals, keeps_originals=True)
        except TooLarge:
            self.options.notes.append("timed on the notebook's own memory: there was no room for copies")
            memory = in_place(setup, originals)
        return Workbench(memory, [bytes_of(storage) for storage in values.storages])

    def _kernel(self, implementation: Implementation) -> BenchKernel:
        import torch

        launch = self.options.launch_of(implementation)
        specs = self._common.specs(launch, torch.cuda.current_device())
        kernel = bench_kernel(implementation.kernel, launch, specs)
        if launch.has_hooks and self._bench is not None:
            self._bench.hooks[kernel.key] = bound_hooks(hook_calls(launch), specs, self._bench.memory.tensors)
        return kernel


def entered(
    timing: BenchTiming, implementation: Implementation, options: BenchOptions, founders: list[Implementation]
) -> Measured:
    """Return what was measured; the first launch of each group of outputs is kept among its founders."""
    if timing.group == len(founders):
        founders.append(implementation)
    if timing.note:
        options.notes.append(timing.note)
    return Measured(timing.times_ms, timing.group, timing.difference)
