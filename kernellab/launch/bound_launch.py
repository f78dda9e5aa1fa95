"""One launch of a bound kernel on its way through the runtime: samples of what it changes, and its trial on a GPU.

Trials are made in a process of their own by `kernellab.gpu.trial`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from kernellab.compile.types import Compiled
from kernellab.errors import KernellabError
from kernellab.ir.effects import Effects
from kernellab.launch.arguments import bypass_modes, memory_of
from kernellab.launch.calls import Grid3
from kernellab.launch.run import Run
from kernellab.workers.worker import Worker

if TYPE_CHECKING:
    import threading

    from kernellab._triton.bound import BoundKernel

_RUNS, _RUN_LENGTH = 16, 2**10  # of a larger tensor, so many runs of so many elements are looked at


@dataclass(frozen=True, slots=True)
class ValueSample:
    """Copies of runs of elements of a tensor, its ends included; ``is_whole`` where these are all of it, in order."""

    runs: tuple[Any, ...]
    is_whole: bool


@bypass_modes()
def sample_of(tensor: Any) -> ValueSample | None:
    """Return a sample of what a tensor holds; None where it has no data, or is large and not contiguous."""
    is_short = tensor.numel() <= _RUNS * _RUN_LENGTH
    if not tensor.numel() or tensor.device.type == "meta" or not (is_short or tensor.is_contiguous()):
        return None
    flat = tensor.detach().reshape(-1)
    last = flat.numel() - _RUN_LENGTH
    runs = [flat] if is_short else [flat.narrow(0, last * i // (_RUNS - 1), _RUN_LENGTH) for i in range(_RUNS)]
    return ValueSample(tuple(run.clone() for run in runs), is_short)


def samples_before(arguments: Mapping[str, Any], effects: Effects) -> dict[str, ValueSample]:
    """Return samples of the arguments that a launch reads and is about to change, by name."""
    return samples_of_changing(arguments, effects, changing_storages(arguments, effects))


def changing_storages(arguments: Mapping[str, Any], effects: Effects) -> frozenset[int]:
    """Return the addresses of the storages that a launch may change."""
    tensors = memory_of(arguments)
    names = tensors.keys() if effects.unknown else effects.mutated
    return frozenset(tensors[name].untyped_storage().data_ptr() for name in names if name in tensors)


def samples_of_changing(
    arguments: Mapping[str, Any], effects: Effects, storages: frozenset[int]
) -> dict[str, ValueSample]:
    """Return samples of the arguments that a launch reads and that lie in some storages, by name."""
    if not storages:
        return {}
    read = effects.reads | effects.atomics
    tensors = {name: tensor for name, tensor in memory_of(arguments).items() if effects.unknown or name in read}
    inside = {name: t for name, t in tensors.items() if t.untyped_storage().data_ptr() in storages}
    samples = {name: sample_of(tensor) for name, tensor in inside.items()}
    return {name: sample for name, sample in samples.items() if sample is not None}


@dataclass(slots=True)
class BoundLaunch:
    """A launch as the user asked for it, then as it was compiled, then as it ran.

    ``given_grid`` is the user's: extents, or a function of the arguments by name. ``handle`` (Triton's), ``compiled``
    and ``arguments`` (by name, with defaults) are set once it is compiled, ``grid`` once that is evaluated. ``before``
    samples what the arguments held that the launch reads and changes.
    """

    kernel: BoundKernel
    args: tuple[Any, ...]
    meta: Mapping[str, Any]
    given_grid: Any
    handle: Any = None
    compiled: Compiled = field(init=False)
    arguments: Mapping[str, Any] = field(init=False)
    grid: Grid3 = field(init=False)
    before: Mapping[str, ValueSample] = field(default_factory=dict)
    run: Run | None = None
    are_hooks_called: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """The options of the call, such as ``num_warps``."""
        return {name: value for name, value in self.meta.items() if name not in self.kernel.arg_names}

    def call_hooks(self) -> None:
        """Call the kernel's pre-run hooks, once."""
        if not self.are_hooks_called:
            self.are_hooks_called = True
            self.kernel.call_hooks(self.args, dict(self.meta))


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

    def start(self, device: int = 0, *, with_torch: bool = False) -> object:
        """Start the worker of a device in the background."""

    def run_in_background(self, *steps: Callable[[], object], name: str | None = None) -> object:
        """Run steps in a new thread; once these trials are closed, they start no worker."""

    def wait_ready(self, device: int, *, with_torch: bool = False, dtypes: Iterable[str] = ()) -> None:
        """Wait until the worker of a device can launch, and compare outputs of some dtypes of torch.

        Raises:
            WorkerTimeout, WorkerDied: it does not start.
        """

    def prepare(self) -> threading.Thread | None:
        """Start the worker of the current device in the background, once; return the thread that starts it now."""

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
