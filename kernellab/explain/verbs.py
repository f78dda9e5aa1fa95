"""The launch behind `lab.explain`, `lab.predict`, `lab.traffic` and `lab.profile`: compiled, counted, timed, sampled.

Timing and samples need a GPU. A generated file can repeat the launch.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median

from kernellab._triton.kernel import Kernel
from kernellab.errors import KernellabError, LaunchError
from kernellab.explain.devices import device_for, measured_device, named_device
from kernellab.explain.explanation import Explanation, explain_facts
from kernellab.explain.facts import DeviceRates
from kernellab.explain.launch_facts import facts_of, traffic_of_launch, traffic_or_reason
from kernellab.explain.predicting import predict_implementation
from kernellab.explain.prediction import Prediction
from kernellab.explain.profile import Profile
from kernellab.explain.profilers import ProfilerRefusal, Sampler, counters_of, profile_of
from kernellab.explain.traffic.result import Traffic
from kernellab.export.module import reproducer_text
from kernellab.ir.graph import main_file
from kernellab.launch.calls import UserCall
from kernellab.launch.recording import LaunchRecord
from kernellab.registry import Session
from kernellab.registry.calls import compile_call, has_gpu
from kernellab.registry.launches_to_store import recorded_launch_of, result_of
from kernellab.target import device_name, multiprocessors
from kernellab.timing.bench import BenchOptions
from kernellab.timing.gpu_bench import gpu_bench
from kernellab.timing.launches import Implementation
from kernellab.timing.provenance import ceilings_here
from kernellab.workers.scratch import Scratch


def traffic_of_call(session: Session, call: UserCall) -> Traffic:
    """Compile a call and return its traffic; of an autotuned kernel, that of the first config.

    Raises:
        LaunchError, UsageError: the arguments, options or grid do not fit the kernel.
        CompileError: the compiler refused it.
    """
    return traffic_of_launch(compile_call(session, call, takes_best=False))


def reproducer_of(owner: Kernel, implementation: Implementation) -> str:
    """Return the text of a module that repeats a launch of ``owner``, on inputs of the same shapes.

    Raises:
        UsageError: an argument cannot be written down.
    """
    launch, compiled = implementation.kernel_launch, implementation.kernel
    record = LaunchRecord(launch.function, compiled, launch.arguments, owner, launch.grid, given_grid=launch.grid)
    return reproducer_text(launch.job.closure, recorded_launch_of(record), result_of(compiled))


def sample_launch(session: Session, implementation: Implementation, timeout_s: float) -> Profile:
    """Sample a launch on the current GPU, in a worker of its own.

    Raises:
        KernellabError: the launch fails.
    """
    import torch  # only where there is a GPU

    device, trials = torch.cuda.current_device(), session.runtime.trials
    assert trials is not None, "there is a GPU"
    return profile_of(implementation, Sampler(device, timeout_s, trials), device_name(device))


def with_counters(profile: Profile, owner: Kernel, implementation: Implementation, timeout_s: float) -> Profile:
    """Return a profile with the hardware counters of Nsight Compute, or with a note why there are none."""
    with Scratch() as folder:
        path = Path(folder, "reproducer.py")
        try:
            path.write_text(reproducer_of(owner, implementation), encoding="utf-8")
            return replace(profile, counters=counters_of(path, implementation.kernel.kernel, timeout_s))
        except KernellabError as exc:
            why_not = f"No counters: the launch cannot be repeated in another process: {exc.message}"
        except ProfilerRefusal as exc:
            why_not = str(exc)
    return replace(profile, notes=(*profile.notes, why_not))


_FIRST_RUNS = 3
_TIMING_MS = 30.0
_LAUNCH_MS = 0.1  # of flushing the L2 before each timed launch
_LEAST_ROUNDS, _MOST_ROUNDS = 7, 60


def explanation_of(session: Session, call: UserCall, timeout_s: float, *, samples: bool) -> Explanation:
    """Explain the time of a call's launch; with ``samples``, also from its profile.

    Raises:
        UsageError, LaunchError: the call does not fit the kernel, or its grid is empty.
        KernellabError: it does not compile, or fails while it runs.
    """
    implementation = compile_call(session, call)
    grid, name = implementation.kernel_launch.grid, implementation.kernel.kernel
    if 0 in grid:
        raise LaunchError(
            f"The grid of {name} is {grid}: it launches nothing, so there is no time to explain. "
            "Give a grid without a zero.",
            kernel=name,
        )
    is_here = has_gpu(session)
    profile = sample_launch(session, implementation, timeout_s) if is_here and samples else None
    time_s = launch_seconds(session, implementation, timeout_s) if is_here else None
    return _explanation_from(session, implementation, time_s, profile)


def _explanation_from(
    session: Session, implementation: Implementation, time_s: float | None = None, profile: Profile | None = None
) -> Explanation:
    """Explain a compiled launch, which was timed where there is a GPU."""
    traffic, why_not = traffic_or_reason(implementation)
    facts = facts_of(implementation, device_of(session), traffic, time_s, profile)
    return replace(explain_facts(facts, main_file(implementation.kernel.graph) or "", why_not), profile=profile)


def device_of(session: Session) -> DeviceRates:
    """Return the rates of a session's device: as measured on the GPU, else from the table of data sheets."""
    table = device_for(session.target, session.model)
    if session.model or not has_gpu(session):
        return table
    import torch  # only where there is a GPU

    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return measured_device(table, ceilings_here(session.runtime), multiprocessors(), int(properties.L2_cache_size))


def launch_seconds(session: Session, implementation: Implementation, timeout_s: float) -> float:
    """Return the seconds that a launch takes with a flushed L2: the median of some, in the GPU worker.

    Raises:
        KernellabError: the launch fails.
    """
    options = BenchOptions(implementation.name, timeout_s, compares=False)
    with closing(gpu_bench(options, session.runtime.trials)) as bench:
        first = bench.measure(implementation, _FIRST_RUNS, None).times_ms
        rounds = int(_TIMING_MS / (min(first) + _LAUNCH_MS))
        played = bench.interleave([implementation], max(_LEAST_ROUNDS, min(rounds, _MOST_ROUNDS)))
    return median(played[0]) / 1e3


_NO_GPU = "No GPU of {target} here, so there are no samples; the same call samples on a machine with one."


def profile_with_explanation(session: Session, call: UserCall, timeout_s: float, *, counters: bool) -> Profile:
    """Return the profile of a call; without samples, with the findings of its explanation as notes.

    With ``counters``, it includes those of Nsight Compute, or a note why there are none.

    Raises:
        UsageError, LaunchError: the call does not fit the kernel.
        KernellabError: it does not compile, or fails while it runs.
    """
    implementation = compile_call(session, call)
    if has_gpu(session):
        profile = sample_launch(session, implementation, timeout_s)
        if counters:
            profile = with_counters(profile, call.kernel, implementation, timeout_s)
    else:
        compiled, grid = implementation.kernel, implementation.kernel_launch.grid
        refused = _NO_GPU.format(target=session.target)
        profile = Profile(compiled.kernel, str(session.target), "", grid, refused=refused, compiled=compiled)
    if not profile.refused:
        return profile
    answer = _explanation_from(session, implementation)
    sentences = (answer.summary, *(f"{finding.cause}: {finding.text}" for finding in answer.findings))
    return replace(profile, notes=(*profile.notes, *sentences))


def device_session(open_session: Callable[[str | None], Session], target: str | None, device: str | None) -> Session:
    """Return the session of a target, or of a named device; both may be given if they agree.

    Raises:
        UsageError: the table has no such device, or it is of another target.
    """
    if device is None:
        return open_session(target)
    sheet = named_device(device)
    session = open_session(target or sheet.target)
    device_for(session.target, device)
    return replace(session, model=sheet.name)


def prediction_of(session: Session, call: UserCall) -> Prediction:
    """Compile a call for the session's target, of an autotuned kernel the first config, and predict its time.

    Raises:
        UsageError, LaunchError: the call does not fit the kernel, or times of the target cannot be predicted.
        CompileError: it does not compile.
    """
    implementation = compile_call(session, call, takes_best=False)
    return predict_implementation(implementation, device_of(session))
