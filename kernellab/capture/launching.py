"""What the nodes of a program's graph call beside torch's own operations: launches, views of memory, copies of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.fx

from kernellab._triton.objects import jit_function
from kernellab.errors import UsageError
from kernellab.registry.table import Registry


class SideTable(torch.nn.Module):
    """The kernels and constant arguments that the ids of a graph's launches stand for.

    ``kernels`` gives what was launched by id: for an autotuned kernel, the function under the tuner.
    """

    def __init__(self, registry: Registry, kernels: Mapping[int, Any]) -> None:
        super().__init__()
        self.registry = registry
        self.kernels = dict(kernels)
        self._captures: dict[int, Any] = {}

    def kernel(self, number: int) -> Any:
        """Return a kernel as it was recorded, also where a helper or a value that it captures is another now."""
        kernel = self.kernels[number]
        if kernel.captures() is not self._captures.get(number):
            kernel = self.kernels[number] = jit_function(self.registry[number])
            self._captures[number] = kernel.captures()
        return kernel

    def extra_repr(self) -> str:
        return ", ".join(f"{number}: {kernel.__name__}" for number, kernel in self.kernels.items())


@torch.fx.has_side_effect
def launch(
    table: SideTable,
    kernel_id: int,
    constants_id: int,
    grid: tuple[int, int, int],
    arguments: Mapping[str, Any],
) -> None:
    """Launch a kernel of the side table on these arguments and the constant ones of that id."""
    constants = table.registry.constants(constants_id)
    table.kernel(kernel_id)[grid](**arguments, **constants)


def launch_functional(
    table: SideTable,
    kernel_id: int,
    constants_id: int,
    grid: tuple[int, int, int],
    arguments: Mapping[str, Any],
    changed: Sequence[torch.Tensor],
) -> tuple[torch.Tensor, ...]:
    """Launch a kernel on copies of ``changed``, and of all arguments in their memory; return those copies."""
    copies = [layout_copy(tensor) for tensor in changed]
    pairs = list(zip(changed, copies, strict=True))
    launch(table, kernel_id, constants_id, grid, {name: _moved(value, pairs) for name, value in arguments.items()})
    return tuple(copies)


def window(
    base: torch.Tensor,
    shape: Sequence[int],
    stride: Sequence[int],
    offset: int = 0,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Return a view of the memory of ``base``; ``offset`` counts elements of ``dtype`` from its first element."""
    if dtype is None or dtype == base.dtype:
        return base.as_strided(shape, stride, base.storage_offset() + offset)
    first = base.storage_offset() * base.element_size() // dtype.itemsize
    return torch.empty(0, dtype=dtype, device=base.device).set_(base.untyped_storage(), first + offset, shape, stride)


@torch.fx.has_side_effect
def require_shape(tensor: torch.Tensor, shape: Sequence[int], what: str) -> None:
    """Raise `UsageError` for a result of another shape than the recorded one."""
    if tuple(tensor.shape) != tuple(shape):
        raise UsageError(shape_problem(what, tuple(tensor.shape), tuple(shape)))


def shape_problem(what: str, found: tuple[int, ...], recorded: tuple[int, ...]) -> str:
    """Return what is wrong with the shape that an operation gave for other data."""
    return (
        f"{what} gives the shape {found} for this data; the program was recorded with {recorded}, and its other steps "
        "hold for that alone. Capture it again with such data."
    )


def layout_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy with the strides of ``tensor``, what lies between its elements included."""
    if tensor.numel() == 0:
        return tensor.clone()
    span = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    flat = tensor.as_strided((span,), (1,), tensor.storage_offset()).clone()
    return flat.as_strided(tensor.shape, tensor.stride(), 0)


def addressed(table: torch.Tensor | None, entries: Sequence[tuple[int, torch.Tensor, int]]) -> Any:
    """Return a copy of a table with addresses in tensors, a number of bytes from their start, at some of its words.

    Without a table, return the only address.
    """
    if table is None:
        return entries[0][1].data_ptr() + entries[0][2]
    copy = layout_copy(table)
    words = copy.as_strided((copy.untyped_storage().nbytes() // copy.element_size(),), (1,), 0).view(torch.int64)
    for position, tensor, offset in entries:
        words[position] = tensor.data_ptr() + offset
    return copy


def descriptor(
    base: torch.Tensor, shape: Sequence[int], strides: Sequence[int], block_shape: Sequence[int], padding: str
) -> Any:
    """Return a tensor descriptor over ``base``."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    options = {} if padding == "zero" else {"padding": padding}
    return TensorDescriptor(base, list(shape), list(strides), list(block_shape), **options)


def _moved(value: Any, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> Any:
    """Return an argument with the memory of each first tensor replaced by that of the second."""
    if isinstance(value, tuple | list):
        members = (_moved(member, pairs) for member in value)
        return type(value)(*members) if hasattr(value, "_fields") else type(value)(members)
    if hasattr(value, "block_shape") and isinstance(getattr(value, "base", None), torch.Tensor):
        padding = getattr(value, "padding", "zero")
        return descriptor(_moved(value.base, pairs), value.shape, value.strides, value.block_shape, padding)
    if not isinstance(value, torch.Tensor):
        return value
    for old, new in pairs:
        if value.untyped_storage().data_ptr() == old.untyped_storage().data_ptr():
            begin = int(old.storage_offset()) * old.element_size() // value.element_size()
            return window(new, value.shape, value.stride(), int(value.storage_offset()) - begin, value.dtype)
    return value
