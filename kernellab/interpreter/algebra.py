"""Floating-point operations in a ring of integers: sums that only round differently are equal bit by bit.

A float of w bits stands for an integer of w bits, its payload. `embed` maps bit patterns to payloads, one to one, with
+0.0, +1.0 and -1.0 at 0, 1 and -1; `unembed` is its inverse. An operation computes on payloads modulo 2**w. The
definitions and constants are those of Triton 3.9's floating-point sanitizer with homomorphic casts;
`tests/interpreter/test_fpsan.py` compares them bit by bit: https://triton-lang.org/main/programming-guide/chapter-3/fpsan.html

It departs from them in five places. An infinity lies outside the payloads: it absorbs what is added to it, and the
exponential of minus infinity is 0, as masked lanes need it. The inverse of an even payload 2**k * odd is 2**k / odd,
which is multiplicative. Comparisons are of payloads, as minimum and maximum are. ``rsqrt(x)`` is ``1 / sqrt(x)``, and
``sqrt_rn`` is ``sqrt``. An atomic addition is that of the ring.

Payloads are int64 arrays in the signed range of w bits; an infinity is the integer ``FloatFormat.infinity`` or its
negative, beyond that range. Of float64 the range is full, so ``2**63 - 1`` and its negative are the infinities there,
and the bit patterns with these payloads take the place of the infinities.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Payload = NDArray[np.int64]

_MULTIPLIER = 14940041
_INVERSE_LOG2 = 648190581
_TAG_MULTIPLIER = 314159
_FNV_OFFSET, _FNV_PRIME = 14695981039346656037, 1099511628211
_BITS_OF_64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """A floating-point type: its width in bits and the bit patterns of 1.0 and of infinity.

    ``infinity_bits`` is None for a type without infinities; ``largest_bits`` stand for one in memory there.
    """

    bits: int
    one_bits: int
    infinity_bits: int | None
    largest_bits: int

    @property
    def infinity(self) -> int:
        """The integer that stands for plus infinity."""
        return _BITS_OF_64 >> 1 if self.bits == 64 else 1 << 40


FORMATS = {
    "fp64": FloatFormat(64, 0x3FF0 << 48, 0x7FF0 << 48, 0x7FEFFFFFFFFFFFFF),
    "fp32": FloatFormat(32, 0x3F800000, 0x7F800000, 0x7F7FFFFF),
    "fp16": FloatFormat(16, 0x3C00, 0x7C00, 0x7BFF),
    "bf16": FloatFormat(16, 0x3F80, 0x7F80, 0x7F7F),
    "fp8e4nv": FloatFormat(8, 0x38, None, 0x7E),
    "fp8e5": FloatFormat(8, 0x3C, 0x7C, 0x7B),
    "fp8e4b8": FloatFormat(8, 0x40, None, 0x7F),
    "fp8e5b16": FloatFormat(8, 0x40, None, 0x7F),
    "fp8e4b15": FloatFormat(8, 0x78, None, 0x7F),
}


@dataclass(frozen=True, slots=True)
class _Mixing:
    """The constants of `embed` for one format: shift, masks and factors for magnitudes of each sign."""

    shift: int
    sign_mask: int
    magnitude_mask: int
    positive: int
    negative: int


@cache
def _mixing(format: FloatFormat) -> _Mixing:
    sign_mask = 1 << (format.bits - 1)
    magnitudes = sign_mask - 1
    shift = (format.one_bits & -format.one_bits).bit_length() - 1
    mixed = format.one_bits * _MULTIPLIER & magnitudes
    mixed ^= mixed >> shift
    positive = pow(mixed, -1, 1 << format.bits) & magnitudes
    return _Mixing(shift, sign_mask, magnitudes, positive, positive * magnitudes & magnitudes)


def embed(bits: NDArray[Any], format: FloatFormat) -> Payload:
    """Return the payloads of bit patterns, which are unsigned integers of the width of the format."""
    mixing, raw = _mixing(format), bits.astype(np.uint64)
    sign = raw & np.uint64(mixing.sign_mask)
    mask = np.uint64(mixing.magnitude_mask)
    mixed = raw * np.uint64(_MULTIPLIER) & mask
    mixed ^= mixed >> np.uint64(mixing.shift)
    mixed = mixed * np.where(sign != 0, np.uint64(mixing.negative), np.uint64(mixing.positive)) & mask
    payload = _wrap_signed(mixed ^ sign, format.bits)
    if format.infinity_bits is None:
        return payload
    positive = raw == np.uint64(format.infinity_bits)
    negative = raw == np.uint64(format.infinity_bits | mixing.sign_mask)
    if format.bits == 64:
        payload = _exchange_ends(payload, format)
    elif positive.any() or negative.any():
        payload = np.where(positive, format.infinity, np.where(negative, -format.infinity, payload))
    return payload


def unembed(payload: Payload, format: FloatFormat) -> NDArray[Any]:
    """Return the bit patterns of payloads, as unsigned integers of the width of the format."""
    mixing = _mixing(format)
    integers = _exchange_ends(payload, format) if format.bits == 64 else payload
    raw = integers.astype(np.int64).view(np.uint64) & np.uint64(mixing.sign_mask | mixing.magnitude_mask)
    sign = raw & np.uint64(mixing.sign_mask)
    mask = np.uint64(mixing.magnitude_mask)
    modulus = 1 << format.bits
    inverses = (np.uint64(pow(factor, -1, modulus)) for factor in (mixing.negative, mixing.positive))
    mixed = raw * np.where(sign != 0, *inverses) & mask
    shift = mixing.shift
    while shift < format.bits:
        mixed ^= mixed >> np.uint64(shift)
        shift *= 2
    bits = (mixed * np.uint64(pow(_MULTIPLIER, -1, modulus)) & mask) ^ sign
    if format.bits < 64 and (infinite := is_infinite(payload, format)).any():
        pattern = format.largest_bits if format.infinity_bits is None else format.infinity_bits
        bits = np.where(infinite, np.where(payload < 0, pattern | mixing.sign_mask, pattern).astype(np.uint64), bits)
    return bits.astype(f"u{format.bits // 8}")


def _exchange_ends(payload: Payload, format: FloatFormat) -> Payload:
    """Exchange the payloads of the infinities of float64 with the ends of the range; twice changes nothing."""
    for end, mixed in zip((format.infinity, -format.infinity), _mixed_infinities(format), strict=True):
        at_end, at_mixed = payload == end, payload == mixed
        if at_end.any() or at_mixed.any():
            payload = np.where(at_end, mixed, np.where(at_mixed, end, payload))
    return payload


@cache
def _mixed_infinities(format: FloatFormat) -> tuple[int, int]:
    mixing = _mixing(format)
    mixed = (format.infinity_bits or 0) * _MULTIPLIER & mixing.magnitude_mask
    mixed ^= mixed >> mixing.shift
    positive = mixed * mixing.positive & mixing.magnitude_mask
    return positive, -positive


def embed_numbers(values: NDArray[Any], format: FloatFormat, to_bits: Callable[[NDArray[Any]], Any]) -> Payload:
    """Return the payloads of real numbers; ``to_bits`` rounds them to bit patterns of the format."""
    payload = embed(to_bits(values), format)
    infinite = np.isinf(values)
    if format.infinity_bits is None and infinite.any():
        payload = np.where(infinite, np.where(values > 0, format.infinity, -format.infinity), payload)
    return payload


def is_infinite(payload: Payload, format: FloatFormat) -> NDArray[np.bool_]:
    """Mark the infinities."""
    marks: NDArray[np.bool_] = (payload == format.infinity) | (payload == -format.infinity)
    return marks


def _wrap_signed(integers: NDArray[Any], bits: int) -> Payload:
    """Reduce integers of 64 bits to the signed range of ``bits``."""
    spare = np.int64(64 - bits)
    reduced: Payload = integers.view(np.int64) << spare >> spare
    return reduced


def canonical(integers: Payload, format: FloatFormat) -> Payload:
    """Reduce integers to payloads; infinities stay."""
    reduced = _wrap_signed(np.asarray(integers).astype(np.int64), format.bits)
    infinite = is_infinite(integers, format)
    return np.where(infinite, integers, reduced) if infinite.any() else reduced


def _infinities(*operands: Payload, format: FloatFormat) -> tuple[Any, ...] | None:
    marks = tuple(is_infinite(operand, format) for operand in operands)
    return marks if any(mark.any() for mark in marks) else None


def negate(x: Payload, format: FloatFormat) -> Payload:
    """-x."""
    result = _wrap_signed(-x, format.bits)
    marks = _infinities(x, format=format)
    return result if marks is None else np.where(marks[0], -x, result)


def add(x: Payload, y: Payload, format: FloatFormat) -> Payload:
    """x + y; an infinity absorbs a finite operand, and two of different signs give 0."""
    result = _wrap_signed(x + y, format.bits)
    marks = _infinities(x, y, format=format)
    if marks is None:
        return result
    both = np.where(x == y, x, 0)
    return np.where(marks[0], np.where(marks[1], both, x), np.where(marks[1], y, result))


def subtract(x: Payload, y: Payload, format: FloatFormat) -> Payload:
    """x - y."""
    return add(x, negate(y, format), format)


def multiply(x: Payload, y: Payload, format: FloatFormat) -> Payload:
    """x * y; an infinity keeps its sign but where the other operand is -1 or minus infinity, and times 0 it is 0."""
    result = _wrap_signed(x * y, format.bits)
    marks = _infinities(x, y, format=format)
    if marks is None:
        return result
    infinite = np.where(marks[0], x, y)
    other = np.where(marks[0], y, x)
    is_negative = (other == -1) | ((marks[0] & marks[1]) & (other < 0))
    product = np.where(is_negative, negate(infinite, format), np.where(other == 0, 0, infinite))
    return np.where(marks[0] | marks[1], product, result)


def multiply_add(x: Payload, y: Payload, z: Payload, format: FloatFormat) -> Payload:
    """x * y + z."""
    return add(multiply(x, y, format), z, format)


def inverse(x: Payload, format: FloatFormat) -> Payload:
    """1 / x: the modular inverse of odd payloads; of 2**k * odd, 2**k times that of the odd factor. 0 stays 0."""
    lowest_bit = np.where(x == 0, 1, x & -x)
    odd = _exact_shift(x, lowest_bit) | (x == 0)
    result = 2 - odd
    for _ in range(6):
        result = result * (2 - odd * result)
    result = _wrap_signed(np.where(x == 0, 0, result * lowest_bit), format.bits)
    marks = _infinities(x, format=format)
    return result if marks is None else np.where(marks[0], 0, result)


def _exact_shift(x: Payload, power: Payload) -> Payload:
    """Divide by a power of two that divides x; the power 2**63 is negative as int64."""
    quotient: Payload = np.where(power < 0, 1, x // np.where(power < 0, 1, power))
    return quotient


def divide(x: Payload, y: Payload, format: FloatFormat) -> Payload:
    """x / y."""
    return multiply(x, inverse(y, format), format)


def remainder(x: Payload, y: Payload, format: FloatFormat) -> Payload:
    """The remainder of signed integers, with the sign of x, by ``y | 1``."""
    divisor = y | 1
    result = np.fmod(x, np.where(divisor == -1, 1, divisor))
    return canonical(result, format)


def absolute(x: Payload, format: FloatFormat) -> Payload:
    """|x|: the payload of the bit pattern without its sign."""
    magnitude = np.where(x < 0, negate(x, format), x)  # the lowest integer, the payload of -0.0, has no negative
    return np.where(magnitude == -(1 << (format.bits - 1)), 0, magnitude)


def dot(a: Payload, b: Payload, c: Payload, format: FloatFormat) -> Payload:
    """Sums of products of (..., M, K) and (..., K, N), with the accumulator added; payloads have its width."""
    return add(_wrap_signed(np.matmul(_finite(a, format), _finite(b, format)), format.bits), c, format)


def total(x: Payload, axes: tuple[int, ...], format: FloatFormat, *, keepdims: bool = False) -> Payload:
    """The sum along axes; an infinity absorbs the finite elements."""
    result = np.asarray(_wrap_signed(np.asarray(_finite(x, format).sum(axis=axes, keepdims=keepdims)), format.bits))
    marks = _infinities(x, format=format)
    if marks is None:
        return result
    extreme = np.where(marks[0], x, 0)
    low, high = (pick(extreme, axis=axes, keepdims=keepdims) for pick in (np.min, np.max))
    has_low, has_high = (is_infinite(np.asarray(end), format) for end in (low, high))
    return np.where(has_low & has_high, 0, np.where(has_low, low, np.where(has_high, high, result)))


def _finite(x: Payload, format: FloatFormat) -> Payload:
    marks = _infinities(x, format=format)
    return x if marks is None else np.where(marks[0], 0, x)


def cast(x: Payload, source: FloatFormat, target: FloatFormat) -> Payload:
    """Convert between float types: sign extension, or truncation to the low bits; infinities stay.

    These are Triton's homomorphic casts: the cast of a sum or product is that of the casts, so that a kernel that
    computes in a wide type and rounds once is equal to one that rounds after each operation.
    """
    marks = _infinities(x, format=source)
    result = x if target.bits >= source.bits else _wrap_signed(x, target.bits)
    if marks is None:
        return result
    return np.where(marks[0], np.where(x > 0, target.infinity, -target.infinity), result)


Pair = tuple[int, int]


@cache
def _tables(bits: int, first: Pair, one: Pair) -> tuple[NDArray[np.int64], ...]:
    """Powers of a complex number modulo 2**bits, by byte of the exponent: arrays of (256, 2)."""
    modulus = 1 << bits
    tables, base = [], first
    for _ in range(bits // 8):
        rows = [one]
        for _ in range(256):
            rows.append(_complex_product(rows[-1], base, modulus))
        base = rows.pop()
        tables.append(np.array([[_as_signed(part) for part in row] for row in rows], np.int64))
    return tuple(tables)


def _complex_product(x: Pair, y: Pair, modulus: int) -> Pair:
    return (x[0] * y[0] - x[1] * y[1]) % modulus, (x[0] * y[1] + x[1] * y[0]) % modulus


def _as_signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _power(x: Payload, bits: int, base: Pair) -> tuple[Payload, Payload]:
    """The power of a complex number, real and imaginary part, for payloads as exponents."""
    real, imaginary = np.ones_like(x), np.zeros_like(x)
    for index, table in enumerate(_tables(bits, base, (1, 0))):
        factors = table[x >> np.int64(8 * index) & np.int64(255)]
        a, b = factors[..., 0], factors[..., 1]
        real, imaginary = real * a - imaginary * b, real * b + imaginary * a
    return _wrap_signed(real, bits), _wrap_signed(imaginary, bits)


def exp2(x: Payload, format: FloatFormat) -> Payload:
    """The power of ``1 + 2**(w / 4)``, so that sums of exponents are products; 0 for minus infinity."""
    result, _ = _power(x, format.bits, (1 + (1 << format.bits // 4), 0))
    marks = _infinities(x, format=format)
    return result if marks is None else np.where(marks[0], np.where(x > 0, x, 0), result)


def exp(x: Payload, format: FloatFormat) -> Payload:
    """exp2(x / log 2), where the factor is the payload of 1 / log 2 as float32."""
    return exp2(multiply(x, np.asarray(_wrap_signed(np.asarray(_INVERSE_LOG2), format.bits)), format), format)


def _angle(x: Payload, format: FloatFormat) -> tuple[Payload, Payload]:
    modulus = 1 << format.bits
    fifth = pow(5, -1, modulus)
    return _power(x, format.bits, (-3 * fifth % modulus, 4 * fifth % modulus))


def cos(x: Payload, format: FloatFormat) -> Payload:
    """The real part of ((-3 + 4i) / 5) ** x, a number of absolute value 1."""
    return _angle(x, format)[0]


def sin(x: Payload, format: FloatFormat) -> Payload:
    """The imaginary part of ((-3 + 4i) / 5) ** x."""
    return _angle(x, format)[1]


_TAGS = {"log": 1, "log2": 3, "sqrt": 6, "erf": 8, "floor": 9, "ceil": 10}


def tag(x: Payload, operation: str, format: FloatFormat) -> Payload:
    """Apply a function that keeps only equality: times an odd constant, xor a hash, times again."""
    hashed = _hash_of_number(_TAGS[operation]) if operation in _TAGS else hash_of_name(operation)
    mixed = x * np.int64(_TAG_MULTIPLIER) ^ np.int64(_as_signed(hashed))
    result = _wrap_signed(mixed * np.int64(_TAG_MULTIPLIER), format.bits)
    marks = _infinities(x, format=format)
    return result if marks is None else np.where(marks[0], x, result)


def log(x: Payload, format: FloatFormat) -> Payload:
    """A tag."""
    return tag(x, "log", format)


def sqrt(x: Payload, format: FloatFormat) -> Payload:
    """A tag."""
    return tag(x, "sqrt", format)


def rsqrt(x: Payload, format: FloatFormat) -> Payload:
    """1 / sqrt(x)."""
    return inverse(sqrt(x, format), format)


def _hash_of_number(value: int) -> int:
    """The finalizer of MurmurHash3 for 64 bits."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        value ^= value >> 33
        value = value * factor & _BITS_OF_64
    return value ^ value >> 33


def hash_of_name(name: str) -> int:
    """FNV-1a of 64 bits."""
    value = _FNV_OFFSET
    for byte in name.encode():
        value = (value ^ byte) * _FNV_PRIME & _BITS_OF_64
    return value


def external(symbol: str, operands: Sequence[Payload], format: FloatFormat) -> Payload:
    """A pure function that is not modelled: operands rotated by their index, summed, xor a hash of the symbol.

    ``operands`` are payloads, or integers, of any width; they are extended or cut to that of the result.
    """
    result = np.zeros((), np.int64)
    for index, operand in enumerate(operands):
        result = result + _rotate(_wrap_signed(operand.astype(np.int64), format.bits), index % format.bits, format.bits)
    return _wrap_signed(result ^ np.int64(_as_signed(hash_of_name(symbol))), format.bits)


def _rotate(x: Payload, amount: int, bits: int) -> Payload:
    if not amount:
        return x
    unsigned = x.view(np.uint64) & np.uint64(_BITS_OF_64 >> (64 - bits))
    rotated: Payload = (unsigned << np.uint64(amount) | unsigned >> np.uint64(bits - amount)).view(np.int64)
    return rotated
