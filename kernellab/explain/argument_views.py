"""The arguments of a launch without the contents of their memory, to predict its time in another process.

A view has what addresses depend on: place, shape, strides and size of an element. Few kernels load what their addresses
or trip counts depend on; for one that does, the process with the memory predicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, NoReturn


class NeedsContents(Exception):
    """A kernel loads values from memory that its time depends on."""


class CannotView(Exception):
    """An argument of a kind that has no view; the text is its name."""


@dataclass(frozen=True, slots=True)
class StorageView:
    """The address and the size of a tensor's storage."""

    address: int
    size_bytes: int

    def data_ptr(self) -> int:
        """The address, as a storage of torch names it."""
        return self.address

    def nbytes(self) -> int:
        """The bytes of the storage, as torch names them."""
        return self.size_bytes


@dataclass(frozen=True, slots=True)
class TensorView:
    """A tensor without its contents, under torch's names; ``strides`` count elements."""

    address: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    device: str
    storage: StorageView

    def data_ptr(self) -> int:
        """The address of the first element."""
        return self.address

    def storage_offset(self) -> int:
        """The elements of the storage before the first one."""
        return self.offset

    def stride(self) -> tuple[int, ...]:
        """The strides in elements."""
        return self.strides

    def element_size(self) -> int:
        """The bytes of an element."""
        return self.itemsize

    def numel(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    def untyped_storage(self) -> StorageView:
        """The storage."""
        return self.storage

    def contents(self) -> NoReturn:
        """Refuse to read: the contents are in another process.

        Raises:
            NeedsContents: always.
        """
        raise NeedsContents


@dataclass(frozen=True, slots=True)
class DescriptorView:
    """A tensor descriptor over a view."""

    base: TensorView
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block_shape: tuple[int, ...]


def views_of(arguments: Mapping[str, Any], constants: frozenset[str]) -> dict[str, Any]:
    """Return arguments with views in place of memory; those named in ``constants`` only where they are numbers.

    Raises:
        CannotView: an argument is neither memory nor a number.
    """
    views = {}
    for name, value in arguments.items():
        try:
            views[name] = _view_of(name, value)
        except CannotView:
            if name not in constants:
                raise
    return views


def _view_of(name: str, value: Any) -> Any:
    plain = getattr(value, "value", value)  # of a tl.constexpr
    if plain is None or type(plain) in (bool, int, float, str):
        return plain
    if isinstance(value, tuple):
        return tuple(_view_of(name, member) for member in value)
    if hasattr(value, "untyped_storage"):
        return _tensor_view(value)
    base = getattr(value, "base", None)
    if not hasattr(base, "untyped_storage"):
        raise CannotView(name)
    if not hasattr(value, "block_shape"):
        return _tensor_view(base)  # a tensor under another type
    layout = (value.shape, value.strides, value.block_shape)
    return DescriptorView(_tensor_view(base), *(tuple(map(int, numbers)) for numbers in layout))


def _tensor_view(tensor: Any) -> TensorView:
    storage = tensor.untyped_storage()
    return TensorView(
        address=tensor.data_ptr(),
        offset=tensor.storage_offset(),
        shape=tuple(map(int, tensor.shape)),
        strides=tuple(map(int, tensor.stride())),
        itemsize=tensor.element_size(),
        device=str(tensor.device),
        storage=StorageView(storage.data_ptr(), storage.nbytes()),
    )
