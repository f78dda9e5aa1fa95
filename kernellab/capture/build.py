"""From a recording to a program, and from a program to a functional one, which changes no input.

To build a program, inputs that share memory become one, dead operations are dropped, and values get names.

In a functional program, each kernel and torch operation works on a copy, which later steps use. A storage has a
*holder*, a value that spans all of it that the program uses. A step that changes memory gives a copy of the holder,
which is the holder from there on; earlier views are made anew from it.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from kernellab.capture.naming import identifier, named_tensors, unique
from kernellab.capture.plan import EMPTY
from kernellab.capture.program_sizes import measuring_values, number_read, values_measured_by_steps, with_symbols
from kernellab.capture.size import Sizes
from kernellab.capture.tape import (
    COPY,
    LAUNCH,
    READ,
    WINDOW,
    Addresses,
    KernelUse,
    RecordedKernelLaunch,
    Ref,
    Step,
    Tape,
    TapeValue,
    TensorLayout,
    members_of,
    window_step,
    with_refs,
)
from kernellab.capture.tracked_tensors import Recording, TrackedTensor, is_of_torch
from kernellab.store import Argument

_QUIET = frozenset({"aten.detach.default", "aten.lift_fresh.default"})


def build_program(
    recording: Recording,
    scope: Mapping[str, Any],
    register: Callable[[RecordedKernelLaunch], KernelUse],
    sizes: Sizes | None = None,
) -> Tape:
    """Return the program of a recording; ``register`` adds the kernel of a launch to the side table.

    ``sizes`` has the guards and symbols of a dynamic capture.
    """
    steps = [
        dataclasses.replace(step, use=register(recording.launches[index])) if index in recording.launches else step
        for index, step in enumerate(recording.steps)
    ]
    inputs, windows, memories = _inputs(recording)
    storages = [known.storage for known in recording.values]
    steps = list(_without_constant_reads([*windows, *steps], storages, inputs))
    names = _user_names(recording, scope)
    outputs = _outputs(recording, steps, inputs, names)
    live, used = _live_steps(steps, storages, inputs, outputs)
    while sizes is not None and (missing := measuring_values(recording, sizes, steps, live, used) - used):
        live, used = _live_steps(steps, storages, inputs, [*outputs, *missing, *(used - {-1})])
    used_inputs = [index for index in inputs if index in used]
    if sizes is not None:  # in the order of first use; reading a shape is none
        operands = [index for step in live for index in step.operands]
        used_inputs.sort(key=lambda index: operands.index(index) if index in operands else len(operands))
    recording.inputs[:] = used_inputs
    wanted = {index: names.get(index, "") for index in used if index >= 0}
    named = _names(recording, live, used_inputs, wanted)
    samples = {**recording.samples, **memories}
    raw = Tape(
        values=tuple(TapeValue(named.get(i, ""), v.storage, v.layout) for i, v in enumerate(recording.values)),
        storages=tuple(recording.storages),
        steps=tuple(live),
        inputs=tuple(used_inputs),
        outputs=tuple(outputs),
        output_names=tuple(named[index] for index in outputs),
        samples=tuple(dataclasses.replace(samples[index], name=named[index]) for index in used_inputs),
        constants=tuple((index, tensor) for index, tensor in recording.constants.items() if index in used),
        notes=(*recording.notes, *dict.fromkeys(_notes(live))),
    )
    program = with_devices(compact(raw, used))
    if sizes is None:
        return program
    return with_symbols(program, sizes, dict(zip(used_inputs, program.inputs, strict=True)))


def with_devices(tape: Tape) -> Tape:
    """Return a program of several GPUs with an index in each factory's device: ``cuda`` alone means the current GPU."""
    if len(tape.gpus) < 2:
        return tape
    return dataclasses.replace(tape, steps=tuple(_with_device(tape, step) for step in tape.steps))


def _with_device(tape: Tape, step: Step) -> Step:
    result = next((index for index in step.results if index >= 0), None)
    device = dict(step.kwargs).get("device")
    if step.operation == LAUNCH or result is None or not isinstance(device, torch.device) or device.index is not None:
        return step
    own = torch.device(tape.values[result].layout.device)
    return dataclasses.replace(step, kwargs=tuple({**dict(step.kwargs), "device": own}.items()))


def compact(tape: Tape, used: Iterable[int]) -> Tape:
    """Return a program with only the used values and their storages, renumbered."""
    used_values = sorted(index for index in set(used) if index >= 0)
    new = {index: number for number, index in enumerate(used_values)}
    refs = {index: Ref(number) for index, number in new.items()}
    numbers = {s: i for i, s in enumerate(dict.fromkeys(tape.values[index].storage for index in used_values))}
    return dataclasses.replace(
        tape,
        values=tuple(dataclasses.replace(tape.values[i], storage=numbers[tape.values[i].storage]) for i in used_values),
        storages=tuple(tape.storages[storage] for storage in numbers),
        steps=tuple(
            dataclasses.replace(
                step,
                args=with_refs(step.args, refs),
                kwargs=with_refs(step.kwargs, refs),
                results=tuple(new.get(index, -1) for index in step.results),
                mutated=tuple(new[index] for index in step.mutated if index in new),
            )
            for step in tape.steps
        ),
        inputs=tuple(new[index] for index in tape.inputs),
        outputs=tuple(new[index] for index in tape.outputs),
        apart=tuple(new[index] for index in tape.apart),
        constants=tuple((new[index], tensor) for index, tensor in tape.constants),
    )


def live_steps(tape: Tape, outputs: Sequence[int]) -> tuple[Step, ...]:
    """Return the steps that some outputs, or changes of inputs, depend on."""
    storages = [value.storage for value in tape.values]
    wanted = set(outputs)
    while True:
        live = tuple(_needed_steps(tape.steps, storages, tape.inputs, wanted, keeps_launches=False))
        missing = values_measured_by_steps(tape, live, wanted) - wanted
        if not missing:
            return live
        wanted |= missing


def _inputs(recording: Recording) -> tuple[list[int], list[Step], dict[int, Argument]]:
    """Return the inputs, one for each storage, the steps that make views of them, and samples of new inputs."""
    groups: dict[int, list[int]] = defaultdict(list)
    for index in recording.samples:
        groups[recording.values[index].storage].append(index)
    chosen, windows, memories = [], [], {}
    for storage, members in groups.items():
        layouts = [recording.values[index].layout for index in members]
        base = next((i for i in members if all(recording.values[i].layout.covers(layout) for layout in layouts)), None)
        if base is None:
            base = _add_shared_input(recording, storage, members)
            memories[base] = _sample(recording, base, members)
        chosen.append(base)
        for index in members:
            if index != base:
                windows.append(window_step(base, recording.values[base].layout, index, recording.values[index].layout))
    return chosen, windows, memories


def _add_shared_input(recording: Recording, storage: int, members: Sequence[int]) -> int:
    """Add a value for the memory of inputs that overlap, where none covers the others; return its index."""
    known = [recording.values[index] for index in members]
    first = known[0].layout
    size = first.itemsize if len({(k.layout.dtype) for k in known}) == 1 else 1
    begin = min(k.layout.offset * k.layout.itemsize for k in known) // size
    end = max((k.layout.offset + k.layout.span) * k.layout.itemsize for k in known) // size
    dtype = first.dtype if size == first.itemsize else "uint8"
    layout = TensorLayout(dtype, size, (end - begin,), (1,), begin, first.device)
    name = next((k.name for k in known if k.name), "input")
    recording.values.append(TrackedTensor(layout, storage, lambda: None, False, f"{name}_memory"))
    names = " and ".join(k.name or "an input" for k in known)
    recording.notes[f"{names} share memory and none holds the others; the program takes {name}_memory for them"] = None
    return len(recording.values) - 1


def _sample(recording: Recording, base: int, members: Sequence[int]) -> Argument:
    layout = recording.values[base].layout
    bounds = [recording.samples[index] for index in members]
    low = min((bound.low for bound in bounds if bound.low is not None), default=None)
    high = max((bound.high for bound in bounds if bound.high is not None), default=None)
    device = layout.device.partition(":")[0]
    return Argument("", "tensor", False, None, layout.dtype, layout.shape, layout.stride, device, low, high)


def _user_names(recording: Recording, scope: Mapping[str, Any]) -> dict[int, str]:
    """Return the user's names of tensors that exist at the end of the block."""
    by_tensor = {id(tensor): index for index, v in enumerate(recording.values) if (tensor := v.tensor()) is not None}
    names: dict[int, str] = {}
    for path, tensor in named_tensors(scope):
        index = by_tensor.get(id(tensor))
        if index is not None:
            names.setdefault(index, path)
    return names


def _without_constant_reads(steps: Iterable[Step], storages: Sequence[int], inputs: Iterable[int]) -> Iterator[Step]:
    """Yield the steps but for reads by Python of values that follow from no input, and so are the same in each run."""
    open_storages = {storages[index] for index in inputs}
    for step in steps:
        follows = step.is_random or step.operation in EMPTY or any(storages[i] in open_storages for i in step.operands)
        if follows:
            open_storages |= {storages[index] for index in (*step.results, *step.mutated) if index >= 0}
        if follows or step.operation != READ or number_read(step) is not None:
            yield step


def _outputs(recording: Recording, steps: Sequence[Step], inputs: Sequence[int], names: Mapping[int, str]) -> list[int]:
    """Return the outputs: those that the block chose, else changed inputs and results that exist at its end."""
    if recording.outputs:
        return list(dict.fromkeys(recording.outputs))
    changed = {recording.values[index].storage for step in steps for index in step.mutated}
    read = {index for step in steps for index in step.operands}
    candidates = [index for index in inputs if recording.values[index].storage in changed]
    for index, known in enumerate(recording.values):
        is_left = known.is_result and known.tensor() is not None and index not in recording.constants
        if is_left and (index in names or index not in read):
            candidates.append(index)
    own = {index for step in steps if step.operation in _QUIET for index in step.results}
    return list(dict.fromkeys(index for index in candidates if index in names or index not in own))


def _needed_steps(
    steps: Sequence[Step],
    storages: Sequence[int],
    inputs: Iterable[int],
    outputs: Iterable[int],
    *,
    keeps_launches: bool,
) -> list[Step]:
    """Return the steps that the outputs or changes of visible memory depend on."""
    wanted = set(outputs)
    memory = {storages[index] for index in (*inputs, *wanted)}
    needed = []
    for step in reversed(steps):
        changes = not step.functional and any(storages[index] in memory for index in step.mutated)
        is_read = step.operation == READ  # other steps may depend on what Python read
        if is_read or (step.use is not None and keeps_launches) or changes or wanted.intersection(step.results):
            needed.append(step)
            wanted.update(step.operands)
            memory.update(storages[index] for index in step.operands)
    return needed[::-1]


def _live_steps(
    steps: Sequence[Step], storages: Sequence[int], inputs: Sequence[int], outputs: Sequence[int]
) -> tuple[list[Step], set[int]]:
    """Return the live steps of a recording, and the values that they use or output."""
    live = _needed_steps(steps, storages, inputs, outputs, keeps_launches=True)
    return live, {index for step in live for index in (*step.operands, *step.results)} | set(outputs)


def _notes(steps: Iterable[Step]) -> Iterator[str]:
    """Yield notes on live steps that will not repeat exactly."""
    for step in steps:
        where = f" ({step.place})" if step.place else ""
        if step.is_random:
            yield f"{step.operation} is random: the program gives other numbers each time{where}"
        if step.has_dynamic_shape and is_of_torch(step.operation):
            yield (
                f"the shape of what {step.operation} gives depends on data, and the program on that shape; a run that "
                f"gives another is refused{where}"
            )


def _names(
    recording: Recording, steps: Sequence[Step], inputs: Sequence[int], wanted: Mapping[int, str]
) -> dict[int, str]:
    """Return a unique name for each value: the user's, at the end or before, else that of its operation."""
    operations = {index: _operation_name(step.operation) for step in steps for index in step.results}
    known = {index: recording.values[index].name for index in wanted}
    order = [
        *((index, known[index] or wanted[index] or f"input_{number}") for number, index in enumerate(inputs)),
        *((index, name) for index, name in wanted.items() if name),
        *((index, name) for index, name in known.items() if name),
        *((index, operations.get(index, "constant")) for index in (*operations, *wanted) if index in wanted),
    ]
    named: dict[int, str] = {}
    for index, name in order:
        if index not in named:
            named[index] = unique(identifier(name), named.values())
    return named


def _operation_name(operation: str) -> str:
    """Return ``softmax`` for ``aten._softmax.default``."""
    return operation.split(".")[1].strip("_") if operation != WINDOW else "view"


def functionalise(tape: Tape) -> Tape:
    """Return a program with equal outputs that leaves its inputs as they are."""
    rewriter = _Rewriter(tape)
    for step in tape.steps:
        rewriter.rewrite(step)
    outputs = tuple(rewriter.current_value(index) for index in tape.outputs)
    values, storages, steps = tuple(rewriter.values), tuple(rewriter.storages), tuple(rewriter.steps)
    apart = tuple(dict.fromkeys((*tape.apart, *tape.mutated_inputs)))
    whole = dataclasses.replace(tape, values=values, storages=storages, steps=steps, outputs=outputs, apart=apart)
    used = {index for step in whole.steps for index in (*step.operands, *step.results, *step.mutated)}
    return _with_unique_names(compact(whole, used | set(outputs) | set(tape.inputs)))


def _with_unique_names(tape: Tape) -> Tape:
    """Return the program with a unique name for each value; inputs keep theirs, then outputs, then the latest."""
    first = dict.fromkeys((*tape.inputs, *tape.outputs, *reversed(range(len(tape.values)))))
    names: dict[int, str] = {}
    for index in first:
        names[index] = unique(tape.values[index].name, names.values())
    return dataclasses.replace(
        tape, values=tuple(dataclasses.replace(value, name=names[index]) for index, value in enumerate(tape.values))
    )


class _Rewriter:
    """Rewrites a program to a functional one.

    ``holders`` has the current holder of each storage, ``current`` the current value in place of each value.
    """

    def __init__(self, tape: Tape) -> None:
        self.values = list(tape.values)
        self.layouts = [value.layout for value in tape.values]  # in the storages of the recording
        self.storages = list(tape.storages)
        self.steps: list[Step] = []
        self.holders: dict[int, int] = {}
        self.first: dict[int, TensorLayout] = {}  # the layout of the first holder of each storage
        self.origin = [value.storage for value in tape.values]
        self.holder_of: dict[int, int] = {}  # the holder that a value was made from
        for index in (*tape.inputs, *(index for index, _ in tape.constants)):
            self._set_holder(tape.values[index].storage, index)
        self.current: dict[int, int] = {index: index for index in range(len(self.values))}

    def rewrite(self, step: Step) -> None:
        for index in step.operands:
            self.current_value(index)
        if step.mutated:
            self._emit_on_copies(step)
        else:
            self._emit(step)

    def current_value(self, index: int) -> int:
        """Return the current value in place of ``index``, as a view of its storage's holder if that is newer."""
        storage = self.origin[index]
        holder = self.holders.get(storage)
        if holder is None or self.holder_of.get(index, holder) == holder:
            return self.current[index]
        holder_layout, layout = self.values[holder].layout, self._layout_in_holder(index, holder)
        new = holder
        if layout != holder_layout:
            new = self._add_value(self.values[index].name, self.values[holder].storage, layout, storage)
            self.steps.append(window_step(holder, holder_layout, new, layout))
        self.current[index], self.holder_of[index] = new, holder
        return new

    def _emit_on_copies(self, step: Step) -> None:
        """Add a step that changes copies of the holders in place of memory."""
        storages = list(dict.fromkeys(self.origin[index] for index in step.mutated))
        before = [self.holders[storage] for storage in storages]
        copies = []
        for storage, holder in zip(storages, before, strict=True):
            holder_layout = dataclasses.replace(self.values[holder].layout, offset=0)
            number = len(self.storages)
            self.storages.append(holder_layout.span * holder_layout.itemsize)
            copies.append(self._add_value(self.values[holder].name, number, holder_layout, storage))
        if step.operation == LAUNCH and not any(isinstance(member, Addresses) for member in members_of(step.kwargs)):
            kwargs = with_refs(step.kwargs, self._refs(step))
            copied = dataclasses.replace(step, kwargs=kwargs, results=tuple(copies), several=True, functional=True)
            self.steps.append(dataclasses.replace(copied, mutated=tuple(before)))
            self.holders.update(zip(storages, copies, strict=True))
            return
        for holder, copy in zip(before, copies, strict=True):
            self.steps.append(Step(COPY, (Ref(holder),), results=(copy,), place=step.place))
        self.holders.update(zip(storages, copies, strict=True))
        self._emit(step)

    def _emit(self, step: Step) -> None:
        refs = self._refs(step)
        self.steps.append(
            dataclasses.replace(
                step,
                args=with_refs(step.args, refs),
                kwargs=with_refs(step.kwargs, refs),
                mutated=tuple(refs[index].index for index in step.mutated),
            )
        )
        for index in step.results:
            if index >= 0:
                self._note_result(index)

    def _note_result(self, index: int) -> None:
        """Note a result: it is the holder of its storage, or a view of that."""
        storage = self.origin[index]
        if storage not in self.holders:
            self._set_holder(storage, index)
        holder = self.holder_of[index] = self.holders[storage]
        if holder != index:
            value, number = self.values[index], self.values[holder].storage
            self.values[index] = TapeValue(value.name, number, self._layout_in_holder(index, holder))

    def _layout_in_holder(self, index: int, holder: int) -> TensorLayout:
        """Return the layout of a value of the recording in the storage of a holder."""
        layout, first = self.layouts[index], self.first[self.origin[index]]
        begin = first.offset * first.itemsize // layout.itemsize
        holder_layout = self.values[holder].layout
        start = holder_layout.offset * holder_layout.itemsize // layout.itemsize
        return dataclasses.replace(layout, offset=layout.offset - begin + start)

    def _set_holder(self, storage: int, index: int) -> None:
        self.holders[storage] = index
        self.first[storage] = self.layouts[index]
        self.holder_of[index] = index

    def _refs(self, step: Step) -> dict[int, Ref]:
        return {index: Ref(self.current_value(index)) for index in (*step.operands, *step.mutated)}

    def _add_value(self, name: str, number: int, layout: TensorLayout, origin: int) -> int:
        self.values.append(TapeValue(name, number, layout))
        self.layouts.append(layout)
        self.origin.append(origin)
        index = len(self.values) - 1
        self.current[index] = index
        return index
