"""A candidate's program, run by the judge on inputs that the candidate has not seen.

All memory that the program allocates is filled with a pattern first, another one in each run, so that what it finds
there by chance shows. Its operations of torch are looked up by what the specification allows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kernellab.capture.node_functions import layout_copy
from kernellab.capture.plan import EMPTY
from kernellab.capture.tape import COPY, LAUNCH, READ, WINDOW, Addresses, Ref, TapeDescriptor, map_nested, members_of
from kernellab.errors import KernellabError
from kernellab.ir.effects import REACHED
from kernellab.judge.program import CandidateProgram, LaunchVariant, ProgramStep, ProgramValue, TorchName
from kernellab.launch.arguments import span_elements
from kernellab.launch.memory import apart, words_of
from kernellab.source import Closure

POISONS = (0xFF, 0x5A, 0xC3)
"""Bytes that allocated memory is filled with: NaN, then numbers of either sign."""
_MOST_ELEMENTS = 1 << 33  # of an operand or result, repeated ones counted
_MOST_WORK = 4e12  # multiplications of one operation, about a minute on a CPU
ALLOCATIONS = EMPTY | frozenset(
    {
        *("aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default"),
        *("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default"),
        *("aten.full.default", "aten.full_like.default", "aten.new_full.default"),
        *("aten.fill_.Scalar", "aten.zero_.default"),
    }
)
"""Operations that make memory, or fill it with one number."""

_VIEWS = frozenset(
    {
        *("alias", "as_strided", "broadcast_to", "chunk", "detach", "diagonal", "expand", "expand_as", "flatten", "mT"),
        *("movedim", "moveaxis", "narrow", "numpy_T", "permute", "ravel", "select", "slice", "split"),
        *("split_with_sizes", "squeeze", "swapaxes", "swapdims", "t", "tensor_split", "transpose", "unbind"),
        *("unflatten", "unfold", "unsqueeze", "view", "view_as", "view_as_complex", "view_as_real", "lift_fresh"),
        *("hsplit", "vsplit", "dsplit", "_unsafe_view", "reshape", "reshape_as", "contiguous", "real"),
    }
)
"""Operations that give a view, or a copy in another layout where no view has it. Under inference mode, torch shows
`reshape` and `flatten` themselves."""
_COPIES = frozenset({"clone", "copy_", "_to_copy", "to"})
"""Operations that copy: `to` and `copy_` into another dtype, too."""

_REFUSED = frozenset({"set_", "resize_", "resize_as_", "from_file", "record_stream", "_local_scalar_dense", "item"})


class ReplayError(KernellabError):
    """A program that cannot be run as it says; ``line`` is the candidate's."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


class ReplayTimeout(ReplayError):
    """A program that takes too long."""


@dataclass(frozen=True, slots=True)
class DescriptorArgument:
    """A tensor descriptor among the arguments of a launch, over a tensor of the judge's."""

    base: torch.Tensor
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block_shape: tuple[int, ...]
    padding: str = "zero"
    round_f32_to_tf32: bool = False


Launcher = Callable[[Closure, LaunchVariant, Mapping[str, Any]], None]
"""Launches a kernel with arguments by name: tensors, descriptors and numbers, without the constexprs.

Memory that it reaches through addresses in these has names that are not parameters.
"""


@dataclass(slots=True)
class Replay:
    """One run of a program. ``device`` is where its memory lies, ``poison`` the byte that it is filled with, or None.

    ``config`` is the config that autotuned launches take. ``most_bytes`` is how much memory the program may make, and
    ``deadline_s`` the time, as of ``time.monotonic``, after which no step begins. ``torch_copies`` are the contents
    that torch alone has copied from the inputs ``sources``, each with its step, as they were when a kernel first got
    them, or at the end.
    """

    program: CandidateProgram
    kernels: Sequence[Closure]
    launch: Launcher
    poison: int | None = POISONS[0]
    device: str = "cpu"
    config: int = 0
    most_bytes: int = 4 << 30
    deadline_s: float = math.inf
    sources: Collection[str] = ()
    torch_copies: list[tuple[ProgramStep, torch.Tensor]] = field(default_factory=list)
    _tensors: dict[int, torch.Tensor] = field(default_factory=dict)
    _input_storages: set[int] = field(default_factory=set)  # they hold what inputs held, and nothing of a kernel
    _copies: dict[int, tuple[ProgramStep, torch.Tensor]] = field(default_factory=dict)
    _made_bytes: int = 0

    def run(self, inputs: Mapping[str, Any]) -> list[torch.Tensor]:
        """Run on inputs by name, which the program may change; return its outputs.

        Raises:
            ReplayError: a step does not do what the program says.
            ReplayTimeout: it takes too long.
            KernellabError: a kernel fails.
        """
        self._tensors = {index: inputs[name] for name, index in self.program.inputs}
        self._input_storages = {_storage_of(inputs[name]) for name, _ in self.program.inputs if name in self.sources}
        for index, content in self.program.constants:
            self._tensors[index] = self._constant(self.program.values[index], content)
        with torch.no_grad():
            for step in self.program.steps:
                if time.monotonic() > self.deadline_s:
                    raise ReplayTimeout("Its trials take too long.", step.line)
                self._step(step)
        for storage in list(self._copies):
            self._keep_copy(storage)
        return [self._tensors[index] for index in self.program.outputs]

    def _step(self, step: ProgramStep) -> None:
        if step.operation == LAUNCH:
            self._launch(step)
            return
        args, kwargs = self._live(step.args), {name: self._live(value) for name, value in step.kwargs}
        if step.operation == WINDOW:
            result = self._window(step, *args)
        elif step.operation == COPY:
            self._reserve(step, span_elements(args[0].shape, args[0].stride()) * args[0].element_size())
            result = layout_copy(args[0])
        else:
            result = self._operation(step, args, kwargs)
        if is_copy(step.operation):
            self._note_copy(step, args, result)
        self._keep(step, result)

    def _launch(self, step: ProgramStep) -> None:
        assert step.kernel is not None
        variant = step.variants[min(self.config, len(step.variants) - 1)]
        if 0 not in variant.grid:
            arguments = {name: self._live(value) for name, value in step.kwargs}
            reached = {
                f"{REACHED}{name}[{position}]": self._tensors[ref.index]
                for name, value in step.kwargs
                for part in members_of([value])
                if isinstance(part, Addresses)
                for position, ref, _ in part.entries
            }
            everything = {**arguments, **apart(reached, arguments)}
            for part in members_of(everything):
                tensor = part.base if isinstance(part, DescriptorArgument) else part
                if isinstance(tensor, torch.Tensor):
                    self._keep_copy(_storage_of(tensor))
            self.launch(self.kernels[step.kernel], variant, everything)

    def _note_copy(self, step: ProgramStep, args: Sequence[Any], result: Any) -> None:
        """Note where a step has copied what came from inputs."""
        source = args[1] if step.operation.startswith("aten.copy_.") else args[0]
        is_tensor = isinstance(result, torch.Tensor) and bool(result.numel())
        if is_tensor and _storage_of(source) in self._input_storages and _storage_of(result) != _storage_of(source):
            self._input_storages.add(_storage_of(result))
            self._copies[_storage_of(result)] = step, result

    def _keep_copy(self, storage: int) -> None:
        """Keep what torch has copied to a storage, before a kernel changes it."""
        if storage in self._copies:
            step, tensor = self._copies.pop(storage)
            memory = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
            self.torch_copies += [(step, bytes_of(tensor).clone()), (step, memory.clone())]
            self._input_storages.discard(storage)

    def _operation(self, step: ProgramStep, args: Any, kwargs: dict[str, Any]) -> Any:
        operation = operation_named(step.operation)
        if operation is None:
            raise ReplayError(f"{step.operation} is not an operation that a judge runs.", step.line)
        try:
            self._require_room(step, operation, args, kwargs)
            result = operation(*args, **kwargs)
        except ReplayError:
            raise
        except Exception as exc:  # torch's checks of arguments raise what they like
            first = str(exc).splitlines()[0] if str(exc) else type(exc).__name__
            raise ReplayError(f"torch's {_short(step.operation)} fails: {first}", step.line) from exc
        if step.operation in EMPTY and self.poison is not None:
            fill_bytes(result, self.poison)
        return result

    def _require_room(self, step: ProgramStep, operation: Any, args: Any, kwargs: dict[str, Any]) -> None:
        """Refuse an operation that takes too much memory or time on a CPU; it is computed without data first.

        A product takes the square root of what its operands and its result have elements, multiplied.
        """
        if self.device != "cpu":
            return  # memory of a GPU runs out as an error of torch
        on_meta = {**kwargs, "device": torch.device("meta")} if "device" in kwargs else kwargs
        operands = map_nested([args, on_meta], _without_data)
        try:
            result = operation(*operands[0], **operands[1])
        except NotImplementedError:
            result = ()  # an operation that torch knows with data alone
        tensors = [part for part in members_of(operands) if isinstance(part, torch.Tensor)]
        made = [part for part in members_of(result) if isinstance(part, torch.Tensor)]
        own = {part.untyped_storage()._cdata for part in tensors}
        storages = {part.untyped_storage()._cdata: part.untyped_storage().nbytes() for part in made}
        self._reserve(step, sum(size for storage, size in storages.items() if storage not in own))
        counts = sorted((part.numel() for part in (*tensors, *made)), reverse=True)
        if max([*counts, 0]) > _MOST_ELEMENTS or math.prod(counts[:3]) > _MOST_WORK**2:
            shapes = ", ".join(str(tuple(part.shape)) for part in tensors)
            raise ReplayError(f"torch's {_short(step.operation)} of {shapes} is too much work for a CPU.", step.line)

    def _reserve(self, step: ProgramStep, needed_bytes: int) -> None:
        """Count memory that a step makes, which lives until the end of the run, and refuse too much of it."""
        self._made_bytes += needed_bytes
        if self._made_bytes > self.most_bytes:
            raise ReplayError(
                f"torch's {_short(step.operation)} takes {needed_bytes / 2**30:,.1f} GiB; all steps together may take "
                f"{self.most_bytes / 2**30:,.0f} GiB on a CPU.",
                step.line,
            )

    def _keep(self, step: ProgramStep, result: Any) -> None:
        results = list(result) if step.is_several else [result]
        for index, value in zip(step.results, results, strict=False):
            if index < 0:
                continue
            expected = self.program.values[index]
            if not isinstance(value, torch.Tensor) or tuple(value.shape) != expected.shape:
                shape = tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
                raise ReplayError(f"{step.operation} gives {shape}, and the program says {expected.shape}.", step.line)
            if not _is_plain(value):
                detail = "elements that lie in no memory of its own: negated, conjugate or beyond its end"
                raise ReplayError(f"torch's {_short(step.operation)} gives {detail}.", step.line)
            self._tensors[index] = value

    def _window(self, step: ProgramStep, base: Any, shape: Any, stride: Any, offset: Any, dtype: Any) -> Any:
        """Return a view of the memory of ``base``, which holds all of it."""
        kind = base.dtype if dtype is None else getattr(torch, str(dtype).removeprefix("torch."), None)
        if not isinstance(kind, torch.dtype) or any(value < 0 for value in (*shape, *stride)):
            raise ReplayError("The program asks for a view that no tensor has.", step.line)
        storage = base.untyped_storage()
        first = base.storage_offset() * base.element_size() + offset * kind.itemsize
        end = first + span_elements(shape, stride) * kind.itemsize
        if first < 0 or first % kind.itemsize or end > storage.nbytes():
            raise ReplayError("The program asks for a view that reaches beyond its memory.", step.line)
        empty = torch.empty(0, dtype=kind, device=base.device)
        return empty.set_(storage, first // kind.itemsize, tuple(shape), tuple(stride))

    def _constant(self, value: ProgramValue, content: bytes) -> torch.Tensor:
        dtype = getattr(torch, value.dtype)
        if not content:
            return torch.empty(value.shape, dtype=dtype, device=self.device)
        return torch.frombuffer(bytearray(content), dtype=dtype).reshape(value.shape).to(self.device)

    def _with_addresses(self, table: torch.Tensor | None, entries: Sequence[tuple[int, Ref, int]]) -> Any:
        """Return a copy of a table with addresses of this run, or without one the only address."""
        addresses = {position: self._tensors[ref.index].data_ptr() + offset for position, ref, offset in entries}
        if table is None:
            return next(iter(addresses.values()))
        copied = copy_of(table, self.device)
        words = words_of(copied)
        if any(position >= words.numel() for position in addresses):
            raise ReplayError("The program puts an address beyond the end of a table.")
        words[list(addresses)] = torch.tensor(list(addresses.values()), dtype=torch.int64, device=words.device)
        return copied

    def _live(self, value: Any) -> Any:
        """Return nested arguments with tensors in place of references."""

        def live(part: Any) -> Any:
            match part:
                case Ref(index):
                    return self._tensors[index]
                case TapeDescriptor(Ref(index), shape, strides, block_shape, padding):
                    base = self._tensors[index]
                    _require_inside(base, shape, strides)
                    return DescriptorArgument(base, shape, strides, block_shape, padding)
                case Addresses(table, entries):
                    return self._with_addresses(None if table is None else self._tensors[table.index], entries)
                case TorchName("device"):
                    return torch.device(self.device)
                case TorchName(_, name):
                    return getattr(torch, name)
                case _:
                    return part

        return map_nested(value, live)


def _storage_of(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether the elements of a tensor are the bits of its memory, all of it its own."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_neg() or tensor.is_conj():
        return False
    end = tensor.storage_offset() + span_elements(tensor.shape, tensor.stride())
    return not tensor.numel() or end * tensor.element_size() <= tensor.untyped_storage().nbytes()


def _without_data(part: Any) -> Any:
    """Return a tensor of the same layout without data; other values as they are."""
    if not isinstance(part, torch.Tensor):
        return part
    return torch.empty_strided(part.shape, part.stride(), dtype=part.dtype, device="meta")


def _require_inside(base: torch.Tensor, shape: Sequence[int], strides: Sequence[int]) -> None:
    """Refuse a descriptor that reaches beyond the memory of its tensor."""
    end = base.storage_offset() + span_elements(shape, strides)
    if end * base.element_size() > base.untyped_storage().nbytes():
        raise ReplayError("The program asks for a descriptor that reaches beyond its memory.")


def fill_bytes(tensor: torch.Tensor, byte: int) -> None:
    """Fill the storage of a tensor with one byte."""
    storage = tensor.untyped_storage()
    if storage.nbytes():
        torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage).fill_(byte)


def element_count(inputs: Mapping[str, Any]) -> int:
    """Return the number of elements of all tensors among inputs."""
    return sum(value.numel() for value in inputs.values() if isinstance(value, torch.Tensor))


def copies_of(inputs: Mapping[str, Any], device: str = "cpu") -> dict[str, Any]:
    """Return inputs with tensors copied, in their layouts, each in a storage of its own."""
    return {
        name: copy_of(value, device) if isinstance(value, torch.Tensor) else value for name, value in inputs.items()
    }


def copy_of(tensor: torch.Tensor, device: str = "cpu") -> torch.Tensor:
    """Return a copy of a tensor with its strides and offset."""
    count = tensor.storage_offset() + span_elements(tensor.shape, tensor.stride())
    flat = tensor.as_strided((count,), (1,), 0)
    memory = flat.to(device, copy=True)
    return memory.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have the same dtype, shape and bits in every element."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool(torch.equal(bytes_of(one), bytes_of(other)))


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements of a tensor as bytes, row by row."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else torch.empty(0).byte()


def operation_named(name: str) -> Any:
    """Return the operator of torch with a name such as ``aten.add.Tensor``, or None where there is none."""
    parts = name.split(".")
    if len(parts) != 3 or parts[0] != "aten" or not all(part.isidentifier() for part in parts):
        return None
    if any(part.startswith("__") for part in parts[1:]):
        return None
    packet = getattr(torch.ops.aten, parts[1], None)
    return None if packet is None else getattr(packet, parts[2], None)


def operation_problem(name: str, allow: str) -> tuple[str, str] | None:
    """Return the rule that an operation breaks and a sentence, or None; ``allow`` is ``"triton"`` or ``"torch"``."""
    if name in {LAUNCH, WINDOW}:
        return None
    if name == READ:
        return "host_reads_data", "Python reads values of a tensor: what follows would hold for these values alone"
    short = _short(name)
    if name != COPY:
        operation = operation_named(name)
        if operation is None or short in _REFUSED:
            return "unknown_operation", f"{name} is not an operation that a judge runs"
        if torch.Tag.nondeterministic_seeded in operation.tags:
            return "random", f"torch's {short} draws random numbers, so no run repeats another"
        if torch.Tag.dynamic_output_shape in operation.tags and short != "index":
            return "shape_from_data", f"the shape of what torch's {short} returns depends on data"
        if name in ALLOCATIONS:
            return None
    if allow == "torch" or name == COPY or short in _VIEWS | _COPIES:
        return None
    return (
        "torch_operation",
        f'torch\'s {short} computes; allow = "triton" leaves allocation, views, copies and launches',
    )


def keeps_bits(name: str) -> bool:
    """Whether an operation that `operation_problem` lets a candidate of kernels use moves bits, and never rounds."""
    return name in {LAUNCH, WINDOW, COPY} or name in ALLOCATIONS or _short(name) in _VIEWS | {"clone"}


def is_copy(name: str) -> bool:
    """Whether an operation copies, or may, as ``reshape`` does."""
    return name == COPY or _short(name) in _COPIES | {"reshape", "reshape_as", "contiguous", "flatten", "ravel"}


def _short(name: str) -> str:
    return name.split(".")[1] if name.count(".") == 2 else name
