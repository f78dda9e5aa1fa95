"""Both sides of a first difference, recorded on the CPU: two kernels, two configs, or a kernel and its float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kernellab._triton.kernel import is_kernel
from kernellab.errors import KernellabError, UsageError, value_message
from kernellab.inside.first_difference import (
    FirstDifference,
    difference_of_devices,
    first_difference_of,
    first_rounding_of,
)
from kernellab.inside.logged_launch import values_where_launched
from kernellab.inside.recorded_launch import launch_of_call, options_of, programs_in, record_launch
from kernellab.inside.values import Values
from kernellab.launch.arguments import memory_of
from kernellab.launch.calls import UserCall
from kernellab.launch.memory import copy_arguments
from kernellab.launch.recorded_values import Program, RecordRequest, program_at
from kernellab.launch.run import ElementAccesses, Watch
from kernellab.registry import Session
from kernellab.timing.launches import KernelLaunch

FLOAT64 = "float64"
_DEVICES = ("cpu", "gpu")
_MOST_PROGRAMS_TO_RUN = 1 << 12
_SPREAD = 4


def first_difference_of_calls(
    session: Session, call: UserCall, other: Any, programs: Sequence[Any] | None, timeout_s: float, label: str = ""
) -> FirstDifference:
    """Find the first line in which a call differs from another kernel, config or precision.

    ``other`` is a kernel, the name or id of a kept one, a config or dict of other options of the same kernel,
    ``"float64"``, or of tensors of a GPU ``"cpu"``. Without ``programs``, those that store the first element that
    differs are compared; where none differs, the first, the last and some between. ``label`` names the kernel in the
    result.

    Raises:
        UsageError: ``other`` is none of these, or the grid has no such program.
        LaunchError: the arguments do not fit one of the kernels.
    """

    def record(launch: KernelLaunch, *, is_wide: bool) -> Values:
        return record_launch(session, launch, RecordRequest(chosen, is_wide=is_wide), timeout_s)

    left = launch_of_call(session, call)
    name = label or left.job.closure.name
    if isinstance(other, str) and other == FLOAT64:
        chosen = programs_in(left.grid, programs or _spread_programs(left.grid))
        return first_rounding_of(name, record(left, is_wide=False), record(left, is_wide=True))
    if isinstance(other, str) and other in _DEVICES:
        chosen = programs_in(left.grid, programs or _spread_programs(left.grid))
        gpu = values_where_launched(session, call, chosen, None, timeout_s)
        if gpu.where != "gpu":
            raise UsageError(f"other is {other!r}; pass tensors of a GPU to compare it with the CPU.")
        return difference_of_devices(name, gpu, record(left, is_wide=False), record(left, is_wide=True))
    right, names = _other_launch(session, call, other, name)
    if left.grid != right.grid:
        raise UsageError(f"The grids {left.grid} and {right.grid} differ; compare configs with equal blocks.")
    chosen = programs_in(left.grid, programs) if programs else _programs_that_differ(session, left, right, timeout_s)
    return first_difference_of(names, lambda side, is_wide: record((left, right)[side], is_wide=is_wide))


def _other_launch(session: Session, call: UserCall, other: Any, name: str) -> tuple[KernelLaunch, tuple[str, str]]:
    """The launch to compare with, and the names of both sides."""
    if is_kernel(other) or isinstance(other, str | int):
        kernel = session.kernels[other] if isinstance(other, str | int) else other
        launch = launch_of_call(session, replace(call, kernel=session.bind(kernel)))
        there = str(other) if isinstance(other, str) else launch.job.closure.name
        return launch, (name, there if there != name else f"{name} (other)")
    options = options_of(other)
    if options is None:
        expected = 'a kernel, the name of a kept one, a triton.Config, a dict of options, "float64" or "cpu"'
        raise UsageError(value_message("other", other, expected))
    changed = launch_of_call(session, replace(call, meta={**call.meta, **options}))
    return changed, (name, ", ".join(f"{key}={value}" for key, value in options.items()))


def _programs_that_differ(
    session: Session, left: KernelLaunch, right: KernelLaunch, timeout_s: float
) -> tuple[Program, ...]:
    """The programs that store the first element in which both launches differ; some of the grid where none does."""
    spread = programs_in(left.grid, _spread_programs(left.grid))
    if math.prod(left.grid) > _MOST_PROGRAMS_TO_RUN:
        return spread
    try:
        outputs = [_run(session, launch, timeout_s) for launch in (left, right)]
    except KernellabError:  # what fails is recorded up to there
        return spread
    (one, accesses), (other, more) = outputs
    for name, tensor in one.items():
        there = other.get(name)
        if there is None or there.shape != tensor.shape or not tensor.numel():
            continue
        element = _first_difference(tensor, there)
        if element is not None:
            numbers = [side.writer(name, element) for side in (accesses, more) if name in side.writers]
            programs = dict.fromkeys(program_at(left.grid, number) for number in numbers if number is not None)
            return tuple(programs) or spread
    return spread


def _run(session: Session, launch: KernelLaunch, timeout_s: float) -> tuple[dict[str, Any], ElementAccesses]:
    """Run a whole launch on copies; return its memory afterwards, and the writer of each element."""
    arguments = copy_arguments(launch.arguments)
    accesses: list[ElementAccesses] = []
    warps = launch.options.get("num_warps")
    session.runtime.interpret(
        launch.function, arguments, launch.grid, timeout_s, warps=warps, watch=Watch(), on_accesses=accesses.append
    )
    return memory_of(arguments), accesses[0]


def _first_difference(one: Any, other: Any) -> int | None:
    """The element of two tensors that differs first by far, else by anything, in the order of the elements."""
    left, right = one.double().flatten(), other.double().flatten()
    differs = ~((left == right) | (left.isnan() & right.isnan()))
    if not bool(differs.any()):
        return None
    far = (left - right).abs().nan_to_num(math.inf, math.inf, math.inf) > 1e-3 * left.abs().nan_to_num(0, 0, 0).max()
    return int(((differs & far) if bool((differs & far).any()) else differs).int().argmax())


def _spread_programs(grid: tuple[int, int, int]) -> list[Program]:
    """The first program of a grid, the last, and some between."""
    total = math.prod(grid)
    numbers = dict.fromkeys(round(step * (total - 1) / _SPREAD) for step in range(_SPREAD + 1))
    return [program_at(grid, number) for number in numbers]
