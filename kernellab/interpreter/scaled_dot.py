"""The operands of ``tl.dot_scaled``: microscaled formats, as float32.

OCP Microscaling Formats (MX) specification 1.0: a scale is a power of two in E8M0 (255 is NaN) for each group of
elements along K; E2M1 elements are packed two per byte, the first in the low half.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from triton.runtime import interpreter as upstream

from kernellab.interpreter.values import Array, Handle

_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
_E8M0_NAN = 255


def scaled_operand(value: Handle, scale: Handle | None, element_format: Any, *, k_pack: bool, is_rhs: bool) -> Array:
    """Return an operand with its scales applied.

    The left one has K last; of the right one, K is the second to last axis, and its scales come as (N, K / group).
    """
    data = value.data
    if element_format == upstream._ir.ScaleDotElemTypeTY.E2M1:
        along_k = -2 if is_rhs else -1
        across_k = -1 if is_rhs else -2
        data = _unpacked(data.view(np.uint8), along_k if k_pack else across_k)
    data = data.astype(np.float32)
    if scale is None:
        return data
    factors = _factors(scale)
    group = data.shape[-2 if is_rhs else -1] // factors.shape[-1]
    factors = np.repeat(factors, group, axis=-1)
    return data * (np.swapaxes(factors, -1, -2) if is_rhs else factors)


def _unpacked(packed: Array, axis: int) -> Array:
    moved = np.moveaxis(packed, axis, -1)
    pairs = np.stack([_E2M1[moved & 15], _E2M1[moved >> 4]], axis=-1)
    return np.moveaxis(pairs.reshape(*moved.shape[:-1], -1), -1, axis)


def _factors(scale: Handle) -> Array:
    if scale.data.dtype.kind == "f":
        return scale.data.astype(np.float32)
    codes = scale.data.view(np.uint8).astype(np.int32)
    return np.where(codes == _E8M0_NAN, np.float32(np.nan), np.ldexp(np.float32(1), codes - 127).astype(np.float32))
