"""The explanation of a call: its launch compiled, its traffic worked out; where there is a GPU, timed and sampled."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from kernellab.errors import KernellabError, LaunchError
from kernellab.explain.explaining import explained
from kernellab.explain.facts import DeviceRates, device_of_table, measured_device
from kernellab.explain.gathering import RunFacts, facts_of, traffic_of_launch
from kernellab.explain.profile.profiling import AskedLaunch, profiled, sampled
from kernellab.explain.profile.result import Profile
from kernellab.explain.result import Explanation
from kernellab.explain.traffic.result import Traffic
from kernellab.ir.graph import main_file
from kernellab.measure.gpu_bench import gpu_bench
from kernellab.measure.launches import BenchOptions, Implementation
from kernellab.measure.provenance import ceilings_here
from kernellab.target import multiprocessors

_FIRST_RUNS = 3
_TIMING_MS = 30.0
_LAUNCH_MS = 0.1  # what a timed launch takes beside itself, for flushing the L2
_LEAST_ROUNDS, _MOST_ROUNDS = 7, 60


def explanation_of(call: AskedLaunch, timeout_s: float, *, samples: bool = False) -> Explanation:
    """Return why the launch of a call takes as long as it does; with ``samples``, its profile is looked at, too.

    Raises:
        UsageError, LaunchError: the call does not fit the kernel.
        KernellabError: it does not compile, or fails while it runs.
    """
    implementation = call.implementation()
    _require_programs(implementation)
    measured = None
    if call.has_gpu:
        profile = sampled(call, implementation, timeout_s) if samples else None
        measured = RunFacts(time_of(call, implementation, timeout_s), profile)
    return explanation_from(call, implementation, measured)


def _require_programs(implementation: Implementation) -> None:
    """Raise where a grid is empty: it launches nothing, which takes no time that could be explained.

    Raises:
        LaunchError: it is.
    """
    launch = implementation.launch
    name = implementation.kernel.kernel
    if launch is not None and 0 in launch.grid:
        raise LaunchError(
            f"The grid of {name} is {launch.grid}: it launches nothing, so there is no time to explain. "
            "Give a grid without a zero.",
            kernel=name,
        )


def explanation_from(call: AskedLaunch, implementation: Implementation, measured: RunFacts | None) -> Explanation:
    """Return the explanation of a launch that is compiled, and was timed where there is a GPU."""
    traffic, why_not = _traffic(implementation)
    facts = facts_of(implementation, device_of(call), traffic, measured)
    found = explained(facts, main_file(implementation.kernel.graph) or "")
    return found.with_more(why_not, None if measured is None else measured.profile)


def _traffic(implementation: Implementation) -> tuple[Traffic | None, str]:
    """Return the traffic of a launch, or why there is none."""
    try:
        found = traffic_of_launch(implementation)
    except KernellabError as exc:
        return None, exc.message
    if not found.rows and found.unknown:
        return None, f"Traffic: {found.unknown[0].reason}."
    return found, ""


def device_of(call: AskedLaunch) -> DeviceRates:
    """Return what the device of a call can do: as measured on the GPU, else by the table of targets."""
    table = device_of_table(call.target)
    if not call.has_gpu:
        return table
    import torch  # only where there is a GPU

    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return measured_device(table, ceilings_here(call.runtime), multiprocessors(), int(properties.L2_cache_size))


def time_of(call: AskedLaunch, implementation: Implementation, timeout_s: float) -> float:
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


def profile_with_answer(call: AskedLaunch, timeout_s: float, *, counters: bool) -> Profile:
    """Return the profile of a call; where nothing was sampled, with what an explanation says without.

    Raises:
        UsageError, LaunchError: the call does not fit the kernel.
        KernellabError: it does not compile, or fails while it runs.
    """
    found = profiled(call, timeout_s, counters=counters)
    if not found.refused:
        return found
    answer = explanation_from(call, call.implementation(), None)
    told = (answer.summary, *(f"{each.cause}: {each.text}" for each in answer.findings))
    return replace(found, notes=(*found.notes, *told))
