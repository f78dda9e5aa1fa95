"""What a bench launches and times, how it is told so, and what its answers stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from kernellab.compile.cache import triton_files
from kernellab.compile.types import Compiled
from kernellab.errors import LaunchError, OutOfBounds, Place, RunError, first_line
from kernellab.gpu.ipc import Boarding, CannotBoard
from kernellab.gpu.redzones import damage_text
from kernellab.ir.effects import Access, Effects
from kernellab.launch.arguments import ArgumentSpec, DescriptorSpec, TensorSpec, TupleSpec
from kernellab.launch.memory import memory_of
from kernellab.launch.poison import fill_of
from kernellab.launch.reached import Reached
from kernellab.measure.bench_jobs import BenchKernel, Expected, Timing
from kernellab.measure.config import Config
from kernellab.measure.launches import Launch
from kernellab.measure.reference import Reference


@dataclass(frozen=True, slots=True)
class Candidate:
    """A config that was compiled and fits the target. ``index`` is its place among the rows."""

    index: int
    config: Config
    compiled: Compiled


@dataclass(frozen=True, slots=True)
class Measured:
    """Timings of one config, and which of the groups of equal outputs its outputs belong to.

    Groups are numbered as they are found; where a reference was given, group 0 is that of the reference, and
    ``difference`` says how the outputs of another group differ from it. Such a config is not timed.
    """

    times_ms: tuple[float, ...]
    group: int = 0
    difference: str = ""


class Bench(Protocol):
    """Times launches. Arguments are those of one launch; what they held is there again before each run.

    A launch that fails raises a `KernellabError`, after which the bench goes on to work for other configs:
    `WorkerTimeout` where it did not end, `LaunchError` where it could not start, else `RunError` or `WorkerDied`.
    """

    def get_ready(self) -> None:
        """Load what measuring needs, in the background: configs begin to compile."""

    def measure(self, candidate: Candidate, runs: int, stop_above_ms: float | None) -> Measured:
        """Launch once to compare the outputs, then time ``runs`` launches with a flushed L2.

        If both of the first two take more than ``stop_above_ms``, the rest is left out; one alone may be chance.
        """

    def interleave(self, candidates: Sequence[Candidate], rounds: int) -> list[tuple[float, ...]]:
        """Return the times of each candidate, one per round, with a flushed L2; each round launches all of them."""

    def warm(self, candidates: Sequence[Candidate], runs: int) -> list[float]:
        """Return the median time of each candidate where the L2 holds what the launch before left there."""

    def close(self) -> None:
        """Give back what the bench holds: memory, and what it has told a worker."""


def require_good(
    timing: Timing, name: str, candidate: Candidate, memory_names: Mapping[int, Sequence[str]] = MappingProxyType({})
) -> None:
    """Raise what a failed launch stands for; ``memory_names`` are the arguments that lie in each memory.

    Raises:
        RunError: the kernel faulted.
        OutOfBounds: it wrote outside its arguments.
        LaunchError: the driver refused it.
    """
    text = candidate.config.text
    if timing.damages:
        argument, what = damage_text(timing.damages[0], memory_names, touched(candidate.compiled.effects)[0])
        place = _place_of_writes(candidate.compiled.effects, argument)
        raise OutOfBounds(f"{name} ({text}) wrote out of bounds: {what}.", place=place, kernel=name)
    if timing.fault:
        raise RunError(f"{name} ({text}) failed on the GPU: {first_line(timing.fault)}.", kernel=name)
    if timing.refusal:
        raise LaunchError(f"{name} ({text}) was refused: {first_line(timing.refusal)}.", kernel=name)


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


def require_followed(effects: Effects) -> None:
    """Raise where a launch changes memory that nobody can copy.

    Raises:
        CannotBoard: an address cannot be followed.
    """
    if effects.lost is not None:
        raise CannotBoard(f"{effects.lost}; what the launches changed there was not brought back")


def views_of(name: str, spec: ArgumentSpec) -> list[tuple[str, TensorSpec]]:
    """Return the tensors of an argument by the names that effects give them."""
    match spec:
        case TensorSpec():
            return [(name, spec)]
        case DescriptorSpec():
            return [(name, spec.base)]
        case TupleSpec():
            return [pair for i, item in enumerate(spec.items) for pair in views_of(f"{name}[{i}]", item)]
    return []


def bench_kernel(
    candidate: Candidate, launch: Launch, specs: tuple[tuple[str, ArgumentSpec], ...], hooks: bytes = b""
) -> BenchKernel:
    return BenchKernel(
        files=tuple(triton_files(candidate.compiled).items()),
        digest=candidate.compiled.digest,
        signature=launch.job.signature,
        constants=tuple(path for path, _ in launch.job.constants),
        grid=launch.grid,
        arguments=specs,
        hooks=hooks,
    )


def expected_of(
    reference: Reference, arguments: Mapping[str, Any], views: Mapping[str, TensorSpec], boarding: Boarding
) -> tuple[Expected, ...]:
    """Return what a bench compares the outputs of launches with; ``boarding`` takes the values to where it works.

    ``views`` are the outputs in the memory of the bench, ``arguments`` those of a launch before it.
    """
    tensors = memory_of(arguments)
    values = reference.of({name: tensors[name] for name in views if name in tensors})
    specs = dict(boarding.specs({name: value.value for name, value in values.items()}))
    errors = {name: value.error for name, value in values.items() if value.error is not None}
    bounds = dict(boarding.specs(errors))
    return tuple(
        Expected(name, views[name], spec, _tensor(bounds.get(name)), values[name].unit, fill_of(tensors[name]))
        for name, spec in specs.items()
        if isinstance(spec, TensorSpec)
    )


def _tensor(spec: ArgumentSpec | None) -> TensorSpec | None:
    return spec if isinstance(spec, TensorSpec) else None
