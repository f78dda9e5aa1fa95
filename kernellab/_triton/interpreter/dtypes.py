"""How the blocks of each Triton type are held in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl

from kernellab._triton.interpreter.lowprecision import FP8

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
