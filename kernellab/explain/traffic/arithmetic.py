"""The arithmetic of PTX instructions: functions of arrays of bits, one element per thread.

A register holds unsigned integers of its width, a predicate booleans; the instruction defines their type. numpy
computes floating point, so the last bit may differ from a GPU. PTX ISA, "Integer Arithmetic Instructions" and the
sections after it, https://docs.nvidia.com/cuda/parallel-thread-execution/#instruction-set.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Operation = Callable[..., Array]

_FLOATS: dict[str, Any] = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
_COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    **dict.fromkeys(("lt", "lo"), np.less),
    **dict.fromkeys(("le", "ls"), np.less_equal),
    **dict.fromkeys(("gt", "hi"), np.greater),
    **dict.fromkeys(("ge", "hs"), np.greater_equal),
}
_BITWISE: dict[str, Operation] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
_SIMPLE: dict[str, Operation] = {"add": np.add, "sub": np.subtract, "min": np.minimum, "max": np.maximum}
_UNARY_FLOATS: dict[str, Operation] = {
    "neg": np.negative,
    "abs": np.abs,
    "rcp": lambda x: 1 / x,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "mov": lambda x: x,
}
_BINARY_FLOATS: dict[str, Operation] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "min": np.fmin,
    "max": np.fmax,
    "copysign": lambda sign, size: np.copysign(size, sign),
}


def bits_type(kind: str) -> Any:
    """Return the numpy type of a register that holds a PTX type: unsigned, or bool for a predicate."""
    return np.dtype(bool) if kind == "pred" else np.dtype(f"u{max(1, width_of(kind) // 8)}")


def width_of(kind: str) -> int:
    """Return the bits of a PTX type such as ``u32`` or ``f16x2``; 1 for a predicate."""
    if kind == "pred":
        return 1
    lanes = 2 if kind.endswith("x2") else 1
    digits = kind.removesuffix("x2").lstrip("abcdefghijklmnopqrstuvwxyz")
    return int(digits) * lanes if digits.isdigit() else 32


def numbers_of(bits: Array, kind: str) -> Array:
    """Return bits as numbers of a PTX type; registers wider than it give their low part."""
    if kind == "pred":
        return bits.astype(bool, copy=False)
    if kind == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    wanted = bits_type(kind)
    narrow = bits if bits.dtype == wanted else bits.astype(wanted)
    if kind in _FLOATS:
        return narrow.view(_FLOATS[kind])
    return narrow.view(f"i{wanted.itemsize}") if kind[0] == "s" else narrow


def bits_of(values: Array, kind: str) -> Array:
    """Return numbers of a PTX type as bits."""
    if kind == "pred":
        return values.astype(bool, copy=False)
    if kind == "bf16":
        return _bf16_bits(values)
    if kind in _FLOATS:
        return np.ascontiguousarray(values.astype(_FLOATS[kind], copy=False)).view(bits_type(kind))
    wanted = bits_type(kind)
    if values.dtype == wanted:
        return values
    return values.view(wanted) if values.dtype.itemsize == wanted.itemsize else values.astype(wanted)


@lru_cache(4096)
def operation_of(parts: tuple[str, ...]) -> Operation | None:
    """Return an instruction as a function of its source operands; None for an unsupported instruction.

    It takes and returns bits. The result of ``setp`` is its first destination.
    """
    name, kind = parts[0], parts[-1]
    if name == "cvt":
        return _cvt_operation(parts)
    special = _SPECIAL.get(name)
    if special is not None:
        return special(parts)
    if kind in _FLOATS or kind == "bf16":
        return _float_operation(name, kind)
    if kind[0] in "usb" or kind == "pred":
        return _integer_operation(name, kind, parts)
    return None


def _float_operation(name: str, kind: str) -> Operation | None:
    function = _BINARY_FLOATS.get(name) or _UNARY_FLOATS.get(name)
    if name in {"fma", "mad"}:
        wide = np.float32 if kind in {"f16", "bf16"} else np.float64
        function = lambda x, y, z: x.astype(wide) * y.astype(wide) + z.astype(wide)  # noqa: E731
    if function is None:
        return None
    return lambda *bits: bits_of(function(*(numbers_of(each, kind) for each in bits)), kind)


def _integer_operation(name: str, kind: str, parts: tuple[str, ...]) -> Operation | None:
    if name in _BITWISE:
        function: Operation | None = _BITWISE[name]
    elif name in _SIMPLE:
        function = _SIMPLE[name]
    elif name in {"mul", "mad"}:
        return _product_operation(name, kind, parts)
    else:
        function = _INTEGER.get(name)
    if function is None:
        return None
    return lambda *bits: bits_of(function(*(numbers_of(each, kind) for each in bits)), kind)


def _product_operation(name: str, kind: str, parts: tuple[str, ...]) -> Operation | None:
    if "wide" in parts:
        wide = f"{kind[0]}{2 * width_of(kind)}"
        numbers = np.dtype(f"{'i' if kind[0] == 's' else 'u'}{width_of(wide) // 8}")

        def wide_product(x: Array, y: Array, *rest: Array) -> Array:
            product = numbers_of(x, kind).astype(numbers) * numbers_of(y, kind).astype(numbers)
            return bits_of(product + numbers_of(rest[0], wide) if rest else product, wide)

        return wide_product
    function = high_product if "hi" in parts else np.multiply

    def product_of(x: Array, y: Array, *rest: Array) -> Array:
        product = function(numbers_of(x, kind), numbers_of(y, kind))
        return bits_of(product + numbers_of(rest[0], kind) if rest else product, kind)

    return product_of


def high_product(x: Array, y: Array) -> Array:
    """Return the high half of the products of integers of one type."""
    if x.dtype.itemsize < 8:
        wide = np.dtype(f"{x.dtype.kind}8")
        product: Array = x.astype(wide) * y.astype(wide)
        upper: Array = product >> wide.type(8 * x.dtype.itemsize)
        return upper.astype(x.dtype)
    low, half = np.uint64(2**32 - 1), np.uint64(32)
    left, right = x.view(np.uint64), y.view(np.uint64)
    a, b, c, d = left & low, left >> half, right & low, right >> half
    middle = (a * c >> half) + (a * d & low) + (b * c & low)
    high: Array = b * d + (a * d >> half) + (b * c >> half) + (middle >> half)
    if x.dtype.kind == "u":
        return high
    zero = np.uint64(0)
    signed: Array = high - np.where(x < 0, right, zero) - np.where(y < 0, left, zero)
    return signed.view(np.int64)


def _shift_operation(parts: tuple[str, ...]) -> Operation:
    name, kind = parts[0], parts[-1]
    width = width_of(kind)

    def shift(value: Array, amount: Array) -> Array:
        numbers = numbers_of(value, kind)
        steps = np.minimum(amount, np.asarray(width, amount.dtype))
        safe = np.minimum(steps, np.asarray(width - 1, amount.dtype)).astype(numbers.dtype)
        if name == "shr" and kind[0] == "s":
            return bits_of(numbers >> safe, kind)
        moved = numbers << safe if name == "shl" else numbers >> safe
        return bits_of(np.where(steps < width, moved, numbers.dtype.type(0)), kind)

    return shift


def _bfe_operation(parts: tuple[str, ...]) -> Operation:
    """Return ``bfe``: extract bits by position and length, sign-extended for signed types."""
    kind = parts[-1]
    width = width_of(kind)
    numbers = np.dtype(f"i{width // 8}")

    def extract(value: Array, position: Array, length: Array) -> Array:
        place = np.minimum(position & 0xFF, width).astype(np.int64)
        count = np.minimum(length & 0xFF, width).astype(np.int64)
        wide = numbers_of(value, kind).astype(np.int64 if width < 64 or kind[0] == "s" else np.uint64)
        moved = (wide >> np.minimum(place, 63).astype(wide.dtype)).astype(np.int64)
        left = (64 - count).clip(0, 63)
        high = moved << left
        result = high >> left if kind[0] == "s" else (high.view(np.uint64) >> left.astype(np.uint64)).view(np.int64)
        return bits_of(np.where(count == 0, 0, result).astype(numbers), kind)

    return extract


def _bfi_operation(parts: tuple[str, ...]) -> Operation:
    kind = parts[-1]

    def insert(source: Array, into: Array, position: Array, length: Array) -> Array:
        place, count = (np.minimum(each & 0xFF, 63).astype(np.uint64) for each in (position, length))
        mask = ((np.uint64(1) << count) - np.uint64(1)) << place
        result: Array = (into.astype(np.uint64) & ~mask) | ((source.astype(np.uint64) << place) & mask)
        return result.astype(bits_type(kind))

    return insert


def _prmt_operation(parts: tuple[str, ...]) -> Operation | None:
    """Return ``prmt`` in its plain mode: each nibble of the selector picks a byte of the two operands."""
    if len(parts) > 2:
        return None

    def permute(low: Array, high: Array, selector: Array) -> Array:
        both = low.astype(np.uint64) | (high.astype(np.uint64) << np.uint64(32))
        result: Array = np.zeros(np.broadcast_shapes(both.shape, selector.shape), np.uint32)
        for place in range(4):
            nibble = (selector >> np.uint32(4 * place)) & np.uint32(15)
            byte = (both >> ((nibble & np.uint32(7)).astype(np.uint64) * np.uint64(8))) & np.uint64(0xFF)
            sign = np.where(byte & np.uint64(0x80), np.uint64(0xFF), np.uint64(0))
            chosen = np.where(nibble & np.uint32(8), sign, byte).astype(np.uint32)
            result = result | (chosen << np.uint32(8 * place))
        return result

    return permute


def _setp_operation(parts: tuple[str, ...]) -> Operation | None:
    kind = parts[-1]
    name = parts[1]
    unordered = name.endswith("u") and kind[0] in {"f", "b"} and name[:-1] in _COMPARISONS
    compare = _COMPARISONS.get(name[:-1] if unordered else name)
    if name in {"num", "nan"}:
        compare = _either_nan if name == "nan" else lambda x, y: ~_either_nan(x, y)
    if compare is None:
        return None
    combine = next((_BITWISE[part] for part in parts[2:-1] if part in _BITWISE), None)

    def decide(x: Array, y: Array, *rest: Array) -> Array:
        left, right = numbers_of(x, kind), numbers_of(y, kind)
        result = compare(left, right)
        if unordered:
            result = result | np.isnan(left) | np.isnan(right)
        elif left.dtype.kind == "f" and name == "ne":
            result = result & ~np.isnan(left) & ~np.isnan(right)
        return combine(result, rest[0]) if combine is not None and rest else result

    return decide


def _either_nan(x: Array, y: Array) -> Array:
    either: Array = np.isnan(x) | np.isnan(y)
    return either


def _selp_operation(parts: tuple[str, ...]) -> Operation:
    kind = parts[-1]
    return lambda one, other, condition: np.where(condition, bits_of(one, kind), bits_of(other, kind))


def _lop3_operation(parts: tuple[str, ...]) -> Operation:
    def combine(a: Array, b: Array, c: Array, table: Array) -> Array:
        code = int(np.asarray(table).ravel()[0])
        result: Array = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), np.uint32)
        for row in range(8):
            if code >> row & 1:
                terms = (x if row >> bit & 1 else ~x for x, bit in ((a, 2), (b, 1), (c, 0)))
                result = result | np.bitwise_and.reduce(np.broadcast_arrays(*terms))
        return result

    return combine


def _shf_operation(parts: tuple[str, ...]) -> Operation:
    is_left, wraps = parts[1] == "l", "wrap" in parts

    def shift(low: Array, high: Array, amount: Array) -> Array:
        steps = (amount & np.uint32(31) if wraps else np.minimum(amount, np.uint32(32))).astype(np.uint64)
        both = low.astype(np.uint64) | (high.astype(np.uint64) << np.uint64(32))
        moved = (both << steps) >> np.uint64(32) if is_left else both >> steps
        return moved.astype(np.uint32)

    return shift


def _convert_bits(parts: tuple[str, ...], bits: Array) -> Array:
    target, source = parts[-2], parts[-1]
    numbers = numbers_of(bits, source)
    if target in _FLOATS or target == "bf16":
        if {"rzi", "rni", "rmi", "rpi"} & set(parts):
            numbers = _round_numbers(numbers, parts)
        return bits_of(numbers, target)
    if numbers.dtype.kind != "f":
        return bits_of(_clamp_numbers(numbers, target) if "sat" in parts else numbers, target)
    whole = np.nan_to_num(_round_numbers(numbers.astype(np.float64), parts), nan=0.0)
    return bits_of(_clamp_numbers(whole, target), target)


def _round_numbers(numbers: Array, parts: tuple[str, ...]) -> Array:
    if "rni" in parts:
        return np.rint(numbers)
    if "rmi" in parts:
        return np.floor(numbers)
    return np.ceil(numbers) if "rpi" in parts else np.trunc(numbers)


def _clamp_numbers(numbers: Array, kind: str) -> Array:
    wanted = np.dtype(f"{'i' if kind[0] == 's' else 'u'}{width_of(kind) // 8}")
    limits = np.iinfo(wanted)
    if numbers.dtype.kind == "f":
        inside = (numbers > float(limits.min) - 1) & (numbers < float(limits.max) + (wanted.itemsize < 8))
        ends = np.where(numbers > 0, limits.max, limits.min).astype(wanted)
        return np.where(inside, np.where(inside, numbers, 0).astype(wanted), ends)
    return np.clip(numbers, limits.min, limits.max).astype(wanted)


def _cvt_operation(parts: tuple[str, ...]) -> Operation | None:
    kinds = {*_FLOATS, "bf16"}
    known = all(kind in kinds or (kind[0] in "usb" and kind[1:].isdigit()) for kind in parts[-2:])
    if known:
        return partial(_convert_bits, parts)
    if parts[-2] in {"f16x2", "bf16x2"} and parts[-1] == "f32":
        half = parts[-2].removesuffix("x2")

        def pack(high: Array, low: Array) -> Array:
            upper, lower = (bits_of(numbers_of(each, "f32"), half).astype(np.uint32) for each in (high, low))
            return (upper << np.uint32(16)) | lower

        return pack
    return None


def _bf16_bits(values: Array) -> Array:
    bits = np.ascontiguousarray(values.astype(np.float32, copy=False)).view(np.uint32)
    up = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (
        np.where(np.isnan(values), np.uint32(0x7FFF0000), bits + up).astype(np.uint32).__rshift__(16).astype(np.uint16)
    )


def _divide(x: Array, y: Array) -> Array:
    """Divide towards zero; by zero, undefined on a GPU, gives all bits set."""
    safe = np.where(y == 0, y.dtype.type(1), y)
    if x.dtype.kind == "u":
        return np.where(y == 0, ~x.dtype.type(0), x // safe)
    return np.where(y == 0, x.dtype.type(-1), (x - np.fmod(x, safe)) // safe)


def _remainder(x: Array, y: Array) -> Array:
    safe = np.where(y == 0, y.dtype.type(1), y)
    return np.where(y == 0, x, np.fmod(x, safe))


def _leading_zeros(x: Array) -> Array:
    width = 8 * x.dtype.itemsize
    zeros = np.full(x.shape, width, np.uint32)
    left = x.copy()
    for bit in range(width):
        zeros = np.where(left != 0, np.uint32(width - 1 - bit), zeros)
        left = left >> left.dtype.type(1)
    return zeros


def _reverse_bits(x: Array) -> Array:
    result = np.zeros_like(x)
    for bit in range(8 * x.dtype.itemsize):
        one = x.dtype.type(1)
        result = (result << one) | ((x >> x.dtype.type(bit)) & one)
    return result


_INTEGER: dict[str, Operation] = {
    "not": np.invert,
    "neg": np.negative,
    "abs": np.abs,
    "div": _divide,
    "rem": _remainder,
    "mov": lambda x: x,
    "brev": _reverse_bits,
}
_SPECIAL: dict[str, Callable[[tuple[str, ...]], Operation | None]] = {
    "shl": _shift_operation,
    "shr": _shift_operation,
    "bfe": _bfe_operation,
    "bfi": _bfi_operation,
    "prmt": _prmt_operation,
    "setp": _setp_operation,
    "selp": _selp_operation,
    "lop3": _lop3_operation,
    "shf": _shf_operation,
    "cvta": lambda parts: lambda x: x,
    "popc": lambda parts: lambda x: np.bitwise_count(x).astype(np.uint32),
    "clz": lambda parts: _leading_zeros,
}
