"""bf16, the fp8 formats and microscaled operands for numpy, which has none of them.

In the interpreter a block of such a type is held as float32 values that the type represents exactly. An operation
computes in float32 and rounds its result back, as the GPU does. Rounding to fp8 is that of ml_dtypes, which knows
neither Triton's saturation nor rounding towards zero, and gives all NaNs one code; bf16 is the upper half of a float32.

OCP Microscaling Formats (MX) specification 1.0, for ``tl.dot_scaled``: a scale is a power of two in E8M0 (255 is NaN)
for each group of elements along K; E2M1 elements are packed two per byte, the first in the low half.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bits = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Format:
    """An 8-bit float: a type of ml_dtypes, whose numbers are ``scale`` times those of the format.

    ``max_code`` is the code of the largest finite number. Without ``has_minus_zero``, NaN takes its code; without
    ``has_nan``, NaN becomes the largest number. With ``keeps_payload``, NaN has three codes: those of E5M2.
    """

    kind: type
    max_code: int
    scale: float = 1.0
    has_minus_zero: bool = True
    has_nan: bool = True
    keeps_payload: bool = False


# Triton's names: fp8e4nv is OCP E4M3 (torch.float8_e4m3fn), fp8e5 is OCP E5M2, fp8e4b8 and fp8e5b16 are the FNUZ
# formats of CDNA 3, fp8e4b15 is Triton's own: E4M3 with a bias of 15, all of whose codes are finite numbers.
FP8 = {
    "fp8e4nv": Format(ml_dtypes.float8_e4m3fn, 0x7E),
    "fp8e5": Format(ml_dtypes.float8_e5m2, 0x7B, keeps_payload=True),
    "fp8e4b8": Format(ml_dtypes.float8_e4m3fnuz, 0x7F, has_minus_zero=False),
    "fp8e5b16": Format(ml_dtypes.float8_e5m2fnuz, 0x7F, has_minus_zero=False),
    "fp8e4b15": Format(ml_dtypes.float8_e4m3fnuz, 0x7F, scale=2.0**7, has_nan=False),
}
LOW_PRECISION = frozenset({"bf16", *FP8})

_BF16_MASK = np.uint32(0xFFFF0000)
_QUIET = np.uint32(0x00400000)
_SIGN, _E5M2_INFINITY = np.uint8(0x80), np.uint8(0x7C)
_PAYLOAD_SHIFT = np.uint32(21)  # the two mantissa bits of an e5m2 NaN are the top two of a float32
_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
_E8M0_NAN = 255


def is_low_precision(name: str) -> bool:
    """Tell whether a Triton type (``bf16``) is held as rounded float32."""
    return name in LOW_PRECISION


def decode(bits: Bits, name: str) -> Floats:
    """Return the values of raw uint16 (bf16) or uint8 (fp8) codes."""
    if name == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return _values(name)[bits]


def encode(values: Floats, name: str) -> Bits:
    """Return the codes of values that the type represents exactly; NaNs keep what payload fits."""
    if name == "bf16":
        return (_contiguous(values).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    layout = FP8[name]
    if not layout.has_nan:
        return _codes(values, name, toward_zero=False)
    return _with_payload(_cast(values, layout), values, layout)


def rounded(values: NDArray[Any], name: str, *, toward_zero: bool = False) -> Floats:
    """Return the nearest values of the type, ties to even, or the next ones towards zero.

    A finite value beyond the range of an fp8 format, and infinity, become its largest number, as on NVIDIA GPUs
    (``cvt.rn.satfinite``); in bf16 they become infinity.
    """
    floats = np.asarray(values, dtype=np.float32)
    if name == "bf16":
        return _bf16(floats, toward_zero)
    return _values(name)[_codes(floats, name, toward_zero=toward_zero)]


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


def _codes(values: Floats, name: str, *, toward_zero: bool) -> Bits:
    layout, known = FP8[name], _values(name)
    magnitude = np.minimum(np.abs(values), known[layout.max_code])
    scaled = magnitude if layout.scale == 1.0 else magnitude * np.float32(layout.scale)
    codes = _cast(scaled, layout)
    if not layout.has_nan:
        codes = np.minimum(codes, np.uint8(layout.max_code))  # of NaN: the first code beyond
    if toward_zero:
        codes = codes - (known[codes] > magnitude)
    negative = np.signbit(values) & (~np.isnan(values) if not layout.has_nan else True)
    signed = codes | np.where(negative & ((codes != 0) | layout.has_minus_zero), _SIGN, np.uint8(0))
    return _with_payload(signed, values, layout)


def _cast(values: Floats, layout: Format) -> Bits:
    with np.errstate(invalid="ignore"):  # of a NaN
        codes: Bits = np.asarray(_contiguous(values).astype(layout.kind)).view(np.uint8)
    return codes


def _with_payload(codes: Bits, values: Floats, layout: Format) -> Bits:
    """Return codes with those of NaNs made anew from the NaNs, where the format has several."""
    if not layout.keeps_payload or not (nan := np.isnan(values)).any():
        return codes
    payload = ((_contiguous(values).view(np.uint32) >> _PAYLOAD_SHIFT) & np.uint32(3)).astype(np.uint8)
    return np.where(nan, (codes & _SIGN) | _E5M2_INFINITY | np.where(payload == 0, np.uint8(3), payload), codes)


@cache
def _values(name: str) -> Floats:
    """Return the values of all 256 codes."""
    layout = FP8[name]
    codes = np.arange(256, dtype=np.uint8)
    values = codes.view(layout.kind).astype(np.float32) / np.float32(layout.scale)
    if not layout.has_nan:
        values[_SIGN] = -0.0
    elif not layout.has_minus_zero:
        values[_SIGN] = np.nan
    if layout.keeps_payload:
        nan = np.isnan(values)
        payload = (codes & np.uint8(3)).astype(np.uint32) << _PAYLOAD_SHIFT
        sign = (codes & _SIGN).astype(np.uint32) << np.uint32(24)
        values.view(np.uint32)[nan] = (sign | np.uint32(0x7F800000) | payload)[nan]
    return values


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
