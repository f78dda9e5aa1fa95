"""Benches in the GPU worker, where a kernel that faults or hangs fails alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from statistics import median
from uuid import uuid4

from kernellab.checking.comparison import OutputDifference
from kernellab.checking.reference import Reference
from kernellab.errors import (
    KernellabError,
    LaunchError,
    UsageError,
    WorkerDied,
    WorkerError,
    WorkerTimeout,
    first_line,
    plural,
)
from kernellab.gpu.ipc import IpcExport
from kernellab.launch.arguments import CannotExport
from kernellab.launch.run import Trials
from kernellab.timing import bench_worker
from kernellab.timing.bench_jobs import (
    IN_WORKER,
    BenchKernel,
    BenchTiming,
    CompareJob,
    MeasureJob,
    Readiness,
    RoundsJob,
    Setup,
    pickle_hooks,
)
from kernellab.timing.bench_setup import (
    CommonMemory,
    LocalBench,
    bench_kernel,
    needs_torch,
    record_timing,
    require_followed,
)
from kernellab.timing.config import NO_CONFIG
from kernellab.timing.launches import (
    Bench,
    BenchOptions,
    Implementation,
    KernelLaunch,
    Launches,
    LaunchTimes,
    measure_singly,
    on_device,
    require_good,
)
from kernellab.workers.forks_and_interrupts import in_background
from kernellab.workers.worker import Answer, Handler, Job, Request, Worker

_START_S = 120.0


def gpu_bench(options: BenchOptions, trials: Trials | None) -> Bench:
    """Return a bench in the worker of a device.

    Launches with hooks that cannot be pickled are timed in this process; all launches are, while trial launches are
    off.
    """
    if trials is None or not trials.enabled:
        return LocalBench(options)
    return WorkerBench(options, trials, instead=LocalBench)


def bench_of(launches: Launches, trials: Trials | None, timeout_s: float, device: int | None = None) -> Bench:
    """Return the bench for the configs of one kernel; with ``device``, a GPU's number, on copies there."""
    from kernellab._triton.kernel import autotune_settings

    reference = launches.reference
    if device is not None and reference is not None:  # its values will lie there
        reference = Reference(reference.text, reference.values, reference.identity)
    options = BenchOptions(
        name=launches.name,
        timeout_s=timeout_s,
        manner=launches.manner,
        dtypes=launches.dtypes,
        reference=reference,
        reset=frozenset(autotune_settings(launches.kernel).reset_to_zero),
        outputs=launches.outputs,
        has_hooks=launches.has_hooks,
        device=device,
        placed=None if device is None else _LaunchesOnDevice(launches, device).launch_of,
        notes=launches.notes,
    )
    return gpu_bench(options, trials)


@dataclass(slots=True)
class _LaunchesOnDevice:
    """Launches on copies of their arguments on another device, copied on first use."""

    launches: Launches
    device: int
    _copies: Launches | None = None

    def launch_of(self, implementation: Implementation) -> KernelLaunch:
        """Return the launch of a config on the copies.

        Raises:
            UsageError: there is no room for the copies.
        """
        if self._copies is None:
            try:
                self._copies = on_device(self.launches, self.device)
            except RuntimeError as exc:  # of torch
                text = f"The bench of a GPU cannot be set up: {first_line(exc)}"
                raise UsageError(f"{text}; free memory there, or leave it out of devices.") from exc
        return self._copies.of(implementation.config)


@dataclass(slots=True)
class WorkerBench:
    """Times launches in the GPU worker, on copies of the arguments; the notebook's memory is only read.

    ``instead`` makes the bench to fall back to, where the worker cannot reach the memory or hooks of a launch; without
    it, that raises `CannotExport`. If torch turns out to be needed, the worker with torch takes over; with ``stays``,
    the current worker imports torch.
    """

    options: BenchOptions
    trials: Trials
    instead: Callable[[BenchOptions], Bench] | None = None
    stays: bool = False
    _fallback: Bench | None = None
    _setup: Setup | None = None
    _export: IpcExport | None = None
    _values: IpcExport | None = None
    _common: CommonMemory = field(default_factory=CommonMemory)
    _founders: list[Implementation] = field(default_factory=list)
    _setup_needs_torch: bool = False

    def get_ready(self) -> None:
        """Load the needs of a measurement into the worker, in the background."""
        device = self._device
        worker = self._worker(device)

        def run() -> None:
            with suppress(KernellabError, OSError):  # the first measurement will raise it; a lab may close meanwhile
                self.trials.wait_ready(device, with_torch=self._uses_torch_worker)
                worker.prepare(self._readiness_job(device), _START_S)

        in_background(run, name="kernellab-bench")

    def measure(self, implementation: Implementation, runs: int, stop_above_ms: float | None) -> LaunchTimes:
        """Launch once to compare the outputs, then time; see `Bench.measure`.

        Raises:
            CannotExport: the worker cannot reach memory or hooks of the launch, and there is no other bench.
        """
        if self._fallback is not None:
            return self._fallback.measure(implementation, runs, stop_above_ms)
        try:
            timing, kernel = self._answers([implementation], runs, stop_above_ms)[0]
            self._require_reached(timing)
        except CannotExport as exc:
            self._fall_back(str(exc))
            return self.measure(implementation, runs, stop_above_ms)
        return self._launch_times(timing, kernel, implementation)

    def measure_all(
        self, implementations: Sequence[Implementation], runs: int, stop_above_ms: float | None, loser_factor: float
    ) -> list[LaunchTimes | KernellabError]:
        """Measure all in one request, and singly those without an answer. See `Bench.measure_all`."""
        results: list[LaunchTimes | KernellabError] = []
        try:
            is_here = self._fallback is not None
            answers = [] if is_here else self._answers(implementations, runs, stop_above_ms, loser_factor)
        except (CannotExport, WorkerTimeout, WorkerDied):  # measured singly, the one at fault raises it
            answers = []
        for implementation, (timing, kernel) in zip(implementations, answers, strict=False):
            if timing.bad_hook or timing.no_room:
                break
            try:
                results.append(self._launch_times(timing, kernel, implementation))
            except KernellabError as exc:
                results.append(exc)
        return results + measure_singly(self, implementations[len(results) :], runs, stop_above_ms)

    def _answers(
        self,
        implementations: Sequence[Implementation],
        runs: int,
        stop_above_ms: float | None,
        loser_factor: float = inf,
    ) -> list[tuple[BenchTiming, BenchKernel]]:
        """Return the worker's answers; a failure that spoils the bench ends them early.

        Raises:
            CannotExport: the worker cannot reach memory or hooks of a launch.
        """
        setup, kernels = self._setup_and_kernels(implementations)
        references, manner = tuple(map(self._kernel, self._founders)), self.options.manner
        job = MeasureJob(setup, tuple(kernels), runs, stop_above_ms, references, manner, loser_factor)
        subject = f"{self.options.name} ({plural(len(kernels), 'config')})"
        if len(implementations) == 1:
            subject = implementations[0].name
        timings = self._run_job(bench_worker.measure, job, subject, self.options.timeout_s * len(kernels))
        return list(zip(timings, kernels, strict=False))

    def _setup_and_kernels(self, implementations: Sequence[Implementation]) -> tuple[Setup, list[BenchKernel]]:
        """Return the setup and some launches as data.

        Raises:
            CannotExport: the worker cannot reach the memory or hooks of a launch.
        """
        for implementation in implementations:
            self._take(implementation)
            require_followed(implementation.kernel.effects)
        return self._current_setup(), [self._kernel(each) for each in implementations]

    def _require_reached(self, timing: BenchTiming) -> None:
        """Raise where the worker lacks something that this process has.

        Raises:
            CannotExport: a hook cannot be called there, or copies do not fit.
        """
        if timing.bad_hook:
            raise CannotExport(f"a hook cannot be called in the GPU worker ({timing.bad_hook})")
        if timing.no_room and self.instead is None:
            raise CannotExport(timing.no_room)

    def _launch_times(self, timing: BenchTiming, kernel: BenchKernel, implementation: Implementation) -> LaunchTimes:
        """Convert a timing to its result; raise as `require_good` does."""
        if kernel.hooks:
            self.options.notes.append(IN_WORKER)
        self._require_good(timing, implementation)
        launch = self.options.launch_of(implementation)
        if not launch.has_hooks:  # a hook may have changed the values that the launch loads
            self.trials.record_passed_launch(kernel.digest, self._device, launch.arguments, launch.grid)
        return record_timing(timing, implementation, self.options, self._founders)

    def compare(
        self, implementation: Implementation, others: Sequence[Implementation]
    ) -> list[tuple[OutputDifference, ...]]:
        """Compare the outputs of others with those of one; see `Bench.compare`.

        Raises:
            CannotExport: the worker cannot reach memory or hooks of a launch, and there is no other bench.
        """
        if self._fallback is not None:
            return self._fallback.compare(implementation, others)
        try:
            setup, (kernel, *rest) = self._setup_and_kernels([implementation, *others])
            job, count = CompareJob(setup, kernel, tuple(rest)), 1 + len(others)
            subject = f"{self.options.name} (the outputs of {count} configs)"
            timings = self._run_job(bench_worker.compare, job, subject, self.options.timeout_s * count)
            self._require_reached(timings[-1])
        except CannotExport as exc:
            self._fall_back(str(exc))
            return self.compare(implementation, others)
        self._require_good(timings[-1], others[len(timings) - 1])
        return [timing.differing for timing in timings]

    def _fall_back(self, why: str) -> None:
        """Continue in the notebook's process, if the device is current there.

        Raises:
            CannotExport: there is no other bench.
            LaunchError: the device is another one.
        """
        import torch

        if self.instead is None:
            raise CannotExport(why)
        if self._device != torch.cuda.current_device():
            raise LaunchError(f"{self.options.name} cannot be timed on device {self._device}: {why}.")
        self._release()
        self.options.notes.append(f"timed in the notebook's own process: {why}")
        self._fallback = self.instead(self.options)

    @property
    def _device(self) -> int:
        import torch

        return torch.cuda.current_device() if self.options.device is None else self.options.device

    def _readiness_job(self, device: int) -> Job[Readiness, None]:
        readiness = Readiness(device, self.options.dtypes, self._needs_torch)
        return Job(bench_worker.get_ready, readiness, "Getting the bench ready")

    @property
    def _needs_torch(self) -> bool:
        return self.options.needs_torch or self._setup_needs_torch

    @property
    def _uses_torch_worker(self) -> bool:
        return self.options.needs_torch or (self._setup_needs_torch and not self.stays)

    def _worker(self, device: int) -> Worker:
        return self.trials.worker(device, with_torch=self._uses_torch_worker)

    def interleave(self, implementations: Sequence[Implementation], rounds: int) -> list[tuple[float, ...]]:
        """Return the times of each in turns; see `Bench.interleave`."""
        if self._fallback is not None:
            return self._fallback.interleave(implementations, rounds)
        return self._rounds(implementations, rounds, warm=False)

    def warm(self, implementations: Sequence[Implementation], runs: int) -> list[float]:
        """Return the median times with a warm L2; see `Bench.warm`."""
        if self._fallback is not None:
            return self._fallback.warm(implementations, runs)
        return [median(times) for times in self._rounds(implementations, runs, warm=True)]

    def close(self) -> None:
        """Let the worker free its copies."""
        if self._fallback is not None:
            self._fallback.close()
        self._release()

    def _release(self) -> None:
        """Let the worker free its copies; the next launch sets the bench up again."""
        if self._setup is None:
            return
        device, job = self._setup.device, Job(bench_worker.close, None, "Closing the bench")
        worker = self._worker(device)
        if worker.pid is None:  # an interrupt ended it with its job, so it holds no memory; start the next one in time
            self.trials.start(device, with_torch=self._uses_torch_worker)
        else:
            with suppress(WorkerError):
                worker.run(job, _START_S)
        for exported in (self._export, self._values):
            if exported is not None:
                exported.unshare()
        self._setup = self._export = self._values = None

    def _rounds(self, implementations: Sequence[Implementation], rounds: int, *, warm: bool) -> list[tuple[float, ...]]:
        for implementation in implementations:
            self._take(implementation)
        setup, by_graph = self._current_setup(), self.options.manner.by_graph
        job = RoundsJob(setup, tuple(map(self._kernel, implementations)), rounds, warm, by_graph)
        subject = f"{self.options.name} (the final of {len(implementations)} configs)"
        if any(implementation.config == NO_CONFIG for implementation in implementations):
            subject = " and ".join(implementation.name for implementation in implementations)
        timings = self._run_job(bench_worker.rounds, job, subject, self.options.timeout_s * len(implementations))
        for timing in timings:
            self._require_good(timing, implementations[0])
            self.options.notes.extend([timing.note] if timing.note else [])
        return [timing.times_ms for timing in timings]

    def _run_job(self, handler: Handler[Request, Answer], payload: Request, subject: str, timeout_s: float) -> Answer:
        assert self._setup is not None
        device = self._setup.device
        try:
            return self._worker(device).run(Job(handler, payload, subject), timeout_s)
        except (WorkerTimeout, WorkerDied):
            self._lose_worker(device)
            raise

    def _require_good(self, timing: BenchTiming, implementation: Implementation) -> None:
        if timing.fault:
            assert self._setup is not None
            device = self._setup.device
            self._worker(device).close()
            self._lose_worker(device)
        names = {} if self._export is None else self._export.names
        if timing.damages:
            self._release()
        require_good(timing, implementation, names)

    def _lose_worker(self, device: int) -> None:
        """Forget the setup of a lost worker: the next process maps the memory under new handles."""
        self._setup = self._export = self._values = None
        self._await_worker(device)

    def _await_worker(self, device: int) -> None:
        """Wait until the worker has its CUDA context, so that no launch's timeout covers its creation.

        Raises:
            WorkerError: it does not start; no launch is to blame.
        """
        worker = self._worker(device)
        try:
            self.trials.wait_ready(device, with_torch=self._uses_torch_worker)
            worker.prepare(self._readiness_job(device), _START_S)
        except (WorkerTimeout, WorkerDied) as exc:
            raise WorkerError(exc.message, detail=exc.detail) from exc

    def _current_setup(self) -> Setup:
        if self._setup is None:
            self._setup = self._new_setup()
        return self._setup

    def _new_setup(self) -> Setup:
        import torch

        device = self._device
        self._await_worker(device)
        exported = IpcExport(device, self._common.mutated, behind=self._common.behind)
        values = IpcExport(device, frozenset())
        setup = self._common.setup(uuid4().hex, self.options, exported, values)
        if not self._needs_torch and needs_torch(setup):  # so that no launch's timeout covers its import
            self._setup_needs_torch = True
            self._await_worker(device)
        torch.cuda.synchronize(device)
        self._export, self._values = (
            exported,
            values,
        )  # they keep shared memory alive until the worker unmaps it
        return setup

    def _kernel(self, implementation: Implementation) -> BenchKernel:
        launch = self.options.launch_of(implementation)
        specs = self._common.specs(launch, self._device)
        return bench_kernel(implementation.kernel, launch, specs, pickle_hooks(launch))

    def _take(self, implementation: Implementation) -> None:
        """Add the memory of a launch to that of the bench."""
        if self._common.take(implementation, self.options.launch_of(implementation), self._device):
            self._release()
