"""Benchmarks with what a lab has: its compiler, its store, its GPU if there is one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from kernellab.benchmark.outputs import differences_on_cpu
from kernellab.benchmark.result import Benchmark
from kernellab.benchmark.runner import BenchmarkEnvironment, benchmarked
from kernellab.benchmark.spec import BenchmarkSpec
from kernellab.benchmark.timer import gpu_timers
from kernellab.launch.runtime import Runtime
from kernellab.measure.config import NO_GPU
from kernellab.measure.launches import Launches
from kernellab.measure.provenance import can_time, ceilings_here, device_here
from kernellab.registry import Registry
from kernellab.workers.forks_and_interrupts import Interrupted

Bind = Callable[[Any], Any]
Best = Callable[[Launches], Any]


def benchmark(runtime: Runtime, kernels: Registry, bind: Bind, best: Best, spec: BenchmarkSpec) -> Benchmark:
    """Measure what is asked for; ``best`` gives the config of an autotuned kernel for some launches.

    Raises:
        UsageError, LaunchError: the spec does not fit the kernel.
    """
    from kernellab._triton.kernel import parameter_names

    device, has_gpu = device_here(runtime), can_time(runtime)
    kernel_of = partial(_kernel_of, kernels, bind)
    kernel = kernel_of(spec.kernel)[1]
    version = kernels.current(kernel)
    environment = BenchmarkEnvironment(
        compiler=runtime.compiler,
        target=device.target,
        kernel_of=kernel_of,
        best=best,
        make_timer=gpu_timers(runtime, spec.timeout_s) if has_gpu else None,
        provenance=device.facts,
        ceilings=ceilings_here(runtime) if has_gpu else None,
        why_not=NO_GPU if runtime.is_offline() else f"not measured: {runtime.target} is not the target of the GPU",
        check=partial(differences_on_cpu, runtime, spec.timeout_s) if runtime.is_offline() else None,
        history=kernels.store.history,
        version_id=version.id,
        progress=runtime.benchmark_reporter,
    )
    try:
        with runtime.observers.withheld():
            return benchmarked(environment, spec, parameter_names(kernel))
    except KeyboardInterrupt:
        raise Interrupted("The benchmark was interrupted before anything was measured.") from None


def _kernel_of(kernels: Registry, bind: Bind, given: Any) -> tuple[str, Any]:
    """Return name and bound kernel of a kernel, a label or an id; a label names the version."""
    from kernellab._triton.kernel import jit_function

    if isinstance(given, str | int):
        kernel = bind(kernels[given])
        is_bare = isinstance(given, str) and "@" not in given
        return (str(given) if is_bare else kernels.version(given).label), kernel
    bound = bind(given)
    return str(jit_function(bound).__name__), bound
