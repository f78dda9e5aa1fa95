"""Trial launches on a GPU, which `kernellab.gpu.trial` makes in a process of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kernellab.errors import KernellabError
from kernellab.launch.bound_launch import BoundLaunch
from kernellab.launch.grids import Grid3
from kernellab.workers.worker import Worker

LookCloser = Callable[[], KernellabError | None]
"""Finds the access at fault by other means, after a fault; or returns None."""


@dataclass(frozen=True, slots=True)
class TrialResult:
    """A successful trial, or, as ``notes`` say, an impossible one.

    ``has_launched`` says that it was the launch: it ran on the notebook's own memory.
    """

    notes: tuple[str, ...] = ()
    has_launched: bool = False
    output: str = ""


class Trials(Protocol):
    """Trial launches in workers, one per device; without ``enabled``, there are none."""

    enabled: bool

    def apart(self, timeout_s: float) -> Trials:
        """Trials in other workers, which start as fast as these; close them before these."""

    def start(self, device: int = 0, *, with_torch: bool = False) -> None:
        """Start the worker of a device in the background."""

    def wait_ready(self, device: int, *, with_torch: bool = False) -> None:
        """Wait until the worker of a device can launch.

        Raises:
            WorkerTimeout, WorkerDied: it does not start.
        """

    def prepare(self) -> None:
        """Start the worker of the current device in the background, unless it was started before."""

    def close(self) -> None:
        """Stop the workers."""

    def worker(self, device: int, *, with_torch: bool = False) -> Worker:
        """The worker of a device, started with its first job; the one ``with_torch`` is another process."""

    def has_passed(self, digest: str) -> bool:
        """Whether a compiled kernel succeeded on the current device in this session."""

    def record_passed_launch(self, digest: str, device: int, arguments: Mapping[str, Any], grid: Grid3) -> None:
        """Record that a launch of a compiled kernel succeeded in a worker elsewhere, on copies between redzones."""

    def launch(
        self, launch: BoundLaunch, look_closer: LookCloser, *, forced: bool = False, timeout_s: float | None = None
    ) -> TrialResult:
        """Launch in the worker of the current device; one that is ``forced``, whatever is known of launches like it.

        Raises:
            OutOfBounds, RunError: the kernel faulted, or wrote outside its arguments.
            WorkerTimeout: it did not end within ``timeout_s`` seconds.
            LaunchError: the driver or the arguments do not allow the launch.
        """
