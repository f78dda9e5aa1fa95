"""What is launched and timed, by whom, how a bench in another process is told so, and what its answers stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from kernellab.compile.types import Compiled
from kernellab.errors import KernellabError, LaunchError, OutOfBounds, Place, RunError, first_line
from kernellab.gpu.redzones import damage_text
from kernellab.ir.effects import Access, Effects
from kernellab.launch.poison import Poison, poison
from kernellab.launch.reached import Copies, Reached
from kernellab.launch.runtime import Runtime
from kernellab.measure.bench_jobs import PLAIN, BenchTiming, Manner
from kernellab.measure.comparison import OutputDifference
from kernellab.measure.config import NO_CONFIG, Config
from kernellab.measure.launches import KernelLaunch, Launches
from kernellab.measure.reference import Reference


@dataclass(frozen=True, slots=True, eq=False)
class Implementation:
    """What is launched and timed: a launch of a compiled kernel, or a function of the user. It equals only itself.

    ``name`` is what messages call it. ``config`` is that of a launch which is one of several of a kernel, and ``index``
    its place in their list.
    """

    name: str
    launch: KernelLaunch | None = None
    compiled: Compiled | None = None
    function: Callable[..., Any] | None = None
    config: Config = NO_CONFIG
    index: int = 0

    @property
    def kernel(self) -> Compiled:
        """The compiled kernel; not to be asked of a function."""
        assert self.compiled is not None, "a function has no compiled kernel"
        return self.compiled


def implementation_of(launches: Launches, config: Config, compiled: Compiled, index: int = 0) -> Implementation:
    """Return the launch of a config, compiled, as a bench takes it; messages name it by kernel and config."""
    return Implementation(f"{launches.name} ({config.text})", launches.of(config), compiled, None, config, index)


def launched_on_copies(
    runtime: Runtime,
    launch: KernelLaunch,
    effects: Effects,
    device: str,
    timeout_s: float,
    inputs: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[Copies, Poison]:
    """Launch a kernel through the lab on copies of its arguments, what it only writes poisoned before.

    ``inputs`` stand in for its arguments, ``device`` is the type of the one that it runs on.

    Raises:
        KernellabError: the kernel fails, or does not end in time.
    """
    copies = Copies({**launch.arguments, **inputs}, effects, device)
    poisoned = poison(copies.arguments, effects, copies=True)
    with runtime.recording(timeout_s=timeout_s):
        launch.function[launch.grid](**copies.arguments, **launch.options)
    return copies, poisoned


@dataclass(frozen=True, slots=True)
class Measured:
    """Timings of one launch, and which of the groups of equal outputs its outputs belong to.

    Groups are numbered as they are found, but for `NO_GROUP` and `NOT_COMPARED`; with a reference, group 0 is that of
    the reference, and ``difference`` says how the outputs of another group differ from it. Such a launch is not timed.
    """

    times_ms: tuple[float, ...]
    group: int = 0
    difference: str = ""


class Bench(Protocol):
    """Times launches of kernels. What their arguments held is there again before each run.

    A launch that fails raises a `KernellabError`, after which the bench goes on to work for others: `WorkerTimeout`
    where it did not end, `LaunchError` where it could not start, else `RunError` or `WorkerDied`.
    """

    def get_ready(self) -> None:
        """Load what measuring needs, in the background: kernels begin to compile."""

    def measure(self, implementation: Implementation, runs: int, stop_above_ms: float | None) -> Measured:
        """Launch once to compare the outputs, then time ``runs`` launches with a flushed L2.

        If both of the first two take more than ``stop_above_ms``, the rest is left out; one alone may be chance.
        """

    def measure_all(
        self, implementations: Sequence[Implementation], runs: int, stop_above_ms: float | None, loser_factor: float
    ) -> list[Measured | KernellabError]:
        """Measure each as `measure` does, those that take ``loser_factor`` times the best before them no longer.

        What one of them raises stands in its place.
        """

    def compare(
        self, implementation: Implementation, others: Sequence[Implementation]
    ) -> list[tuple[OutputDifference, ...]]:
        """Launch each once; return how the outputs of the others differ from those of the first, nothing if equal."""

    def interleave(self, implementations: Sequence[Implementation], rounds: int) -> list[tuple[float, ...]]:
        """Return the times of each in ms, one per round, with a flushed L2; each round launches all of them."""

    def warm(self, implementations: Sequence[Implementation], runs: int) -> list[float]:
        """Return the median time of each in ms where the L2 holds what the launch before left there."""

    def close(self) -> None:
        """Give back what the bench holds: memory, and what it has told a worker."""


def measured_singly(
    bench: Bench, implementations: Sequence[Implementation], runs: int, stop_above_ms: float | None
) -> list[Measured | KernellabError]:
    """Return what a bench says of each, or what it raises."""
    found: list[Measured | KernellabError] = []
    for implementation in implementations:
        try:
            found.append(bench.measure(implementation, runs, stop_above_ms))
        except KernellabError as exc:
            found.append(exc)
    return found


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What the launches of a bench have in common.

    ``name`` is what messages call them all, ``timeout_s`` limits each launch with all that belongs to it. ``dtypes``
    are those of the tensors that are compared, by torch's names, with the bytes of an element; without ``compares``,
    none is. ``reset`` names arguments that are set to zero before each launch; ``outputs`` those that are compared,
    None all. ``has_hooks`` tells that something is called around launches. ``device`` is the number of the GPU, None
    the current one, and ``placed`` gives the launch of an implementation there. ``notes`` get what the user should
    know.
    """

    name: str
    timeout_s: float
    manner: Manner = PLAIN
    dtypes: tuple[tuple[str, int], ...] = ()
    reference: Reference | None = None
    reset: frozenset[str] = frozenset()
    outputs: frozenset[str] | None = None
    compares: bool = True
    has_hooks: bool = False
    device: int | None = None
    placed: Callable[[Implementation], KernelLaunch] | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def needs_torch(self) -> bool:
        """Whether the worker needs torch: for a reference, for hooks, for CUDA graphs."""
        return self.reference is not None or self.has_hooks or self.manner.by_graph

    def counts(self, name: str) -> bool:
        """Tell whether an output is compared."""
        return self.outputs is None or name in self.outputs

    def launch_of(self, implementation: Implementation) -> KernelLaunch:
        """Return the launch of a kernel, on arguments that lie where the bench can reach them."""
        if self.placed is not None:
            return self.placed(implementation)
        assert implementation.launch is not None, "a bench launches kernels"
        return implementation.launch


def require_good(
    timing: BenchTiming,
    implementation: Implementation,
    memory_names: Mapping[int, Sequence[str]] = MappingProxyType({}),
) -> None:
    """Raise what a failed launch stands for; ``memory_names`` are the arguments that lie in each memory.

    Raises:
        RunError: the kernel faulted.
        OutOfBounds: it wrote outside its arguments.
        LaunchError: the driver refused it.
        KernellabError: the device has no room for copies of the arguments, which is the fault of no kernel.
    """
    if timing.no_room:
        raise KernellabError(timing.no_room)
    name, kernel = implementation.name, implementation.kernel.kernel
    if timing.damages:
        argument, what = damage_text(timing.damages[0], memory_names, touched(implementation.kernel.effects)[0])
        place = _place_of_writes(implementation.kernel.effects, argument)
        raise OutOfBounds(f"{name} wrote out of bounds: {what}.", place=place, kernel=kernel)
    if timing.fault:
        raise RunError(f"{name} failed on the GPU: {first_line(timing.fault)}.", kernel=kernel)
    if timing.refusal:
        raise LaunchError(f"{name} was refused: {first_line(timing.refusal)}.", kernel=kernel)


def _place_of_writes(effects: Effects, argument: str | None) -> Place | None:
    """Return the first line that writes to an argument, one without a mask before all others."""
    sites = [site for site in effects.sites if site.kind is not Access.READ and site.goes_to(argument)]
    site = min(sites, key=lambda site: (site.masked, site.line or 0), default=None)
    if site is None or site.location.file is None or site.line is None:
        return None
    return Place(site.location.file, site.line)


def touched(effects: Effects, behind: Reached | None = None) -> tuple[frozenset[str], frozenset[str]]:
    """Return what a launch may write, and what it may read; everything where an effect is unknown.

    ``behind`` is the memory that it reaches through addresses among its arguments, if anybody has looked.
    """
    if behind is None or not effects.is_followed:
        everything = frozenset(effects.arguments) | frozenset(behind.tensors if behind is not None else ())
        return (everything, everything) if effects.unknown else (effects.mutated, effects.reads | effects.atomics)
    return effects.mutated | behind.mutated, effects.reads | effects.atomics | behind.read
