"""A captured program as plain data: its values, its steps, and the checks of its inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kernellab._triton.tracing import is_traced
from kernellab.capture.size import Sizes, evaluate, guard_problem, names_in, ordered_guards, sizes_for
from kernellab.errors import UsageError
from kernellab.launch.arguments import span_elements
from kernellab.source import Binding, Closure
from kernellab.store import Argument, RecordedLaunch, Result

if TYPE_CHECKING:
    from kernellab._triton.bound import BoundKernel

LAUNCH = "launch"  # a kernel; all other operations but `WINDOW` and `COPY` are named as in torch.ops
WINDOW = "window"  # (value, shape, stride, offset, dtype): its memory in another layout, counted from its first element
COPY = "layout_copy"  # (value): its memory copied with its strides, gaps included
# (value, ..., recorded): a read by Python; a run that reads another value is refused, but for a `Size` or a `Number`.
READ = "read"


@dataclass(frozen=True, slots=True)
class Ref:
    """The index of a program's value, in place of a tensor among the arguments of a step."""

    index: int


@dataclass(frozen=True, slots=True)
class TapeDescriptor:
    """A ``TensorDescriptor`` over a value."""

    base: Ref
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block_shape: tuple[int, ...]
    padding: str = "zero"


@dataclass(frozen=True, slots=True)
class Addresses:
    """An argument with addresses of values: a copy of ``table`` with them as words, or without a table one integer.

    An entry is the position of a word, the value, and the offset in bytes from its first element.
    """

    table: Ref | None
    entries: tuple[tuple[int, Ref, int], ...]


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """The dtype, shape, strides, offset and device of a tensor in its storage.

    ``dtype`` is torch's name without ``torch.``; shapes, strides and offsets count elements.
    """

    dtype: str
    itemsize: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    device: str

    @property
    def size_bytes(self) -> int:
        """The bytes of its elements."""
        return math.prod(self.shape) * self.itemsize

    @property
    def span(self) -> int:
        """The number of elements in memory from the first to the last."""
        return span_elements(self.shape, self.stride)

    def covers(self, other: TensorLayout) -> bool:
        """Whether all of ``other``, in the same storage, lies between the first and the last element."""
        begin, end = self.offset * self.itemsize, (self.offset + self.span) * self.itemsize
        return begin <= other.offset * other.itemsize and (other.offset + other.span) * other.itemsize <= end


@dataclass(frozen=True, slots=True)
class TapeValue:
    """A tensor of the program, in a storage by its number; views of one storage share that number."""

    name: str
    storage: int
    layout: TensorLayout


@dataclass(frozen=True, slots=True)
class ConfigGrid:
    """The grid of a launch with one config.

    ``supplied`` are the parameters that identify the config: those that it sets, and those of heuristics if these are
    needed as well. ``supplied_id`` is their id in the side table.
    """

    supplied_id: int
    supplied: tuple[tuple[str, Any], ...]
    grid: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class TuningUse:
    """The configs of an autotuned launch, with a grid for each.

    ``constants_id``, ``constants`` and ``options`` are those of the call itself, as in `KernelUse`; ``supplied`` names
    the parameters that the decorators set. ``closure`` includes the decorators, and ``key`` has the values of the
    autotuner's key. ``ran`` is the position of the config in the recording. ``chosen`` is that of the config that was
    timed to be the fastest, None where nothing was timed.
    """

    constants_id: int
    constants: tuple[tuple[str, Binding], ...]
    options: tuple[tuple[str, Any], ...]
    configs: tuple[ConfigGrid, ...]
    supplied: frozenset[str]
    closure: Closure
    key: tuple[Any, ...]
    ran: int
    chosen: int | None = None


@dataclass(frozen=True, slots=True)
class KernelUse:
    """The kernel of a launch, with its grid, constants and effects.

    ``constants`` are the constexprs as bindings of ``closure``. ``mutated`` and ``read`` name arguments; ``complete``
    is False where an effect is unknown. For an autotuned kernel, grid and constants are those of the config in the
    recording, and ``tuning`` has the others.

    At the end of the block it gets its place in the registry: ``kernel`` is ``name@version``, ``kernel_id`` and
    ``constants_id`` are ids in the side table, ``launch_id`` is the row in the history, ``jit_options`` are the
    arguments of ``@triton.jit``.
    """

    closure: Closure
    grid: tuple[int, int, int]
    constants: tuple[tuple[str, Binding], ...]
    options: tuple[tuple[str, Any], ...]
    parameters: tuple[str, ...]
    mutated: frozenset[str]
    read: frozenset[str]
    complete: bool
    kernel: str = ""
    kernel_id: int = 0
    constants_id: int = 0
    launch_id: int = 0
    jit_options: tuple[tuple[str, Any], ...] = ()
    tuning: TuningUse | None = None


@dataclass(frozen=True, slots=True)
class RecordedTuning:
    """The configs of a recorded launch of an autotuned kernel.

    ``configs`` include the options of the call; ``grids`` are their grids. ``call_constants`` are the constants and
    options of the call itself. ``chosen`` is the position of the config of the launch.
    """

    configs: tuple[Any, ...]
    supplied: tuple[Mapping[str, Any], ...]
    grids: tuple[tuple[int, int, int], ...]
    call_constants: Mapping[str, Any]
    key: tuple[Any, ...]
    chosen: int


@dataclass(frozen=True, slots=True)
class RecordedKernelLaunch:
    """A recorded launch, without its tensors.

    ``owner`` is the kernel with its decorators, ``owner_closure`` its source at the launch, ``constants`` the values of
    the constexprs. For an autotuned kernel, ``tuning`` has the configs, or ``why_fixed`` why its config is fixed.
    """

    use: KernelUse
    kernel: BoundKernel
    owner: Any
    owner_closure: Closure | None
    launch: RecordedLaunch
    result: Result
    constants: Mapping[str, Any]
    tuning: RecordedTuning | None = None
    why_fixed: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of a program.

    ``results`` are the values that it makes, as a list or tuple if there are ``several``. ``mutated`` are the values
    whose memory it changes. A launch takes its arguments by name, in ``kwargs``. A ``functional`` launch changes copies
    of the values in ``mutated`` and returns those. With ``has_dynamic_shape``, data decides the shape of a result, and
    the rest of the program holds for the recorded shape alone.
    """

    operation: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...] = ()
    results: tuple[int, ...] = ()
    several: bool = False
    mutated: tuple[int, ...] = ()
    use: KernelUse | None = None
    place: str = ""
    functional: bool = False
    is_random: bool = False
    has_dynamic_shape: bool = False

    @property
    def words(self) -> str:
        """The operation with its place: ``aten.nonzero.default (In[3], line 2)``."""
        return f"{self.operation} ({self.place})" if self.place else self.operation

    @property
    def operands(self) -> tuple[int, ...]:
        """The values among its arguments, each once, in order."""
        return tuple(dict.fromkeys(ref.index for ref in refs_in((*self.args, *(v for _, v in self.kwargs)))))


@dataclass(frozen=True, slots=True)
class Tape:
    """A program: its values, steps, inputs and outputs.

    ``storages`` are sizes in bytes; ``samples`` describe the inputs, in order. ``output_names`` are the user's names of
    the outputs; a changed input and its new value share one. ``constants`` are tensors that the block made from Python
    data, by the index of their value. ``apart`` are inputs of which a functional program changes copies: no other input
    may share elements with them. With ``sizes``, a program holds for all sizes under their guards, and its integers may
    be of `kernellab.capture.size.Size`.
    """

    values: tuple[TapeValue, ...]
    storages: tuple[int, ...]
    steps: tuple[Step, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    output_names: tuple[str, ...]
    samples: tuple[Argument, ...] = ()
    constants: tuple[tuple[int, Any], ...] = ()
    notes: tuple[str, ...] = ()
    sizes: Sizes | None = None
    apart: tuple[int, ...] = ()

    def names(self, indices: Iterable[int]) -> list[str]:
        """Return the names of values."""
        return [self.values[index].name for index in indices]

    @property
    def input_layouts(self) -> dict[str, TensorLayout]:
        """The layouts of the inputs by name, in order."""
        return {self.values[index].name: self.values[index].layout for index in self.inputs}

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs of its values; where there are several, each value has to lie on its own in a run."""
        devices = dict.fromkeys(value.layout.device for value in self.values)
        return tuple(device for device in devices if device != "cpu")

    @property
    def launches(self) -> tuple[Step, ...]:
        """The steps that launch a kernel."""
        return tuple(step for step in self.steps if step.use is not None)

    @property
    def mutated_inputs(self) -> tuple[int, ...]:
        """The inputs that the program changes."""
        changed = {self.values[index].storage for step in self.steps if not step.functional for index in step.mutated}
        return tuple(index for index in self.inputs if self.values[index].storage in changed)

    @property
    def changes_inputs_before_reading(self) -> bool:
        """Whether a step changes the memory of an input before the last step whose data a run may be refused for."""
        reads = [i for i, step in enumerate(self.steps) if step.operation == READ or step.has_dynamic_shape]
        own = {self.values[index].storage for index in self.inputs}
        before = self.steps[: reads[-1]] if reads else ()
        return any(self.values[i].storage in own for step in before if not step.functional for i in step.mutated)


def members_of(value: Any) -> Iterator[Any]:
    """Yield the leaves of nested tuples, lists, dicts and slices."""
    match value:
        case tuple() | list():
            members: Iterable[Any] = value
        case dict():
            members = value.values()
        case slice():
            members = (value.start, value.stop, value.step)
        case _:
            yield value
            return
    for member in members:
        yield from members_of(member)


def refs_in(value: Any) -> Iterator[Ref]:
    """Yield the references to values among nested arguments."""
    for member in members_of(value):
        match member:
            case Ref():
                yield member
            case TapeDescriptor(base):
                yield base
            case Addresses(table, entries):
                yield from () if table is None else (table,)
                yield from (ref for _, ref, _ in entries)


def map_nested(
    value: Any, change: Callable[[Any], Any], make_named: Callable[[Any, Any], Any] = lambda cls, parts: cls(*parts)
) -> Any:
    """Return nested lists, tuples, dicts and slices with ``change`` applied to each leaf.

    ``make_named`` makes a named tuple of its class and its changed members.
    """
    if isinstance(value, dict):
        return {name: map_nested(member, change, make_named) for name, member in value.items()}
    if isinstance(value, slice):
        return slice(*(map_nested(member, change, make_named) for member in (value.start, value.stop, value.step)))
    if not isinstance(value, list | tuple):
        return change(value)
    members = [map_nested(member, change, make_named) for member in value]
    if isinstance(value, list):
        return members
    return make_named(type(value), members) if hasattr(value, "_fields") else tuple(members)


def with_refs(value: Any, new: Mapping[int, Any]) -> Any:
    """Return nested arguments with each reference to a value replaced by ``new[index]``."""

    def with_new_refs(part: Any) -> Any:
        match part:
            case Ref(index):
                return new[index]
            case TapeDescriptor(base):
                return replace(part, base=new[base.index])
            case Addresses(table, entries):
                new_entries = tuple((position, new[ref.index], offset) for position, ref, offset in entries)
                return Addresses(None if table is None else new[table.index], new_entries)
            case _:
                return part

    return map_nested(value, with_new_refs)


def window_step(base: int, base_layout: TensorLayout, index: int, layout: TensorLayout) -> Step:
    """Return the step that makes a view of another value's memory."""
    offset = layout.offset - base_layout.offset * base_layout.itemsize // layout.itemsize
    dtype = None if layout.dtype == base_layout.dtype else layout.dtype
    return Step(WINDOW, (Ref(base), layout.shape, layout.stride, offset, dtype), results=(index,))


def read_and_written(step: Step) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the values that a launch reads and those that it writes, by the effects of its kernel, each once.

    These are all values where an effect is unknown. A value reached by its address is written if the step mutates it.
    """
    use = step.use
    assert use is not None, "only launches have effects"
    read: dict[int, None] = {}
    written: dict[int, None] = {}
    for name, argument in step.kwargs:
        is_followed = isinstance(argument, Addresses)
        for path, ref in _named_refs(name, argument):
            if not use.complete or is_followed or path in use.read:
                read[ref.index] = None
            if not use.complete or path in use.mutated or (is_followed and ref.index in step.mutated):
                written[ref.index] = None
    return tuple(read), tuple(written)


def moved_bytes(tape: Tape, step: Step) -> int:
    """Return the bytes of what a launch reads and writes."""
    return sum(tape.values[index].layout.size_bytes for indices in read_and_written(step) for index in indices)


def _named_refs(name: str, argument: Any) -> Iterator[tuple[str, Ref]]:
    """Yield the values of an argument with their names, as effects call them: members of tuples by position."""
    if isinstance(argument, tuple):
        for position, member in enumerate(argument):
            yield from _named_refs(f"{name}[{position}]", member)
    else:
        yield from ((name, ref) for ref in refs_in(argument))


def require_inputs(tape: Tape, inputs: Mapping[str, Any]) -> None:
    """Raise `UsageError` for inputs that are missing, unknown, or not laid out as those of the recording."""
    names = tape.names(tape.inputs)
    missing, unknown = [n for n in names if n not in inputs], [n for n in inputs if n not in names]
    if missing or unknown:
        what = f"lacks {', '.join(missing)}" if missing else f"takes no {', '.join(unknown)}"
        raise UsageError(f"The program {what}; its inputs are {', '.join(names) or 'none'}.")
    for name, tensor in inputs.items():
        if not hasattr(tensor, "untyped_storage"):
            raise UsageError(f"The input {name} is a {type(tensor).__name__}; expected a tensor.")
    if problem := inputs_problem(tape, inputs):
        raise UsageError(problem)


def inputs_problem(tape: Tape, inputs: Mapping[str, Any]) -> str:
    """Return why a program does not hold for tensors by the names of its inputs, or ""."""
    layouts = tape.input_layouts
    for name, layout in layouts.items():
        if tape.sizes is not None and inputs[name].dim() != len(layout.shape):
            axes, wanted = inputs[name].dim(), len(layout.shape)
            return f"The input {name} has {axes} axes; the program was recorded with {wanted}."
    for guard in () if tape.sizes is None else ordered_guards(tape.sizes.guards):
        if set(names_in(guard.text)) <= inputs.keys() and not evaluate(guard.text, inputs):
            return guard_problem(guard.words)
    several = len(tape.gpus) > 1
    for name, layout in layouts.items():
        tensor = inputs[name]
        shape, stride = (sizes_for(numbers, inputs) for numbers in (layout.shape, layout.stride))
        device = str(tensor.device) if several else tensor.device.type
        wanted_layout = (layout.dtype, shape, stride, layout.device if several else layout.device.partition(":")[0])
        dtype = str(tensor.dtype).removeprefix("torch.")
        found_layout = (dtype, tuple(tensor.shape), tuple(tensor.stride()), device)
        for what, want, got in zip(("dtype", "shape", "strides", "device"), wanted_layout, found_layout, strict=True):
            if want != got:
                return (
                    f"The input {name} has the {what} {got}; the program was recorded with {want}, and is valid for "
                    "that only. Capture it again for another."
                )
    if not tape.apart or is_traced(tuple(inputs.values()), {}):  # traced tensors have no addresses
        return ""
    return sharing_problem(inputs, tape.names(tape.apart))


def sharing_problem(inputs: Mapping[str, Any], apart: Collection[str]) -> str:
    """Return the problem where another input shares elements with one of ``apart``, or ""."""
    spans = {}
    for name in inputs if apart else ():
        tensor = inputs[name]
        reach = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
        if tensor.numel():
            spans[name] = tensor.data_ptr(), tensor.data_ptr() + (1 + reach) * tensor.element_size()
    for one in apart:
        for other, (begin, end) in spans.items():
            if one != other and one in spans and begin < spans[one][1] and spans[one][0] < end:
                return (
                    f"The inputs {one} and {other} share memory, and the program was recorded with tensors that do "
                    "not. Pass a clone of one, or capture it again with such tensors."
                )
    return ""
