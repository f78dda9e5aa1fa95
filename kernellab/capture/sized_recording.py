"""From a recording and what its sizes follow from to one whose layouts, arguments and grids are expressions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch

from kernellab.capture.fake_calls import SymbolicLayout
from kernellab.capture.recorder import Recording
from kernellab.capture.size import Guard, Measured, Size, Sizes, compiled, sized, text_of
from kernellab.capture.size_tracking import SizeTracker
from kernellab.capture.tape import (
    WINDOW,
    Seen,
    Step,
    Tape,
    TapeDescriptor,
    TensorLayout,
    mapped,
    members_of,
    window_step,
)
from kernellab.errors import UsageError


def sizes_of(tracker: SizeTracker) -> Sizes:
    """Write the expressions into the recording of a tracker; return the guards, over its own symbols."""
    recording, resized = tracker.recording, _Sizing(tracker)
    for index, layout in tracker.layouts.items():
        known = recording.values[index]
        known.layout = resized.layout(known.layout, layout)
    for index, step in enumerate(recording.steps):
        recording.steps[index] = _window(recording, step) if step.operation == WINDOW else resized.step(index, step)
    for index, grid in tracker.grids.items():
        seen = recording.launched[index]
        recording.launched[index] = resized.launch(seen, grid, tracker.config_grids.get(index, ()))
    for step in recording.steps:
        for index in step.results:
            if index >= 0 and step.operation != WINDOW:
                _storage(recording, index)
    return Sizes(tuple(_guards(tracker)), tuple(tracker.measured.items()), frozenset(tracker.asked))


def _guards(tracker: SizeTracker) -> Iterator[Guard]:
    """Yield the guards, each once, and that no size becomes one of 0 or 1, for which torch does other things."""
    for guard in list(tracker.env.told):
        _is_written(tracker, guard.condition)
    known = set()
    for guard in tracker.env.told:
        if guard.condition not in known and guard.condition.free_symbols and _has_text(guard.condition):
            known.add(guard.condition)
            yield guard
    for symbol in tracker.measured:
        if tracker.env.replace(symbol).free_symbols:
            yield Guard(sympy.Ge(symbol, 2), reason="0 and 1 are sizes of their own for torch")


def _is_written(tracker: SizeTracker, expression: Any) -> bool:
    """Tell whether an expression can be written as Python; of one that cannot, the symbols are fixed."""
    if _has_text(expression):
        return True
    tracker.fix(expression.free_symbols, "what is computed with it cannot be written down")
    return False


def _has_text(expression: Any) -> bool:
    try:
        compiled(text_of(expression))
    except (UsageError, SyntaxError, NotImplementedError):
        return False
    return True


class _Sizing:
    def __init__(self, tracker: SizeTracker) -> None:
        self.tracker = tracker

    def number(self, value: Any, symbolic: Any) -> Any:
        """Return a recorded number as a size, where what it follows from is known."""
        if not isinstance(symbolic, torch.SymInt):
            return value
        expression = self.tracker.env.replace(symbolic.node.expr)
        if not _is_written(self.tracker, expression):
            return value
        return sized(value, expression)

    def launch(self, seen: Seen, grid: Sequence[Any], grids: Sequence[Sequence[Any]]) -> Seen:
        """Return a launch with sizes in its grid, and in those for each config."""
        tuning = seen.tuning
        if tuning is not None:
            of_configs = tuple(tuple(map(self.number, *pair)) for pair in zip(tuning.grids, grids, strict=True))
            tuning = dataclasses.replace(tuning, grids=of_configs)
        return dataclasses.replace(seen, grid=tuple(map(self.number, seen.grid, grid)), tuning=tuning)

    def layout(self, known: TensorLayout, symbolic: SymbolicLayout) -> TensorLayout:
        shape = tuple(map(self.number, known.shape, symbolic.shape))
        stride = tuple(map(self.number, known.stride, symbolic.stride))
        offset = self.number(known.offset, symbolic.offset) if _hint(symbolic.offset) == known.offset else known.offset
        return dataclasses.replace(known, shape=shape, stride=stride, offset=offset)

    def step(self, index: int, step: Step) -> Step:
        """Return a step with sizes among its arguments."""
        args, kwargs = self.tracker.arguments.get(index, ((), {}))
        found = tuple(map(self.value, step.args, args)) if args else step.args
        options = tuple((name, self.value(value, kwargs.get(name, value))) for name, value in step.kwargs)
        return dataclasses.replace(step, args=found, kwargs=options)

    def value(self, value: Any, symbolic: Any) -> Any:
        """Return a recorded argument with sizes in it."""
        if isinstance(value, TapeDescriptor):
            if not hasattr(symbolic, "block_shape"):
                return value
            shape = tuple(map(self.number, value.shape, symbolic.shape))
            return dataclasses.replace(
                value, shape=shape, strides=tuple(map(self.number, value.strides, symbolic.strides))
            )
        if isinstance(value, list | tuple) and isinstance(symbolic, list | tuple) and len(value) == len(symbolic):
            members = [self.value(each, other) for each, other in zip(value, symbolic, strict=True)]
            return type(value)(*members) if hasattr(value, "_fields") else type(value)(members)
        return self.number(value, symbolic)


def _hint(value: Any) -> Any:
    return value.node.hint if isinstance(value, torch.SymInt) else value


def _window(recording: Recording, step: Step) -> Step:
    """Return the step that makes a view, by the layouts as they are now."""
    (base, *_), (index,) = step.args, step.results
    values = recording.values
    return dataclasses.replace(
        window_step(base.index, values[base.index].layout, index, values[index].layout), place=step.place
    )


def _storage(recording: Recording, index: int) -> None:
    """Give the size of a storage as an expression where a value spans all of it."""
    known = recording.values[index]
    whole = (known.layout.offset + known.layout.span) * known.layout.itemsize
    if int(whole) == recording.storages[known.storage]:
        recording.storages[known.storage] = whole


def measuring(
    recording: Recording, sizes: Sizes, steps: Sequence[Step], live: Sequence[Step], used: Iterable[int]
) -> set[int]:
    """Return the values that measure the symbols of some steps and values, and of the guards of these symbols.

    Beside them, those that every run looks at, as numbers of the block may follow from their sizes: 0 and 1 have no
    symbols.
    """
    where = dict(sizes.measured)
    needed = _symbols_in(live, (recording.values[index].layout for index in used if index >= 0))
    conditions = [guard.condition.free_symbols for guard in sizes.guards]
    while more := set().union(*(each for each in conditions if each & needed)) - needed:
        needed |= more
    found = {where[symbol].value for symbol in needed if symbol in where}
    asked = {index for index in recording.samples if recording.values[index].storage in sizes.asked}
    return found | asked | _open_results(steps)


def measured_by_steps(tape: Tape, steps: Sequence[Step], wanted: Iterable[int]) -> set[int]:
    """Return the values whose sizes some steps and values of a program need, and which only a run makes."""
    if tape.sizes is None:
        return set()
    used = {index for step in steps for index in (*step.taken, *step.results)} | set(wanted)
    needed = _symbols_in(steps, (tape.values[index].layout for index in used if index >= 0))
    made = measured_in(tape, [i for step in tape.steps for i in step.results if i >= 0])
    found = {where.value for symbol, where in made.items() if symbol in needed and symbol.name.isidentifier()}
    return found | _open_results(tape.steps)


def _open_results(steps: Iterable[Step]) -> set[int]:
    """Return what has shapes that data decides, on which numbers of the block may depend."""
    return {index for step in steps if step.has_open_shape for index in step.results if index >= 0}


def _symbols_in(steps: Iterable[Step], layouts: Iterable[TensorLayout]) -> set[Any]:
    held: list[Any] = [(layout.shape, layout.stride, layout.offset) for layout in layouts]
    for step in steps:
        grids = [each.grid for each in step.use.tuning.configs] if step.use and step.use.tuning else []
        held.append((step.args, dict(step.kwargs), step.use.grid if step.use else (), grids))
    return {symbol for part in members_of(held) for symbol in _symbols(part)}


def _symbols(part: Any) -> set[Any]:
    if isinstance(part, TapeDescriptor):
        return {symbol for each in (*part.shape, *part.strides) for symbol in _symbols(each)}
    return part.expression.free_symbols if isinstance(part, Size) else set()


def with_symbols(tape: Tape, sizes: Sizes, inputs: Mapping[int, int]) -> Tape:
    """Return a program whose symbols tell where they are measured: ``x.shape[0]``; guards of other symbols go.

    ``inputs`` gives the inputs by their index in the recording.
    """
    names = {}
    for symbol, where in sizes.measured:
        if where.value in inputs:
            names[symbol] = where.text(tape.values[inputs[where.value]].name, is_input=True)
    for symbol, where in measured_in(tape, [i for step in tape.steps for i in step.results if i >= 0]).items():
        names.setdefault(symbol, where.text(tape.values[where.value].name, is_input=False))
    guards = tuple(guard for guard in sizes.guards if guard.condition.free_symbols <= names.keys())
    whole = dataclasses.replace(tape, sizes=Sizes(guards))
    return renamed(whole, {s: sympy.Symbol(name, integer=True, positive=True) for s, name in names.items()})


def renamed(tape: Tape, names: Mapping[Any, Any]) -> Tape:
    """Return a program with other symbols."""

    def changed(part: Any) -> Any:
        if isinstance(part, TapeDescriptor):
            return dataclasses.replace(part, shape=mapped(part.shape, changed), strides=mapped(part.strides, changed))
        return Size(part, part.expression.xreplace(names)) if isinstance(part, Size) else part

    guards = () if tape.sizes is None else tape.sizes.guards
    guards = tuple(dataclasses.replace(g, condition=g.condition.xreplace(names)) for g in guards)
    return dataclasses.replace(
        tape,
        values=tuple(dataclasses.replace(v, layout=_with_layout(v.layout, changed)) for v in tape.values),
        storages=mapped(tape.storages, changed),
        steps=tuple(_with_sizes(step, changed) for step in tape.steps),
        sizes=Sizes(guards),
    )


def _with_layout(layout: TensorLayout, change: Callable[[Any], Any]) -> TensorLayout:
    shape, stride = mapped(layout.shape, change), mapped(layout.stride, change)
    return dataclasses.replace(layout, shape=shape, stride=stride, offset=change(layout.offset))


def _with_sizes(step: Step, change: Callable[[Any], Any]) -> Step:
    use = step.use
    if use is not None:
        use = dataclasses.replace(use, grid=mapped(use.grid, change))
    if use is not None and use.tuning is not None:
        configs = tuple(dataclasses.replace(each, grid=mapped(each.grid, change)) for each in use.tuning.configs)
        use = dataclasses.replace(use, tuning=dataclasses.replace(use.tuning, configs=configs))
    return dataclasses.replace(step, args=mapped(step.args, change), kwargs=mapped(step.kwargs, change), use=use)


def measured_in(tape: Tape, indices: Iterable[int]) -> dict[Any, Measured]:
    """Return the symbols that are sizes of some values, each with where it is measured first."""
    found: dict[Any, Measured] = {}
    for index in indices:
        for axis, size in enumerate(tape.values[index].layout.shape):
            if isinstance(size, Size) and size.expression.is_Symbol:
                found.setdefault(size.expression, Measured(index, axis))
    return found
