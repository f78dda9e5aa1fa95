"""The gate between two revisions of a kernel: timed in turns on one GPU, or compared without one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from kernellab._triton.kernel import Kernel, constexpr_names, jit_function, parameter_names
from kernellab.errors import GateFailed, KernellabError, UsageError, WorkerError, value_text
from kernellab.explain.snapshot import resources_snapshot, snapshot_of
from kernellab.explain.verbs import device_of
from kernellab.launch.calls import UserCall
from kernellab.launch.memory import copy_arguments
from kernellab.registry import Session
from kernellab.registry.calls import compile_call, has_gpu
from kernellab.target import device_name
from kernellab.timing.gate import GateVerdict, time_until_decided
from kernellab.timing.launches import Implementation
from kernellab.timing.timer import comparer_on_cpu, gpu_timers
from kernellab.upgrade.comparison import reasons_between
from kernellab.upgrade.gate_result import GateResult

MARGIN = 0.03
BUDGET_S = 10.0
_WARM_UP_ROUNDS = 3  # the first ones load the kernels

Against = Kernel | tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class GateOptions:
    """The slowdown that is allowed, as a share; the seconds of rounds; the names of both sides in what is shown.

    With ``check``, the outputs have to agree; without a GPU, both run on the CPU for it.
    """

    margin: float = MARGIN
    budget_s: float = BUDGET_S
    timeout_s: float = 60.0
    check: bool = False
    names: tuple[str, str] | None = None


@contextmanager
def failing_as_gate() -> Iterator[None]:
    """Turn errors of worker processes into `GateFailed`."""
    try:
        yield
    except WorkerError as exc:
        raise GateFailed(exc.message, place=exc.place, detail=exc.detail, kernel=exc.kernel) from exc


@failing_as_gate()
def gate_kernels(session: Session, later: UserCall, against: Against, options: GateOptions) -> GateResult:
    """Compare a launch with that of an earlier revision, on the same arguments where both take them.

    Raises:
        UsageError, LaunchError: a launch does not fit its kernel.
        GateFailed: a worker process was lost, or took too long.
        KernellabError: one does not compile, or fails.
    """
    arguments, calls, notes = _calls_on_copies(later, against)
    with session.runtime.observers.own_launches():
        compiled = [compile_call(session, replace(call, kernel=session.bind(call.kernel))) for call in calls]
        names = options.names or _names(compiled)
        pair = [replace(side, name=name) for side, name in zip(compiled, names, strict=True)]
        if has_gpu(session):
            return _time_in_turns(session, pair, arguments, options, notes)
        return _compare_compiles(session, pair, arguments, options, notes)


def _calls_on_copies(later: UserCall, against: Against) -> tuple[dict[str, Any], list[UserCall], list[str]]:
    """The arguments by name, the calls of the earlier and the later kernel on copies of them, and notes.

    The earlier one takes what it has parameters for, in place of which ``against`` may have its own values; tensors of
    the same shape, strides and dtype stay shared.
    """
    kernel, grid, own = earlier_call(against)
    names = parameter_names(later.kernel)
    arguments = copy_arguments({**dict(zip(names, later.args, strict=False)), **later.meta})
    takes, notes = parameter_names(kernel), []
    shared = {name: value for name, value in arguments.items() if name in takes or name not in names}
    for name, value in own.items():
        if _has_layout_of(value, arguments.get(name)):
            continue
        known = name in arguments and name not in constexpr_names(kernel) and name in takes
        values = _value_words(value), _value_words(arguments.get(name))
        if known and values[0] != values[1]:
            notes.append(f"{name} is {values[0]} earlier and {values[1]} later: each runs on its own")
        shared[name] = copy_arguments({name: value})[name]
    earlier = UserCall(kernel, later.grid if grid is None else grid, (), shared)
    return arguments, [earlier, UserCall(later.kernel, later.grid, (), arguments)], notes


def earlier_call(against: Against) -> tuple[Kernel, Any, Mapping[str, Any]]:
    """The kernel, grid (None: that of the later one) and own values of ``against``.

    Raises:
        UsageError: it is neither a kernel nor (kernel, grid, values by name).
    """
    if not isinstance(against, tuple):
        return against, None, {}
    if len(against) != 3 or not isinstance(against[2], Mapping):
        raise UsageError(f"against is {value_text(against)}; expected a kernel, or (kernel, grid, values by name).")
    return against


def _has_layout_of(value: Any, other: Any) -> bool:
    """Whether two values are tensors of one dtype, shape and strides."""
    if not (hasattr(value, "untyped_storage") and hasattr(other, "untyped_storage")):
        return False
    layouts = [(tensor.dtype, tuple(tensor.shape), tuple(tensor.stride())) for tensor in (value, other)]
    return bool(layouts[0] == layouts[1])


def _value_words(value: Any) -> str:
    if not hasattr(value, "untyped_storage"):
        return value_text(value)
    return f"{value.dtype} of shape {tuple(value.shape)} and strides {tuple(value.stride())}"


def _names(pair: list[Implementation]) -> tuple[str, str]:
    earlier, later = (str(jit_function(side.kernel_launch.function).__name__) for side in pair)
    return (earlier, later) if earlier != later else (f"{earlier} (earlier)", f"{later} (later)")


def _time_in_turns(
    session: Session, pair: list[Implementation], arguments: dict[str, Any], options: GateOptions, notes: list[str]
) -> GateResult:
    timer = gpu_timers(session.runtime, options.timeout_s)(arguments, pair)
    try:
        differences = [timer.try_out(side) for side in pair]
        for side in pair:
            timer.load_in_worker(side)
        timer.interleave(pair, _WARM_UP_ROUNDS)
        verdict, timing = time_until_decided(
            lambda rounds: timer.interleave(pair, rounds), options.margin, options.budget_s, time.monotonic
        )
        here = dict.fromkeys(timer.why_here(side) for side in pair)
        notes = [*notes, *timer.notes, *(f"timed in this process: {why}" for why in here if why)]
    finally:
        timer.close()
    if options.check and differences[1]:
        verdict = GateVerdict.DIFFERENT
    before, after = (resources_snapshot(side.kernel) for side in pair)
    compared = (pair[0].name, pair[1].name), verdict, options.margin, options.budget_s, device_name(), before, after
    return GateResult(*compared, timing, difference=differences[1], notes=tuple(dict.fromkeys(notes)))


def _compare_compiles(
    session: Session, pair: list[Implementation], arguments: dict[str, Any], options: GateOptions, notes: list[str]
) -> GateResult:
    device = device_of(session)
    before, after = (snapshot_of(side, device) for side in pair)
    reasons = reasons_between(before, after)
    verdict = GateVerdict.SUSPECT if reasons else GateVerdict.WITHIN
    unknown = [sentence for side in (before, after) for sentence in side.unknown]
    difference = failure = ""
    if options.check:
        difference, failure = _compare_on_cpu(session, pair, arguments, options)
    if difference:
        verdict = GateVerdict.DIFFERENT
    elif failure and verdict is GateVerdict.WITHIN:
        verdict = GateVerdict.UNDECIDED
    notes = [*notes, *([failure] if failure else []), *unknown]
    compared = (pair[0].name, pair[1].name), verdict, options.margin, options.budget_s, device.name, before, after
    return GateResult(*compared, reasons=reasons, difference=difference, notes=tuple(dict.fromkeys(notes)))


def _compare_on_cpu(
    session: Session, pair: list[Implementation], arguments: dict[str, Any], options: GateOptions
) -> tuple[str, str]:
    """The difference between the outputs of both, or "", and why they could not be compared, or ""."""
    compare, difference = comparer_on_cpu(session.runtime, options.timeout_s, arguments, pair), ""
    for side in pair:
        try:
            difference = compare(side)
        except KernellabError as exc:
            return "", f"outputs not compared: {side.name} fails on the CPU: {' '.join(exc.message.split())}"
    return difference, ""
