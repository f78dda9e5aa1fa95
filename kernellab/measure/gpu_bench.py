"""The bench on a GPU: in the GPU worker, where a kernel that faults or hangs costs nothing but its own row."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from kernellab.errors import KernellabError, LaunchError, WorkerDied, WorkerError, WorkerTimeout
from kernellab.gpu.ipc import Boarding, CannotBoard
from kernellab.gpu.trial_job import Memory
from kernellab.launch.reached import NOTHING, Reached, reached
from kernellab.launch.trial import Trials
from kernellab.measure.bench_jobs import BenchKernel, MeasureJob, Readiness, RoundsJob, Setup, Timing
from kernellab.measure.bench_memory import TooLarge, copied, in_place
from kernellab.measure.bench_worker import Workbench
from kernellab.measure.hooks import IN_WORKER, bound_hooks, hook_calls, shipped_hooks
from kernellab.measure.implementations import (
    Bench,
    Candidate,
    Measured,
    bench_kernel,
    expected_of,
    require_followed,
    require_good,
    touched,
    views_of,
)
from kernellab.measure.launches import Launches
from kernellab.workers.worker import Job

_WORKER = "kernellab.measure.bench_worker"
_START_S = 120.0


def gpu_bench(
    launches: Launches, trials: Trials | None, timeout_s: float, reset: frozenset[str], device: int | None = None
) -> Bench:
    """Return the bench for some launches: in the worker of a device, the current one by default.

    ``reset`` names arguments that are set to zero before each launch. What cannot go to the worker is timed in this
    process: hooks that cannot be pickled, and everything while trial launches are switched off.
    """
    if trials is None or not trials.enabled:
        return LocalBench(launches, reset)
    return WorkerBench(launches, trials, timeout_s, reset, device)


@dataclass(slots=True)
class WorkerBench:
    """Times launches in the GPU worker, on copies of the arguments; the notebook's memory is only read."""

    launches: Launches
    trials: Trials
    timeout_s: float
    reset: frozenset[str]
    device: int | None = None
    _local: LocalBench | None = None
    _setup: Setup | None = None
    _boarding: Boarding | None = None
    _values: Boarding | None = None
    _mutated: frozenset[str] = frozenset()
    _read: frozenset[str] = frozenset()
    _behind: Reached = NOTHING
    _founders: list[Candidate] = field(default_factory=list)
    _names: Any = field(default_factory=itertools.count)

    def get_ready(self) -> None:
        job = Job(f"{_WORKER}:get_ready", Readiness(self._device, self.launches.dtypes), "Getting the bench ready")
        worker = self.trials.worker(self._device)

        def run() -> None:
            with suppress(KernellabError, OSError):  # the first measurement will say it; a lab may close meanwhile
                worker.run(job, _START_S)

        threading.Thread(target=run, name="kernellab-bench", daemon=True).start()

    def measure(self, candidate: Candidate, runs: int, stop_above_ms: float | None) -> Measured:
        self._take_effects(candidate)
        if self._local is not None:
            return self._local.measure(candidate, runs, stop_above_ms)
        try:
            require_followed(candidate.compiled.effects)
            setup, kernel = self._ready(candidate), self._kernel(candidate)
            references = tuple(self._kernel(founder) for founder in self._founders)
            job = MeasureJob(setup, kernel, runs, stop_above_ms, references, self.launches.manner)
            timing: Timing = self._asked("measure", job, candidate.config.text, self.timeout_s)
            if timing.bad_hook:
                raise CannotBoard(f"a hook cannot be called in the GPU worker ({timing.bad_hook})")
        except CannotBoard as exc:
            self._stay_here(str(exc))
            return self.measure(candidate, runs, stop_above_ms)
        if kernel.hooks:
            self.launches.notes.append(IN_WORKER)
        self._require_good(timing, candidate)
        if timing.group == len(self._founders):
            self._founders.append(candidate)
        if timing.note:
            self.launches.notes.append(timing.note)
        return Measured(timing.times_ms, timing.group, timing.difference)

    def _stay_here(self, why: str) -> None:
        """Time in the notebook's process from now on, if that is where the device is current."""
        import torch

        if self._device != torch.cuda.current_device():
            raise LaunchError(f"{self.launches.name} cannot be timed on device {self._device}: {why}.")
        self._release()
        self.launches.notes.append(f"timed in the notebook's own process: {why}")
        self._local = LocalBench(self.launches, self.reset)

    @property
    def _device(self) -> int:
        import torch

        return torch.cuda.current_device() if self.device is None else self.device

    def interleave(self, candidates: Sequence[Candidate], rounds: int) -> list[tuple[float, ...]]:
        if self._local is not None:
            return self._local.interleave(candidates, rounds)
        return self._rounds(candidates, rounds, warm=False)

    def warm(self, candidates: Sequence[Candidate], runs: int) -> list[float]:
        if self._local is not None:
            return self._local.warm(candidates, runs)
        return [median(times) for times in self._rounds(candidates, runs, warm=True)]

    def close(self) -> None:
        if self._local is not None:
            self._local.close()
        self._release()

    def _release(self) -> None:
        """Let the worker give its copies back; the next launch sets it up anew."""
        if self._setup is None:
            return
        device, job = self._setup.device, Job(f"{_WORKER}:close", None, "Closing the bench")
        worker = self.trials.worker(device)
        if worker.pid is None:  # an interrupt ended it with its job, so it holds nothing; nobody waits for the next one
            self.trials.start(device)
        else:
            with suppress(WorkerError):
                worker.run(job, _START_S)
        has_shared = self._boarding is not None
        self._setup = self._boarding = self._values = None
        if has_shared:
            import torch

            torch.cuda.ipc_collect()  # type: ignore[no-untyped-call]

    def _rounds(self, candidates: Sequence[Candidate], rounds: int, *, warm: bool) -> list[tuple[float, ...]]:
        for candidate in candidates:
            self._take_effects(candidate)
        setup = self._ready(candidates[0])
        by_graph = self.launches.manner.by_graph
        job = RoundsJob(setup, tuple(map(self._kernel, candidates)), rounds, warm, by_graph)
        subject = f"the final of {len(candidates)} configs"
        timings: list[Timing] = self._asked("rounds", job, subject, self.timeout_s * len(candidates))
        for timing in timings:
            self._require_good(timing, candidates[0])
            self.launches.notes += [timing.note] if timing.note else []
        return [timing.times_ms for timing in timings]

    def _asked(self, handler: str, payload: Any, subject: str, timeout_s: float) -> Any:
        assert self._setup is not None
        device = self._setup.device
        job = Job(f"{_WORKER}:{handler}", payload, f"{self.launches.name} ({subject})")
        try:
            return self.trials.worker(device).run(job, timeout_s)
        except (WorkerTimeout, WorkerDied):
            self._lose_worker(device)
            raise

    def _require_good(self, timing: Timing, candidate: Candidate) -> None:
        if timing.fault:
            assert self._setup is not None
            device = self._setup.device
            self.trials.worker(device).close()
            self._lose_worker(device)
        names = {} if self._boarding is None else self._boarding.names
        if timing.damages:
            self._release()
        require_good(timing, self.launches.name, candidate, names)

    def _lose_worker(self, device: int) -> None:
        """Start anew: the next process maps the memory again, under handles of its own."""
        self._setup = self._boarding = self._values = None
        self._await_worker(device)

    def _await_worker(self, device: int) -> None:
        """Wait until the worker has its CUDA context, so that no config pays for that with its own time.

        Raises:
            WorkerError: it does not start, which says nothing of a config.
        """
        job = Job("kernellab.gpu.worker:warm", device, "Starting the GPU worker")
        try:
            self.trials.worker(device).run(job, _START_S)
        except (WorkerTimeout, WorkerDied) as exc:
            raise WorkerError(exc.message, detail=exc.detail) from exc

    def _ready(self, candidate: Candidate) -> Setup:
        if self._setup is None:
            self._setup = self._made_setup(candidate)
        return self._setup

    def _made_setup(self, candidate: Candidate) -> Setup:
        import torch

        launch = self.launches.of(candidate.config)
        device = self._device
        self._await_worker(device)
        boarding = Boarding(device, self._mutated, behind=self._behind)
        arguments = {**launch.arguments, **self._behind.tensors}
        specs = dict(boarding.specs(arguments))
        views = {name: view for name, spec in specs.items() for name, view in views_of(name, spec)}
        outputs = {name: view for name, view in views.items() if name in self._mutated}
        reference, values = self.launches.reference, Boarding(device, frozenset())
        expected = () if reference is None else expected_of(reference, arguments, outputs, values)
        torch.cuda.synchronize(device)
        self._boarding, self._values = boarding, values  # what they share has to stay until the worker lets go of it
        return Setup(
            name=f"{id(self)}.{next(self._names)}",
            device=device,
            memories=boarding.memories(),
            read=frozenset(view.storage for name, view in views.items() if name in self._read),
            outputs=tuple(outputs.values()),
            zeroed=tuple(view for name, view in views.items() if name in self.reset),
            expected=expected,
            references=values.memories(),
            tables=boarding.tables,
        )

    def _kernel(self, candidate: Candidate) -> BenchKernel:
        launch = self.launches.of(candidate.config)
        boarding = Boarding(self._device, self._mutated)
        return bench_kernel(candidate, launch, boarding.specs(launch.arguments), shipped_hooks(launch))

    def _take_effects(self, candidate: Candidate) -> None:
        """Widen what is known to be read and written by what one more config does."""
        effects = candidate.compiled.effects
        if not effects.through <= self._behind.through:
            arguments = self.launches.of(candidate.config).arguments
            self._behind = self._behind.joined(reached(arguments, effects, "cuda"))
            self._release()
        mutated, read = touched(effects, self._behind)
        if not (mutated <= self._mutated and read <= self._read):
            self._mutated, self._read = self._mutated | mutated, self._read | read
            self._release()


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
