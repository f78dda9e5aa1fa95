"""Objects with ``data_ptr()`` and ``dtype`` that are not tensors: pointers of the user, and mocks for the compiler.

A pointer stands for memory. Its size is its own ``shape``, ``numel`` or ``nbytes``, or that of the tensor that owns
the address. A mock has what the compiler asks of a tensor: its dtype, and whether its address is a multiple of 16.
"""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from kernellab._triton.kernel import JitKernel
from kernellab.errors import LaunchError, value_text
from kernellab.launch.arguments import TRITON_NAMES, span_elements
from kernellab.launch.memory import tensors_at, with_members

_TORCH_NAMES = {triton: torch for torch, triton in TRITON_NAMES.items()}


def tensors_for_pointers(name: str, value: Any) -> Any:
    """An argument with its pointers, also in tuples, replaced by tensors on the same memory.

    Raises:
        LaunchError: the size of the memory behind a pointer is unknown, or it has no dtype of Triton.
    """
    return with_members(name, value, _tensor_for)


def call_with_tensors(
    names: Sequence[str], args: tuple[Any, ...], meta: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call, by position and by name, with pointers replaced by tensors."""
    named = zip_longest(names, args, fillvalue="an argument too many")
    by_position = tuple(tensors_for_pointers(name, value) for (name, value), _ in zip(named, args, strict=False))
    return by_position, {name: tensors_for_pointers(name, value) for name, value in meta.items()}


def _tensor_for(name: str, value: Any) -> Any:
    """A tensor for a pointer; anything else as it is."""
    others = ("untyped_storage", "block_shape", "base")  # a tensor, a descriptor, and what `triton.reinterpret` returns
    if not (hasattr(value, "data_ptr") and hasattr(value, "dtype")) or any(hasattr(value, name) for name in others):
        return value
    from torch.utils._python_dispatch import _disable_current_modes  # keeps `import kernellab` light

    with _disable_current_modes():  # a capture would take what is done here for operations of the program
        return _tensor(name, value)


def _tensor(name: str, value: Any) -> Any:
    import torch  # keeps `import kernellab` light

    dtype, address = _dtype(name, value.dtype), int(value.data_ptr())
    shape = _contiguous_shape(value)
    count = math.prod(shape) if shape is not None else _declared_bytes(value, dtype.itemsize) // dtype.itemsize
    owner = None
    if count < 0:
        owner = next(iter(tensors_at([address], "cpu").values()), None)
        if owner is None:
            raise LaunchError(
                f"{name} is a {type(value).__qualname__} with data_ptr() and of unknown size: it has "
                "neither shape, numel nor nbytes, and no tensor owns the address. Give it one of these."
            )
        count = (owner.data_ptr() + owner.numel() * owner.element_size() - address) // dtype.itemsize
    if not count:
        return torch.empty(shape or 0, dtype=dtype)
    memory: Any = (ctypes.c_ubyte * (count * dtype.itemsize)).from_address(address)
    memory.owner = (value, owner)  # which the tensor keeps alive
    return torch.frombuffer(memory, dtype=dtype).reshape(shape or (count,))


def _dtype(name: str, dtype: Any) -> Any:
    """The torch dtype of a dtype by torch, Triton or numpy."""
    import torch

    name_of_dtype = str(dtype).rsplit(".", 1)[-1]
    torch_dtype = getattr(torch, _TORCH_NAMES.get(name_of_dtype, name_of_dtype), None)
    if not isinstance(torch_dtype, torch.dtype):
        raise LaunchError(f"{name} has data_ptr() and the dtype {value_text(dtype)}, which Triton has no type for.")
    return torch_dtype


def _contiguous_shape(value: Any) -> tuple[int, ...] | None:
    """The shape of a contiguous object without strides; else None."""
    shape = getattr(value, "shape", None)
    if not isinstance(shape, tuple | list) or any(hasattr(value, name) for name in ("stride", "strides")):
        return None
    return tuple(map(int, shape))


def _declared_bytes(value: Any, itemsize: int) -> int:
    """The size in bytes by an object's own attributes, or a negative number."""
    steps = getattr(value, "stride", None)
    if callable(steps) and hasattr(value, "shape"):
        return itemsize * span_elements(value.shape, steps())
    for name, unit in (("nbytes", 1), ("numel", itemsize)):
        own_size = getattr(value, name, None)
        own_size = own_size() if callable(own_size) else own_size
        if isinstance(own_size, int):
            return own_size * unit
    return -itemsize


_POINTER = re.compile(r"\*k?(\w+)$")
_ALIGNED_ADDRESS = 1 << 12


@dataclass(frozen=True, slots=True)
class MockTensor:
    """Looks like a tensor to the compiler. ``dtype`` is a torch dtype, or Triton's name of one."""

    dtype: Any
    address: int = _ALIGNED_ADDRESS

    def data_ptr(self) -> int:
        """A fake address; only its alignment counts."""
        return self.address


def mock_arguments(arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments with a mock for each tensor; None if there is a descriptor, which has no mock."""
    mocks = {name: _mock(value) for name, value in arguments.items()}
    return None if any(hasattr(value, "block_shape") for value in mocks.values()) else mocks


def annotated_arguments(kernel: JitKernel) -> dict[str, Any] | None:
    """Arguments for a jit function with Triton type annotations or defaults for all parameters.

    ``x_ptr: "*fp32"`` gives a mock tensor, ``n: "i32"`` a number; None where a parameter says too little.
    """
    arguments: dict[str, Any] = {}
    for parameter in kernel.params:
        if parameter.has_default:
            arguments[parameter.name] = parameter.default
        elif not parameter.is_constexpr and (pointer := _POINTER.match(parameter.annotation_type)):
            arguments[parameter.name] = MockTensor(pointer[1])
        elif not parameter.is_constexpr and re.match(r"[iu]\d+$", parameter.annotation_type):
            arguments[parameter.name] = 2
        elif not parameter.is_constexpr and re.match(r"(fp|bf)\d+$", parameter.annotation_type):
            arguments[parameter.name] = 1.5
        else:
            return None
    return arguments


def _mock(value: Any) -> Any:
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(map(_mock, value))
    if hasattr(value, "data_ptr") and hasattr(value, "dtype"):
        return MockTensor(value.dtype, _ALIGNED_ADDRESS + value.data_ptr() % 16)
    return value
