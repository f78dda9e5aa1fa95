"""From the launch of a config to what a bench is asked to time, and from its answer to an error."""

from __future__ import annotations

from kernellab.compiler import triton_files
from kernellab.errors import LaunchError, RunError
from kernellab.gpu.bench_jobs import BenchKernel, Timing
from kernellab.ir.effects import Effects
from kernellab.packed import ArgumentSpec, DescriptorSpec, TensorSpec, TupleSpec
from kernellab.tune.bench import Candidate
from kernellab.tune.launches import Launch


def require_good(timing: Timing, name: str, candidate: Candidate) -> None:
    """Raise what a failed launch stands for.

    Raises:
        RunError: the kernel faulted.
        LaunchError: the driver refused it.
    """
    text = candidate.config.text
    if timing.fault:
        raise RunError(f"{name} ({text}) failed on the GPU: {_first_line(timing.fault)}.", kernel=name)
    if timing.refusal:
        raise LaunchError(f"{name} ({text}) was refused: {_first_line(timing.refusal)}.", kernel=name)


def touched(effects: Effects) -> tuple[frozenset[str], frozenset[str]]:
    """Return what a launch may write, and what it may read; everything where an effect is unknown."""
    if effects.unknown:
        return frozenset(effects.arguments), frozenset(effects.arguments)
    return effects.mutated, effects.reads | effects.atomics


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


def bench_kernel(candidate: Candidate, launch: Launch, specs: tuple[tuple[str, ArgumentSpec], ...]) -> BenchKernel:
    return BenchKernel(
        files=tuple(triton_files(candidate.compiled).items()),
        digest=candidate.compiled.digest,
        signature=launch.job.signature,
        constants=tuple(path for path, _ in launch.job.constants),
        grid=launch.grid,
        arguments=specs,
    )


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "unknown failure")
    return line.removeprefix("CUDA error: ").rstrip(".")
