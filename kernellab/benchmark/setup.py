"""Benchmarks with what a lab has: its compiler, its store, its GPU if there is one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from kernellab.benchmark.result import Benchmark
from kernellab.benchmark.runner import Workshop, benchmarked
from kernellab.benchmark.spec import Question
from kernellab.benchmark.timer import (
    Arena,
    Contestant,
    GpuArena,
    difference,
    outputs_of,
    returned,
    run_function,
    values_of,
    written_by,
)
from kernellab.errors import KernellabError
from kernellab.ir.effects import NO_EFFECTS
from kernellab.launch.memory import copied, memory_of
from kernellab.launch.poison import poison
from kernellab.launch.reached import Copies, reached
from kernellab.launch.runtime import Launches as Runtime
from kernellab.measure.comparison import Value
from kernellab.measure.implementations import touched
from kernellab.measure.launches import Launches
from kernellab.measure.outcomes import NO_GPU
from kernellab.measure.provenance import can_time, ceilings_here, device_here
from kernellab.measure.stopwatch import Stopwatch, gpu_stopwatch
from kernellab.registry import Registry
from kernellab.workers.uninterrupted import Interrupted

Bind = Callable[[Any], Any]
Best = Callable[[Launches], Any]


def benchmark(runtime: Runtime, kernels: Registry, bind: Bind, best: Best, question: Question) -> Benchmark:
    """Measure what is asked for; ``best`` gives the config of an autotuned kernel for some launches.

    Raises:
        UsageError, LaunchError: the question does not fit the kernel.
    """
    from kernellab._triton.objects import parameter_names

    device, has_gpu = device_here(runtime), can_time(runtime)
    kernel_of = partial(_kernel_of, kernels, bind)
    kernel = kernel_of(question.kernel)[1]
    version = kernels.current(kernel)
    workshop = Workshop(
        compiler=runtime.compiler,
        target=device.target,
        kernel_of=kernel_of,
        best=best,
        make_arena=_arenas(runtime, question) if has_gpu else None,
        provenance=device.facts,
        ceilings=ceilings_here(runtime) if has_gpu else None,
        why_not=NO_GPU if runtime.is_offline() else f"not measured: {runtime.target} is not the target of the GPU",
        check=partial(_checked, runtime, question.timeout_s) if runtime.is_offline() else None,
        history=kernels.store.history,
        version_id=version.id,
        progress=runtime.benchmark_reporter,
    )
    try:
        with runtime.observers.withheld():
            return benchmarked(workshop, question, parameter_names(kernel))
    except KeyboardInterrupt:
        raise Interrupted("The benchmark was interrupted before anything was measured.") from None


def _kernel_of(kernels: Registry, bind: Bind, given: Any) -> tuple[str, Any]:
    """Return name and bound kernel of a kernel, a label or an id; a label names the version."""
    from kernellab._triton.objects import jit_function

    if isinstance(given, str | int):
        kernel = bind(kernels[given])
        is_bare = isinstance(given, str) and "@" not in given
        return (str(given) if is_bare else kernels.version(given).label), kernel
    bound = bind(given)
    return str(jit_function(bound).__name__), bound


def _arenas(runtime: Runtime, question: Question) -> Callable[[Mapping[str, Any], Sequence[Contestant]], Arena]:
    watches: list[Stopwatch] = []

    def opened(arguments: Mapping[str, Any], contestants: Sequence[Contestant]) -> Arena:
        if not watches:
            watches.append(gpu_stopwatch())
        effects = [each.compiled.effects for each in contestants if each.compiled is not None]
        behind = [reached(arguments, each, "cuda") for each in effects]
        read = frozenset[str]().union(*(touched(*pair)[1] for pair in zip(effects, behind, strict=True)))
        flying = partial(runtime.recording, timeout_s=question.timeout_s)
        outputs, written = outputs_of(arguments, contestants), written_by(arguments, contestants)
        return GpuArena(watches[0], flying, arguments, outputs, written, read)

    return opened


def _checked(
    runtime: Runtime, timeout_s: float, arguments: Mapping[str, Any], contestants: Sequence[Contestant]
) -> list[str]:
    """Run all contestants on the CPU; return for each how its outputs differ from those of the first, or ""."""
    names = list(outputs_of(arguments, contestants))
    reference: tuple[str, list[Value]] | None = None
    problems = []
    for contestant in contestants:
        try:
            outputs = _run_on_cpu(runtime, timeout_s, arguments, contestant, names)
        except KernellabError as exc:
            problems.append(" ".join(exc.message.split()))
            continue
        if reference is None:
            reference = (contestant.name, values_of(contestant, arguments, outputs))
        problems.append(difference(outputs, reference[1], names, reference[0]))
    return problems


def _run_on_cpu(
    runtime: Runtime, timeout_s: float, arguments: Mapping[str, Any], contestant: Contestant, names: list[str]
) -> list[Any]:
    launch = contestant.launch
    if launch is None:
        taken = copied(arguments)
        memory = memory_of(taken)
        return returned(run_function(contestant, taken), [memory[name] for name in names if name in memory])
    compiled = contestant.compiled
    copies = Copies(launch.arguments, NO_EFFECTS if compiled is None else compiled.effects, "cpu")
    if compiled is not None:
        poison(copies.arguments, compiled.effects, copies=True)
    with runtime.recording(timeout_s=timeout_s):
        launch.function[launch.grid](**copies.arguments, **launch.options)
    memory = {**memory_of(copies.arguments), **copies.reached}
    return [memory[name] for name in names if name in memory]
