"""From the launch of a config to what a bench is asked to time, and from its answer to an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from kernellab.compile.cache import triton_files
from kernellab.errors import LaunchError, OutOfBounds, Place, RunError, first_line
from kernellab.gpu.ipc import Boarding, CannotBoard
from kernellab.gpu.redzones import damage_text
from kernellab.ir.effects import Access, Effects
from kernellab.launch.arguments import ArgumentSpec, DescriptorSpec, TensorSpec, TupleSpec
from kernellab.launch.memory import memory_of
from kernellab.launch.poison import fill_of
from kernellab.launch.reached import Reached
from kernellab.measure.bench import Candidate
from kernellab.measure.bench_jobs import BenchKernel, Expected, Timing
from kernellab.measure.launches import Launch
from kernellab.measure.reference import Reference


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
