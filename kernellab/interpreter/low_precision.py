"""bf16, the fp8 formats and microscaled operands for numpy, which has none of them.

In the interpreter a block of such a type is held as float32 values that the type represents exactly. An operation
computes in float32 and rounds its result back, as the GPU does.

OCP Microscaling Formats (MX) specification 1.0, for ``tl.dot_scaled``: a scale is a power of two in E8M0 (255 is NaN)
for each group of elements along K; E2M1 elements are packed two per byte, the first in the low half.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bits = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Format:
    """An 8-bit float: widths in bits; what the codes above the largest finite number mean.

    ``max_code`` is the code of the largest finite number. ``nan_code`` is None where the format has no NaN;
    ``infinity_code`` likewise. In the ``fnuz`` formats NaN takes the code of the negative zero.
    """

    mantissa: int
    bias: int
    max_code: int
    nan_code: int | None
    infinity_code: int | None = None
    fnuz: bool = False


# Triton's names: fp8e4nv is OCP E4M3 (torch.float8_e4m3fn), fp8e5 is OCP E5M2, fp8e4b8 and fp8e5b16 are the FNUZ
# formats of CDNA 3, fp8e4b15 is Triton's own.
FP8 = {
    "fp8e4nv": Format(mantissa=3, bias=7, max_code=0x7E, nan_code=0x7F),
    "fp8e5": Format(mantissa=2, bias=15, max_code=0x7B, nan_code=0x7F, infinity_code=0x7C),
    "fp8e4b8": Format(mantissa=3, bias=8, max_code=0x7F, nan_code=0x80, fnuz=True),
    "fp8e5b16": Format(mantissa=2, bias=16, max_code=0x7F, nan_code=0x80, fnuz=True),
    "fp8e4b15": Format(mantissa=3, bias=15, max_code=0x7F, nan_code=None),
}
LOW_PRECISION = frozenset({"bf16", *FP8})

_BF16_MASK = np.uint32(0xFFFF0000)
_QUIET = np.uint32(0x00400000)
_F32_NAN_PAYLOAD_SHIFT = 21  # the two mantissa bits of an e5m2 NaN are the top two of a float32


@dataclass(frozen=True, slots=True)
class _Tables:
    values: Floats
    positive: Floats
    midpoints: Floats


def is_low_precision(name: str) -> bool:
    """Tell whether a Triton type (``bf16``) is held as rounded float32."""
    return name in LOW_PRECISION


def decode(bits: Bits, name: str) -> Floats:
    """Return the values of raw uint16 (bf16) or uint8 (fp8) codes."""
    if name == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return _tables(name).values[bits]


def encode(values: Floats, name: str) -> Bits:
    """Return the codes of values that the type represents exactly; NaNs keep what payload fits."""
    if name == "bf16":
        return (_contiguous(values).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    codes = _fp8_codes(values, name, toward_zero=False)
    infinity = FP8[name].infinity_code
    if infinity is not None and (infinite := np.isinf(values)).any():
        codes = np.where(infinite, np.uint8(infinity) | (codes & np.uint8(0x80)), codes)
    return codes


def rounded(values: NDArray[Any], name: str, *, toward_zero: bool = False) -> Floats:
    """Return the nearest values of the type, ties to even, or the next ones towards zero.

    A finite value beyond the range of an fp8 format, and infinity, become its largest number, as on NVIDIA GPUs
    (``cvt.rn.satfinite``); in bf16 they become infinity.
    """
    floats = np.asarray(values, dtype=np.float32)
    if name == "bf16":
        return _bf16(floats, toward_zero)
    return _tables(name).values[_fp8_codes(floats, name, toward_zero)]


def _contiguous(values: Floats) -> Floats:
    # ascontiguousarray makes a 0-d array 1-d; view() works on 0-d arrays as they are.
    return values if values.ndim == 0 else np.ascontiguousarray(values)


def _bf16(values: Floats, toward_zero: bool) -> Floats:
    bits = _contiguous(values).view(np.uint32)
    half = ((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF)
    up = bits if toward_zero else bits + half
    nan = np.isnan(values)
    if nan.any():
        up = np.where(nan, bits | _QUIET, up)
    return (up & _BF16_MASK).view(np.float32)


def _fp8_codes(values: Floats, name: str, toward_zero: bool) -> Bits:
    layout, tables = FP8[name], _tables(name)
    magnitude = np.abs(values)
    if toward_zero:
        codes = np.searchsorted(tables.positive, magnitude, side="right") - 1
    else:
        codes = np.searchsorted(tables.midpoints, magnitude, side="left")
        tie = tables.midpoints[np.minimum(codes, layout.max_code - 1)] == magnitude
        codes = codes + (tie & (codes & 1 == 1))
    codes = np.minimum(codes, layout.max_code).astype(np.uint8)
    signed = codes | (np.signbit(values).astype(np.uint8) << np.uint8(7))
    if layout.fnuz:
        signed = np.where(codes == 0, np.uint8(0), signed)
    nan = np.isnan(values)
    return np.where(nan, _nan_codes(values, layout), signed) if nan.any() else signed


def _nan_codes(values: Floats, layout: Format) -> Bits:
    if layout.nan_code is None:
        return np.full(values.shape, layout.max_code, np.uint8)
    if layout.fnuz:
        return np.full(values.shape, layout.nan_code, np.uint8)
    bits = _contiguous(values).view(np.uint32)
    sign = ((bits >> np.uint32(24)) & np.uint32(0x80)).astype(np.uint8)
    if layout.infinity_code is None:
        return np.uint8(layout.nan_code) | sign
    payload = ((bits >> np.uint32(_F32_NAN_PAYLOAD_SHIFT)) & np.uint32(3)).astype(np.uint8)
    return np.uint8(layout.infinity_code) | np.where(payload == 0, np.uint8(3), payload) | sign


@cache
def _tables(name: str) -> _Tables:
    layout = FP8[name]
    codes = np.arange(128)
    exponent, mantissa = codes >> layout.mantissa, codes & ((1 << layout.mantissa) - 1)
    fraction = mantissa / (1 << layout.mantissa) + (exponent > 0)
    magnitudes = np.ldexp(fraction, np.maximum(exponent, 1) - layout.bias).astype(np.float32)
    finite = magnitudes[: layout.max_code + 1]
    values = np.concatenate([magnitudes, -magnitudes])
    if layout.nan_code is not None:
        _put_specials(values, layout)
    midpoints = (finite[:-1] + finite[1:]) / 2
    return _Tables(values, finite, midpoints.astype(np.float32))


def _put_specials(values: Floats, layout: Format) -> None:
    if layout.fnuz:
        values[layout.nan_code] = np.nan
        return
    bits = values.view(np.uint32)
    for sign in (0, 0x80):
        for code in range(layout.max_code + 1, 0x80):
            payload = (code & 3) << _F32_NAN_PAYLOAD_SHIFT if layout.infinity_code is not None else 1 << 22
            bits[sign | code] = (sign << 24) | 0x7F800000 | payload


_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
_E8M0_NAN = 255


def scaled_operand(elements: Bits, scales: Bits | None, *, is_e2m1: bool, k_pack: bool, is_rhs: bool) -> Floats:
    """Return an operand of ``tl.dot_scaled`` with its scales applied.

    The left one has K last; of the right one, K is the second to last axis, and its scales come as (N, K / group).
    ``k_pack`` tells that E2M1 elements are packed along K, not along the other axis.
    """
    if is_e2m1:
        along_k = -2 if is_rhs else -1
        across_k = -1 if is_rhs else -2
        elements = _unpacked(elements.view(np.uint8), along_k if k_pack else across_k)
    values = elements.astype(np.float32)
    if scales is None:
        return values
    factors = _factors(scales)
    factors = np.repeat(factors, values.shape[-2 if is_rhs else -1] // factors.shape[-1], axis=-1)
    return values * (np.swapaxes(factors, -1, -2) if is_rhs else factors)


def _unpacked(packed: Bits, axis: int) -> Floats:
    moved = np.moveaxis(packed, axis, -1)
    pairs = np.stack([_E2M1[moved & 15], _E2M1[moved >> 4]], axis=-1)
    return np.moveaxis(pairs.reshape(*moved.shape[:-1], -1), -1, axis)


def _factors(scales: Bits) -> Floats:
    if scales.dtype.kind == "f":
        return scales.astype(np.float32)
    codes = scales.view(np.uint8).astype(np.int32)
    return np.where(codes == _E8M0_NAN, np.float32(np.nan), np.ldexp(np.float32(1), codes - 127).astype(np.float32))
