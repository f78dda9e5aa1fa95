"""One bench over two transports: the GPU worker, where a kernel that faults or hangs fails alone, and this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import inf
from statistics import median

from kernellab.checking.comparison import OutputDifference
from kernellab.checking.reference import Reference
from kernellab.errors import KernellabError, LaunchError, UsageError, WorkerDied, WorkerTimeout, first_line, plural
from kernellab.gpu.ipc import IpcExport
from kernellab.launch.arguments import CannotExport
from kernellab.launch.bound_launch import Trials
from kernellab.timing.bench import Bench, BenchOptions, measure_singly, require_good
from kernellab.timing.bench_jobs import BenchJob, BenchKernel, CompareJob, LaunchTimes, MeasureJob, RoundsJob, Setup
from kernellab.timing.bench_setup import CommonMemory, bench_kernel
from kernellab.timing.config import NO_CONFIG
from kernellab.timing.launches import Implementation, KernelLaunch, Launches, on_device
from kernellab.timing.transports import LocalTransport, Transport, WorkerTransport


def gpu_bench(options: BenchOptions, trials: Trials | None) -> Bench:
    """Return a bench in the worker of a device.

    Launches with hooks that cannot be pickled are timed in this process; all launches are, while trial launches are
    off.
    """
    here = LocalTransport(options)
    if trials is None or not trials.enabled:
        return GpuBench(options, here)
    return GpuBench(options, WorkerTransport(options, trials), instead=here)


def worker_bench(options: BenchOptions, trials: Trials, *, stays: bool = False) -> Bench:
    """Return a bench that raises `CannotExport` where the worker cannot reach memory or hooks of a launch.

    If torch turns out to be needed, the worker with torch takes over; with ``stays``, the current one imports torch.
    """
    return GpuBench(options, WorkerTransport(options, trials, stays))


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
        placed=None if device is None else _launches_on(launches, device),
        notes=launches.notes,
    )
    return gpu_bench(options, trials)


def _launches_on(launches: Launches, device: int) -> Callable[[Implementation], KernelLaunch]:
    """Return a function for launches on copies, made on first use; it raises `UsageError` without room for these."""

    @cache
    def copies() -> Launches:
        try:
            return on_device(launches, device)
        except RuntimeError as exc:  # of torch
            text = f"The bench of a GPU cannot be set up: {first_line(exc)}"
            raise UsageError(f"{text}; free memory there, or leave it out of devices.") from exc

    return lambda implementation: copies().of(implementation.config)


@dataclass(slots=True)
class GpuBench:
    """Times launches of kernels in the process of a transport; see `Bench`.

    ``instead`` takes over where that process cannot reach memory or hooks of a launch; without it, that raises
    `CannotExport`.
    """

    options: BenchOptions
    transport: Transport
    instead: Transport | None = None
    _setup: Setup | None = None
    _exports: tuple[IpcExport, ...] = ()
    _common: CommonMemory = field(default_factory=CommonMemory)
    _founders: list[Implementation] = field(default_factory=list)  # the first launches of the groups of outputs

    def get_ready(self) -> None:
        """Load the needs of a measurement in the background."""
        self.transport.get_ready()

    def measure(self, implementation: Implementation, runs: int, stop_above_ms: float | None) -> LaunchTimes:
        """Launch once to compare the outputs, then time; see `Bench.measure`.

        Raises:
            CannotExport: the process cannot reach memory or hooks of the launch, and no other takes over.
        """
        try:
            answer, kernel = self._answers([implementation], runs, stop_above_ms)[0]
            self._require_reached(answer)
        except CannotExport as exc:
            self._fall_back(exc)
            return self.measure(implementation, runs, stop_above_ms)
        return self._good_times(answer, kernel, implementation)

    def measure_all(
        self, implementations: Sequence[Implementation], runs: int, stop_above_ms: float | None, loser_factor: float
    ) -> list[LaunchTimes | KernellabError]:
        """Measure all in one job, and singly those without an answer. See `Bench.measure_all`."""
        results: list[LaunchTimes | KernellabError] = []
        try:
            answers = self._answers(implementations, runs, stop_above_ms, loser_factor)
        except (CannotExport, WorkerTimeout, WorkerDied):  # measured singly, the one at fault raises it
            answers = []
        for implementation, (answer, kernel) in zip(implementations, answers, strict=False):
            if answer.bad_hook or answer.no_room:
                break
            try:
                results.append(self._good_times(answer, kernel, implementation))
            except KernellabError as exc:
                results.append(exc)
        return results + measure_singly(self, implementations[len(results) :], runs, stop_above_ms)

    def compare(
        self, implementation: Implementation, others: Sequence[Implementation]
    ) -> list[tuple[OutputDifference, ...]]:
        """Compare the outputs of others with those of one; see `Bench.compare`.

        Raises:
            CannotExport: the process cannot reach memory or hooks of a launch, and no other takes over.
        """
        try:
            self._require_followed([implementation, *others])
            setup, (kernel, *rest) = self._setup_and_kernels([implementation, *others])
            count = 1 + len(others)
            subject = f"{self.options.name} (the outputs of {count} configs)"
            answers = self._run(CompareJob(setup, kernel, tuple(rest)), subject, count)
            self._require_reached(answers[-1])
        except CannotExport as exc:
            self._fall_back(exc)
            return self.compare(implementation, others)
        self._require_good(answers[-1], others[len(answers) - 1])
        return [answer.differing for answer in answers]

    def interleave(self, implementations: Sequence[Implementation], rounds: int) -> list[tuple[float, ...]]:
        """Return the times of each in turns; see `Bench.interleave`."""
        return self._rounds(implementations, rounds, warm=False)

    def warm(self, implementations: Sequence[Implementation], runs: int) -> list[float]:
        """Return the median times with a warm L2; see `Bench.warm`."""
        return [median(times) for times in self._rounds(implementations, runs, warm=True)]

    def close(self) -> None:
        """Free the copies; the next launch sets the bench up again."""
        if self._setup is None:
            return
        self.transport.release()
        for exported in self._exports:
            exported.unshare()
        self._forget()

    def _answers(
        self,
        implementations: Sequence[Implementation],
        runs: int,
        stop_above_ms: float | None,
        loser_factor: float = inf,
    ) -> list[tuple[LaunchTimes, BenchKernel]]:
        """Return the answers, up to a failure that spoils the bench; `CannotExport` if something is out of reach."""
        self._require_followed(implementations)
        setup, kernels = self._setup_and_kernels(implementations)
        references, manner = tuple(map(self._kernel, self._founders)), self.options.manner
        job = MeasureJob(setup, tuple(kernels), runs, stop_above_ms, references, manner, loser_factor)
        subject = f"{self.options.name} ({plural(len(kernels), 'config')})"
        if len(implementations) == 1:
            subject = implementations[0].name
        return list(zip(self._run(job, subject, len(kernels)), kernels, strict=False))

    def _rounds(self, implementations: Sequence[Implementation], rounds: int, *, warm: bool) -> list[tuple[float, ...]]:
        setup, kernels = self._setup_and_kernels(implementations)
        job = RoundsJob(setup, tuple(kernels), rounds, warm, self.options.manner.by_graph)
        subject = f"{self.options.name} (the final of {len(implementations)} configs)"
        if any(implementation.config == NO_CONFIG for implementation in implementations):
            subject = " and ".join(implementation.name for implementation in implementations)
        answers = self._run(job, subject, len(implementations))
        for answer in answers:
            self._require_good(answer, implementations[0])
            self.options.notes.extend([answer.note] if answer.note else [])
        return [answer.times_ms for answer in answers]

    def _setup_and_kernels(self, implementations: Sequence[Implementation]) -> tuple[Setup, list[BenchKernel]]:
        """Return the setup, with the memory of all launches so far, and some launches as data; or `CannotExport`."""
        for implementation in implementations:
            if self._common.take(implementation, self.options.launch_of(implementation), self.transport.device):
                self.close()
        if self._setup is None:
            self._open_setup()
        assert self._setup is not None
        return self._setup, [self._kernel(implementation) for implementation in implementations]

    def _require_followed(self, implementations: Sequence[Implementation]) -> None:
        """Raise `CannotExport` where what a launch writes cannot be brought back from another process."""
        for effects in (implementation.kernel.effects for implementation in implementations):
            if effects.lost is not None and not self.transport.is_here:
                raise CannotExport(f"{effects.lost}; what the launches changed there was not brought back")

    def _open_setup(self) -> None:
        device, common = self.transport.device, self._common
        self.transport.start()
        exported = IpcExport(device, common.mutated, behind=common.behind)
        values = IpcExport(device, frozenset())
        setup = common.setup(self.options, exported, values, is_here=self.transport.is_here)
        self.transport.open(setup, exported, values)
        self._setup, self._exports = setup, (exported, values)  # shared memory lives until it is unmapped

    def _kernel(self, implementation: Implementation) -> BenchKernel:
        launch = self.options.launch_of(implementation)
        specs = self._common.specs(launch, self.transport.device)
        hooks = self.transport.hooks(launch) if launch.has_hooks else None
        return bench_kernel(implementation.kernel, launch, specs, hooks)

    def _run(self, job: BenchJob, subject: str, launches: int) -> list[LaunchTimes]:
        try:
            return self.transport.run(job, subject, self.options.timeout_s * launches)
        except (WorkerTimeout, WorkerDied):
            self._forget()
            self.transport.start()
            raise

    def _require_reached(self, answer: LaunchTimes) -> None:
        """Raise `CannotExport` where the other process cannot call a hook, or has no room for copies."""
        if answer.bad_hook:
            raise CannotExport(f"a hook cannot be called in the GPU worker ({answer.bad_hook})")
        if answer.no_room and self.instead is None and not self.transport.is_here:
            raise CannotExport(answer.no_room)

    def _good_times(self, answer: LaunchTimes, kernel: BenchKernel, implementation: Implementation) -> LaunchTimes:
        """Record the times of a good launch; raise as `require_good` does."""
        self._require_good(answer, implementation)
        self.transport.record_good(kernel, self.options.launch_of(implementation))
        if answer.group == len(self._founders):
            self._founders.append(implementation)
        if answer.note:
            self.options.notes.append(answer.note)
        return answer

    def _require_good(self, answer: LaunchTimes, implementation: Implementation) -> None:
        names: Mapping[int, Sequence[str]] = self._exports[0].names if self._exports else {}
        if answer.fault:
            self._forget()
            self.transport.replace()
        if answer.damages:
            self.close()
        require_good(answer, implementation, names)

    def _forget(self) -> None:
        """Forget the setup: another process maps the memory under new handles."""
        self._setup, self._exports = None, ()

    def _fall_back(self, exc: CannotExport) -> None:
        """Continue with the other transport, if the device is current there.

        Raises:
            CannotExport: there is no other one.
            LaunchError: the device is another one.
        """
        if self.instead is None:
            raise exc
        if self.transport.device != self.instead.device:
            raise LaunchError(f"{self.options.name} cannot be timed on device {self.transport.device}: {exc}.")
        self.close()
        self.options.notes.append(f"timed in the notebook's own process: {exc}")
        self.transport, self.instead = self.instead, None
