"""Triton's types, made once per shape.

Every operation of the interpreter makes a block type and a tensor, and Triton checks and wraps the shape of each anew,
which costs more than the operation. Here the first one of a kind is kept and copied.
"""

from __future__ import annotations

from typing import Any

import triton.language as tl

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
