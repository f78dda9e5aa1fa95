"""The bench in the notebook's own process: for configs with hooks, and where the worker cannot reach the memory.

A kernel that faults here costs the session, and one that hangs cannot be stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from kernellab.gpu.ipc import Boarding
from kernellab.gpu.trial_job import Memory
from kernellab.launch.reached import reached
from kernellab.measure.bench import Candidate, Measured
from kernellab.measure.bench_jobs import BenchKernel, MeasureJob, RoundsJob, Setup
from kernellab.measure.bench_kernels import bench_kernel, expected_of, require_good, touched, views_of
from kernellab.measure.bench_memory import TooLarge, copied, in_place
from kernellab.measure.bench_worker import Workbench
from kernellab.measure.hooks import bound_hooks, hook_calls
from kernellab.measure.launches import Launches


@dataclass(slots=True)
class LocalBench:
    """Times launches in this process, on copies of the arguments where they fit."""

    launches: Launches
    reset: frozenset[str]
    _bench: Workbench | None = None
    _names: Mapping[int, Sequence[str]] = field(default_factory=dict)
    _founders: list[Candidate] = field(default_factory=list)

    def get_ready(self) -> None:
        pass

    def measure(self, candidate: Candidate, runs: int, stop_above_ms: float | None) -> Measured:
        bench = self._ready(candidate)
        references = tuple(map(self._kernel, self._founders))
        manner = self.launches.manner
        job = MeasureJob(bench.memory.setup, self._kernel(candidate), runs, stop_above_ms, references, manner)
        timing = bench.measure(job)
        if timing.damages:
            self.close()
        require_good(timing, self.launches.name, candidate, self._names)
        if timing.group == len(self._founders):
            self._founders.append(candidate)
        if timing.note:
            self.launches.notes.append(timing.note)
        return Measured(timing.times_ms, timing.group, timing.difference)

    def interleave(self, candidates: Sequence[Candidate], rounds: int) -> list[tuple[float, ...]]:
        return self._rounds(candidates, rounds, warm=False)

    def warm(self, candidates: Sequence[Candidate], runs: int) -> list[float]:
        return [median(times) for times in self._rounds(candidates, runs, warm=True)]

    def close(self) -> None:
        if self._bench is not None:
            self._bench.memory.give_back()
            self._bench = None

    def _rounds(self, candidates: Sequence[Candidate], rounds: int, *, warm: bool) -> list[tuple[float, ...]]:
        bench = self._ready(candidates[0])
        kernels, by_graph = tuple(map(self._kernel, candidates)), self.launches.manner.by_graph
        job = RoundsJob(bench.memory.setup, kernels, rounds, warm, by_graph)
        timings = bench.rounds(job)
        for timing in timings:
            require_good(timing, self.launches.name, candidates[0])
            self.launches.notes += [timing.note] if timing.note else []
        return [timing.times_ms for timing in timings]

    def _ready(self, candidate: Candidate) -> Workbench:
        if self._bench is None:
            self._bench = self._made(candidate)
        return self._bench

    def _made(self, candidate: Candidate) -> Workbench:
        import torch

        launch = self.launches.of(candidate.config)
        behind = reached(launch.arguments, candidate.compiled.effects, "cuda")
        mutated, read = touched(candidate.compiled.effects, behind)
        boarding = Boarding(torch.cuda.current_device(), mutated, behind=behind)
        arguments = {**launch.arguments, **behind.tensors}
        views = dict(pair for name, spec in boarding.specs(arguments) for pair in views_of(name, spec))
        self._names = boarding.names
        originals = [_bytes_of(storage) for storage in boarding.storages]
        tables = {view.storage for view in boarding.tables.views}
        written = {view.storage for name, view in views.items() if name in mutated}
        outputs = {name: view for name, view in views.items() if name in mutated}
        reference, values = self.launches.reference, Boarding(boarding.device, frozenset())
        setup = Setup(
            name="local",
            device=boarding.device,
            memories=tuple(
                Memory(None, original.numel(), original.data_ptr(), index in written, index in tables)
                for index, original in enumerate(originals)
            ),
            read=frozenset(view.storage for name, view in views.items() if name in read),
            outputs=tuple(outputs.values()),
            zeroed=tuple(view for name, view in views.items() if name in self.reset),
            expected=() if reference is None else expected_of(reference, arguments, outputs, values),
            tables=boarding.tables,
        )
        try:
            memory = copied(setup, originals, keeps_originals=True)
        except TooLarge:
            self.launches.notes.append("timed on the notebook's own memory: there was no room for copies")
            memory = in_place(setup, originals)
        return Workbench(memory, [_bytes_of(storage) for storage in values.storages])

    def _kernel(self, candidate: Candidate) -> BenchKernel:
        import torch

        launch = self.launches.of(candidate.config)
        specs = Boarding(torch.cuda.current_device(), None).specs(launch.arguments)
        kernel = bench_kernel(candidate, launch, specs)
        if launch.has_hooks and self._bench is not None:
            self._bench.hooks[kernel.digest] = bound_hooks(hook_calls(launch), specs, self._bench.memory.tensors)
        return kernel


def _bytes_of(storage: Any) -> Any:
    import torch

    if storage is None:
        return torch.empty(0, dtype=torch.uint8, device="cuda")
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
