"""The operands of ``tl.dot_scaled``, with their scales applied: as real numbers, or in the algebra.

OCP Microscaling Formats (MX) specification 1.0, for ``tl.dot_scaled``: a scale is a power of two in E8M0 (255 is NaN)
for each group of elements along K; E2M1 elements are packed two per byte, the first in the low half.
"""

from __future__ import annotations

import numpy as np

from kernellab.interpreter import algebra
from kernellab.interpreter.algebra import FORMATS, FloatFormat, Payload
from kernellab.interpreter.values import Array, Floats

_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
_E8M0_NAN = 255


def scaled_operand(elements: Array, scales: Array | None, *, is_e2m1: bool, k_pack: bool, is_rhs: bool) -> Floats:
    """Return an operand of ``tl.dot_scaled`` with its scales applied.

    The left one has K last; of the right one, K is the second to last axis, and its scales come as (N, K / group).
    With ``k_pack``, E2M1 elements are packed along K, not along the other axis.
    """
    if is_e2m1:
        elements = _E2M1[_unpacked_codes(elements, k_pack=k_pack, is_rhs=is_rhs)]
    values = elements.astype(np.float32)
    if scales is None:
        return values
    if scales.dtype.kind == "f":
        factors = scales.astype(np.float32)
    else:
        codes = scales.view(np.uint8).astype(np.int32)
        powers = np.ldexp(np.float32(1), codes - 127).astype(np.float32)
        factors = np.where(codes == _E8M0_NAN, np.float32(np.nan), powers)
    return values * _repeated_along_k(factors, values, is_rhs=is_rhs)


def scaled_payload(
    elements: Array,
    source: FloatFormat | None,
    scales: Array | None,
    scale_source: FloatFormat | None,
    target: FloatFormat,
    *,
    k_pack: bool,
    is_rhs: bool,
) -> Payload:
    """The payloads of an operand of ``tl.dot_scaled`` with its scales applied, in ``target``, fp16 or bf16.

    Triton's sanitizer defines it so: E2M1 codes, where ``source`` is None, are payloads themselves, and an E8M0 scale,
    where ``scale_source`` is None, has the payload of the float that it stands for.
    """
    if source is None:
        payload = _unpacked_codes(elements, k_pack=k_pack, is_rhs=is_rhs).astype(np.int64)
    else:
        payload = algebra.cast(elements, source, target)
    if scales is None:
        return payload
    factors = _e8m0_payload(scales, target) if scale_source is None else algebra.cast(scales, scale_source, target)
    return algebra.multiply(payload, _repeated_along_k(factors, payload, is_rhs=is_rhs), target)


def _e8m0_payload(scales: Array, target: FloatFormat) -> Payload:
    """The payloads of powers of two: by bf16, where 2**-127 is subnormal, or by fp32 and a cast to fp16."""
    codes = scales.astype(np.uint8)
    if target == FORMATS["bf16"]:
        return algebra.embed(np.maximum(codes.astype(np.uint16) << 7, np.uint16(64)), target)
    wide = FORMATS["fp32"]
    return algebra.cast(algebra.embed(codes.astype(np.uint32) << 23, wide), wide, target)


def _repeated_along_k(factors: Array, values: Array, *, is_rhs: bool) -> Array:
    """Scales of groups along K, one for each element; those of the right operand come as (N, K / group)."""
    repeated: Array = np.repeat(factors, values.shape[-2 if is_rhs else -1] // factors.shape[-1], axis=-1)
    return np.swapaxes(repeated, -1, -2) if is_rhs else repeated


def _unpacked_codes(packed: Array, *, k_pack: bool, is_rhs: bool) -> Array:
    """The codes of E2M1 elements, which are packed along K or, without ``k_pack``, along the other axis."""
    along_k, across_k = (-2, -1) if is_rhs else (-1, -2)
    axis = along_k if k_pack else across_k
    moved = np.moveaxis(packed.view(np.uint8), axis, -1)
    pairs = np.stack([moved & 15, moved >> 4], axis=-1)
    return np.moveaxis(pairs.reshape(*moved.shape[:-1], -1), -1, axis)
