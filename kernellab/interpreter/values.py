"""What a Triton value is in the interpreter: a numpy array and its type, and how each type is held in numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import triton.language as tl
from numpy.typing import NDArray

from kernellab.interpreter.low_precision import FP8

_RAW = {
    "int1": np.dtype(bool),
    "int8": np.dtype(np.int8),
    "uint8": np.dtype(np.uint8),
    "int16": np.dtype(np.int16),
    "uint16": np.dtype(np.uint16),
    "int32": np.dtype(np.int32),
    "uint32": np.dtype(np.uint32),
    "int64": np.dtype(np.int64),
    "uint64": np.dtype(np.uint64),
    "fp16": np.dtype(np.float16),
    "fp32": np.dtype(np.float32),
    "fp64": np.dtype(np.float64),
    "bf16": np.dtype(np.uint16),
    **{name: np.dtype(np.uint8) for name in FP8},
}
_HELD = {**_RAW, **{name: np.dtype(np.float32) for name in ("bf16", *FP8)}}
_POINTER = np.dtype(np.uint64)


def numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the numpy type of the values of a Triton scalar, pointer or block type."""
    return _looked_up(_HELD, dtype)


def raw_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the numpy type of its elements in memory: bf16 and fp8 as bits."""
    return _looked_up(_RAW, dtype)


def _looked_up(table: dict[str, np.dtype[Any]], dtype: Any) -> np.dtype[Any]:
    while isinstance(dtype, tl.block_type):
        dtype = dtype.element_ty
    return _POINTER if isinstance(dtype, tl.pointer_type) else table[dtype.name]


_SHAPE = "_kernellab_shape"


def reuse_types() -> None:
    """Replace the constructors of ``tl.block_type`` and ``tl.tensor`` by ones with a memory."""
    tl.block_type.__init__ = _remembering(tl.block_type.__init__)
    tl.tensor.__init__ = _tensor_init


def _remembering(original: Any) -> Any:
    known: dict[Any, dict[str, Any]] = {}

    def block_type_init(block: Any, element_ty: Any, shape: Any) -> None:
        key = _key(element_ty, shape)
        kept = known.get(key) if key is not None else None
        if kept is not None:
            block.__dict__.update(kept)
            return
        original(block, element_ty, shape)
        _keep_shape(block)
        if key is not None:
            known[key] = dict(block.__dict__)

    return block_type_init


def _key(element_ty: Any, shape: Any) -> Any:
    """Return what a block type depends on, or None where its shape is not made of plain integers."""
    sizes = tuple(shape)
    if any(type(size) is not int for size in sizes):
        return None
    pointer = (element_ty.address_space, element_ty.const) if element_ty.is_ptr() else None
    return type(shape), sizes, element_ty.name, pointer


def _keep_shape(dtype: Any) -> tuple[Any, Any]:
    """Keep the shape and size of the tensors of a type with it, as a tensor has them: made of constexprs."""
    sizes = dtype.shape if dtype.is_block() else ()
    numel = 1
    for size in sizes:
        numel *= size.value if isinstance(size, tl.constexpr) else size
    kept = tl.tuple([tl.constexpr(size) for size in sizes]), tl.constexpr(numel)
    setattr(dtype, _SHAPE, kept)
    return kept


def _tensor_init(tensor: Any, handle: Any, type: Any) -> None:
    tensor.handle = handle
    tensor.type = type
    tensor.dtype = type.scalar
    kept = type.__dict__.get(_SHAPE)
    tensor.shape, tensor.numel = _keep_shape(type) if kept is None else kept


Array = NDArray[Any]
Bounds = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Wrapped:
    """Which lanes of a 32-bit integer wrapped around, and at which (file, line) that happened."""

    lanes: Array
    place: tuple[str, int] | None


class Handle:
    """A block or scalar. It takes the place of Triton's ``TensorHandle``, which validates each one anew.

    ``bounds`` are limits of an integer block, where they are known; ``wrapped`` tells of lanes that overflowed.
    """

    __slots__ = ("attr", "bounds", "data", "dtype", "wrapped")

    def __init__(self, data: Array, dtype: Any, attr: dict[str, Any] | None = None) -> None:
        self.data = data
        self.dtype = dtype
        self.attr = attr
        self.bounds: Bounds | None = None
        self.wrapped: Wrapped | None = None

    def __bool__(self) -> bool:
        return bool(self.data.all())

    def get_element_ty(self) -> Any:
        """Return the type of one element: of what a pointer points to, which may be a pointer again."""
        dtype = self.dtype.scalar
        return dtype.element_ty.scalar if dtype.is_ptr() else dtype

    def clone(self) -> Handle:
        """Return a handle of a copy of the elements."""
        return Handle(self.data.copy(), self.dtype)

    def set_attr(self, key: str, value: Any) -> None:
        """Take a hint such as ``tl.multiple_of``, which decides nothing here."""


def bounds_of(handle: Handle) -> Bounds:
    """Return the least and the greatest value of an integer block."""
    if handle.bounds is None:
        data = handle.data
        if data.size == 1:
            value = int(data.item())
            handle.bounds = (value, value)
        else:
            handle.bounds = (int(data.min()), int(data.max())) if data.size else (0, 0)
    return handle.bounds


def moved(source: Handle, data: Array, dtype: Any, lanes: Array | None = None) -> Handle:
    """Return a handle whose elements are those of ``source``; ``lanes`` are its wrapped lanes, moved likewise."""
    result = Handle(data, dtype)
    result.bounds = source.bounds
    if source.wrapped is not None and lanes is not None:
        result.wrapped = Wrapped(lanes, source.wrapped.place)
    return result


def joined_wraps(*handles: Handle, shape: tuple[int, ...]) -> Wrapped | None:
    """Return the wrapped lanes of a result computed element by element, or None where no operand has any."""
    wraps = [handle.wrapped for handle in handles if handle.wrapped is not None]
    if not wraps:
        return None
    lanes = np.zeros(shape, dtype=bool)
    for wrap in wraps:
        lanes |= wrap.lanes if wrap.lanes.size > 1 else bool(wrap.lanes.any())
    return Wrapped(lanes, wraps[0].place)
