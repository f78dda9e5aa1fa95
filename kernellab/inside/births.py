"""Where NaN and infinity come from: the first line, operation and operands behind one that an output holds.

From a store with a NaN, the walk goes back to the values that it was computed from, as long as one of these has a NaN.
Where it ends, the NaN was born: by an operation that the interpreter saw, or by a reduction. A NaN of infinite operands
is followed to the line in which these arose.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kernellab.errors import KernellabError
from kernellab.inside.recorded_launch import record_launch
from kernellab.inside.values import Values
from kernellab.launch.arguments import memory_of
from kernellab.launch.recorded_values import NonFinite, NonFiniteEvent, Program, RecordedValue, RecordRequest, ValueKind
from kernellab.launch.recording import LaunchRecord
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
        return f"line {self.line}: {operation_text(self.event)} is {self.kind.value} in {self.event.dtype}"


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
            if store.kind in {ValueKind.STORE, ValueKind.ATOMIC} and _count(store, kind):
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


def explain_births(session: Session, record: LaunchRecord) -> str | None:
    """Say where a launch on the CPU made the first NaN or infinity of an output, or None where its inputs have one.

    The arguments are those before the launch, but for what the kernel only writes. The launch is repeated to find the
    program that wrote the element, and that program once more to see its values.
    """
    bad = _first_bad_element(record)
    if bad is None or record.grid is None:
        return None
    name, element = bad
    try:
        program = _writer_of(session, record, name, element)
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


def _first_bad_element(record: LaunchRecord) -> tuple[str, int] | None:
    """The first element of an output with NaN, or else an infinity, where no input has one."""
    import torch

    effects, memory = record.compiled.effects, memory_of(record.arguments)
    floats = {name: tensor for name, tensor in memory.items() if tensor.is_floating_point() and tensor.numel()}
    inputs = {name: tensor for name, tensor in floats.items() if name in effects.reads}
    outputs = {name: tensor for name, tensor in floats.items() if name in effects.mutated - effects.reads}
    for is_bad in (torch.isnan, torch.isinf):
        if any(bool(is_bad(_comparable(tensor)).any()) for tensor in inputs.values()):
            continue
        for name, tensor in outputs.items():
            bad = is_bad(_comparable(tensor)).flatten()
            if bool(bad.any()):
                return name, int(bad.int().argmax())
    return None


def _comparable(tensor: Any) -> Any:
    return tensor.float() if tensor.element_size() == 1 else tensor


def _writer_of(session: Session, record: LaunchRecord, name: str, element: int) -> Program | None:
    """The program that wrote an element, in the order of the elements of the argument."""
    import numpy as np

    assert record.grid is not None, "it was launched"
    accesses = session.runtime.accesses_on_cpu(record, on_cpu(record.arguments), Watch(), _TIMEOUT_S)
    number = int(np.frombuffer(accesses.writers[name], np.int32)[element]) - 1
    if number < 0:
        return None
    x_size, y_size, _ = record.grid
    return number % x_size, number // x_size % y_size, number // (x_size * y_size)


def _launch_of(session: Session, record: LaunchRecord) -> Any:
    options = {name: record.compiled.options[name] for name in ("num_warps", "num_stages", "num_ctas")}
    meta = {**options, **record.arguments}
    return Launches(session.bind(record.kernel), record.grid, (), meta, session.target).of(NO_CONFIG)
