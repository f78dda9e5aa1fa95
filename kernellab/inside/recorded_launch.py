"""A launch on the CPU whose values are recorded: `lab.values`."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from kernellab._triton.kernel import autotune_settings
from kernellab.errors import KernellabError, UsageError, value_message
from kernellab.inside.values import Values
from kernellab.launch.arguments import values_of
from kernellab.launch.calls import UserCall, require_launchable
from kernellab.launch.memory import copy_arguments
from kernellab.launch.recorded_values import NonFiniteEvent, Program, RecordedValue, RecordRequest
from kernellab.launch.run import run_on_cpu
from kernellab.registry import Session
from kernellab.source import Closure
from kernellab.timing.config import NO_CONFIG
from kernellab.timing.launches import KernelLaunch, Launches, call_hooks, with_zeros

_HANDOVER_S = 30.0  # to stop a program at its time limit, and to hand over its values


def values_of_call(
    session: Session, call: UserCall, programs: Sequence[Any], lines: Collection[int] | None, timeout_s: float
) -> Values:
    """Record the values of some programs of a call, on the CPU; of an autotuned kernel with its first config.

    The tensors of the call do not change. A program that fails ends there; its values so far are kept.

    Raises:
        UsageError, LaunchError: the call does not fit the kernel, or the grid has no such program.
        WorkerTimeout: a single operation took longer than ``timeout_s``.
    """
    launch = launch_of_call(session, call)
    request = RecordRequest(programs_in(launch.grid, programs), None if lines is None else frozenset(lines))
    return record_launch(session, launch, request, timeout_s)


def launch_of_call(session: Session, call: UserCall) -> KernelLaunch:
    """The launch of a call; of an autotuned kernel with its first config.

    Its arguments are what the kernel begins with: copies, where its pre-hook or ``reset_to_zero`` change them.

    Raises:
        UsageError, LaunchError: the call does not fit the kernel.
        RunError: the pre-hook of the config raises.
    """
    launches = Launches(call.kernel, call.grid, call.args, call.meta, session.target)
    configs = autotune_settings(call.kernel).configs
    launch = launches.of(launches.effective(configs[0]), configs[0]) if configs else launches.of(NO_CONFIG)
    require_launchable(launch.grid, launches.name, session.target)
    arguments = with_zeros(launch.arguments, zeroed_arguments(call))
    if launch.before:
        arguments = copy_arguments(arguments)
        call_hooks(launch, arguments)
    return replace(launch, arguments=arguments)


def options_of(other: Any) -> Mapping[str, Any] | None:
    """The options that a `triton.Config` or a dict has; None for any other object."""
    options = getattr(other, "all_kwargs", lambda: other)()
    return options if isinstance(options, Mapping) else None


def zeroed_arguments(call: UserCall) -> tuple[str, ...]:
    """The arguments that Triton sets to zero before the first launch of a call: after it timed several configs."""
    settings = autotune_settings(call.kernel)
    return settings.reset_to_zero if len(settings.configs) > 1 else ()


def record_launch(session: Session, launch: KernelLaunch, request: RecordRequest, timeout_s: float) -> Values:
    """Record the values of a launch with one config, on the CPU.

    Raises:
        LaunchError: the interpreter cannot run the kernel, or not on these arguments.
        WorkerTimeout, WorkerDied: a single operation took too long, or a program ended the worker.
    """
    recorded: list[tuple[tuple[RecordedValue, ...], tuple[NonFiniteEvent, ...]]] = []
    interpret = partial(
        session.runtime.interpret,
        launch.function,
        grid=launch.grid,
        timeout_s=timeout_s + _HANDOVER_S,
        warps=launch.options.get("num_warps"),
        record=replace(request, seconds=timeout_s),
        on_values=lambda values, events: recorded.append((values, events)),
    )
    failure: str | None = None
    notes: tuple[str, ...] = ()
    try:
        notes = run_on_cpu(launch.arguments, interpret).notes
    except KernellabError as exc:
        if not recorded:
            raise
        failure = exc.message
    kernel, *helpers = closure_texts(launch.job.closure)
    values, events = recorded[-1]
    return Values(
        launch.job.closure.name,
        launch.grid,
        request.programs,
        *kernel,
        values,
        "interpreter",
        values_of(launch.arguments),
        tuple(helpers),
        notes,
        failure,
        events,
        partial(session.compiler.graph, launch.job),
    )


def closure_texts(closure: Closure) -> list[tuple[str, int, str]]:
    """The file, first line and text of a kernel and of each of its helpers that has text."""
    return [(closure.label(function.file), function.first_line, function.text) for function in closure.functions]


def programs_in(grid: tuple[int, int, int], programs: Sequence[Any]) -> tuple[Program, ...]:
    """Programs as ids on three axes: a number is one on the first axis.

    Raises:
        UsageError: a program is not such an id, or the grid lacks it.
    """
    return tuple(dict.fromkeys(_program_in(grid, program) for program in programs))


def _program_in(grid: tuple[int, int, int], program: Any) -> Program:
    parts = [program] if isinstance(program, int) else program
    is_id = isinstance(parts, Sequence) and 1 <= len(parts) <= 3 and all(isinstance(part, int) for part in parts)
    if not is_id:
        raise UsageError(value_message("program", program, "the id of a program, such as (3, 0, 0), or its number"))
    x, y, z = (*parts, 0, 0)[:3]
    if not all(0 <= part < extent for part, extent in zip((x, y, z), grid, strict=True)):
        raise UsageError(f"The grid {grid} has no program {(x, y, z)}; it has {math.prod(grid):,}.")
    return x, y, z
