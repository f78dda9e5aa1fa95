"""Timing compiled kernels on the current GPU: in the GPU worker, or in the notebook's process where that is needed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from math import inf
from statistics import median
from typing import Any

from kernellab._triton.drivers import LAUNCH_ERRORS, relauncher, unload_with_handle
from kernellab.checking.comparison import agree
from kernellab.errors import first_line
from kernellab.gpu import driver
from kernellab.gpu.device_view import DeviceView, is_comparable
from kernellab.gpu.driver import DeviceBytes
from kernellab.gpu.ipc import BinaryLaunch, import_memory, tensor_on
from kernellab.gpu.worker import handle_of, scratch_in_use, use_device
from kernellab.launch.arguments import TensorSpec
from kernellab.timing.bench_jobs import (
    NO_GROUP,
    NOT_COMPARED,
    BenchJob,
    BenchKernel,
    CompareJob,
    LaunchKey,
    LaunchTimes,
    Manner,
    MeasureJob,
    Readiness,
    RoundsJob,
    Setup,
)
from kernellab.timing.bench_memory import BenchMemory, TooLarge, copy_memory
from kernellab.timing.hooks import BadHook, HookCalls, unpickle_hooks
from kernellab.timing.stopwatch import Stopwatch, Turn, driver_stopwatch, gpu_stopwatch

_MOST_RUNS = 10_000
_MOST_LAUNCHERS = 64
NO_ROOM = "outputs were not compared: the GPU lacks memory to keep those of one config"
LATE = "some launches reached the GPU late, so their times may hold a wait for the host"

Launcher = Callable[[], None]


def current_stream() -> int:
    """Return the stream that torch launches on."""
    import torch

    return int(torch.cuda.current_stream().cuda_stream)


@dataclass(slots=True)
class Workbench:
    """Launches kernels on one memory and times them.

    ``references`` are the memories of expected values. A CUDA graph holds the launch alone: hooks are called before
    and after its replay.
    """

    memory: BenchMemory
    references: list[Any] = field(default_factory=list)
    watch: Stopwatch = field(default_factory=gpu_stopwatch)
    stream: Callable[[], int] = current_stream
    note: str = ""
    _launchers: dict[LaunchKey, Launcher] = field(default_factory=dict)
    _graphs: dict[LaunchKey, Launcher] = field(default_factory=dict)
    _hooks: dict[LaunchKey, HookCalls] = field(default_factory=dict)

    def run(self, job: BenchJob) -> list[LaunchTimes]:
        """Answer a job; the last answer may be a failure that spoils the rest."""
        match job:
            case MeasureJob():
                return self.measure(job)
            case CompareJob():
                return self.compare(job)
            case RoundsJob():
                return self.rounds(job)

    def measure(self, job: MeasureJob) -> list[LaunchTimes]:
        """Return the timings of the kernels in order; a failure that spoils the bench ends them early."""
        timings: list[LaunchTimes] = []
        limit_ms = inf if job.stop_above_ms is None else job.stop_above_ms
        for kernel in job.kernels:
            timings.append(self._measure_kernel(job, kernel, limit_ms))
            if timings[-1].is_last:
                break
            if timings[-1].times_ms:
                limit_ms = min(limit_ms, median(timings[-1].times_ms) * job.loser_factor)
        return timings

    def _measure_kernel(self, job: MeasureJob, kernel: BenchKernel, limit_ms: float) -> LaunchTimes:
        """Launch once, compare the outputs, and time as many launches as the job asks for."""
        self.note, late = "", self.watch.late
        try:
            for reference in job.references[len(self.memory.groups) :]:
                self._launch_checked(reference)
                self.memory.group_of_outputs()
                self._finish(reference)
            group, differences = 0, list[str]()
            if self.memory.setup.expected:
                self._launch_checked(kernel)
                differences = [check.text for check in self.memory.checks(self.references) if not check.equal]
                self._finish(kernel)
            else:
                group = self._group(kernel)
            damages = self.memory.damages()
            if damages:
                return LaunchTimes(damages=damages)
            if differences:
                return LaunchTimes(group=1, difference="; ".join(differences))
            times = self._times([kernel], 2 if job.runs > 1 else 1, job.manner.by_graph)[0]
            if min(times) <= limit_ms:  # else only two are timed
                warmups, runs = _counts(job.manner, job.runs, min(times))
                rounds = warmups + max(0, runs - len(times))
                times += self._times([kernel], rounds, job.manner.by_graph)[0][warmups:]
            if self.watch.late > late:
                self.note = "; ".join(filter(None, (self.note, LATE)))
        except BadHook as exc:
            return LaunchTimes(bad_hook=str(exc))
        except LAUNCH_ERRORS as exc:
            return self._failure_of(exc)
        return LaunchTimes(tuple(times), group, note=self.note)

    def compare(self, job: CompareJob) -> list[LaunchTimes]:
        """Compare the outputs of some kernels with those of one; the groups so far are dropped.

        A failure is the last answer.
        """
        timings: list[LaunchTimes] = []
        try:
            self._launch_checked(job.kernel)
            is_kept = self.memory.keep_outputs()
            self._finish(job.kernel)
            if not is_kept:
                return [LaunchTimes(no_room=NO_ROOM)]
            for kernel in job.others:
                self._launch_checked(kernel)
                timings.append(LaunchTimes(differing=self.memory.differences()))
                self._finish(kernel)
        except BadHook as exc:
            timings.append(LaunchTimes(bad_hook=str(exc)))
        except LAUNCH_ERRORS as exc:
            timings.append(self._failure_of(exc))
        self.memory.groups.clear()  # its only group has no number
        damages = () if timings and timings[-1].fault else self.memory.damages()
        return [LaunchTimes(damages=damages)] if damages else timings

    def rounds(self, job: RoundsJob) -> list[LaunchTimes]:
        """Time kernels in turns; where the job is ``warm``, each after an untimed launch of its own."""
        late = self.watch.late
        try:
            if job.warm:
                samples = [self.watch.warm(self._turn(kernel, job.by_graph), job.rounds) for kernel in job.kernels]
            else:
                samples = self._times(job.kernels, job.rounds, job.by_graph)
        except LAUNCH_ERRORS as exc:
            return [self._failure_of(exc)]
        note = LATE if self.watch.late > late else ""
        return [LaunchTimes(tuple(times), note=note) for times in samples]

    def _times(self, kernels: Sequence[BenchKernel], rounds: int, by_graph: bool) -> list[list[float]]:
        """Return the milliseconds of each launch with a flushed L2; each round starts with another kernel."""
        return self.watch.turns([self._turn(kernel, by_graph) for kernel in kernels], rounds)

    def _turn(self, kernel: BenchKernel, by_graph: bool) -> Turn:
        if by_graph:
            launcher = _cached_launcher(self._graphs, kernel.key, partial(self._capture_graph, kernel))
        else:
            launcher = self._launcher(kernel)
        launch = partial(self._launch, kernel, launcher)
        return Turn(launch, partial(self._prepare, kernel), partial(self._finish, kernel))

    def _prepare(self, kernel: BenchKernel) -> None:
        hooks = self._bound_hooks(kernel)
        self.memory.restore()
        if hooks is not None:
            hooks.call_before()

    def _launch(self, kernel: BenchKernel, launcher: Launcher) -> None:
        try:
            launcher()
        except LAUNCH_ERRORS as exc:
            self._finish(kernel, exc)
            raise

    def _finish(self, kernel: BenchKernel, exception: Exception | None = None) -> None:
        """Call the hook after a launch; a hook may restore outputs, so compare them before."""
        hooks = self._bound_hooks(kernel)
        if hooks is not None:
            hooks.call_after(exception)

    def _bound_hooks(self, kernel: BenchKernel) -> HookCalls | None:
        """Return the hooks of a launch, bound to the memory of the bench; those that were pickled are kept."""
        if isinstance(kernel.hooks, HookCalls):
            return kernel.hooks.bound(kernel.arguments, self.memory.tensors)
        if kernel.hooks and kernel.key not in self._hooks:
            tensors = [tensor_on(memory) for memory in self.memory.tensors]
            self._hooks[kernel.key] = unpickle_hooks(kernel.hooks).bound(kernel.arguments, tensors)
        return self._hooks[kernel.key] if kernel.hooks else None

    def _group(self, kernel: BenchKernel) -> int:
        """Launch once and return the group of the outputs: see `LaunchTimes.group`."""
        self._launch_checked(kernel)
        known = len(self.memory.groups)
        group = self.memory.group_of_outputs()
        self._finish(kernel)
        if group == known and known > 0:
            self._launch_checked(kernel)
            repeats = self.memory.equals_group(group)
            self._finish(kernel)
            if not repeats:
                self.memory.groups.pop()
                self.note = "outputs were not compared: two launches of one config differ"
                return NOT_COMPARED
        if group is None and known == 0:
            self.note = NO_ROOM
            return NOT_COMPARED
        return NO_GROUP if group is None else group

    def _launch_checked(self, kernel: BenchKernel) -> None:
        self.memory.poison()
        self._prepare(kernel)
        self._launch(kernel, self._launcher(kernel))
        self.watch.synchronize()

    def _failure_of(self, exc: Exception) -> LaunchTimes:
        """Distinguish a refused launch from a fault, after which the device is unusable in this process."""
        try:
            self.watch.synchronize()
        except RuntimeError as fault:
            return LaunchTimes(fault=str(fault))
        return LaunchTimes(refusal=f"{exc}" or type(exc).__name__)

    def _launcher(self, kernel: BenchKernel) -> Launcher:
        return _cached_launcher(self._launchers, kernel.key, partial(self._new_launcher, kernel))

    def _new_launcher(self, kernel: BenchKernel, stream: int | None = None) -> Launcher:
        """Return a launcher of a kernel on a stream, by default the bench's own."""
        setup = self.memory.setup
        binary = BinaryLaunch(kernel.files, kernel.digest, kernel.signature, kernel.constants, (1, 1, 1), ())
        handle = _load_kernel(setup.device, binary)
        arguments = kernel.arguments_on(self.memory.tensors, setup.tables, self.memory.moves)
        return relauncher(handle, kernel.grid, arguments, self.stream() if stream is None else stream)

    def _capture_graph(self, kernel: BenchKernel) -> Launcher:
        import torch

        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream):
            # It loads the kernel, which a capture does not allow.
            launcher = self._new_launcher(kernel, stream.cuda_stream)
        torch.cuda.synchronize()
        try:
            with torch.cuda.graph(graph, stream=stream):
                launcher()
        except RuntimeError as exc:
            self.note = f"timed without a CUDA graph, which cannot hold every config: {first_line(exc)}"
            return self._launcher(kernel)
        graph.replay()
        return partial(_replay, (launcher, scratch_in_use()), graph)


@lru_cache(maxsize=_MOST_LAUNCHERS)
def _load_kernel(device: int, binary: BinaryLaunch) -> Any:
    """Load a compiled kernel on the current device; the handle is cached for later benches.

    It is unloaded with the last reference to it.
    """
    handle = handle_of(binary)
    _ = handle.run  # loads it, or raises where the device lacks a resource
    unload_with_handle(handle, driver.unload)
    return handle


def _cached_launcher(launchers: dict[LaunchKey, Launcher], key: LaunchKey, make: Callable[[], Launcher]) -> Launcher:
    """Return the launcher of a key, made on first use; evict the least recently used."""
    launcher = launchers.pop(key, None) or make()
    launchers[key] = launcher
    if len(launchers) > _MOST_LAUNCHERS:
        del launchers[next(iter(launchers))]
    return launcher


def _replay(held: object, graph: Any) -> None:
    """Replay a CUDA graph; ``held`` keeps alive its kernel and scratch memory, which it refers to by address.

    The graph is the last argument, so it is freed first.
    """
    graph.replay()


def get_ready(job: Readiness, progress: object) -> None:
    """Load the kernels for comparing and flushing, which takes milliseconds, and torch where it is needed."""
    use_device(job.device)
    driver_stopwatch().flush()
    for name, size_bytes in job.dtypes:
        spec = TensorSpec(0, 0, (2,), (1,), name, size_bytes)
        ones = DeviceView(driver.allocate(2 * size_bytes).zero_(), spec)
        if is_comparable(spec):
            agree(ones, ones.clone())
    if job.needs_torch:
        tensor_on(DeviceBytes(0, 0))
    driver.synchronize()


def run(job: BenchJob, progress: object) -> list[LaunchTimes]:
    """Answer a job of a bench in the GPU worker."""
    try:
        return _only_bench().of(job.setup).run(job)
    except TooLarge as exc:
        return [LaunchTimes(no_room=exc.message)]


def close(payload: object, progress: object) -> None:
    """Free the memory of the last bench."""
    _only_bench().close()


@dataclass(slots=True)
class OnlyBench:
    """The one bench of a process: its copies may fill the device."""

    make: Callable[[Setup], Workbench]
    _setup: Setup | None = None
    _bench: Workbench | None = None

    def of(self, setup: Setup) -> Workbench:
        """Return the bench of a setup.

        Raises:
            TooLarge: there is no room even for the outputs.
        """
        if self._bench is None or self._setup != setup:
            self.close()  # its memory is free before the next one takes any
            self._setup, self._bench = setup, self.make(setup)
        return self._bench

    def close(self) -> None:
        """Free its memory, and torch's cache."""
        self._bench = None
        torch: Any = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()


@lru_cache(maxsize=1)
def _only_bench() -> OnlyBench:
    return OnlyBench(_workbench)


def _workbench(setup: Setup) -> Workbench:
    use_device(setup.device)
    originals = [import_memory(memory) for memory in setup.memories]
    references = [import_memory(memory) for memory in setup.references]
    memory = copy_memory(setup, originals, keeps_originals=False, free_bytes=driver.free_bytes)
    driver.synchronize()  # the originals are unmapped once the copies are made
    return Workbench(memory, references, watch=driver_stopwatch(), stream=lambda: 0)


def _counts(manner: Manner, runs: int, first_ms: float) -> tuple[int, int]:
    """Return the numbers of warm-up and of timed launches; one of the first took ``first_ms``."""
    each_ms = max(first_ms, 1e-3)
    warmups = 0 if manner.warmup_ms is None else int(manner.warmup_ms / each_ms)
    wanted = runs if manner.rep_ms is None else int(manner.rep_ms / each_ms)
    return min(warmups, _MOST_RUNS), max(1, min(wanted, _MOST_RUNS))
