"""The launch behind `lab.explain`, `lab.traffic` and `lab.profile`: compiled, counted, timed, sampled.

Timing and samples need a GPU. A generated file can repeat the launch.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from kernellab._triton.kernel import Kernel, autotune_settings, jit_function
from kernellab.errors import KernellabError, LaunchError, UsageError
from kernellab.explain.explanation import Explanation, explain_facts
from kernellab.explain.facts import DeviceRates, device_of_table, measured_device
from kernellab.explain.gathering import RunFacts, facts_of, traffic_of_launch
from kernellab.explain.profile import Profile
from kernellab.explain.profilers import ProfilerRefusal, Sampler, counters_of, profile_of
from kernellab.explain.traffic.result import Traffic
from kernellab.export.module import reproducer_text
from kernellab.ir.graph import main_file
from kernellab.launch.calls import require_launchable
from kernellab.launch.recording import LaunchRecord
from kernellab.launch.runtime import Runtime
from kernellab.registry import Registry, recorded_version, regenerated_inputs, values_of
from kernellab.registry.kernels import launch_of, result_of
from kernellab.target import Target, device_name, multiprocessors
from kernellab.timing.config import NO_CONFIG
from kernellab.timing.gpu_bench import gpu_bench
from kernellab.timing.launches import BenchOptions, Implementation, Launches, implementation_of
from kernellab.timing.provenance import can_time, ceilings_here

BestConfig = Callable[[Launches], Any]


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """A call of a kernel to explain or profile for a target.

    ``bind`` returns the drop-in kernel, ``best`` the `triton.Config` that an autotuned one runs with on the GPU.
    ``kernel`` may be the name, ``name@version`` or id of a stored one, for its latest recorded launch.
    """

    runtime: Runtime
    kernels: Registry
    bind: Callable[[Kernel], Any]
    best: BestConfig
    target: Target
    kernel: Kernel | str | int
    grid: Any
    args: tuple[Any, ...]
    meta: Mapping[str, Any]

    @property
    def has_gpu(self) -> bool:
        """Whether this machine has a GPU of the target."""
        return can_time(self.runtime, self.target)

    def implementation(self) -> Implementation:
        """Return the compiled launch of the call; of an autotuned kernel without a GPU, the first config.

        Raises:
            UsageError, LaunchError: the call does not fit the kernel.
            CompileError: it does not compile.
        """
        if isinstance(self.kernel, str | int):
            return self._recorded_launch(self.kernel).implementation()
        bound = self.bind(self.kernel)
        launches = Launches(bound, self.grid, self.args, self.meta, self.target)
        configs = autotune_settings(bound).configs
        config = NO_CONFIG
        if configs:
            config = launches.effective(self.best(launches) if self.has_gpu else configs[0])
        launch = launches.of(config)
        require_launchable(launch.grid, launches.name, self.target)
        with self.runtime.compiling(launches.name):
            return implementation_of(launches, config, self.runtime.compiler.compile(launch.job))

    def _recorded_launch(self, key: str | int) -> LaunchRequest:
        """Return the latest recorded launch of a stored kernel, on new arguments of the recorded shapes.

        Raises:
            UnknownName, UsageError: there is no such kernel, or no launch of it that can be repeated.
        """
        version = self.kernels.version(key)
        launch = recorded_version(self.kernels.store, version).launch
        if launch is None or launch.grid is None:
            raise UsageError(f"No launch of {version.label} is known; launch it, or give one: kernel, grid, arguments.")
        arguments = regenerated_inputs(launch, "cuda" if self.has_gpu else "cpu")
        meta = {**arguments, **values_of(launch)}
        return replace(self, kernel=jit_function(self.kernels[version.id]), grid=launch.grid, args=(), meta=meta)


def reproducer_of(call: LaunchRequest, implementation: Implementation) -> str:
    """Return the text of a module that repeats a launch, on inputs of the same shapes.

    Raises:
        UsageError: an argument cannot be written down.
    """
    launch, compiled = implementation.kernel_launch, implementation.kernel
    owner = launch.function if isinstance(call.kernel, str | int) else call.kernel
    record = LaunchRecord(launch.function, compiled, launch.arguments, owner, launch.grid, given_grid=launch.grid)
    return reproducer_text(launch.job.closure, launch_of(call.kernels, record), result_of(compiled))


def sample_launch(call: LaunchRequest, implementation: Implementation, timeout_s: float) -> Profile:
    """Sample the launch of a call on the current GPU, in a worker of its own.

    Raises:
        KernellabError: the launch fails.
    """
    import torch  # only where there is a GPU

    device, trials = torch.cuda.current_device(), call.runtime.trials
    assert trials is not None, "there is a GPU"
    return profile_of(implementation, Sampler(device, timeout_s, trials), device_name(device))


def with_counters(profile: Profile, call: LaunchRequest, implementation: Implementation, timeout_s: float) -> Profile:
    """Return a profile with the hardware counters of Nsight Compute, or with a note why there are none."""
    with tempfile.TemporaryDirectory(prefix="kernellab-counters-") as folder:
        path = Path(folder, "reproducer.py")
        try:
            path.write_text(reproducer_of(call, implementation), encoding="utf-8")
            return replace(profile, counters=counters_of(path, implementation.kernel.kernel, timeout_s))
        except KernellabError as exc:
            why_not = f"The launch cannot be made again in another process: {exc.message}"
        except ProfilerRefusal as exc:
            why_not = str(exc)
    return replace(profile, notes=(*profile.notes, why_not))


_FIRST_RUNS = 3
_TIMING_MS = 30.0
_LAUNCH_MS = 0.1  # of flushing the L2 before each timed launch
_LEAST_ROUNDS, _MOST_ROUNDS = 7, 60


def explanation_of(call: LaunchRequest, timeout_s: float, *, samples: bool = False) -> Explanation:
    """Explain the time of a call's launch; with ``samples``, also from its profile.

    Raises:
        UsageError, LaunchError: the call does not fit the kernel, or its grid is empty.
        KernellabError: it does not compile, or fails while it runs.
    """
    implementation = call.implementation()
    grid, name = implementation.kernel_launch.grid, implementation.kernel.kernel
    if 0 in grid:
        raise LaunchError(
            f"The grid of {name} is {grid}: it launches nothing, so there is no time to explain. "
            "Give a grid without a zero.",
            kernel=name,
        )
    measured = None
    if call.has_gpu:
        profile = sample_launch(call, implementation, timeout_s) if samples else None
        measured = RunFacts(launch_seconds(call, implementation, timeout_s), profile)
    return explanation_from(call, implementation, measured)


def explanation_from(call: LaunchRequest, implementation: Implementation, measured: RunFacts | None) -> Explanation:
    """Explain a compiled launch, which was timed where there is a GPU."""
    traffic, why_not = _traffic_or_reason(implementation)
    facts = facts_of(implementation, device_of(call), traffic, measured)
    explanation = explain_facts(facts, main_file(implementation.kernel.graph) or "", why_not)
    return replace(explanation, profile=None if measured is None else measured.profile)


def _traffic_or_reason(implementation: Implementation) -> tuple[Traffic | None, str]:
    """Return the traffic of a launch, or why there is none."""
    try:
        traffic = traffic_of_launch(implementation)
    except KernellabError as exc:
        return None, exc.message.removesuffix(".")
    if not traffic.rows and traffic.unknown:
        return None, traffic.unknown[0].reason
    return traffic, ""


def device_of(call: LaunchRequest) -> DeviceRates:
    """Return the rates of a call's device: as measured on the GPU, else from the table of data sheets."""
    table = device_of_table(call.target)
    if not call.has_gpu:
        return table
    import torch  # only where there is a GPU

    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return measured_device(table, ceilings_here(call.runtime), multiprocessors(), int(properties.L2_cache_size))


def launch_seconds(call: LaunchRequest, implementation: Implementation, timeout_s: float) -> float:
    """Return the seconds that a launch takes with a flushed L2: the median of some, in the GPU worker.

    Raises:
        KernellabError: the launch fails.
    """
    bench = gpu_bench(BenchOptions(implementation.name, timeout_s, compares=False), call.runtime.trials)
    try:
        first = bench.measure(implementation, _FIRST_RUNS, None).times_ms
        rounds = int(_TIMING_MS / (min(first) + _LAUNCH_MS))
        played = bench.interleave([implementation], max(_LEAST_ROUNDS, min(rounds, _MOST_ROUNDS)))
    finally:
        bench.close()
    return median(played[0]) / 1e3


_NO_GPU = "There is no GPU that runs {target}, so nothing can be sampled; on a machine with one, the same call samples."


def profile_with_explanation(call: LaunchRequest, timeout_s: float, *, counters: bool) -> Profile:
    """Return the profile of a call; without samples, with the findings of its explanation as notes.

    With ``counters``, it includes those of Nsight Compute, or a note why there are none.

    Raises:
        UsageError, LaunchError: the call does not fit the kernel.
        KernellabError: it does not compile, or fails while it runs.
    """
    implementation = call.implementation()
    if call.has_gpu:
        profile = sample_launch(call, implementation, timeout_s)
        profile = with_counters(profile, call, implementation, timeout_s) if counters else profile
    else:
        compiled, grid = implementation.kernel, implementation.kernel_launch.grid
        refused = _NO_GPU.format(target=call.target)
        profile = Profile(compiled.kernel, str(call.target), "", grid, refused=refused, compiled=compiled)
    if not profile.refused:
        return profile
    answer = explanation_from(call, implementation, None)
    sentences = (answer.summary, *(f"{each.cause}: {each.text}" for each in answer.findings))
    return replace(profile, notes=(*profile.notes, *sentences))
