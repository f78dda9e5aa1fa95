"""A launch as plain data: what a worker needs to run a kernel on the tensors of another process.

Tensors travel as views of storages, which lie in one block of memory that both processes map. Two arguments that are
views of one storage stay so.

The compiler asks of a tensor only its dtype and whether its address is a multiple of 16, which mock arguments tell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernellab._triton.kernel import JitKernel

Scalar = bool | int | float | str | None

# Triton's names of dtypes by those of torch.
TRITON_DTYPES = {
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


@dataclass(frozen=True, slots=True)
class SharedBlock:
    """Memory that two processes map: a path that both can open, and its size in bytes."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StorageSpec:
    """One storage: where it lies in the block, and its address in the process of its owner. All in bytes."""

    offset_bytes: int
    size_bytes: int
    address: int


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
        if 0 in self.shape:
            return 0
        last = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return (last + 1) * self.itemsize


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
        """Return a descriptor of Triton's as data, over a tensor that is data already."""
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

    value: Scalar


@dataclass(frozen=True, slots=True)
class DtypeSpec:
    """A ``tl.dtype``, by Triton's name for it."""

    name: str


ArgumentSpec = TensorSpec | DescriptorSpec | TupleSpec | ScalarSpec | DtypeSpec


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch: the grid, the arguments by name, the memory they lie in.

    ``uninitialised`` names arguments whose contents count as never written; of a tuple, its members: ``outs[1]``.
    """

    grid: tuple[int, int, int]
    arguments: tuple[tuple[str, ArgumentSpec], ...]
    block: SharedBlock
    storages: tuple[StorageSpec, ...]
    uninitialised: frozenset[str] = frozenset()


def tensors_of(name: str, spec: ArgumentSpec) -> list[tuple[str, TensorSpec]]:
    """Return every tensor of an argument with its name: ``x``, or ``outs[1]`` for a member of a tuple."""
    if isinstance(spec, TensorSpec):
        return [(name, spec)]
    if isinstance(spec, DescriptorSpec):
        return [(name, spec.base)]
    if isinstance(spec, TupleSpec):
        return [found for i, item in enumerate(spec.items) for found in tensors_of(f"{name}[{i}]", item)]
    return []


_POINTER = re.compile(r"\*k?(\w+)$")
_ALIGNED_ADDRESS = 1 << 12


@dataclass(frozen=True, slots=True)
class MockTensor:
    """Looks like a tensor to the compiler. ``dtype`` is a torch dtype, or Triton's name of one."""

    dtype: Any
    address: int = _ALIGNED_ADDRESS

    def data_ptr(self) -> int:
        """Return the made-up address, of which only the alignment counts."""
        return self.address


def mock_arguments(arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return arguments with a mock for each tensor; None if one (a descriptor) has none."""
    found = {name: _mock(value) for name, value in arguments.items()}
    return None if any(hasattr(value, "block_shape") for value in found.values()) else found


def from_annotations(kernel: JitKernel) -> dict[str, Any] | None:
    """Return arguments for a jit function whose parameters are all annotated with Triton types or have a default.

    ``x_ptr: "*fp32"`` gives a mock tensor, ``n: "i32"`` a number; None where a parameter says too little.
    """
    found: dict[str, Any] = {}
    for parameter in kernel.params:
        if parameter.has_default:
            found[parameter.name] = parameter.default
        elif not parameter.is_constexpr and (pointer := _POINTER.match(parameter.annotation_type)):
            found[parameter.name] = MockTensor(pointer[1])
        elif not parameter.is_constexpr and re.match(r"[iu]\d+$", parameter.annotation_type):
            found[parameter.name] = 2
        elif not parameter.is_constexpr and re.match(r"(fp|bf)\d+$", parameter.annotation_type):
            found[parameter.name] = 1.5
        else:
            return None
    return found


def _mock(value: Any) -> Any:
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(map(_mock, value))
    if hasattr(value, "data_ptr") and hasattr(value, "dtype"):
        return MockTensor(value.dtype, _ALIGNED_ADDRESS + value.data_ptr() % 16)
    return value
