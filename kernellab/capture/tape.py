"""A recorded program as plain data: its values, the steps that make and change them, and what it asks of its inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kernellab._triton.kernel import BoundJit
from kernellab._triton.tracing import is_traced
from kernellab.capture.size import Sizes, evaluated, guard_problem, here, names_in, ordered_guards
from kernellab.errors import UsageError
from kernellab.source import Binding, Closure
from kernellab.store import Argument, RecordedLaunch, Result

LAUNCH = "launch"  # a kernel; all other operations but `WINDOW` and `COPY` are named as in torch.ops
WINDOW = "window"  # (value, shape, stride, offset, dtype): its memory in another layout, counted from its first element
COPY = "layout_copy"  # (value): its memory copied with its strides, gaps included
READ = "read"  # (value, ..., recorded): what Python read of it; a run that reads something else ends there


@dataclass(frozen=True, slots=True)
class Ref:
    """A value of the program, by its index, in place of a tensor among the arguments of a step."""

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
    """Addresses of values: a copy of ``table`` with them among its words, or without a table a number, which is one.

    An entry gives the position of a word, the value, and how many bytes from its first element the address lies.
    """

    table: Ref | None
    entries: tuple[tuple[int, Ref, int], ...]


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """How a tensor lies in its storage. ``dtype`` is torch's name without ``torch.``; all but bytes counts elements."""

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
        """The elements from the first to the last one."""
        if 0 in self.shape:
            return 0
        return 1 + sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))

    def covers(self, other: TensorLayout) -> bool:
        """Tell whether all of ``other``, in the same storage, lies between the first and the last element."""
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
    """The grid of a launch with one config. ``supplied`` is what tells that from others: the parameters that it sets,
    or if need be those that heuristics set as well. ``supplied_id`` is its id in the side table."""

    supplied_id: int
    supplied: tuple[tuple[str, Any], ...]
    grid: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class TuningUse:
    """What a launch of an autotuned kernel chooses from: a grid for each config.

    ``constants_id``, ``constants`` and ``options`` are what the call itself gives, as in `KernelUse`; ``supplied`` are
    the parameters that the decorators set. ``closure`` has
    the decorators; ``key`` are the values that the choice goes by, and ``chosen`` is the position of the config that
    was timed to be the fastest for them, None where nothing was timed; ``ran`` that of the one it ran with.
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
    """The kernel of a launch, and what is constant in it.

    ``kernel`` is ``name@version``, ``kernel_id`` its id in the side table, ``constants_id`` that of its constant
    arguments and options; ``launch_id`` is the row of the history that keeps both. ``constants`` gives the constexprs
    as bindings of ``closure``; ``jit_options`` are the arguments of ``@triton.jit``. ``mutated`` and ``read`` name
    arguments; ``complete`` tells that no effect is unknown. Of an autotuned kernel, grid and constants are those of the
    config that it ran with, and ``tuning`` is what it chooses from.
    """

    kernel: str
    kernel_id: int
    constants_id: int
    launch_id: int
    grid: tuple[int, int, int]
    constants: tuple[tuple[str, Binding], ...]
    options: tuple[tuple[str, Any], ...]
    closure: Closure
    parameters: tuple[str, ...]
    jit_options: tuple[tuple[str, Any], ...]
    mutated: frozenset[str]
    read: frozenset[str]
    complete: bool
    tuning: TuningUse | None = None


@dataclass(frozen=True, slots=True)
class SeenTuning:
    """A launch of an autotuned kernel as it was seen.

    ``configs`` are those it chooses from, options of the call included, ``grids`` are their grids, ``given`` what the
    call itself gave of constants and options. ``chosen`` is the position of the config that it ran with.
    """

    configs: tuple[Any, ...]
    supplied: tuple[Mapping[str, Any], ...]
    grids: tuple[tuple[int, int, int], ...]
    given: Mapping[str, Any]
    key: tuple[Any, ...]
    chosen: int


@dataclass(frozen=True, slots=True)
class Seen:
    """A launch as it was seen, without its tensors. ``constants`` are the constexprs, ``bindings`` what they are.

    ``closure`` is what was compiled; ``owner`` is the kernel with its decorators, and ``kept`` what it was then.
    ``mutated``, ``read`` and ``complete`` are its effects, as in `KernelUse`.
    ``tuning`` is what an autotuned one chose from, or ``why_fixed`` says why its config is fixed.
    """

    kernel: BoundJit
    owner: Any
    kept: Closure | None
    launch: RecordedLaunch
    result: Result
    mutated: frozenset[str]
    read: frozenset[str]
    complete: bool
    grid: tuple[int, int, int]
    constants: Mapping[str, Any]
    bindings: tuple[Binding, ...]
    options: Mapping[str, Any]
    closure: Closure
    tuning: SeenTuning | None = None
    why_fixed: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One operation. ``results`` are the values it makes, ``several`` tells that it returns a list or tuple of them.

    ``mutated`` are the values whose memory it changes. A launch takes its arguments by name, in ``kwargs``. A launch
    that is ``functional`` changes copies of the values in ``mutated`` and returns those. With ``has_open_shape``, what
    it gives may have another shape in another run, for which the rest of the program does not hold.
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
    has_open_shape: bool = False

    @property
    def words(self) -> str:
        """The operation with its place: ``aten.nonzero.default (In[3], line 2)``."""
        return f"{self.operation} ({self.place})" if self.place else self.operation

    @property
    def taken(self) -> tuple[int, ...]:
        """The values among its arguments, each once, in order."""
        return tuple(dict.fromkeys(ref.index for ref in refs_in((*self.args, *(v for _, v in self.kwargs)))))


@dataclass(frozen=True, slots=True)
class Tape:
    """A program. ``storages`` are sizes in bytes; ``samples`` describe the inputs, in their order. ``output_names``
    are what the user called the outputs: a changed input and what it became have one name.

    ``constants`` are tensors that the block made from Python data, by the index of their value. ``apart`` are inputs
    that a functional program changes copies of: no other may share elements with them. With ``sizes``, a
    program holds for all sizes under their guards, and its integers may be of `kernellab.capture.size.Size`.
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
        """The GPUs that its values lie on; of several, each value has to lie on its own at a run."""
        found = dict.fromkeys(value.layout.device for value in self.values)
        return tuple(device for device in found if device != "cpu")

    @property
    def launches(self) -> tuple[Step, ...]:
        """The steps that launch a kernel."""
        return tuple(step for step in self.steps if step.use is not None)

    @property
    def mutated_inputs(self) -> tuple[int, ...]:
        """The inputs whose memory the program changes."""
        changed = {self.values[index].storage for step in self.steps if not step.functional for index in step.mutated}
        return tuple(index for index in self.inputs if self.values[index].storage in changed)

    @property
    def changes_inputs_before_reading(self) -> bool:
        """Whether a step changes the memory of an input before Python reads a value of a tensor."""
        reads = [index for index, step in enumerate(self.steps) if step.operation == READ]
        own = {self.values[index].storage for index in self.inputs}
        before = self.steps[: reads[-1]] if reads else ()
        return any(self.values[i].storage in own for step in before if not step.functional for i in step.mutated)


def members_of(value: Any) -> Iterator[Any]:
    """Yield what nested tuples, lists, dicts and slices hold."""
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
    """Yield the values among nested arguments."""
    for member in members_of(value):
        match member:
            case Ref():
                yield member
            case TapeDescriptor(base):
                yield base
            case Addresses(table, entries):
                yield from () if table is None else (table,)
                yield from (ref for _, ref, _ in entries)


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return nested lists, tuples and dicts with what ``change`` makes of each value that they hold."""
    if isinstance(value, list):
        return [mapped(member, change) for member in value]
    if isinstance(value, tuple):
        members = (mapped(member, change) for member in value)
        return type(value)(*members) if hasattr(value, "_fields") else tuple(members)
    if isinstance(value, dict):
        return {name: mapped(member, change) for name, member in value.items()}
    return change(value)


def with_refs(value: Any, new: Mapping[int, Any]) -> Any:
    """Return nested arguments with each value replaced by what ``new`` gives for its index."""

    def changed(part: Any) -> Any:
        match part:
            case Ref(index):
                return new[index]
            case TapeDescriptor(base):
                return replace(part, base=new[base.index])
            case Addresses(table, entries):
                moved = tuple((position, new[ref.index], offset) for position, ref, offset in entries)
                return Addresses(None if table is None else new[table.index], moved)
            case _:
                return part

    return mapped(value, changed)


def window_step(base: int, base_layout: TensorLayout, index: int, layout: TensorLayout) -> Step:
    """Return the step that makes a value of the memory of another one."""
    offset = layout.offset - base_layout.offset * base_layout.itemsize // layout.itemsize
    dtype = None if layout.dtype == base_layout.dtype else layout.dtype
    return Step(WINDOW, (Ref(base), layout.shape, layout.stride, offset, dtype), results=(index,))


def read_and_written(step: Step) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the values that a launch reads and those that it writes, by the effects of its kernel, each once.

    All of them where an effect is unknown. What is reached by addresses counts by what the step says it changes.
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
    for name, given in inputs.items():
        if not hasattr(given, "untyped_storage"):
            raise UsageError(f"The input {name} is a {type(given).__name__}; expected a tensor.")
    if problem := inputs_problem(tape, inputs):
        raise UsageError(problem)


def inputs_problem(tape: Tape, inputs: Mapping[str, Any]) -> str:
    """Return why a program does not hold for tensors by the names of its inputs, or ""."""
    layouts = tape.input_layouts
    for name, layout in layouts.items():
        if tape.sizes is not None and inputs[name].dim() != len(layout.shape):
            found, wanted = inputs[name].dim(), len(layout.shape)
            return f"The input {name} has {found} axes; the program was recorded with {wanted}."
    for guard in () if tape.sizes is None else ordered_guards(tape.sizes.guards):
        if set(names_in(guard.text)) <= inputs.keys() and not evaluated(guard.text, inputs):
            return guard_problem(guard.words)
    several = len(tape.gpus) > 1
    for name, layout in layouts.items():
        given = inputs[name]
        shape, stride = (here(each, inputs) for each in (layout.shape, layout.stride))
        device = str(given.device) if several else given.device.type
        wanted_layout = (layout.dtype, shape, stride, layout.device if several else layout.device.partition(":")[0])
        dtype = str(given.dtype).removeprefix("torch.")
        found_layout = (dtype, tuple(given.shape), tuple(given.stride()), device)
        for what, want, got in zip(("dtype", "shape", "strides", "device"), wanted_layout, found_layout, strict=True):
            if want != got:
                return (
                    f"The input {name} has the {what} {got}; the program was recorded with {want}, and holds for that "
                    "alone. Capture it again for another."
                )
    if not tape.apart or is_traced(tuple(inputs.values()), {}):  # what is traced has no addresses
        return ""
    return sharing_problem(inputs, tape.names(tape.apart))


def sharing_problem(given: Mapping[str, Any], apart: Collection[str]) -> str:
    """Return which input shares elements with one of ``apart``, which the program changes or copies in its place."""
    spans = {}
    for name in given if apart else ():
        tensor = given[name]
        reach = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
        if tensor.numel():
            spans[name] = tensor.data_ptr(), tensor.data_ptr() + (1 + reach) * tensor.element_size()
    for one in apart:
        for other, (begin, end) in spans.items():
            if one != other and one in spans and begin < spans[one][1] and spans[one][0] < end:
                return (
                    f"The inputs {one} and {other} share memory, and the program holds for tensors that do not. Pass a "
                    "clone of one, or capture it again with such tensors."
                )
    return ""
