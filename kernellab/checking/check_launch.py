"""Compare the outputs of a launch with a reference, and look for the cause of a difference.

A wrong launch is repeated on the CPU, on changed copies. If it is right with a contiguous copy of an input, the strides
are the cause; if it is right with another value in masked lanes, these are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kernellab.checking.comparison import Check, ExpectedValue, agree, compare, wrong_elements
from kernellab.checking.error_detail import detail_of
from kernellab.checking.hints import MaskedLanes, Mismatch, RepeatOutcome, UnreadElements, hints_on, stores_nothing
from kernellab.checking.reference import Reference, ReferenceFunction, check_of, reference_of
from kernellab.errors import CheckFailed, KernellabError, UsageError
from kernellab.launch.arguments import memory_of
from kernellab.launch.calls import named_arguments, variants_of
from kernellab.launch.memory import Copier, with_tensors
from kernellab.launch.poison import Key, fill, fill_of, key_of
from kernellab.launch.recording import LaunchRecord, Recorder
from kernellab.launch.run import ElementAccesses, LaneFill, Watch

if TYPE_CHECKING:
    from kernellab.launch.runtime import Runtime

_REPEATS_AT_MOST = 16
_SECONDS_AT_MOST = 0.5
_TIMEOUT_S = 3.0
_WITH_LARGE = {
    "--check": "compare smaller tensors, or use lab.run(kernel, grid, ..., check=...)",
    "--values": "launch it on smaller tensors, or call lab.values(kernel, grid, ...) before the launch",
    "--why": "launch it on smaller tensors, or call lab.explain(kernel, grid, ...) before the launch",
}
_PROGRAMS_ON_GPU_AT_MOST = 1024
_ELEMENTS_AT_MOST = 1 << 22
_FILLS = {"0": 0.0, '-float("inf")': -math.inf, 'float("inf")': math.inf, "1": 1.0}


def launch_once(
    runtime: Runtime, bound: Any, grid: Any, args: tuple[Any, ...], meta: dict[str, Any], check: Any, **options: Any
) -> tuple[Recorder, list[Check]]:
    """Launch a bound kernel once; return its recorder and how its outputs compare. ``options`` are a `Recorder`'s.

    ``check`` is the user's reference, or None. It is computed before the launch, from copies.

    Raises:
        KernellabError: the launch fails.
        CheckFailed: an output differs from the reference.
        UsageError: the reference cannot be computed from the arguments of the kernel.
    """
    reference = None
    if check is not None:
        function = next(variants_of(bound, args, meta)).function
        reference = reference_of(check_of(check), named_arguments(function, args, meta))
    with runtime.recording(**options, poison=reference is not None) as recorder:
        bound.launcher.launch_and_learn(grid, *args, **meta)
    checks = list[Check]()
    if reference is not None:
        for record in recorder.records.values():
            for result in check_outputs(reference, check_of(check), record, recorder, runtime):
                require_equal(result, record.compiled.kernel)
                checks.append(result)
    return recorder, checks


def check_last_launch(
    check: ReferenceFunction, record: LaunchRecord, recorder: Recorder, runtime: Runtime
) -> tuple[tuple[Check, ...], bool]:
    """Compare the outputs of the last launch of a record with a reference that is computed afterwards.

    The reference is computed on the arguments as they were before that launch. If several launches update an argument
    in place and that fails, it is computed on the arguments before the first launch, for all of them together; where
    that passes, the second value is True.

    Raises:
        CheckFailed: the kernel has no store at all.
        UsageError: the reference cannot be computed, or its values do not belong to the outputs.
    """
    undo, updated = recorder.undo, updated_by(record)

    def checks_before(number: int) -> tuple[Check, ...]:
        require_kept(record, recorder, number, updated, "--check")
        with undo.before(number):
            reference = reference_of(check, record.arguments).clone()
        with undo.before(record.last + 1):
            return check_outputs(reference, check, record, recorder, runtime)

    checks = checks_before(record.last)
    if record.first == record.last or not updated or all(result.equal for result in checks):
        return checks, False
    of_all = checks_before(record.first)
    return (of_all, True) if all(result.equal for result in of_all) else (checks, False)


def updated_by(record: LaunchRecord) -> frozenset[str]:
    """Return the arguments that the launches of a record update in place."""
    effects = record.compiled.effects
    return effects.atomics | (effects.reads & effects.writes)


def require_kept(record: LaunchRecord, recorder: Recorder, number: int, updated: Iterable[str], option: str) -> None:
    """Raise `UsageError` where an argument updated in place was too large to be kept for an option of the cell."""
    for name in sorted(updated):
        if not recorder.undo.is_kept(number, {name}):
            raise UsageError(
                f"{option}: {record.compiled.kernel} updates {name} in place, and it is too large for a copy of what "
                f"it held before the launch; {_WITH_LARGE[option]}."
            )


@contextmanager
def starting_values(record: LaunchRecord, recorder: Recorder, zeroed: Collection[str]) -> Iterator[None]:
    """Let memory hold what each config of the last launch starts from, inside a with statement.

    That is what it held before the launch, with zeros in what is ``zeroed`` before each launch.
    """
    effects, memory = record.compiled.effects, memory_of(record.arguments)
    with recorder.undo.before(record.last):
        for name in memory.keys() & set(zeroed):
            is_undone = name in effects.mutated and recorder.undo.is_kept(record.last, {name})
            if record.last and is_undone:  # else the zeros would stay
                memory[name].zero_()
        yield


def check_outputs(
    reference: Reference, check: ReferenceFunction, record: LaunchRecord, recorder: Recorder, runtime: Runtime
) -> tuple[Check, ...]:
    """Compare the outputs of a launch with a reference; those that differ get hints and detail.

    Raises:
        CheckFailed: the kernel has no store at all.
        UsageError: the values do not belong to its outputs.
    """
    kernel, effects = record.compiled.kernel, record.compiled.effects
    memory = memory_of(record.arguments)
    outputs = {name: tensor for name, tensor in memory.items() if name in effects.mutated}
    if not outputs and not effects.unknown:
        raise CheckFailed(f"{kernel} has no output to compare. {stores_nothing(kernel)}", kernel=kernel)
    masks = {name: recorder.unwritten.get(key_of(tensor)) for name, tensor in outputs.items()}
    fills = {name: fill_of(outputs[name][mask]) for name, mask in masks.items() if mask is not None}
    values = reference.of(outputs)
    before = check.computed_before(record.arguments)
    compared = compare(reference.text, values, outputs, masks, fills)
    checks = tuple(replace(result, computed_before=before) for result in compared)
    if all(result.equal for result in checks):
        return checks
    names = {name for name in outputs.keys() & updated_by(record) if recorder.undo.is_kept(record.first, {name})}
    with recorder.undo.before(record.first):
        at_first = {name: outputs[name].detach().clone() for name in names}
    launch = WrongLaunch(
        record=record,
        values=values,
        unwritten=masks,
        before=at_first,
        check=check,
        repeat=partial(runtime.accesses_on_cpu, record),
        memory_before=partial(recorder.undo.before, record.last),
    )
    return explain_checks(launch, checks)


def require_equal(check: Check, kernel: str) -> None:
    """Raise where an output differs from its reference, with the first differences and the worst one.

    Raises:
        CheckFailed: the check is not equal.
    """
    if check.equal:
        return
    how, worst = ".", check.worst
    if check.never_written == check.mismatched:
        how = " wrong, all of them never written."
    else:
        if worst is not None:
            off = abs(worst.got - worst.expected)
            how = f". {worst.place} has an error of {off:.3g}, tolerance {worst.allowed:.3g}."
        if check.never_written:
            how += f" {check.never_written:,} of them were never written."
    text = f"{check.argument} of {kernel} differs from {check.expression}: "
    text += f"{check.mismatched:,} of {check.elements:,} elements{how}"
    more = (*(f"{difference}." for difference in check.differences), check.cause, *check.hints)
    raise CheckFailed(" ".join(filter(None, (text, *more))), kernel=kernel)


@dataclass(frozen=True, slots=True)
class WrongLaunch:
    """A launch with outputs that differ from ``values``, their expected values by name.

    ``unwritten`` are masks of unwritten elements and ``before`` the in-place arguments before the first launch, both by
    name. ``check`` computes the reference, and ``repeat`` launches again; in the context of ``undone``, memory is as it
    was before the last launch.
    """

    record: LaunchRecord
    values: Mapping[str, ExpectedValue]
    unwritten: Mapping[str, Any]
    before: Mapping[str, Any]
    check: ReferenceFunction
    repeat: Callable[[Mapping[str, Any], Watch, float], ElementAccesses]
    memory_before: Callable[[], AbstractContextManager[None]]

    @property
    def memory(self) -> dict[str, Any]:
        """The tensors of the launch, by name."""
        return memory_of(self.record.arguments)


def explain_checks(launch: WrongLaunch, checks: tuple[Check, ...]) -> tuple[Check, ...]:
    """Add hints and the errors in detail to the failed checks of a launch."""
    accesses, repeat = _repeat_launch(launch, checks)
    first = next((check for check in checks if not check.equal), None)
    return tuple(
        check if check.equal else _explain_check(launch, check, accesses, repeat if check is first else RepeatOutcome())
        for check in checks
    )


def _explain_check(launch: WrongLaunch, check: Check, accesses: ElementAccesses | None, repeat: RepeatOutcome) -> Check:
    name, record = check.argument, launch.record
    got, want, never = launch.memory[name], launch.values[name], launch.unwritten.get(name)
    before = launch.before.get(name)
    effects = record.compiled.effects
    mismatch = Mismatch(name, check.expression, got, want, effects, never, before, record.launches, repeat)
    hints = tuple(hints_on(mismatch).values())
    wrong = wrong_elements(got, want)
    missing = None
    if never is not None and fill_of(got[never]) is None:  # else they count as their fill
        missing = never.flatten()
        wrong |= missing
    writers = None
    if accesses is not None and name not in effects.atomics:  # several programs add to the same elements
        writers = _decode_notes(accesses.writers[name], got, "int32")
    detail = detail_of(got, want, wrong, missing, writers, record.grid or (1, 1, 1))
    return replace(check, hints=hints[: 1 if check.cause else None], detail=detail)


def _repeat_launch(launch: WrongLaunch, checks: tuple[Check, ...]) -> tuple[ElementAccesses | None, RepeatOutcome]:
    """Repeat a launch; return its accesses per element and the outcome of trials, None where that is impossible."""
    trials = _Trials(launch)
    with suppress(KernellabError):  # it takes too long, or the CPU cannot run it
        accesses = trials.accesses() if _is_repeatable(launch) else None
        if accesses is not None:
            strides, lanes = trials.strides(), trials.lanes(accesses)
            return accesses, RepeatOutcome(strides, lanes, tuple(_unread_elements(launch, checks, accesses)))
    return None, RepeatOutcome()


def _is_repeatable(launch: WrongLaunch) -> bool:
    record, effects = launch.record, launch.record.compiled.effects
    if record.run is None or record.grid is None or effects.unknown or effects.aliases:
        return False
    if sum(tensor.numel() for tensor in launch.memory.values()) > _ELEMENTS_AT_MOST:
        return False
    if not updated_by(record) <= launch.before.keys():
        return False
    if record.run.where == "interpreter":
        return record.run.seconds <= _SECONDS_AT_MOST
    return math.prod(record.grid) <= _PROGRAMS_ON_GPU_AT_MOST


@dataclass(slots=True)
class _Trials:
    """Repeats a launch, a limited number of times."""

    launch: WrongLaunch
    left: int = _REPEATS_AT_MOST

    def accesses(self) -> ElementAccesses | None:
        """Return the accesses of the launch per element; None where a repetition gives other outputs."""
        copies = self._copies()
        accesses = self._repeat(copies, Watch())
        held = memory_of(copies)
        return accesses if all(self._is_repeated(name, held[name]) for name in self.launch.values) else None

    def strides(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Return the strides of non-contiguous arguments for which the launch is right on contiguous copies."""
        memory = self.launch.memory
        names = [name for name, tensor in memory.items() if not tensor.is_contiguous()]
        for some in [[name] for name in names] + [names] * (len(names) > 1):
            keys = {key_of(memory[name]) for name in some}
            if self._is_right(self._copies(contiguous=keys), Watch()):
                return tuple((name, tuple(memory[name].stride())) for name in some)
        return ()

    def lanes(self, accesses: ElementAccesses) -> tuple[MaskedLanes, ...]:
        """Return the first load for which the launch is right with another value in its masked lanes."""
        for load in accesses.masked:
            is_whole = not self.launch.memory[load.argument].dtype.is_floating_point
            for text, value in _FILLS.items():
                if not self.left:
                    return ()
                if is_whole and not math.isfinite(value):
                    continue
                if self._is_right(self._copies(), Watch(LaneFill(load.file, load.line, value))):
                    return (MaskedLanes(load.argument, load.line, text, load.has_other),)
        return ()

    def _is_right(self, copies: dict[str, Any], watch: Watch) -> bool:
        try:
            self._repeat(copies, watch)
        except KernellabError:
            return False
        held = memory_of(copies)
        return all(agree(held[name].to(want.value.device), want) for name, want in self.launch.values.items())

    def _repeat(self, copies: dict[str, Any], watch: Watch) -> ElementAccesses:
        self.left -= 1
        return self.launch.repeat(copies, watch, _TIMEOUT_S)

    def _is_repeated(self, name: str, held: Any) -> bool:
        """Whether a copy equals the output wherever the launch wrote."""
        import torch  # a launch needs it anyway

        got = self.launch.memory[name]
        held, never = held.to(got.device), self.launch.unwritten.get(name)
        held = held if never is None else torch.where(never, got, held)
        return not bool(wrong_elements(held, ExpectedValue(got)).any())

    def _copies(self, contiguous: frozenset[Key] | set[Key] = frozenset()) -> dict[str, Any]:
        """Return copies of the arguments on the CPU as they were before the first launch, some of them contiguous."""
        record, effects = self.launch.record, self.launch.record.compiled.effects
        copies = Copier(lambda storage: storage.cpu().clone()).of(record.arguments)
        originals = self.launch.memory
        for name, tensor in memory_of(copies).items():
            if name in self.launch.before:
                tensor.copy_(self.launch.before[name])
            elif name in effects.writes:
                fill(tensor)
        keys = {id(copy): key_of(originals[name]) for name, copy in memory_of(copies).items()}
        return {
            name: with_tensors(value, lambda t: t.contiguous() if keys[id(t)] in contiguous else t)
            for name, value in copies.items()
        }


def _unread_elements(
    launch: WrongLaunch, checks: tuple[Check, ...], accesses: ElementAccesses
) -> Iterator[UnreadElements]:
    """Yield elements of inputs that no program reads, though the wrong elements of outputs depend on them."""
    memory, effects = launch.memory, launch.record.compiled.effects
    storages = [tensor.untyped_storage().data_ptr() for tensor in memory.values()]
    for name in sorted(effects.reads - effects.mutated):
        tensor = memory[name]
        is_alone = storages.count(tensor.untyped_storage().data_ptr()) == 1
        unread = _decode_notes(accesses.read[name], tensor, "uint8") == 0
        if not is_alone or not tensor.dtype.is_floating_point or not bool(unread.any()) or bool(unread.all()):
            continue
        if _is_needed(launch, checks, tensor, unread.to(tensor.device)):
            places = unread.nonzero()
            first, last = tuple(places[0].tolist()), tuple(places[-1].tolist())
            yield UnreadElements(name, len(places), tensor.numel(), first, last)


def _is_needed(launch: WrongLaunch, checks: tuple[Check, ...], tensor: Any, unread: Any) -> bool:
    """Whether other values in the unread elements change the reference where an output is wrong."""
    import torch

    other = torch.where(unread, (2 * tensor.double().abs() + 1).to(tensor.dtype), tensor)
    outputs = {name: launch.memory[name] for name in launch.values}
    try:
        one, two = (_reference_with(launch, tensor, values).of(outputs) for values in (tensor, other))
    except KernellabError:
        return False
    for check in checks:
        name = check.argument
        if check.equal or name not in one or name not in two:
            continue
        moved = wrong_elements(two[name].value.to(outputs[name].dtype), one[name])
        if bool((moved & wrong_elements(outputs[name], launch.values[name])).any()):
            return True
    return False


def _reference_with(launch: WrongLaunch, tensor: Any, other: Any) -> Any:
    """Return the reference with another tensor in place of one of the arguments."""
    key = key_of(tensor)

    def with_other(values: Mapping[str, Any]) -> dict[str, Any]:
        def swap(candidate: Any) -> Any:
            return other if key_of(candidate) == key else candidate

        return {name: with_tensors(value, swap) for name, value in values.items()}

    sources = launch.check.sources
    check = launch.check if sources is None else replace(launch.check, sources=with_other(sources))
    with launch.memory_before():
        return reference_of(check, with_other(launch.record.arguments))


def _decode_notes(data: bytes, like: Any, dtype: str) -> Any:
    """Decode the notes per element of a tensor, in its shape, on the CPU."""
    import torch

    return torch.frombuffer(bytearray(data), dtype=getattr(torch, dtype)).view(like.shape)
