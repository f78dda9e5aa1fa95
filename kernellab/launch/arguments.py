"""A launch and its arguments as plain data.

Tensors travel as views of storages; two arguments that are views of one storage stay so.
"""

from __future__ import annotations

import bisect
import numbers
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from kernellab.compile.argument_values import ArgumentValue
from kernellab.errors import LaunchError
from kernellab.workers.forks_and_interrupts import is_fork

# Triton's names of dtypes by those of torch.
TRITON_NAMES = {
    "bool": "i1",
    "uint8": "u8",
    "int8": "i8",
    "int16": "i16",
    "uint16": "u16",
    "int32": "i32",
    "uint32": "u32",
    "int64": "i64",
    "uint64": "u64",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
    "float8_e4m3fnuz": "fp8e4b8",
    "float8_e5m2fnuz": "fp8e5b16",
}


class CannotExport(Exception):
    """An argument cannot be exported to another process; the text has its name and the reason."""


@dataclass(frozen=True, slots=True)
class SharedBlock:
    """Memory that two processes map, by a path that both can open."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StorageSpec:
    """One storage: its offset in the block and its address in its own process; if not whole, only the arguments'."""

    offset_bytes: int
    size_bytes: int
    address: int
    is_whole: bool = True


def span_elements(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return the number of elements in memory from the first of a view to the last; ``strides`` count elements."""
    return 0 if 0 in shape else 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A view of a storage. ``strides`` count elements, ``offset_bytes`` bytes.

    ``dtype`` is Triton's name ("fp32") for the interpreter, and torch's ("float32") for the GPU worker.
    """

    storage: int
    offset_bytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    itemsize: int

    @property
    def span_bytes(self) -> int:
        """The bytes from the first element to the end of the last one."""
        return span_elements(self.shape, self.strides) * self.itemsize


@dataclass(frozen=True, slots=True)
class DescriptorSpec:
    """A ``TensorDescriptor`` over a tensor. ``padding`` is ``"zero"`` or ``"nan"``."""

    base: TensorSpec
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block_shape: tuple[int, ...]
    padding: str = "zero"
    round_f32_to_tf32: bool = False

    @staticmethod
    def of(value: Any, base: TensorSpec) -> DescriptorSpec:
        """A Triton descriptor as data, over a tensor that is data already."""
        return DescriptorSpec(
            base=base,
            shape=tuple(map(int, value.shape)),
            strides=tuple(map(int, value.strides)),
            block_shape=tuple(map(int, value.block_shape)),
            padding=str(value.padding),
            round_f32_to_tf32=bool(getattr(value, "round_f32_to_tf32", False)),
        )


@dataclass(frozen=True, slots=True)
class TupleSpec:
    """A tuple of arguments; a named one where ``fields`` is not None."""

    items: tuple[ArgumentSpec, ...]
    type_name: str = "tuple"
    fields: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ScalarSpec:
    """A number, string or None."""

    value: bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class DtypeSpec:
    """A ``tl.dtype``, by Triton's name for it."""

    name: str


ArgumentSpec = TensorSpec | DescriptorSpec | TupleSpec | ScalarSpec | DtypeSpec


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch: the grid, the arguments by name, and their memory.

    ``uninitialised`` names arguments whose contents count as never written; of a tuple, its members: ``outs[1]``.
    """

    grid: tuple[int, int, int]
    arguments: tuple[tuple[str, ArgumentSpec], ...]
    block: SharedBlock
    storages: tuple[StorageSpec, ...]
    uninitialised: frozenset[str] = frozenset()


def members_of(arguments: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield arguments with their names, of a tuple its members: ``outs[1]``."""
    for name, value in arguments:
        if isinstance(value, tuple):
            yield from members_of((f"{name}[{i}]", member) for i, member in enumerate(value))
        else:
            yield name, value


def memory_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors among the arguments, by name; ``outs[1]`` for a member of a tuple."""
    tensors: dict[str, Any] = {}
    for name, value in members_of(arguments.items()):
        if hasattr(value, "untyped_storage"):
            tensors[name] = value
        elif hasattr(getattr(value, "base", None), "untyped_storage"):
            tensors[name] = value.base
    return tensors


def values_of(arguments: Mapping[str, Any]) -> dict[str, ArgumentValue]:
    """The shapes and values of arguments, by name; ``outs[1]`` for a member of a tuple."""
    values: dict[str, ArgumentValue] = {}
    for name, value in members_of(arguments.items()):
        plain = getattr(value, "value", value)  # of a tl.constexpr
        if hasattr(value, "shape") and (_is_descriptor(value) or hasattr(value, "stride")):
            strides = value.strides if _is_descriptor(value) else value.stride()
            values[name] = ArgumentValue(tuple(map(int, value.shape)), tuple(map(int, strides)))
        elif isinstance(plain, bool | int | float | str):
            values[name] = ArgumentValue(value=plain)
    return values


def spec_of(
    name: str, value: Any, tensor: Callable[[str, Any], TensorSpec], other: Callable[[str, Any], ArgumentSpec]
) -> ArgumentSpec:
    """An argument as data; ``tensor`` converts tensors, ``other`` values that are not kernel arguments."""
    if isinstance(value, tuple):
        items = tuple(spec_of(f"{name}[{i}]", item, tensor, other) for i, item in enumerate(value))
        return TupleSpec(items, type(value).__name__, getattr(value, "_fields", None))
    if _is_descriptor(value):
        return DescriptorSpec.of(value, tensor(name, value.base))
    if hasattr(value, "data_ptr"):
        return tensor(name, value)
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return ScalarSpec(kind(value))
    if isinstance(value, numbers.Real):  # of numpy
        return ScalarSpec(int(value) if isinstance(value, numbers.Integral) else float(value))
    return ScalarSpec(None) if value is None else other(name, value)


def _is_descriptor(value: Any) -> bool:
    return all(hasattr(value, name) for name in ("base", "block_shape", "strides", "padding"))


def leaves_of(name: str, spec: ArgumentSpec) -> Iterator[tuple[str, ArgumentSpec]]:
    """Yield an argument with its name, of a tuple its members: ``outs[1]``."""
    if isinstance(spec, TupleSpec):
        for i, item in enumerate(spec.items):
            yield from leaves_of(f"{name}[{i}]", item)
    else:
        yield name, spec


def tensors_of(name: str, spec: ArgumentSpec) -> list[tuple[str, TensorSpec]]:
    """Every tensor of an argument with its name, that of a descriptor too."""
    bases = ((n, leaf.base if isinstance(leaf, DescriptorSpec) else leaf) for n, leaf in leaves_of(name, spec))
    return [(n, tensor) for n, tensor in bases if isinstance(tensor, TensorSpec)]


Ranges = tuple[tuple[int, int], ...]
"""The addresses of all storages, in order; those that overlap count as one: two tensors may wrap the same memory."""


def ranges_of(arguments: Mapping[str, Any]) -> Ranges:
    """The address ranges of the storages of CPU tensors."""
    values = (value for _, value in members_of(arguments.items()))
    tensors = (value.base if _is_descriptor(value) or _is_reinterpreted(value) else value for value in values)
    storages = [tensor.untyped_storage() for tensor in tensors if _is_on_cpu(tensor)]
    merged: list[tuple[int, int]] = []
    for start, end in sorted({(storage.data_ptr(), storage.data_ptr() + storage.nbytes()) for storage in storages}):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return tuple(merged)


def tensor_spec(ranges: Ranges, name: str, value: Any) -> TensorSpec:
    """A CPU tensor as a view of one of the storages.

    Raises:
        LaunchError: it cannot be taken along: another device, sparse, without memory.
    """
    tensor, dtype = (value.base, str(value.dtype)) if _is_reinterpreted(value) else (value, None)
    _check_tensor(name, tensor)
    if dtype is None:
        torch_name = str(tensor.dtype).removeprefix("torch.")
        if torch_name not in TRITON_NAMES:
            raise LaunchError(f"{name} is a tensor of {tensor.dtype}, which Triton has no type for.")
        dtype = TRITON_NAMES[torch_name]
    storage = tensor.untyped_storage()
    index = bisect.bisect_right(ranges, storage.data_ptr(), key=lambda found: found[0]) - 1
    spec = TensorSpec(
        storage=index,
        offset_bytes=storage.data_ptr() - ranges[index][0] + tensor.storage_offset() * tensor.element_size(),
        shape=tuple(map(int, tensor.shape)),
        strides=tuple(map(int, tensor.stride())),
        dtype=dtype,
        itemsize=tensor.element_size(),
    )
    require_memory(name, tensor)
    return spec


def require_memory(name: str, tensor: Any) -> None:
    """Refuse a tensor that is longer than its storage: an access would crash the process.

    Raises:
        LaunchError: the storage of the tensor was resized or freed.
    """
    end = tensor.storage_offset() + span_elements(tensor.shape, tensor.stride())
    if tensor.numel() and end * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise LaunchError(f"{name} has no memory of its own: its storage was resized or freed.")


def other_spec(name: str, value: Any) -> ArgumentSpec:
    """A dtype or ``tl.constexpr`` as data.

    Raises:
        LaunchError: it is something else.
    """
    kind = type(value)
    if kind.__module__.startswith("triton.") and kind.__name__ == "dtype":
        return DtypeSpec(value.name)
    if kind.__module__.startswith("triton.") and kind.__name__ == "constexpr":
        return spec_of(name, value.value, partial(tensor_spec, ()), other_spec)
    raise LaunchError(
        f"{name} is a {kind.__module__}.{kind.__qualname__}, which cannot be an argument of a kernel; "
        "expected a tensor, a TensorDescriptor, a number, None, or a tuple of such."
    )


def _is_reinterpreted(value: Any) -> bool:
    """Whether a value comes from ``triton.reinterpret``: a tensor under another type."""
    return type(value).__name__ == "TensorWrapper" and hasattr(value, "base")


def _check_tensor(name: str, tensor: Any) -> None:
    device = getattr(getattr(tensor, "device", None), "type", None)
    if device == "meta" or type(tensor).__name__ == "FakeTensor":
        raise LaunchError(f"{name} is a tensor without data (device {device}); give it data with torch.empty_like.")
    if device != "cpu" and is_fork():
        raise LaunchError(
            f"{name} is a tensor on {device}, which cannot be used in a fork of a process that uses it. "
            "Start the process with multiprocessing's spawn, or pass tensors of the CPU."
        )
    if device != "cpu":
        raise LaunchError(f"{name} is a tensor on {device}, and the kernel runs on the CPU; pass {name}.cpu().")
    from kernellab._triton.specialize import dense_problem  # loads Triton

    if (problem := dense_problem(name, tensor)) is not None:
        raise LaunchError(problem)
    if getattr(tensor, "is_quantized", False):
        raise LaunchError(f"{name} is a quantized tensor; pass {name}.int_repr() and its scale.")


def _is_on_cpu(value: Any) -> bool:
    """Whether a value is a tensor with memory that this process can read."""
    if not hasattr(value, "data_ptr") or getattr(getattr(value, "device", None), "type", None) != "cpu":
        return False
    return str(getattr(value, "layout", "")) == "torch.strided" and type(value).__name__ != "FakeTensor"


@contextmanager
def bypass_modes() -> Iterator[None]:
    """Hide the operations of torch inside a with statement, or of a decorated function, from the modes of the user.

    dynamo, which compiles what runs after a graph break, leaves them alone, too. Not for what calls the user's code, as
    hooks and heuristics: their operations are the user's.
    """
    import torch  # keeps `import kernellab` light

    dynamo = torch._C._dynamo.eval_frame
    callback = dynamo.set_eval_frame(None)
    try:
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            yield
    finally:
        dynamo.set_eval_frame(callback)
