"""Benchmarks with what a lab has: its compiler, its store, its GPU if there is one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
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
from kernellab.errors import KernellabError, UsageError
from kernellab.ir.effects import NO_EFFECTS
from kernellab.launch.memory import copied, memory_of
from kernellab.launch.poison import poison
from kernellab.launch.reached import Copies, reached
from kernellab.launch.runtime import Launches as Runtime
from kernellab.measure.ceilings import Ceilings, keep_ceilings, kept_ceilings, measured_ceilings
from kernellab.measure.comparison import Value
from kernellab.measure.implementations import touched
from kernellab.measure.launches import Launches
from kernellab.measure.stopwatch import Stopwatch, gpu_stopwatch
from kernellab.registry.table import Registry
from kernellab.tune.options import Options
from kernellab.tune.options import Workshop as TuneWorkshop
from kernellab.tune.place import workshop_of
from kernellab.tune.session import tuned
from kernellab.tune.tuner import NO_GPU
from kernellab.workers.uninterrupted import Interrupted

Bind = Callable[[Any], Any]


def benchmark(runtime: Runtime, kernels: Registry, bind: Bind, question: Question) -> Benchmark:
    """Measure what is asked for.

    Raises:
        UsageError, LaunchError: the question does not fit the kernel.
    """
    from kernellab._triton.objects import parameter_names

    tuning = replace(workshop_of(runtime, kernels), progress=None)  # the benchmark has a display of its own
    has_gpu = tuning.make_bench is not None
    kernel_of = partial(_kernel_of, kernels, bind)
    kernel = kernel_of(question.kernel)[1]
    version = kernels.current(kernel)
    workshop = Workshop(
        compiler=runtime.compiler,
        target=tuning.device.target,
        kernel_of=kernel_of,
        best=partial(_best, tuning),
        make_arena=_arenas(runtime, question) if has_gpu else None,
        provenance=tuning.device.facts,
        ceilings=ceilings(runtime, kernels) if has_gpu else None,
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


def ceilings(runtime: Runtime, kernels: Registry, *, fresh: bool = False) -> Ceilings:
    """Return the ceilings of the GPU: as kept under the folder of the store, else measured and kept.

    Raises:
        UsageError: there is no GPU.
    """
    device = workshop_of(runtime, kernels).device
    if not device.name:
        raise UsageError("There is no GPU, so there are no ceilings to measure.")
    folder = runtime.compiler.folder.parent
    found = None if fresh else kept_ceilings(folder, device.name, device.driver)
    if found is None:
        found = measured_ceilings(device.name, device.driver)
        keep_ceilings(folder, found)
    return found


def _kernel_of(kernels: Registry, bind: Bind, given: Any) -> tuple[str, Any]:
    """Return name and bound kernel of a kernel, a label or an id; a label names the version."""
    from kernellab._triton.objects import jit_function

    if isinstance(given, str | int):
        kernel = bind(kernels[given])
        is_bare = isinstance(given, str) and "@" not in given
        return (str(given) if is_bare else kernels.version(given).label), kernel
    bound = bind(given)
    return str(jit_function(bound).__name__), bound


def _best(workshop: TuneWorkshop, launches: Launches) -> Any:
    """Return the config of an autotuned kernel for a launch, tuned first where that is not known."""
    tuning = tuned(workshop, launches.kernel, launches.grid, launches.args, launches.meta, Options())
    return tuning.best


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
