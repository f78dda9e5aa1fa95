"""Timing compiled kernels on the current GPU: in the GPU worker, or in the notebook's process where that is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from kernellab._triton.artifact import compiled_from_files
from kernellab._triton.relaunch import LAUNCH_ERRORS, bring_scratch, relauncher
from kernellab.gpu.bench_jobs import NO_GROUP, BenchKernel, MeasureJob, RoundsJob, Setup, Timing
from kernellab.gpu.bench_memory import BenchMemory, copied
from kernellab.gpu.unboarding import argument_of

_LEAST_FLUSH_BYTES = 64 << 20
_WARM_UP_FLUSHES = 200


@dataclass(slots=True)
class Workbench:
    """Launches kernels on one memory and times them. ``hooks`` are called before each launch of a kernel, by digest."""

    memory: BenchMemory
    hooks: dict[str, Callable[[], None]] = field(default_factory=dict)
    flush: Any = None
    note: str = ""
    _launchers: dict[tuple[str, tuple[int, int, int]], Callable[[], None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        import torch

        l2_bytes = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        self.flush = torch.empty(max(2 * l2_bytes, _LEAST_FLUSH_BYTES), dtype=torch.uint8, device="cuda")
        for _ in range(_WARM_UP_FLUSHES):  # some milliseconds of work, so that the clocks are up
            self.flush.zero_()

    def measure(self, job: MeasureJob) -> Timing:
        """Launch once, compare the outputs, time ``runs`` launches."""
        import torch

        try:
            for reference in job.references[len(self.memory.groups) :]:
                self._launch_checked(reference)
                self.memory.group_of_outputs()
            group = self._group(job.kernel)
            damages = self.memory.damages()
            if damages:
                return Timing(damages=damages)
            times = self._times([job.kernel], 1)[0]
            if job.stop_above_ms is None or times[0] <= job.stop_above_ms:
                times += self._times([job.kernel], job.runs - 1)[0]
        except LAUNCH_ERRORS as exc:
            return _failed(exc, torch.cuda)
        return Timing(tuple(times), group, note=self.note)

    def rounds(self, job: RoundsJob) -> list[Timing]:
        """Time kernels in turns; where it is ``warm``, right after a launch of their own."""
        import torch

        try:
            if job.warm:
                found = [[self._warm_ms(kernel) for _ in range(job.rounds)] for kernel in job.kernels]
            else:
                found = self._times(job.kernels, job.rounds)
        except LAUNCH_ERRORS as exc:
            return [_failed(exc, torch.cuda)]
        return [Timing(tuple(times)) for times in found]

    def _times(self, kernels: Sequence[BenchKernel], rounds: int) -> list[list[float]]:
        """Return the milliseconds of each launch with a flushed L2; each round starts with another kernel."""
        import torch

        events: list[list[Any]] = [[] for _ in kernels]
        launchers = [self._launcher(kernel) for kernel in kernels]
        for number in range(rounds):
            for place in range(len(kernels)):
                index = (place + number) % len(kernels)
                self._prepare(kernels[index])
                self.flush.zero_()
                events[index].append(_bracketed(launchers[index]))
        torch.cuda.synchronize()
        return [[begin.elapsed_time(end) for begin, end in each] for each in events]

    def _warm_ms(self, kernel: BenchKernel) -> float:
        import torch

        launcher = self._launcher(kernel)
        for _ in range(2):
            self._prepare(kernel)
            begin, end = _bracketed(launcher)
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end))

    def _prepare(self, kernel: BenchKernel) -> None:
        self.memory.restore()
        hook = self.hooks.get(kernel.digest)
        if hook is not None:
            hook()

    def _group(self, kernel: BenchKernel) -> int:
        """Launch once and return the group of the outputs; `NO_GROUP` where they are like none that is kept."""
        self._launch_checked(kernel)
        known = len(self.memory.groups)
        group = self.memory.group_of_outputs()
        if group == known and known > 0:
            self._launch_checked(kernel)
            if not self.memory.repeats_itself(group):
                self.memory.groups.pop()
                self.note = "outputs were not compared: two launches of one config differ"
                return 0
        if group is None and known == 0:
            self.note = "outputs were not compared: the GPU lacks memory to keep those of one config"
        return NO_GROUP if group is None else group

    def _launch_checked(self, kernel: BenchKernel) -> None:
        import torch

        self.memory.poison()
        self._prepare(kernel)
        self._launcher(kernel)()
        torch.cuda.synchronize()

    def _launcher(self, kernel: BenchKernel) -> Callable[[], None]:
        key = (kernel.digest, kernel.grid)
        if key not in self._launchers:
            handle = compiled_from_files(dict(kernel.files), kernel.digest, dict(kernel.signature), kernel.constants)
            arguments = tuple(argument_of(spec, self.memory.tensors) for _, spec in kernel.arguments)
            self._launchers[key] = relauncher(handle, kernel.grid, arguments)
        return self._launchers[key]


def measure(job: MeasureJob, progress: object) -> Timing:
    """Answer a `MeasureJob` in the GPU worker."""
    return _workbench(job.setup).measure(job)


def rounds(job: RoundsJob, progress: object) -> list[Timing]:
    """Answer a `RoundsJob` in the GPU worker."""
    return _workbench(job.setup).rounds(job)


def close(payload: object, progress: object) -> None:
    """Give the memory of the last bench back."""
    import torch

    _workbench.cache_clear()
    torch.cuda.empty_cache()


@lru_cache(maxsize=1)
def _workbench(setup: Setup) -> Workbench:
    """Return the bench of a setup: one at a time, since it fills the device with copies."""
    import torch

    torch.cuda.set_device(setup.device)
    bring_scratch()
    originals = [_mapped(memory) for memory in setup.memories]
    return Workbench(copied(setup, originals, keeps_originals=False))


def _mapped(memory: Any) -> Any:
    import torch

    if memory.handle is None:
        return torch.empty(0, dtype=torch.uint8, device="cuda")
    function, arguments = memory.handle
    return function(*arguments)


def _bracketed(launcher: Callable[[], None]) -> tuple[Any, Any]:
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record()
    launcher()
    end.record()
    return begin, end


def _failed(exc: Exception, cuda: Any) -> Timing:
    """Tell a launch that was refused from one after which the device answers nothing more."""
    try:
        cuda.synchronize()
    except RuntimeError as fault:
        return Timing(fault=str(fault))
    return Timing(refusal=f"{exc}" or type(exc).__name__)
