"""Arguments that are no tensors and that Triton takes as pointers: objects with ``data_ptr()`` and ``dtype``.

A launch on the CPU needs to know how much memory such an object stands for. It may tell that itself (``shape``,
``numel``, ``nbytes``); else the tensor that owns the address does.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from kernellab.errors import LaunchError
from kernellab.launch.reached import memory_at
from kernellab.launch.shared_memory import TRITON_DTYPES

_TORCH_NAMES = {triton: torch for torch, triton in TRITON_DTYPES.items()}


def with_tensors(name: str, value: Any) -> Any:
    """Return an argument with tensors in the place of pointers, those in a tuple too; they share the memory.

    Raises:
        LaunchError: nobody knows how much memory a pointer stands for, or it has no dtype of Triton.
    """
    if isinstance(value, tuple):
        members = [with_tensors(f"{name}[{i}]", member) for i, member in enumerate(value)]
        return type(value)(*members) if hasattr(value, "_fields") else tuple(members)
    if not _is_pointer(value):
        return value
    from torch.utils._python_dispatch import _disable_current_modes  # keeps `import kernellab` light

    with _disable_current_modes():  # a capture would take what is done here for operations of the program
        return _tensor(name, value)


def call_with_tensors(
    names: Sequence[str], args: tuple[Any, ...], meta: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call, by position and by name, with tensors in the place of pointers."""
    named = zip_longest(names, args, fillvalue="an argument too many")
    by_position = tuple(with_tensors(name, value) for (name, value), _ in zip(named, args, strict=False))
    return by_position, {name: with_tensors(name, value) for name, value in meta.items()}


def _is_pointer(value: Any) -> bool:
    others = ("untyped_storage", "block_shape", "base")  # a tensor, a descriptor, and what `triton.reinterpret` returns
    return hasattr(value, "data_ptr") and hasattr(value, "dtype") and not any(hasattr(value, name) for name in others)


def _tensor(name: str, value: Any) -> Any:
    import torch  # keeps `import kernellab` light

    dtype, address = _dtype(name, value.dtype), int(value.data_ptr())
    shape = _shape(value)
    count = math.prod(shape) if shape is not None else _told_bytes(value, dtype.itemsize) // dtype.itemsize
    owner = None
    if count < 0:
        owner = memory_at(address, "cpu")
        if owner is None:
            raise LaunchError(
                f"{name} is a {type(value).__qualname__} with data_ptr(), of which nobody knows the size: it has "
                "neither shape, numel nor nbytes, and no tensor owns the address. Give it one of these."
            )
        count = (owner.data_ptr() + owner.numel() * owner.element_size() - address) // dtype.itemsize
    if not count:
        return torch.empty(shape or 0, dtype=dtype)
    memory: Any = (ctypes.c_ubyte * (count * dtype.itemsize)).from_address(address)
    memory.owner = (value, owner)  # which the tensor keeps alive
    return torch.frombuffer(memory, dtype=dtype).reshape(shape or (count,))


def _dtype(name: str, dtype: Any) -> Any:
    """Return the dtype of torch for one of torch, or by a name of Triton's, numpy's or torch's."""
    import torch

    said = str(dtype).rsplit(".", 1)[-1]
    found = getattr(torch, _TORCH_NAMES.get(said, said), None)
    if not isinstance(found, torch.dtype):
        raise LaunchError(f"{name} has data_ptr() and the dtype {dtype!r}, which Triton has no type for.")
    return found


def _shape(value: Any) -> tuple[int, ...] | None:
    """Return the shape that an object tells, as far as its elements lie one after the other."""
    shape = getattr(value, "shape", None)
    if not isinstance(shape, tuple | list) or any(hasattr(value, name) for name in ("stride", "strides")):
        return None
    return tuple(map(int, shape))


def _told_bytes(value: Any, itemsize: int) -> int:
    """Return the size that an object tells, or one below 0."""
    steps = getattr(value, "stride", None)
    if callable(steps) and hasattr(value, "shape"):
        pairs = zip(value.shape, steps(), strict=True)
        return 0 if 0 in value.shape else itemsize * (1 + sum((size - 1) * step for size, step in pairs))
    for name, unit in (("nbytes", 1), ("numel", itemsize)):
        told = getattr(value, name, None)
        told = told() if callable(told) else told
        if isinstance(told, int):
            return told * unit
    return -itemsize
