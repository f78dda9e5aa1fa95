"""Where NaN and infinity come from: the first line, operation and operands behind one that an output holds.

From a store with a NaN, the walk goes back to the values that it was computed from, as long as one of these has a NaN.
Where it ends, the NaN was born: by an operation that the interpreter saw, or by a reduction. A NaN of infinite operands
is followed to the line in which these arose.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from kernellab.errors import KernellabError, RunError
from kernellab.inside.recorded_launch import record_launch
from kernellab.inside.values import Values
from kernellab.ir.operations import Access
from kernellab.launch.arguments import members_of, memory_of
from kernellab.launch.memory import copy_arguments
from kernellab.launch.recorded_values import (
    NonFinite,
    NonFiniteEvent,
    Program,
    RecordedValue,
    RecordRequest,
    program_at,
)
from kernellab.launch.recording import LaunchRecord, UndoLog
from kernellab.launch.run import Watch, on_cpu
from kernellab.registry import Session
from kernellab.timing.config import NO_CONFIG
from kernellab.timing.launches import Launches

_TIMEOUT_S = 5.0
_SIGNS = {"fadd": "+", "fsub": "-", "fmul": "*", "fdiv": "/", "frem": "%"}
_CASTS = frozenset({"fp_to_fp", "fp_trunc", "fp_ext"})


@dataclass(frozen=True, slots=True)
class Birth:
    """The place where a NaN or an infinity arose; ``event`` is the operation, None for a reduction or a product."""

    kind: NonFinite
    value: RecordedValue
    event: NonFiniteEvent | None

    @property
    def line(self) -> int:
        """The line of the kernel's file."""
        return self.value.line

    def sentence(self) -> str:
        """The birth in words: ``line 14: exp(120.4) is inf in fp16``."""
        if self.event is None:
            subject = f"{self.value.name or self.value.argument} is the first value with {self.kind.value}"
            return f"line {self.line}: {subject}"
        sign = "-" if self.event.result < 0 else ""
        return f"line {self.line}: {operation_text(self.event)} is {sign}{self.kind.value} in {self.event.dtype}"


def operation_text(event: NonFiniteEvent) -> str:
    """An operation with its operands, as one would write it: ``inf - inf``, ``exp(120.4)``."""
    numbers = [f"{operand:.4g}" for operand in event.operands]
    if event.operation in _SIGNS and len(numbers) == 2:
        return f"{numbers[0]} {_SIGNS[event.operation]} {numbers[1]}"
    if event.operation in _CASTS and numbers:
        return numbers[0]
    if event.operation == "fma" and len(numbers) == 3:
        return f"{numbers[0]} * {numbers[1]} + {numbers[2]}"
    return f"{event.operation}({', '.join(numbers)})" if numbers else f"a {event.operation}"


def births_in(values: Values) -> tuple[Birth, ...]:
    """The births behind the first store with a NaN or, if there is none, with an infinity; the earliest first."""
    for kind in NonFinite:
        for store in values.values:
            if store.kind.is_store and _count(store, kind):
                return tuple(_births_behind(values, store, kind))
    return ()


def _births_behind(values: Values, store: RecordedValue, kind: NonFinite) -> Iterator[Birth]:
    value = _first_with(values, store, kind)
    birth = Birth(kind, value, _event_of(values, value, kind))
    if kind is NonFinite.NAN and any(_count(values.values[at], NonFinite.INF) for at in value.reads):
        source = _first_with(values, value, NonFinite.INF)
        event = _event_of(values, source, NonFinite.INF)
        if event is not None:  # else a constant, such as the start of a maximum
            yield Birth(NonFinite.INF, source, event)
    yield birth


def _count(value: RecordedValue, kind: NonFinite) -> int:
    return value.summary.nan if kind is NonFinite.NAN else value.summary.inf


def _first_with(values: Values, value: RecordedValue, kind: NonFinite) -> RecordedValue:
    """The earliest value with a NaN, or an infinity, on the way back through those that a value was computed from."""
    while True:
        sources = [values.values[at] for at in sorted(value.reads) if _count(values.values[at], kind)]
        if not sources:
            return value
        value = sources[0]


def _event_of(values: Values, value: RecordedValue, kind: NonFinite) -> NonFiniteEvent | None:
    """The operation of a value's line that made its first NaN or infinity."""
    events = [event for event in values.events if event.kind is kind and event.program == value.program]
    in_line = [event for event in events if event.line == value.line]
    at_once = [event for event in in_line if event.iteration == value.iteration]
    return next(iter(at_once or in_line), None)


def explain_births(session: Session, record: LaunchRecord, undo: UndoLog | None = None) -> str | None:
    """Say where a launch on the CPU made the first NaN or infinity of an output, or None where its inputs have one.

    An output that is also an input counts where ``undo`` kept what it was before. The launch is repeated to find the
    program that wrote the element, and that program once more to see its values.
    """
    if record.grid is None:
        return None
    effects = record.compiled.effects
    is_kept = undo is not None and record.last > 0 and undo.is_kept(record.last, effects.mutated)
    outputs = effects.mutated if is_kept else effects.mutated - effects.reads
    bad_outputs = [(kind, place) for kind in NonFinite if (place := _first_bad_element(record, kind, outputs))]
    if not bad_outputs:
        return None
    with undo.before(record.last) if undo is not None and is_kept else nullcontext():
        inputs = effects.reads | (effects.atomics if is_kept else frozenset())
        places = [(kind, *place) for kind, place in bad_outputs if not _has_input(record, kind, inputs)]
        return _explain_element(session, record, *places[0]) if places else None


def _explain_element(session: Session, record: LaunchRecord, kind: NonFinite, name: str, element: int) -> str | None:
    """The sentence on one element of an output; the arguments are those before the launch."""
    try:
        if name not in record.compiled.effects.atomics:
            program = _writer_of(session, record, name, element)
        elif (program := _program_of_atomic(session, record, kind, name)) is None:
            return (
                f"{name} has {kind.value}, which no input has: the operands of its atomics have none, but add up to it."
            )
        if program is None:
            return None
        values = record_launch(session, _launch_of(session, record), RecordRequest((program,)), _TIMEOUT_S)
    except KernellabError as exc:
        return f"{name} has NaN or infinities, which no input has; the second look for their line failed: {exc.message}"
    births = births_in(values)
    if not births:
        return None
    sentences = "; ".join(birth.sentence() for birth in births)
    return f"{name} has {births[-1].kind.value}, which no input has: {sentences} (program {program})."


def _has_input(record: LaunchRecord, kind: NonFinite, names: Collection[str]) -> bool:
    """Whether a number that the launch was given is NaN, or an infinity, or the memory of ``names`` holds one."""
    is_bad = math.isnan if kind is NonFinite.NAN else math.isinf
    numbers = (value for _, value in members_of(record.arguments.items()) if isinstance(value, float))
    return any(map(is_bad, numbers)) or bool(_first_bad_element(record, kind, names))


def _first_bad_element(record: LaunchRecord, kind: NonFinite, names: Collection[str]) -> tuple[str, int] | None:
    """The first element with NaN, or an infinity, of the arguments in ``names``."""
    import torch

    is_bad = torch.isnan if kind is NonFinite.NAN else torch.isinf
    for name, tensor in memory_of(record.arguments).items():
        if name in names and tensor.is_floating_point() and tensor.numel():
            bad = is_bad(tensor.float() if tensor.element_size() == 1 else tensor).flatten()  # isnan takes no float8
            if bool(bad.any()):
                return name, int(bad.int().argmax())
    return None


def _writer_of(session: Session, record: LaunchRecord, name: str, element: int) -> Program | None:
    """The program that wrote an element, in the order of the elements of the argument."""
    assert record.grid is not None, "it was launched"
    accesses = session.runtime.accesses_on_cpu(record, on_cpu(copy_arguments(record.arguments)), Watch(), _TIMEOUT_S)
    number = accesses.writer(name, element)
    return None if number is None else program_at(record.grid, number)


def _program_of_atomic(session: Session, record: LaunchRecord, kind: NonFinite, name: str) -> Program | None:
    """The first program with a NaN, or an infinity, in the operands of its atomics on an argument."""
    assert record.grid is not None, "it was launched"
    sites = [site for site in record.compiled.effects.sites if site.kind is Access.ATOMIC and site.goes_to(name)]
    lines = frozenset(site.line for site in sites if site.line is not None)
    programs = tuple(program_at(record.grid, number) for number in range(math.prod(record.grid)))
    values = record_launch(session, _launch_of(session, record), RecordRequest(programs, lines), _TIMEOUT_S)
    if values.failure is not None:
        raise RunError(values.failure)
    return next((value.program for value in values.values if value.argument == name and _count(value, kind)), None)


def _launch_of(session: Session, record: LaunchRecord) -> Any:
    return Launches(session.bind(record.kernel), record.grid, (), record.keywords, session.target).of(NO_CONFIG)
