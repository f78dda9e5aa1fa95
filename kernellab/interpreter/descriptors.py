"""Tensor descriptors and block pointers: from offsets to the pointers of a block and its mask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import triton.language as tl

from kernellab.interpreter.faults import CheckFailed
from kernellab.interpreter.values import Array, Handle, Wrapped

_ALIGNMENT = 16


@dataclass(slots=True)
class Descriptor:
    """A view of ``base`` that is read and written in blocks; blocks are cut off at ``shape``."""

    base: Handle
    shape: list[Handle]
    strides: list[Handle]
    block_shape: list[int]
    padding: Any
    round_f32_to_tf32: bool = False

    @classmethod
    def checked(cls, base: Handle, shape: Any, strides: Any, block_shape: Any, padding: Any) -> Descriptor:
        """Return a descriptor that keeps the rules of the hardware.

        The CUDA programming guide, "Tensor Memory Access": the address and every stride but the last are multiples of
        16 bytes, the last stride is one element.
        """
        itemsize = _itemsize(base)
        if int(base.data.item()) % _ALIGNMENT:
            raise CheckFailed("the base of a tensor descriptor must be aligned to 16 bytes")
        for stride in strides[:-1]:
            if int(stride.data.item()) * itemsize % _ALIGNMENT:
                raise CheckFailed(
                    f"a stride of {int(stride.data.item())} elements in a tensor descriptor is no multiple of 16 bytes"
                )
        if int(strides[-1].data.item()) != 1:
            raise CheckFailed("the last stride of a tensor descriptor must be 1")
        return cls(base, list(shape), list(strides), [int(size) for size in block_shape], padding)


def descriptor_block(descriptor: Descriptor, offsets: list[Handle]) -> tuple[Handle, Handle]:
    """Return pointers and mask of the block at ``offsets``."""
    itemsize = _itemsize(descriptor.base)
    last = int(offsets[-1].data.item()) * itemsize
    if last % _ALIGNMENT:
        raise CheckFailed(f"the last offset of a descriptor access is {last} bytes, not a multiple of 16")
    inside = range(len(descriptor.block_shape))
    return _block(descriptor.base, descriptor.shape, descriptor.strides, offsets, descriptor.block_shape, inside)


def block_pointers(pointer: Any, boundary_check: Any) -> tuple[Handle, Handle]:
    """Return pointers and mask of what ``tl.make_block_ptr`` gives in Triton before 3.8."""
    return _block(pointer.base, pointer.shape, pointer.strides, pointer.offsets, pointer.block_shape, boundary_check)


def _block(
    base: Handle,
    shape: list[Handle],
    strides: list[Handle],
    offsets: list[Handle],
    block_shape: list[int],
    checked: Any,
) -> tuple[Handle, Handle]:
    itemsize = _itemsize(base)
    pointers: Array = np.broadcast_to(base.data, block_shape)
    mask = np.ones(block_shape, dtype=bool)
    for axis, size in enumerate(block_shape):
        along = [1] * len(block_shape)
        along[axis] = size
        offset = (int(offsets[axis].data.item()) + np.arange(size, dtype=np.int64)).reshape(along)
        step = itemsize * int(strides[axis].data.item())
        pointers = pointers + (offset * step).astype(np.uint64)
        if axis in checked:
            mask = mask & (offset >= 0) & (offset < int(shape[axis].data.item()))
    result = Handle(pointers, base.dtype.scalar)
    wrapped = next((offset.wrapped for offset in offsets if offset.wrapped is not None), None)
    if wrapped is not None:
        result.wrapped = Wrapped(np.ones(block_shape, dtype=bool), wrapped.place)
    return result, Handle(mask, tl.int1)


def _itemsize(base: Handle) -> int:
    return max(1, int(base.get_element_ty().primitive_bitwidth) // 8)
