"""From what was recorded to a program: inputs that share memory are one, dead operations go, values get names."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kernellab.capture.entering import Seen
from kernellab.capture.naming import identifier, named_tensors, unique
from kernellab.capture.operations import is_of_torch
from kernellab.capture.recorder import Known, Recording
from kernellab.capture.tape import WINDOW, KernelUse, Layout, Ref, Step, Tape, Value, window_step, with_refs
from kernellab.store import Argument

_QUIET = frozenset({"aten.detach.default", "aten.lift_fresh.default"})


def finished(recording: Recording, scope: Mapping[str, Any], use_of: Callable[[Seen], KernelUse]) -> Tape:
    """Return the program that a block recorded; ``use_of`` enters the kernel of a launch into the side table."""
    steps = [
        dataclasses.replace(step, use=use_of(recording.launched[index])) if index in recording.launched else step
        for index, step in enumerate(recording.steps)
    ]
    inputs, windows, memories = _inputs(recording)
    steps = [*windows, *steps]
    names = _user_names(recording, scope)
    outputs = _outputs(recording, steps, inputs, names)
    live = _live(recording, steps, inputs, outputs)
    used = {index for step in live for index in (*step.taken, *step.results)} | set(outputs)
    kept = [index for index in inputs if index in used]
    wanted = {index: names.get(index, "") for index in used if index >= 0}
    named = _names(recording, live, kept, wanted)
    samples = {**recording.samples, **memories}
    raw = Tape(
        values=tuple(Value(named.get(i, ""), v.storage, v.layout) for i, v in enumerate(recording.values)),
        storages=tuple(recording.storages),
        steps=tuple(live),
        inputs=tuple(kept),
        outputs=tuple(outputs),
        output_names=tuple(named[index] for index in outputs),
        samples=tuple(dataclasses.replace(samples[index], name=named[index]) for index in kept),
        constants=tuple((index, tensor) for index, tensor in recording.constants.items() if index in used),
        notes=(*recording.notes, *dict.fromkeys(_notes(live))),
    )
    return compacted(raw, used)


def compacted(tape: Tape, used: Iterable[int]) -> Tape:
    """Return a program with the values that are used, numbered anew, and their storages."""
    kept = sorted(index for index in set(used) if index >= 0)
    new = {index: number for number, index in enumerate(kept)}
    refs = {index: Ref(number) for index, number in new.items()}
    numbers = {s: i for i, s in enumerate(dict.fromkeys(tape.values[index].storage for index in kept))}
    return dataclasses.replace(
        tape,
        values=tuple(dataclasses.replace(tape.values[i], storage=numbers[tape.values[i].storage]) for i in kept),
        storages=tuple(tape.storages[storage] for storage in numbers),
        steps=tuple(_renumbered(step, new, refs) for step in tape.steps),
        inputs=tuple(new[index] for index in tape.inputs),
        outputs=tuple(new[index] for index in tape.outputs),
        constants=tuple((new[index], tensor) for index, tensor in tape.constants),
    )


def live_steps(tape: Tape, outputs: Sequence[int]) -> tuple[Step, ...]:
    """Return the steps that matter to some outputs, and to what the program does to its inputs."""
    storages = [value.storage for value in tape.values]
    return tuple(_kept(tape.steps, storages, tape.inputs, outputs, keeps_launches=False))


def _renumbered(step: Step, new: Mapping[int, int], refs: Mapping[int, Ref]) -> Step:
    return dataclasses.replace(
        step,
        args=with_refs(step.args, refs),
        kwargs=tuple((name, with_refs(value, refs)) for name, value in step.kwargs),
        results=tuple(new.get(index, -1) for index in step.results),
        mutated=tuple(new[index] for index in step.mutated if index in new),
    )


def _inputs(recording: Recording) -> tuple[list[int], list[Step], dict[int, Argument]]:
    """Return the inputs, one for each storage, the steps that make the others of them, and samples of new ones."""
    groups: dict[int, list[int]] = defaultdict(list)
    for index in recording.samples:
        groups[recording.values[index].storage].append(index)
    chosen, windows, memories = [], [], {}
    for storage, members in groups.items():
        layouts = [recording.values[index].layout for index in members]
        base = next((i for i in members if all(recording.values[i].layout.covers(layout) for layout in layouts)), None)
        if base is None:
            base = _memory(recording, storage, members)
            memories[base] = _sample(recording, base, members)
        chosen.append(base)
        for index in members:
            if index != base:
                windows.append(window_step(base, recording.values[base].layout, index, recording.values[index].layout))
    return chosen, windows, memories


def _memory(recording: Recording, storage: int, members: Sequence[int]) -> int:
    """Add a value for the memory of inputs that overlap with none that holds the others; return its index."""
    known = [recording.values[index] for index in members]
    first = known[0].layout
    size = first.itemsize if len({(k.layout.dtype) for k in known}) == 1 else 1
    begin = min(k.layout.offset * k.layout.itemsize for k in known) // size
    end = max((k.layout.offset + k.layout.span) * k.layout.itemsize for k in known) // size
    dtype = first.dtype if size == first.itemsize else "uint8"
    layout = Layout(dtype, size, (end - begin,), (1,), begin, first.device)
    name = next((k.name for k in known if k.name), "input")
    recording.values.append(Known(layout, storage, lambda: None, False, f"{name}_memory"))
    names = " and ".join(k.name or "an input" for k in known)
    recording.notes[f"{names} share memory and none holds the others; the program takes {name}_memory for them"] = None
    return len(recording.values) - 1


def _sample(recording: Recording, base: int, members: Sequence[int]) -> Argument:
    layout = recording.values[base].layout
    bounds = [recording.samples[index] for index in members]
    low = min((each.low for each in bounds if each.low is not None), default=None)
    high = max((each.high for each in bounds if each.high is not None), default=None)
    device = layout.device.partition(":")[0]
    return Argument("", "tensor", False, None, layout.dtype, layout.shape, layout.stride, device, low, high)


def _user_names(recording: Recording, scope: Mapping[str, Any]) -> dict[int, str]:
    """Return what the user calls the tensors that are left at the end of the block."""
    by_tensor = {id(tensor): index for index, v in enumerate(recording.values) if (tensor := v.tensor()) is not None}
    names: dict[int, str] = {}
    for path, tensor in named_tensors(scope):
        index = by_tensor.get(id(tensor))
        if index is not None:
            names.setdefault(index, path)
    return names


def _outputs(recording: Recording, steps: Sequence[Step], inputs: Sequence[int], names: Mapping[int, str]) -> list[int]:
    """Return what the program gives: what the user asked for, else changed inputs and what is left at the end."""
    if recording.returned:
        return list(dict.fromkeys(recording.returned))
    changed = {recording.values[index].storage for step in steps for index in step.mutated}
    read = {index for step in steps for index in step.taken}
    found = [index for index in inputs if recording.values[index].storage in changed]
    for index, known in enumerate(recording.values):
        is_left = known.made and known.tensor() is not None and index not in recording.constants
        if is_left and (index in names or index not in read):
            found.append(index)
    own = {index for step in steps if step.operation in _QUIET for index in step.results}
    return list(dict.fromkeys(index for index in found if index in names or index not in own))


def _live(recording: Recording, steps: Sequence[Step], inputs: Sequence[int], outputs: Sequence[int]) -> list[Step]:
    storages = [known.storage for known in recording.values]
    return _kept(steps, storages, inputs, outputs, keeps_launches=True)


def _kept(
    steps: Sequence[Step],
    storages: Sequence[int],
    inputs: Sequence[int],
    outputs: Sequence[int],
    *,
    keeps_launches: bool,
) -> list[Step]:
    """Return the steps whose results, or what they change, somebody sees."""
    wanted = set(outputs)
    memory = {storages[index] for index in (*inputs, *outputs)}
    kept = []
    for step in reversed(steps):
        changes = not step.functional and any(storages[index] in memory for index in step.mutated)
        if (step.use is not None and keeps_launches) or changes or wanted.intersection(step.results):
            kept.append(step)
            wanted.update(step.taken)
            memory.update(storages[index] for index in step.taken)
    return kept[::-1]


def _notes(steps: Iterable[Step]) -> Iterator[str]:
    """Yield what will not repeat, of the steps that are left."""
    for step in steps:
        where = f" ({step.place})" if step.place else ""
        if step.is_random:
            yield f"{step.operation} is random: the program gives other numbers each time{where}"
        if step.has_open_shape and is_of_torch(step.operation):
            yield (
                f"the shape of what {step.operation} gives depends on data, and the program on that shape; a run that "
                f"gives another is refused{where}"
            )


def _names(
    recording: Recording, steps: Sequence[Step], inputs: Sequence[int], wanted: Mapping[int, str]
) -> dict[int, str]:
    """Return a name of its own for each value: the user's, at the end or before, else that of its operation."""
    operations = {index: _bare(step.operation) for step in steps for index in step.results}
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


def _bare(operation: str) -> str:
    """Return ``softmax`` for ``aten._softmax.default``."""
    return operation.split(".")[1].strip("_") if operation != WINDOW else "view"
