"""A candidate's program, run by the judge on inputs that the candidate has not seen.

All memory that the program allocates is filled with a pattern first, another one in each run, so that what it finds
there by chance shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kernellab.capture.node_functions import layout_copy
from kernellab.capture.plan import EMPTY
from kernellab.capture.tape import COPY, LAUNCH, WINDOW, Addresses, Ref, TapeDescriptor, map_nested, members_of
from kernellab.errors import KernellabError
from kernellab.ir.effects import REACHED
from kernellab.judge.operations import operation_named
from kernellab.judge.program import CandidateProgram, LaunchVariant, ProgramStep, ProgramValue, TorchName
from kernellab.launch.arguments import span_elements
from kernellab.launch.memory import apart, words_of
from kernellab.source import Closure

POISONS = (0xFF, 0x5A, 0xC3)
"""Bytes that allocated memory is filled with: NaN, then numbers of either sign."""


class ReplayError(KernellabError):
    """A program that cannot be run as it says; ``line`` is the candidate's."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


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

    ``config`` is the config that autotuned launches take, ``most_bytes`` how much memory one step may make.
    """

    program: CandidateProgram
    kernels: Sequence[Closure]
    launch: Launcher
    poison: int | None = POISONS[0]
    device: str = "cpu"
    config: int = 0
    most_bytes: int = 4 << 30
    _tensors: dict[int, torch.Tensor] = field(default_factory=dict)

    def run(self, inputs: Mapping[str, Any]) -> list[torch.Tensor]:
        """Run on inputs by name, which the program may change; return its outputs.

        Raises:
            ReplayError: a step does not do what the program says.
            KernellabError: a kernel fails.
        """
        self._tensors = {index: inputs[name] for name, index in self.program.inputs}
        for index, content in self.program.constants:
            self._tensors[index] = self._constant(self.program.values[index], content)
        with torch.no_grad():
            for step in self.program.steps:
                self._step(step)
        return [self._tensors[index] for index in self.program.outputs]

    def _step(self, step: ProgramStep) -> None:
        if step.operation == LAUNCH:
            self._launch(step)
            return
        args, kwargs = self._live(step.args), {name: self._live(value) for name, value in step.kwargs}
        if step.operation == WINDOW:
            result = self._window(step, *args)
        elif step.operation == COPY:
            result = layout_copy(args[0])
        else:
            result = self._operation(step, args, kwargs)
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
            self.launch(self.kernels[step.kernel], variant, {**arguments, **apart(reached, arguments)})

    def _operation(self, step: ProgramStep, args: Any, kwargs: dict[str, Any]) -> Any:
        operation = operation_named(step.operation)
        if operation is None:
            raise ReplayError(f"{step.operation} is not an operation that a judge runs.", step.line)
        try:
            self._require_room(step, operation, args, kwargs)
            result = operation(*args, **kwargs)
        except (RuntimeError, TypeError, ValueError, IndexError) as exc:
            first = str(exc).splitlines()[0] if str(exc) else type(exc).__name__
            raise ReplayError(f"torch's {step.operation.split('.')[1]} fails: {first}", step.line) from exc
        if step.operation in EMPTY and self.poison is not None:
            fill_bytes(result, self.poison)
        return result

    def _require_room(self, step: ProgramStep, operation: Any, args: Any, kwargs: dict[str, Any]) -> None:
        """Refuse an operation whose results take too much memory; they are computed without data first."""
        on_meta = {**kwargs, "device": torch.device("meta")} if "device" in kwargs else kwargs
        try:
            result = operation(*map_nested(args, _without_data), **map_nested(on_meta, _without_data))
        except NotImplementedError:
            return  # an operation that torch knows with data alone
        made = [part for part in members_of(result) if isinstance(part, torch.Tensor)]
        needed = sum(part.untyped_storage().nbytes() for part in made)
        if needed > self.most_bytes:
            raise ReplayError(
                f"torch's {step.operation.split('.')[1]} takes {needed / 2**30:,.1f} GiB; a step may take "
                f"{self.most_bytes / 2**30:,.0f} GiB.",
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

    def _addressed(self, table: torch.Tensor | None, entries: Sequence[tuple[int, Ref, int]]) -> Any:
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
                    return self._addressed(None if table is None else self._tensors[table.index], entries)
                case TorchName("device"):
                    return torch.device(self.device)
                case TorchName(_, name):
                    return getattr(torch, name)
                case _:
                    return part

        return map_nested(value, live)


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
    first, second = (t.detach().contiguous().reshape(-1).view(torch.uint8) if t.numel() else t for t in (one, other))
    return bool(torch.equal(first, second))
