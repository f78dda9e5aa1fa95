"""Trial launches as the runtime knows them: what it asks for, and what it gets. `kernellab.gpu.trial` makes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kernellab.compile.types import Compiled
from kernellab.errors import KernellabError
from kernellab.launch.calls import Grid3
from kernellab.workers.worker import Worker


@dataclass(frozen=True, slots=True)
class TrialRequest:
    """A launch that is to be tried: Triton's handle, its files, what is known of the kernel, the arguments by name.

    ``look_closer`` is asked after a fault; it finds the access at fault by other means, or returns None. One that is
    ``forced`` is made whatever is known of launches like it.
    """

    handle: Any
    files: Mapping[str, str]
    compiled: Compiled
    arguments: Mapping[str, Any]
    grid: Grid3
    look_closer: Callable[[], KernellabError | None]
    forced: bool = False


@dataclass(frozen=True, slots=True)
class TrialResult:
    """A trial that went well, or, as ``notes`` say, could not be made.

    ``has_launched`` tells that it was the launch: it ran on the notebook's own memory.
    """

    notes: tuple[str, ...] = ()
    has_launched: bool = False
    output: str = ""


class Trials(Protocol):
    """Where trial launches happen: workers, one per device; without ``enabled``, nothing is tried."""

    enabled: bool

    def apart(self, timeout_s: float) -> Trials:
        """Return trials in other workers, which are there as soon as these; to be closed before these."""

    def start(self, device: int = 0, *, with_torch: bool = False) -> None:
        """Start the worker of a device in the background."""

    def wait_ready(self, device: int, *, with_torch: bool = False) -> None:
        """Return once the worker of a device can launch.

        Raises:
            WorkerTimeout, WorkerDied: it does not start.
        """

    def prepare(self) -> None:
        """Start the worker of the current device in the background, unless that was done before."""

    def close(self) -> None:
        """Stop the workers."""

    def worker(self, device: int, *, with_torch: bool = False) -> Worker:
        """Return the worker of a device, which starts with its first job; that ``with_torch`` is another process."""

    def has_passed(self, digest: str) -> bool:
        """Tell whether a compiled kernel went well on the current device in this session."""

    def passed(self, digest: str, device: int, arguments: Mapping[str, Any], grid: Grid3) -> None:
        """Note that a launch of a compiled kernel went well elsewhere in a worker, on copies between redzones."""

    def launch(self, request: TrialRequest, timeout_s: float | None = None) -> TrialResult:
        """Launch in the worker of the current device.

        Raises:
            OutOfBounds, RunError: the kernel faulted, or wrote outside its arguments.
            WorkerTimeout: it did not end within ``timeout_s`` seconds.
            LaunchError: the driver or the arguments do not allow the launch.
        """
