"""The operands of ``tl.dot_scaled``, with their scales applied.

OCP Microscaling Formats (MX) specification 1.0, for ``tl.dot_scaled``: a scale is a power of two in E8M0 (255 is NaN)
for each group of elements along K; E2M1 elements are packed two per byte, the first in the low half.
"""

from __future__ import annotations

import numpy as np

from kernellab.interpreter.values import Array, Floats

_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
_E8M0_NAN = 255


def scaled_operand(elements: Array, scales: Array | None, *, is_e2m1: bool, k_pack: bool, is_rhs: bool) -> Floats:
    """Return an operand of ``tl.dot_scaled`` with its scales applied.

    The left one has K last; of the right one, K is the second to last axis, and its scales come as (N, K / group).
    With ``k_pack``, E2M1 elements are packed along K, not along the other axis.
    """
    if is_e2m1:
        along_k = -2 if is_rhs else -1
        across_k = -1 if is_rhs else -2
        elements = _unpack_e2m1(elements.view(np.uint8), along_k if k_pack else across_k)
    values = elements.astype(np.float32)
    if scales is None:
        return values
    if scales.dtype.kind == "f":
        factors = scales.astype(np.float32)
    else:
        codes = scales.view(np.uint8).astype(np.int32)
        powers = np.ldexp(np.float32(1), codes - 127).astype(np.float32)
        factors = np.where(codes == _E8M0_NAN, np.float32(np.nan), powers)
    factors = np.repeat(factors, values.shape[-2 if is_rhs else -1] // factors.shape[-1], axis=-1)
    return values * (np.swapaxes(factors, -1, -2) if is_rhs else factors)


def _unpack_e2m1(packed: Array, axis: int) -> Floats:
    moved = np.moveaxis(packed, axis, -1)
    pairs = np.stack([_E2M1[moved & 15], _E2M1[moved >> 4]], axis=-1)
    return np.moveaxis(pairs.reshape(*moved.shape[:-1], -1), -1, axis)
