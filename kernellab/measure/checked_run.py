"""One launch whose outputs are compared with a reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kernellab.errors import CheckFailed
from kernellab.launch.calls import named_arguments, variants_of
from kernellab.launch.memory import memory_of
from kernellab.launch.poison import Key, fill_of, key_of
from kernellab.launch.recording import LaunchRecord, Recorder
from kernellab.measure.comparison import Check, compare
from kernellab.measure.reference import Reference, check_of, reference_of

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
            for each in checks_of(reference, record, recorder.unwritten):
                require_equal(each, record.compiled.kernel)
    return recorder


def checks_of(reference: Reference, record: LaunchRecord, unwritten: Mapping[Key, Any]) -> tuple[Check, ...]:
    """Return how the outputs of a launch compare with a reference.

    ``unwritten`` has masks of the elements that no launch wrote, as the recorder has them.
    """
    mutated = record.compiled.effects.mutated
    outputs = {name: tensor for name, tensor in memory_of(record.arguments).items() if name in mutated}
    masks = {name: unwritten.get(key_of(tensor)) for name, tensor in outputs.items()}
    fills = {name: fill_of(outputs[name][mask]) for name, mask in masks.items() if mask is not None}
    return tuple(compare(reference.text, reference.of(outputs), outputs, masks, fills))


def require_equal(check: Check, kernel: str) -> None:
    """Raise where an output differs from its reference, with the first differences and the worst one.

    Raises:
        CheckFailed: it does.
    """
    if check.equal:
        return
    first = "".join(f" {difference}." for difference in check.differences)
    cause = f" {check.cause}" if check.cause else ""
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
