"""The values of the interpreter: numpy arrays with a Triton type, and the numpy form of each type.

numpy has neither bf16 nor the fp8 formats. A block of such a type is held as float32 values that the type represents
exactly. An operation computes in float32 and rounds its result, as the GPU does. fp8 is rounded by ml_dtypes, which
has neither Triton's saturation nor rounding towards zero and gives all NaNs one code; bf16 is the upper half of a
float32.

A value that is undefined on a GPU is harmless alone: lanes with a masked divisor are usually masked off later. So its
taint is followed to a store, an address or a branch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import triton.language as tl
from numpy.typing import NDArray

from kernellab.interpreter import algebra
from kernellab.interpreter.faults import current_line

Floats = NDArray[np.float32]
Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Format:
    """An 8-bit float: a type of ml_dtypes with numbers ``scale`` times those of the format.

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


def is_low_precision(name: str) -> bool:
    """Whether a Triton type (``bf16``) is stored as rounded float32."""
    return name in LOW_PRECISION


def decode(bits: Array, name: str) -> Floats:
    """Return the values of raw uint16 (bf16) or uint8 (fp8) codes."""
    if name == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return _code_values(name)[bits]


def encode(values: Floats, name: str) -> Array:
    """Return the codes of values that the type represents exactly; NaNs keep the payload that fits."""
    if name == "bf16":
        return (_contiguous(values).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    layout = FP8[name]
    if not layout.has_nan:
        return _codes(values, name, toward_zero=False)
    return _with_payload(_cast(values, layout), values, layout)


def round_to_type(values: Array, name: str, *, toward_zero: bool = False) -> Array:
    """Round values to the type: to nearest, ties to even, or towards zero.

    A finite value beyond the range of an fp8 format, and infinity, become its largest number, as on NVIDIA GPUs
    (``cvt.rn.satfinite``); in bf16 they become infinity. Wide arithmetic does not round.
    """
    return np.asarray(values, np.float64) if ARITHMETIC.is_wide else _round(values, name, toward_zero=toward_zero)


def _round(values: Array, name: str, *, toward_zero: bool = False) -> Floats:
    floats = np.asarray(values, dtype=np.float32)
    if name == "bf16":
        return _bf16(floats, toward_zero)
    return _code_values(name)[_codes(floats, name, toward_zero=toward_zero)]


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


def _codes(values: Floats, name: str, *, toward_zero: bool) -> Array:
    layout, known = FP8[name], _code_values(name)
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


def _cast(values: Floats, layout: Format) -> Array:
    with np.errstate(invalid="ignore"):  # of a NaN
        codes: Array = np.asarray(_contiguous(values).astype(layout.kind)).view(np.uint8)
    return codes


def _with_payload(codes: Array, values: Floats, layout: Format) -> Array:
    """Return codes with the payload of NaNs restored, where the format has several NaNs."""
    if not layout.keeps_payload or not (nan := np.isnan(values)).any():
        return codes
    payload = ((_contiguous(values).view(np.uint32) >> _PAYLOAD_SHIFT) & np.uint32(3)).astype(np.uint8)
    return np.where(nan, (codes & _SIGN) | _E5M2_INFINITY | np.where(payload == 0, np.uint8(3), payload), codes)


@cache
def _code_values(name: str) -> Floats:
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


_NAMES = "int8 uint8 int16 uint16 int32 uint32 int64 uint64"
_RAW_DTYPES: dict[str, np.dtype[Any]] = {
    "int1": np.dtype(bool),
    **{name: np.dtype(name) for name in _NAMES.split()},
    **{f"fp{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
    "bf16": np.dtype(np.uint16),
    **{name: np.dtype(np.uint8) for name in FP8},
}
_VALUE_DTYPES = {**_RAW_DTYPES, **{name: np.dtype(np.float32) for name in ("bf16", *FP8)}}
_POINTER = np.dtype(np.uint64)


@dataclass(slots=True)
class Arithmetic:
    """The arithmetic of the running launch. While ``is_wide``, floats of every type are computed in float64.

    Memory keeps its types: a load widens, and only a store rounds. While ``is_algebra``, blocks of floats hold payloads
    of `kernellab.interpreter.algebra`.
    """

    is_wide: bool = False
    is_algebra: bool = False


ARITHMETIC = Arithmetic()
_PAYLOAD_DTYPES = {name: np.dtype(np.int64) if dtype.kind == "f" else dtype for name, dtype in _VALUE_DTYPES.items()}
_WIDE_DTYPES = {name: np.dtype(np.float64) if dtype.kind == "f" else dtype for name, dtype in _VALUE_DTYPES.items()}


@contextmanager
def wide_arithmetic(is_wide: bool) -> Iterator[None]:
    """Compute in float64 inside a with statement, if ``is_wide``."""
    ARITHMETIC.is_wide = is_wide
    try:
        yield
    finally:
        ARITHMETIC.is_wide = False


def numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the numpy type of the values of a Triton scalar, pointer or block type."""
    if ARITHMETIC.is_algebra:
        return _look_up(_PAYLOAD_DTYPES, dtype)
    return _look_up(_WIDE_DTYPES if ARITHMETIC.is_wide else _VALUE_DTYPES, dtype)


def raw_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the numpy type of its elements in memory: bf16 and fp8 as bits."""
    return _look_up(_RAW_DTYPES, dtype)


def _look_up(table: dict[str, np.dtype[Any]], dtype: Any) -> np.dtype[Any]:
    while isinstance(dtype, tl.block_type):
        dtype = dtype.element_ty
    return _POINTER if isinstance(dtype, tl.pointer_type) else table[dtype.name]


def holds_payloads(dtype: Any) -> bool:
    """Whether a block of a scalar Triton type holds payloads now."""
    return ARITHMETIC.is_algebra and dtype.name in algebra.FORMATS


def format_of(dtype: Any) -> algebra.FloatFormat:
    """Return the format of payloads of a scalar Triton type."""
    return algebra.FORMATS[dtype.name]


def from_payload(payload: Array, dtype: Any) -> Array:
    """Return the real numbers with the bit patterns of payloads; bf16 and fp8 are float32."""
    bits = to_bits(payload, dtype)
    return decode(bits, dtype.name) if is_low_precision(dtype.name) else bits


def _to_payload(values: Array, dtype: Any) -> Array:
    """Embed real numbers, rounded to the type; payloads are reduced to its width."""
    if values.dtype.kind != "f":
        return algebra.canonical(values, format_of(dtype))
    return algebra.embed_numbers(values, format_of(dtype), lambda numbers: _rounded_bits(numbers, dtype))


def _rounded_bits(values: Array, dtype: Any) -> Array:
    if is_low_precision(dtype.name):
        return encode(_round(values, dtype.name), dtype.name)
    rounded = values.astype(raw_dtype(dtype))
    return rounded.view(f"u{rounded.itemsize}")


def to_bits(values: Array, dtype: Any) -> Array:
    """Return the elements of a block of a scalar Triton type as they lie in memory."""
    if holds_payloads(dtype):
        return algebra.unembed(values, format_of(dtype)).view(raw_dtype(dtype))
    if not is_low_precision(dtype.name):
        return values.astype(raw_dtype(dtype), copy=False)
    return encode(_round(values, dtype.name) if ARITHMETIC.is_wide else values, dtype.name)


def to_values(bits: Array, dtype: Any) -> Array:
    """Return the elements of a block as computed with, from those in memory."""
    if holds_payloads(dtype):
        return algebra.embed(np.ascontiguousarray(bits).view(f"u{bits.itemsize}").reshape(bits.shape), format_of(dtype))
    values = decode(bits, dtype.name) if is_low_precision(dtype.name) else bits
    return values.astype(np.float64) if ARITHMETIC.is_wide and values.dtype.kind == "f" else values


_SHAPE = "_kernellab_shape"


def reuse_types() -> None:
    """Replace the constructors of ``tl.block_type`` and ``tl.tensor`` by memoized ones."""
    tl.block_type.__init__ = _memoize_init(tl.block_type.__init__)
    tl.tensor.__init__ = _tensor_init


def _memoize_init(original: Any) -> Any:
    known: dict[Any, dict[str, Any]] = {}

    def block_type_init(block: Any, element_ty: Any, shape: Any) -> None:
        key = _block_type_key(element_ty, shape)
        cached = known.get(key) if key is not None else None
        if cached is not None:
            block.__dict__.update(cached)
            return
        original(block, element_ty, shape)
        _cache_shape(block)
        if key is not None:
            known[key] = dict(block.__dict__)

    return block_type_init


def _block_type_key(element_ty: Any, shape: Any) -> Any:
    """The key of a block type, or None if its shape is not made of plain integers."""
    sizes = tuple(shape)
    if any(type(size) is not int for size in sizes):
        return None
    pointer = (element_ty.address_space, element_ty.const) if element_ty.is_ptr() else None
    return type(shape), sizes, element_ty.name, pointer


def _cache_shape(dtype: Any) -> tuple[Any, Any]:
    """Cache the shape and size of a type's tensors with it, as constexprs."""
    sizes = dtype.shape if dtype.is_block() else ()
    numel = tl.constexpr(math.prod(map(plain, sizes)))
    cached = tl.tuple([tl.constexpr(size) for size in sizes]), numel
    setattr(dtype, _SHAPE, cached)
    return cached


def _tensor_init(tensor: Any, handle: Any, type: Any) -> None:
    tensor.handle = handle
    tensor.type = type
    tensor.dtype = type.scalar
    cached = type.__dict__.get(_SHAPE)
    tensor.shape, tensor.numel = _cache_shape(type) if cached is None else cached


Bounds = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Taint:
    """Lanes of a block with a problem, its (file, line) and its cause in words."""

    lanes: Array
    place: tuple[str, int] | None
    cause: str

    def at(self, lanes: Array) -> Taint:
        """Return the taint of other lanes, of the same kind and for the same cause."""
        return type(self)(lanes, self.place, self.cause)


LOADED = {"is_loaded": True}


class Handle:
    """A block or scalar. It takes the place of Triton's ``TensorHandle``, which validates each one anew.

    ``bounds`` are the limits of an integer block, if known; ``wrapped`` marks lanes of 32-bit integers that overflowed,
    ``undefined`` lanes that are undefined on a GPU. ``attr`` is `LOADED` for the result of a load.
    """

    __slots__ = ("attr", "bounds", "data", "dtype", "undefined", "wrapped")

    def __init__(self, data: Array, dtype: Any, attr: dict[str, Any] | None = None) -> None:
        self.data = data
        self.dtype = dtype
        self.attr = attr
        self.bounds: Bounds | None = None
        self.wrapped: Taint | None = None
        self.undefined: Taint | None = None

    def __bool__(self) -> bool:
        return bool(self.data.all())

    def get_element_ty(self) -> Any:
        """Return the type of one element: for a pointer, its pointee, which may be a pointer again."""
        dtype = self.dtype.scalar
        return dtype.element_ty.scalar if dtype.is_ptr() else dtype

    def clone(self) -> Handle:
        """Return a handle with copied elements."""
        return Handle(self.data.copy(), self.dtype)


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


def join_taints(one: Taint | None, other: Taint | None, shape: tuple[int, ...]) -> Taint | None:
    """Join the taints of two operands of an elementwise operation, broadcast to its shape."""
    taints = [taint for taint in (one, other) if taint is not None]
    if not taints:
        return None
    first, *rest = (taint.lanes if taint.lanes.size > 1 else taint.lanes.reshape(()) for taint in taints)
    lanes = np.broadcast_to(first | rest[0] if rest else first, shape)
    worst = next((taint for taint in taints if type(taint) is Taint), taints[0])
    return worst.at(lanes)


def wrap(values: Array, dtype: Any) -> Handle:
    """Round or cast computed values to a scalar Triton type, as a handle."""
    values = np.asarray(values)
    if holds_payloads(dtype):
        return Handle(_to_payload(values, dtype), dtype)
    if is_low_precision(dtype.name):
        return Handle(round_to_type(values, dtype.name), dtype)
    target_dtype = numpy_dtype(dtype)
    return Handle(values if values.dtype == target_dtype else values.astype(target_dtype), dtype)


def plain(value: Any) -> Any:
    """Unwrap a ``tl.constexpr``; other values are returned unchanged."""
    return value.value if isinstance(value, tl.constexpr) else value


def add_taint(result: Handle, taint: Taint, lanes: Array) -> Handle:
    """Mark ``lanes`` of a result as undefined for the cause of a taint."""
    result.undefined = join_taints(result.undefined, taint.at(lanes), result.data.shape)
    return result


def add_operand_taints(result: Handle, *operands: Handle) -> Handle:
    """Mark the lanes of an elementwise result undefined where an operand is."""
    for operand in operands:
        if operand.undefined is not None:
            result.undefined = join_taints(result.undefined, operand.undefined, result.data.shape)
    return result


def mark_undefined(result: Handle, lanes: Array, cause: str) -> Handle:
    """Mark ``lanes`` of a result as undefined at the running line."""
    return add_taint(result, Taint(lanes, current_line(), cause), lanes)


def clear_decided_lanes(result: Handle, lhs: Handle, rhs: Handle, *, all_ones: bool = False) -> Handle:
    """Clear the taint where one operand alone decides the result: by being 0, or with ``all_ones`` all bits."""
    taint = result.undefined
    if taint is None:
        return result
    for operand in (lhs, rhs):
        zero = np.zeros((), operand.data.dtype)
        decides = operand.data == (np.invert(zero) if all_ones else zero)
        if operand.undefined is not None:
            decides = decides & ~operand.undefined.lanes
        taint = taint.at(taint.lanes & ~decides)
    result.undefined = taint if taint.lanes.any() else None
    return result


def select_taint(cond: Handle, one: Taint | None, other: Taint | None) -> Taint | None:
    """Return the taint of a lane-by-lane choice between two blocks."""
    lanes = np.where(cond.data, False if one is None else one.lanes, False if other is None else other.lanes)
    taint = one or other
    return taint.at(lanes) if taint is not None and lanes.any() else None
