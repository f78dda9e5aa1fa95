"""The processes that a bench launches in: the GPU worker, where a kernel that faults or hangs fails alone, and this."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from kernellab.errors import KernellabError, WorkerDied, WorkerError, WorkerTimeout
from kernellab.gpu.ipc import IpcExport
from kernellab.launch.bound_launch import Trials
from kernellab.timing import bench_worker
from kernellab.timing.bench import BenchOptions
from kernellab.timing.bench_jobs import BenchJob, BenchKernel, LaunchTimes, Readiness, Setup
from kernellab.timing.bench_memory import TooLarge, copy_memory, in_place
from kernellab.timing.bench_setup import bytes_of, needs_torch
from kernellab.timing.bench_worker import Workbench
from kernellab.timing.hooks import IN_WORKER, HookCalls, pickle_hooks
from kernellab.timing.launches import KernelLaunch
from kernellab.timing.stopwatch import load_statistics
from kernellab.workers.worker import Job, Worker

_START_S = 120.0


class Transport:
    """The way to the process that a bench launches in; by default, that is this one."""

    is_here: ClassVar[bool] = True
    """Whether launches run in this process."""

    @property
    def device(self) -> int:
        """The number of the GPU."""
        raise NotImplementedError

    def get_ready(self) -> None:
        """Load the needs of a measurement in the background."""

    def start(self) -> None:
        """Wait until the process has its CUDA context, so that no launch's timeout covers its creation.

        Raises:
            WorkerError: it does not start; no launch is to blame.
        """

    def hooks(self, launch: KernelLaunch) -> bytes | HookCalls:
        """Return the hooks of a launch for the process.

        Raises:
            CannotExport: they cannot be taken along.
        """
        return launch.hooks

    def open(self, setup: Setup, exported: IpcExport, values: IpcExport) -> None:
        """Take the memory of a setup: ``exported`` are the arguments, ``values`` the reference."""

    def run(self, job: BenchJob, subject: str, timeout_s: float) -> list[LaunchTimes]:
        """Run a job on the memory.

        Raises:
            WorkerTimeout, WorkerDied: the process was stopped or ended; the memory is lost.
        """
        raise NotImplementedError

    def record_good(self, kernel: BenchKernel, launch: KernelLaunch) -> None:
        """Record a clean launch on copies of its arguments."""

    def release(self) -> None:
        """Free the memory of the last setup."""

    def replace(self) -> None:
        """Replace the process after a fault of its device."""


@dataclass(slots=True)
class LocalTransport(Transport):
    """Launches in this process, where a fault ends the session and a kernel that hangs cannot be stopped."""

    options: BenchOptions
    _bench: Workbench | None = None

    @property
    def device(self) -> int:
        """The current device."""
        import torch

        return torch.cuda.current_device()

    def open(self, setup: Setup, exported: IpcExport, values: IpcExport) -> None:
        """Copy the arguments, or use the user's own memory where copies do not fit."""
        originals = [bytes_of(storage) for storage in exported.storages]
        try:
            memory = copy_memory(setup, originals, keeps_originals=True)
        except TooLarge:
            self.options.notes.append("timed on the notebook's own memory: there was no room for copies")
            memory = in_place(setup, originals)
        self._bench = Workbench(memory, [bytes_of(storage) for storage in values.storages])

    def run(self, job: BenchJob, subject: str, timeout_s: float) -> list[LaunchTimes]:
        """Run a job, however long it takes."""
        assert self._bench is not None, "a job runs on the memory of its setup"
        return self._bench.run(job)

    def release(self) -> None:
        """Free the copies, or restore the user's own memory."""
        if self._bench is not None:
            self._bench.memory.give_back()
            self._bench = None


@dataclass(slots=True)
class WorkerTransport(Transport):
    """Launches in the GPU worker, on copies of the arguments; the notebook's memory is only read.

    If torch turns out to be needed, the worker with torch takes over; with ``stays``, the current one imports torch.
    """

    is_here: ClassVar[bool] = False
    options: BenchOptions
    trials: Trials
    stays: bool = False
    _setup_device: int | None = None
    _setup_needs_torch: bool = False

    @property
    def device(self) -> int:
        """The device of the setup, or else of the bench, by default the current one."""
        import torch

        known = self.options.device if self._setup_device is None else self._setup_device
        return torch.cuda.current_device() if known is None else known

    def get_ready(self) -> None:
        """Load what a measurement needs into the worker, and what statistics need here, in the background."""
        device = self.device

        def run() -> None:
            with suppress(KernellabError, OSError):  # the first measurement will raise it; a lab may close meanwhile
                self._load_needs(device)

        self.trials.run_in_background(run, load_statistics, name="kernellab-bench")

    def start(self) -> None:
        """Wait until the worker has its CUDA context; see `Transport.start`."""
        try:
            self._load_needs(self.device)
        except (WorkerTimeout, WorkerDied) as exc:
            raise WorkerError(exc.message, detail=exc.detail) from exc

    def hooks(self, launch: KernelLaunch) -> bytes:
        """Pickle the hooks of a launch; see `Transport.hooks`."""
        return pickle_hooks(launch.hooks)

    def open(self, setup: Setup, exported: IpcExport, values: IpcExport) -> None:
        """Import torch in the worker where the memory needs it; wait until the arguments have their values."""
        import torch

        if not self._needs_torch and needs_torch(setup):  # so that no launch's timeout covers its import
            self._setup_needs_torch = True
            self.start()
        torch.cuda.synchronize(setup.device)
        self._setup_device = setup.device

    def run(self, job: BenchJob, subject: str, timeout_s: float) -> list[LaunchTimes]:
        """Run a job in the worker; see `Transport.run`."""
        return self._worker.run(Job(bench_worker.run, job, subject), timeout_s)

    def record_good(self, kernel: BenchKernel, launch: KernelLaunch) -> None:
        """Spare the launch its trial, unless a hook may have changed the values that it loads."""
        if kernel.hooks:
            self.options.notes.append(IN_WORKER)
        else:
            self.trials.record_passed_launch(kernel.digest, self.device, launch.arguments, launch.grid)

    def release(self) -> None:
        """Let the worker free its copies."""
        if self._worker.pid is None:  # an interrupt ended it, so it holds no memory; start the next one in time
            self.trials.start(self.device, with_torch=self._uses_torch_worker)
        else:
            with suppress(WorkerError):
                self._worker.run(Job(bench_worker.close, None, "Closing the bench"), _START_S)
        self._setup_device = None

    def replace(self) -> None:
        """End the worker, and wait for the next one."""
        self._worker.close()
        self.start()

    def _load_needs(self, device: int) -> None:
        names = [name for name, _ in self.options.dtypes]
        self.trials.wait_ready(device, with_torch=self._uses_torch_worker, dtypes=names)
        readiness = Readiness(device, self.options.dtypes, self._needs_torch)
        worker = self.trials.worker(device, with_torch=self._uses_torch_worker)
        worker.prepare(Job(bench_worker.get_ready, readiness, "Preparing the measurement"), _START_S)

    @property
    def _needs_torch(self) -> bool:
        return self.options.needs_torch or self._setup_needs_torch

    @property
    def _uses_torch_worker(self) -> bool:
        return self.options.needs_torch or (self._setup_needs_torch and not self.stays)

    @property
    def _worker(self) -> Worker:
        return self.trials.worker(self.device, with_torch=self._uses_torch_worker)
