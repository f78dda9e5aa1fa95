"""A program whose kernels and torch operations change nothing: each works on a copy, which later steps see.

A storage has a *holder*, a value that spans all of it that the program uses. A step that changes memory gives a copy of
the holder, which holds the storage from there on; a view that was made earlier is made anew from that.
"""

from __future__ import annotations

import dataclasses

from kernellab.capture.finish import compacted
from kernellab.capture.naming import unique
from kernellab.capture.tape import (
    COPY,
    LAUNCH,
    Addresses,
    Layout,
    Ref,
    Step,
    Tape,
    Value,
    members_of,
    window_step,
    with_refs,
)


def functionalised(tape: Tape) -> Tape:
    """Return a program that gives equal outputs and leaves its inputs as they are."""
    rewriter = _Rewriter(tape)
    for step in tape.steps:
        rewriter.rewrite(step)
    outputs = tuple(rewriter.now(index) for index in tape.outputs)
    values, storages, steps = tuple(rewriter.values), tuple(rewriter.storages), tuple(rewriter.steps)
    whole = dataclasses.replace(tape, values=values, storages=storages, steps=steps, outputs=outputs)
    used = {index for step in whole.steps for index in (*step.taken, *step.results, *step.mutated)}
    return _named(compacted(whole, used | set(outputs) | set(tape.inputs)))


def _named(tape: Tape) -> Tape:
    """Return the program with a name of its own for each value; inputs keep theirs, then outputs, then the latest."""
    first = dict.fromkeys((*tape.inputs, *tape.outputs, *reversed(range(len(tape.values)))))
    names: dict[int, str] = {}
    for index in first:
        names[index] = unique(tape.values[index].name, names.values())
    return dataclasses.replace(
        tape, values=tuple(dataclasses.replace(value, name=names[index]) for index, value in enumerate(tape.values))
    )


class _Rewriter:
    """Walks through a program; ``holders`` gives the holder of each storage now, ``current`` what a value is now."""

    def __init__(self, tape: Tape) -> None:
        self.values = list(tape.values)
        self.layouts = [value.layout for value in tape.values]  # in the storages of the recording
        self.storages = list(tape.storages)
        self.steps: list[Step] = []
        self.holders: dict[int, int] = {}
        self.first: dict[int, Layout] = {}  # how the holder lay in its storage when that came up
        self.origin = [value.storage for value in tape.values]
        self.holder_of: dict[int, int] = {}  # which holder a value was made from
        for index in (*tape.inputs, *(index for index, _ in tape.constants)):
            self._holds(tape.values[index].storage, index)
        self.current: dict[int, int] = {index: index for index in range(len(self.values))}

    def rewrite(self, step: Step) -> None:
        for index in step.taken:
            self.now(index)
        if step.mutated:
            self._private(step)
        else:
            self._emit(step)

    def now(self, index: int) -> int:
        """Return the value that holds what ``index`` is now, made from the holder of its storage if that is newer."""
        storage = self.origin[index]
        holder = self.holders.get(storage)
        if holder is None or self.holder_of.get(index, holder) == holder:
            return self.current[index]
        held, moved = self.values[holder].layout, self._moved(index, holder)
        made = holder
        if moved != held:
            made = self._value(self.values[index].name, self.values[holder].storage, moved, storage)
            self.steps.append(window_step(holder, held, made, moved))
        self.current[index], self.holder_of[index] = made, holder
        return made

    def _private(self, step: Step) -> None:
        """Add a step that changes memory, so that it changes copies of the holders."""
        storages = list(dict.fromkeys(self.origin[index] for index in step.mutated))
        before = [self.holders[storage] for storage in storages]
        copies = []
        for storage, holder in zip(storages, before, strict=True):
            held = dataclasses.replace(self.values[holder].layout, offset=0)
            number = len(self.storages)
            self.storages.append(held.span * held.itemsize)
            copies.append(self._value(self.values[holder].name, number, held, storage))
        if step.operation == LAUNCH and not any(isinstance(each, Addresses) for each in members_of(step.kwargs)):
            taken = self._refs(step)
            kwargs = tuple((name, with_refs(value, taken)) for name, value in step.kwargs)
            self.steps.append(
                dataclasses.replace(
                    step,
                    kwargs=kwargs,
                    results=tuple(copies),
                    several=True,
                    mutated=tuple(before),
                    functional=True,
                )
            )
            self._move(storages, copies)
            return
        for holder, copy in zip(before, copies, strict=True):
            self.steps.append(Step(COPY, (Ref(holder),), results=(copy,), place=step.place))
        self._move(storages, copies)
        self._emit(step)

    def _move(self, storages: list[int], copies: list[int]) -> None:
        for storage, copy in zip(storages, copies, strict=True):
            self.holders[storage] = copy

    def _emit(self, step: Step) -> None:
        taken = self._refs(step)
        self.steps.append(
            dataclasses.replace(
                step,
                args=with_refs(step.args, taken),
                kwargs=tuple((name, with_refs(value, taken)) for name, value in step.kwargs),
                mutated=tuple(taken[index].index for index in step.mutated),
            )
        )
        for index in step.results:
            if index >= 0:
                self._made(index)

    def _made(self, index: int) -> None:
        """Note a value of the recording: it holds its storage, or is a view of what holds it."""
        storage = self.origin[index]
        if storage not in self.holders:
            self._holds(storage, index)
        holder = self.holder_of[index] = self.holders[storage]
        if holder != index:
            value, number = self.values[index], self.values[holder].storage
            self.values[index] = Value(value.name, number, self._moved(index, holder))

    def _moved(self, index: int, holder: int) -> Layout:
        """Return how a value of the recording lies in the storage of a holder."""
        layout, first = self.layouts[index], self.first[self.origin[index]]
        begin = first.offset * first.itemsize // layout.itemsize
        held = self.values[holder].layout
        start = held.offset * held.itemsize // layout.itemsize
        return dataclasses.replace(layout, offset=layout.offset - begin + start)

    def _holds(self, storage: int, index: int) -> None:
        self.holders[storage] = index
        self.first[storage] = self.layouts[index]
        self.holder_of[index] = index

    def _refs(self, step: Step) -> dict[int, Ref]:
        return {index: Ref(self.now(index)) for index in (*step.taken, *step.mutated)}

    def _value(self, name: str, number: int, layout: Layout, origin: int) -> int:
        self.values.append(Value(name, number, layout))
        self.layouts.append(layout)
        self.origin.append(origin)
        index = len(self.values) - 1
        self.current[index] = index
        return index
