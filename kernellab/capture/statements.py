"""The steps of a program as Python statements, which follow its memory plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernellab.capture.naming import unique
from kernellab.capture.plan import COPIED, EMPTY, FILLED, FILLED_WITH, MemoryPlan, writing_call
from kernellab.capture.program_sizes import SizeStatements, number_read
from kernellab.capture.tape import (
    COPY,
    LAUNCH,
    READ,
    WINDOW,
    Addresses,
    KernelUse,
    Ref,
    Step,
    Tape,
    TapeDescriptor,
    members_of,
    read_and_written,
    refs_in,
    window_step,
)
from kernellab.errors import UsageError
from kernellab.source import literal


@dataclass(frozen=True, slots=True)
class LaunchCall:
    """The call of a launch: the name of its kernel in the module, and its constants as expressions by name.

    ``grid`` is an expression, "" for the recorded grid.
    """

    kernel: str
    parameters: tuple[str, ...]
    constants: Mapping[str, str]
    grid: str = ""


def main_device(tape: Tape) -> str:
    """Return the device of most values of a program."""
    devices = Counter(value.layout.device for value in tape.values)
    return devices.most_common(1)[0][0] if devices else "cpu"


def device_of_launch(tape: Tape, step: Step) -> int | None:
    """Return the value that decides the device of a launch, the first on a GPU; None without one."""
    refs = (ref.index for _, value in step.kwargs for ref in refs_in(value))
    return next((index for index in refs if not tape.values[index].layout.device.startswith("cpu")), None)


def statements(
    tape: Tape, plan: MemoryPlan, calls: Mapping[int, LaunchCall], operators: Mapping[str, str]
) -> Iterator[str]:
    """Yield the statements of a program, one or more for each step.

    ``calls`` are those of launches by the ids of their uses, ``operators`` the functions that stand for operators of
    the user.
    """
    writer = _Writer(tape, plan, calls, operators)
    for number, step in enumerate(tape.steps):
        yield from writer.step_statements(number, step)
        yield from writer.free_statements(number, step)


class _Writer:
    def __init__(
        self, tape: Tape, plan: MemoryPlan, calls: Mapping[int, LaunchCall], operators: Mapping[str, str]
    ) -> None:
        self.tape = tape
        self.sizes = SizeStatements(tape)
        self.calls = calls
        self.own_functions = {COPY: "layout_copy", **operators}
        self.device = main_device(tape)
        self.buffers = {buffer.name: buffer for buffer in plan.buffers}
        self.offsets = dict(plan.offsets)
        several = (a for a in plan.allocations if any(not self.buffers[name].takes for name in a.buffers[1:]))
        order = list(dict.fromkeys([*several, *(a for a in plan.allocations if a.buffers[0] in self.offsets)]))
        self.allocations = {name: a for a in order for name in a.buffers}
        names_in_use = {value.name for value in tape.values}
        self.memory = {
            id(a): a.buffers[0] if a.preallocated else unique(f"memory_{number}", names_in_use)
            for number, a in enumerate(order)
        }
        self.descriptors: dict[str, _SharedDescriptor] = {}  # by their expressions
        self.descriptors = _shared_descriptors([self._descriptors(step) for step in tape.steps], names_in_use)
        self.bound: dict[int, list[str]] = {}  # the names that views of a storage have so far
        own = [buffer for buffer in plan.buffers if not buffer.preallocated]
        storages = {value.name: value.storage for value in tape.values}
        self.last = {storages[buffer.name]: buffer.last for buffer in own}

    def step_statements(self, number: int, step: Step) -> Iterator[str]:
        """Yield the statements of a step; if its result lies in shared memory, they write there."""
        results = [self.tape.values[index] for index in step.results if index >= 0]
        for value in results:
            self.bound.setdefault(value.storage, []).append(value.name)
        name = results[0].name if len(results) == 1 else ""
        buffer = self.buffers.get(name)
        is_new = buffer is not None and buffer.first == number
        if step.operation == LAUNCH:
            yield from self._launch(number, step)
        elif (symbol := number_read(step)) is not None:
            yield f"{symbol.name} = {self._text(step.args[0])}.item()"
        elif is_new and buffer is not None and buffer.takes:
            yield f"{name} = {buffer.source}"
            yield from self._contents(step, name, is_there=True)
        elif is_new and name in self.allocations:
            yield from self._place_lines(step, name)
        elif step.several:
            targets = [self.tape.values[index].name if index >= 0 else "_" for index in step.results]
            yield f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = {self._call(step)}"
        else:
            yield f"{name} = {self._call(step)}" if name else self._call(step)
        if step.has_dynamic_shape or number_read(step) is not None:
            yield from self.sizes.after(step)
        for value in results if step.has_dynamic_shape else ():
            yield f"refuse(shape_problem({step.words!r}, tuple({value.name}.shape), {value.layout.shape}))"

    def free_statements(self, number: int, step: Step) -> Iterator[str]:
        """Yield the statement that frees memory after a step, if any."""
        storages = dict.fromkeys(
            self.tape.values[i].storage for i in (*step.operands, *step.mutated, *step.results) if i >= 0
        )
        unused = [name for s in storages if self.last.get(s) == number for name in self.bound[s]]
        allocations = (self.allocations[name] for name in unused if name in self.allocations)
        unused += [self.memory[id(a)] for a in dict.fromkeys(allocations) if a.last == number and not a.preallocated]
        unused += [shared.name for shared in self.descriptors.values() if shared.last == number]
        if unused:
            yield f"del {', '.join(dict.fromkeys(unused))}"

    def _place_lines(self, step: Step, name: str) -> Iterator[str]:
        allocation = self.allocations[name]
        layout = next(value.layout for value in self.tape.values if value.name == name)
        memory = self.memory[id(allocation)]
        if name == allocation.buffers[0] and not allocation.preallocated:
            count = allocation.size_bytes // layout.itemsize
            kind, device = f"torch.{layout.dtype}", self._device(layout.device)
            if name in self.offsets:
                yield f"{memory} = room(workspace, {self.offsets[name]}, {count}, {kind}, {device})"
            else:
                yield f"{memory} = torch.empty({count}, dtype={kind}, device={device})"
        yield f"{name} = {memory}.as_strided({layout.shape}, {layout.stride})"
        yield from self._contents(step, name)

    def _contents(self, step: Step, name: str, *, is_there: bool = False) -> Iterator[str]:
        """Yield the statement that writes a result into its memory; none for a copy of the value that is there."""
        operation = step.operation
        if is_there and (operation in COPIED or operation == COPY):
            return
        if operation in FILLED:
            yield f"{name}.fill_({FILLED[operation]})"
        elif operation in FILLED_WITH:
            yield f"{name}.fill_({self._text(step.args[1])})"
        elif operation in COPIED:
            yield f"{name}.copy_({self._text(step.args[0])})"
        elif operation not in EMPTY:
            arguments = [*map(self._text, step.args), *(f"{n}={self._text(v)}" for n, v in step.kwargs)]
            yield writing_call(step, name, self.buffers[name].source, arguments)

    def _launch(self, number: int, step: Step) -> Iterator[str]:
        assert step.use is not None
        if step.functional:
            for index, result in zip(step.mutated, step.results, strict=True):
                old, new = self.tape.values[index], self.tape.values[result]
                is_taken = new.name in self.buffers and self.buffers[new.name].takes
                yield f"{new.name} = {old.name}" if is_taken else f"{new.name} = layout_copy({old.name})"
        for expression, shared in self.descriptors.items():
            if shared.first == number:
                yield f"{shared.name} = {expression}"
        argument_texts = {name: self._launch_argument(value, step) for name, value in step.kwargs}
        call = self.calls[id(step.use)]
        constants = dict(call.constants)
        arguments = {name: argument_texts.get(name, constants.get(name, "None")) for name in call.parameters}
        options = {name: text for name, text in constants.items() if name not in arguments}
        if {"grid", "warmup"} & arguments.keys():
            passed = list(arguments.values())
        else:
            passed = [f"{name}={text}" for name, text in arguments.items()]
        passed += [f"{name}={text}" for name, text in options.items()]
        read, written = map(self.tape.names, read_and_written(step))
        on = device_of_launch(self.tape, step) if len(self.tape.gpus) > 1 else None
        guard = "" if on is None else f", torch.cuda.device_of({self.tape.values[on].name})"
        yield f"with mark({literal(step.use.closure.name)}, {_tuple_of(read)}, {_tuple_of(written)}){guard}:"
        yield f"    {call.kernel}[{call.grid or step.use.grid}]({', '.join(passed)})"

    def _descriptors(self, step: Step) -> list[str]:
        """Return the expressions of the descriptors of a step."""
        leaves = members_of([value for _, value in step.kwargs])
        return [self._launch_argument(value, step) for value in leaves if isinstance(value, TapeDescriptor)]

    def _launch_argument(self, value: Any, step: Step) -> str:
        """Return an argument of a launch; for a functional launch, memory that it copies as a view of the copy."""
        if not step.functional:
            return self._text(value)
        pairs = {self.tape.values[old].storage: (old, new) for old, new in zip(step.mutated, step.results, strict=True)}

        def name_of(ref: Ref) -> str:
            layout, pair = self.tape.values[ref.index].layout, pairs.get(self.tape.values[ref.index].storage)
            if pair is None:
                return self.tape.values[ref.index].name
            old, new = (self.tape.values[index] for index in pair)
            if layout == old.layout:
                return new.name
            return _window(new.name, *window_step(pair[0], old.layout, ref.index, layout).args[1:])

        return self._text(value, name_of)

    def _call(self, step: Step) -> str:
        if step.operation == WINDOW:
            base, *layout = step.args
            return _window(self._text(base), *layout)
        arguments = [*map(self._text, step.args), *(f"{n}={self._text(v)}" for n, v in step.kwargs)]
        if step.operation == READ:
            *tensors, recorded = step.args
            read = [*map(self._text, tensors), literal(recorded), repr(step.place)]
            return f"refuse(read_problem({', '.join(read)}))"
        target = self.own_functions.get(step.operation) or f"torch.ops.{step.operation}"
        return f"{target}({', '.join(arguments)})"

    def _text(self, value: Any, name_of: Any = None) -> str:
        """Return an argument as an expression; raise `UsageError` for one that cannot be written down."""
        if isinstance(value, Ref):
            return name_of(value) if name_of else self.tape.values[value.index].name
        if isinstance(value, TapeDescriptor):
            layout = ", ".join(map(repr, map(list, (value.shape, value.strides, value.block_shape))))
            padding = "" if value.padding == "zero" else f", padding={value.padding!r}"
            expression = f"TensorDescriptor({self._text(value.base, name_of)}, {layout}{padding})"
            return self.descriptors[expression].name if expression in self.descriptors else expression
        if isinstance(value, Addresses):
            return (
                f"table_with_addresses({self._text(value.table, name_of)}, {self._text(list(value.entries), name_of)})"
            )
        if isinstance(value, tuple):
            members = ", ".join(self._text(member, name_of) for member in value)
            return f"({members}{',' if len(value) == 1 else ''})"
        if isinstance(value, list):
            return f"[{', '.join(self._text(member, name_of) for member in value)}]"
        return self._plain(value)

    def _plain(self, value: Any) -> str:
        if isinstance(value, torch.device):
            return self._device(str(value))
        if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
            return str(value)
        if value is None or isinstance(value, bool | int | float | str | complex):
            return literal(value)
        raise UsageError(
            f"{value!r}, an argument in the program, cannot be written as Python; export its kernels alone."
        )

    def _device(self, device: str) -> str:
        """Return a device as an expression; without an index, it is that of most values."""
        if device in (self.device, self.device.partition(":")[0]):
            return "device"
        is_placed = len(self.tape.gpus) > 1 and device != "cpu"
        return f'{"placed" if is_placed else "torch.device"}("{device}")'


@dataclass(frozen=True, slots=True)
class _SharedDescriptor:
    """A descriptor of several arguments: its name, and the first and the last step that take it."""

    name: str
    first: int
    last: int


def _shared_descriptors(expressions: Sequence[Sequence[str]], names: set[str]) -> dict[str, _SharedDescriptor]:
    """Return the descriptors that are used more than once, by their expressions."""
    steps_of: dict[str, list[int]] = {}
    for number, taken_expressions in enumerate(expressions):
        for expression in taken_expressions:
            steps_of.setdefault(expression, []).append(number)
    several = {expression: steps for expression, steps in steps_of.items() if len(steps) > 1}
    return {
        expression: _SharedDescriptor(unique(f"descriptor_{i}", names), steps[0], steps[-1])
        for i, (expression, steps) in enumerate(several.items())
    }


def _window(base: str, shape: Sequence[int], stride: Sequence[int], offset: int, dtype: str | None) -> str:
    return f"window({base}, {shape}, {stride}, {offset}{f', torch.{dtype}' if dtype else ''})"


def _tuple_of(names: Sequence[str]) -> str:
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"


def uses_of(tape: Tape) -> list[KernelUse]:
    """Return the uses of kernels, in the order of the launches."""
    return [step.use for step in tape.steps if step.use is not None]


def takes_descriptors(tape: Tape) -> bool:
    """Whether a step takes a tensor descriptor."""
    return any(isinstance(value, TapeDescriptor) for step in tape.steps for value in members_of(step.kwargs))
