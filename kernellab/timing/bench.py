"""The protocol of a bench, which times launches and functions of the user, and its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from kernellab.checking.comparison import OutputDifference
from kernellab.checking.reference import Reference
from kernellab.errors import KernellabError, LaunchError, OutOfBounds, RunError, first_line
from kernellab.gpu.redzones import damage_text, likely_place
from kernellab.ir.operations import Access
from kernellab.timing.bench_jobs import PLAIN, LaunchTimes, Manner
from kernellab.timing.launches import Implementation, KernelLaunch, accessed_arguments


class Bench(Protocol):
    """Times launches of kernels, and restores their arguments before each run.

    A failed launch raises a `KernellabError`: `WorkerTimeout` if it did not end, `LaunchError` if it could not start,
    else `RunError` or `WorkerDied`. The bench remains usable for others.
    """

    def get_ready(self) -> None:
        """Load the needs of a measurement in the background, while kernels compile."""

    def measure(self, implementation: Implementation, runs: int, stop_above_ms: float | None) -> LaunchTimes:
        """Launch once to compare the outputs, then time ``runs`` launches with a flushed L2.

        If the first two both take more than ``stop_above_ms``, the rest is skipped; one alone may be chance.
        """

    def measure_all(
        self, implementations: Sequence[Implementation], runs: int, stop_above_ms: float | None, loser_factor: float
    ) -> list[LaunchTimes | KernellabError]:
        """Measure each as `measure` does; cut short those that take ``loser_factor`` times the best before them.

        The error of one that fails is returned instead.
        """

    def compare(
        self, implementation: Implementation, others: Sequence[Implementation]
    ) -> list[tuple[OutputDifference, ...]]:
        """Launch each once; return the differences of the others' outputs from the first's, empty if equal."""

    def interleave(self, implementations: Sequence[Implementation], rounds: int) -> list[tuple[float, ...]]:
        """Return the times of each in ms, one per round, with a flushed L2; each round launches all of them."""

    def warm(self, implementations: Sequence[Implementation], runs: int) -> list[float]:
        """Return the median time of each in ms, with the L2 as the launch before left it."""

    def close(self) -> None:
        """Free the memory of the bench, here and in the worker."""


def measure_singly(
    bench: Bench, implementations: Sequence[Implementation], runs: int, stop_above_ms: float | None
) -> list[LaunchTimes | KernellabError]:
    """Measure each by itself; errors are returned in place of results."""
    results: list[LaunchTimes | KernellabError] = []
    for implementation in implementations:
        try:
            results.append(bench.measure(implementation, runs, stop_above_ms))
        except KernellabError as exc:
            results.append(exc)
    return results


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """The options that all launches of a bench share.

    ``name`` is their name in messages, ``timeout_s`` limits the measurement of each launch. ``dtypes`` are those of the
    tensors to compare: torch's name and the bytes of an element; without ``compares``, none is compared. ``reset``
    names arguments that are set to zero before each launch, ``outputs`` those that are compared, None for all.
    ``device`` is the number of the GPU, None for the current one, and ``placed`` returns the launch of an
    implementation there. ``notes`` collects notes for the user.
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
        """Whether an output is compared."""
        return self.outputs is None or name in self.outputs

    def launch_of(self, implementation: Implementation) -> KernelLaunch:
        """Return the launch of an implementation, on arguments that the bench can reach."""
        return implementation.kernel_launch if self.placed is None else self.placed(implementation)


def require_good(
    timing: LaunchTimes,
    implementation: Implementation,
    memory_names: Mapping[int, Sequence[str]] = MappingProxyType({}),
) -> None:
    """Raise the error of a failed launch; ``memory_names`` are the arguments that lie in each memory.

    Raises:
        RunError: the kernel faulted.
        OutOfBounds: it wrote outside its arguments.
        LaunchError: the driver refused it.
        KernellabError: the device has no room for copies of the arguments.
    """
    if timing.no_room:
        raise KernellabError(timing.no_room)
    name, kernel, effects = implementation.name, implementation.kernel.kernel, implementation.kernel.effects
    if timing.damages:
        argument, what = damage_text(timing.damages[0], memory_names, accessed_arguments(effects)[0])
        writes = [site for site in effects.sites if site.kind is not Access.READ and site.goes_to(argument)]
        raise OutOfBounds(f"{name} wrote out of bounds: {what}.", place=likely_place(writes), kernel=kernel)
    if timing.fault:
        raise RunError(f"{name} failed on the GPU: {first_line(timing.fault)}.", kernel=kernel)
    if timing.refusal:
        raise LaunchError(f"{name} was refused: {first_line(timing.refusal)}.", kernel=kernel)
