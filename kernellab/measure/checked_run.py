"""One launch whose outputs are compared with a reference."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kernellab.errors import CheckFailed
from kernellab.launch.calls import named_arguments, variants_of
from kernellab.launch.memory import memory_of
from kernellab.launch.poison import fill_of, key_of
from kernellab.launch.recording import LaunchRecord, Recorder
from kernellab.measure.comparison import Check, compare
from kernellab.measure.hints import stores_nothing
from kernellab.measure.reference import Reference, ReferenceFunction, check_of, reference_of
from kernellab.measure.second_look import WrongLaunch, explained

if TYPE_CHECKING:
    from kernellab.launch.runtime import Runtime


def launched_once(
    runtime: Runtime, bound: Any, grid: Any, args: tuple[Any, ...], meta: dict[str, Any], check: Any, **options: Any
) -> Recorder:
    """Launch a bound kernel once; return what was recorded. ``options`` are those of a `Recorder`.

    ``check`` is what a user gives as a reference, or None. It is computed before the launch, from copies.

    Raises:
        KernellabError: the launch fails.
        CheckFailed: an output differs from the reference.
        UsageError: the reference cannot be computed from the arguments of the kernel.
    """
    reference = None if check is None else _reference(bound, args, meta, check)
    with runtime.recording(**options, poison=reference is not None) as recorder:
        bound.launcher.first(grid, *args, **meta)
    if reference is not None:
        for record in recorder.records.values():
            for each in checks_of(reference, check_of(check), record, recorder, runtime):
                require_equal(each, record.compiled.kernel)
    return recorder


def checks_of(
    reference: Reference, check: ReferenceFunction, record: LaunchRecord, recorder: Recorder, runtime: Runtime
) -> tuple[Check, ...]:
    """Return how the outputs of a launch compare with a reference, which ``check`` computed.

    One that differs is looked at again: what explains it, and how large its errors are.

    Raises:
        CheckFailed: the kernel has no store at all.
        UsageError: the values do not belong to its outputs.
    """
    kernel, effects = record.compiled.kernel, record.compiled.effects
    memory = memory_of(record.arguments)
    outputs = {name: tensor for name, tensor in memory.items() if name in effects.mutated}
    if not outputs and not effects.unknown:
        raise CheckFailed(f"{kernel} gives nothing to compare. {stores_nothing(kernel).text}", kernel=kernel)
    masks = {name: recorder.unwritten.get(key_of(tensor)) for name, tensor in outputs.items()}
    fills = {name: fill_of(outputs[name][mask]) for name, mask in masks.items() if mask is not None}
    values = reference.of(outputs)
    checks = tuple(compare(reference.text, values, outputs, masks, fills))
    if all(each.equal for each in checks):
        return checks
    before = {name: recorder.before.get((id(record.kernel), key_of(tensor))) for name, tensor in outputs.items()}
    launch = WrongLaunch(
        record=record,
        values=values,
        unwritten=masks,
        before={name: held for name, held in before.items() if held is not None},
        check=check,
        repeat=partial(runtime.repeated, record),
    )
    return explained(launch, checks)


def require_equal(check: Check, kernel: str) -> None:
    """Raise where an output differs from its reference, with the first differences and the worst one.

    Raises:
        CheckFailed: it does.
    """
    if check.equal:
        return
    first = "".join(f" {difference}." for difference in check.differences)
    cause = "".join(f" {each}" for each in (check.cause, *(hint.text for hint in check.hints)) if each)
    raise CheckFailed(
        f"{check.argument} of {kernel} differs from {check.expression}: "
        f"{check.mismatched:,} of {check.elements:,} elements{_how(check)}{first}{cause}",
        kernel=kernel,
    )


def _how(check: Check) -> str:
    if check.never_written == check.mismatched:
        return " were never written."
    missing = f" {check.never_written:,} of them were never written." if check.never_written else ""
    worst = check.worst
    if worst is None:
        return f".{missing}"
    off = abs(worst.got - worst.expected)
    return f". {worst.place} is off by {off:.3g} where {worst.allowed:.3g} is allowed.{missing}"


def _reference(bound: Any, args: tuple[Any, ...], meta: dict[str, Any], check: Any) -> Reference:
    function = next(variants_of(bound, args, meta)).function
    return reference_of(check_of(check), named_arguments(function, args, meta))
