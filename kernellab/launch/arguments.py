"""A launch as plain data: what a worker needs to run a kernel on the tensors of another process, and what it answers.

Tensors travel as views of storages, which lie in one block of memory that both processes map. Two arguments that are
views of one storage stay so.
"""

from __future__ import annotations

from dataclasses import dataclass

Scalar = bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Block:
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
    """A view of a storage. ``dtype`` is Triton's name ("fp32"); ``strides`` count elements, ``offset_bytes`` bytes."""

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
    block: Block
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
