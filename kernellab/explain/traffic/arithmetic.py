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
_FLOAT_KINDS = {*_FLOATS, "bf16"}
_COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    **dict.fromkeys(("lt", "lo"), np.less),
    **dict.fromkeys(("le", "ls"), np.less_equal),
    **dict.fromkeys(("gt", "hi"), np.greater),
    **dict.fromkeys(("ge", "hs"), np.greater_equal),
}
_BITWISE: dict[str, np.ufunc] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
INTEGER_UFUNCS: dict[str, np.ufunc] = {**_BITWISE, "add": np.add, "min": np.minimum, "max": np.maximum}
_ON_FLOATS: dict[str, Operation] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "min": np.fmin,
    "max": np.fmax,
    "copysign": lambda sign, size: np.copysign(size, sign),
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
    if name in _ON_BITS:
        return partial(_ON_BITS[name], parts) if _is_supported(parts) else None
    if kind in _FLOAT_KINDS:
        function = _ON_FLOATS.get(name)
        if name in {"fma", "mad"}:
            wide = np.float32 if kind in {"f16", "bf16"} else np.float64
            function = lambda x, y, z: x.astype(wide) * y.astype(wide) + z.astype(wide)  # noqa: E731
    elif name in {"mul", "mad"} and kind[0] in "usb":
        return partial(_multiply, parts)
    else:
        function = _ON_INTEGERS.get(name) if kind[0] in "usb" or kind == "pred" else None
    if function is None:
        return None
    return lambda *bits: bits_of(function(*(numbers_of(operand, kind) for operand in bits)), kind)


def _is_supported(parts: tuple[str, ...]) -> bool:
    if parts[0] == "cvt":
        is_packed = parts[-2:] in {("f16x2", "f32"), ("bf16x2", "f32")}
        numbers = (kind in _FLOAT_KINDS or (kind[0] in "usb" and kind[1:].isdigit()) for kind in parts[-2:])
        return is_packed or all(numbers)
    if parts[0] == "setp":
        return parts[1] in {"num", "nan", *_COMPARISONS} or _is_unordered(parts)
    return parts[0] != "prmt" or len(parts) == 2  # in its plain mode


def _multiply(parts: tuple[str, ...], x: Array, y: Array, *added: Array) -> Array:
    """Multiply integers, and add for ``mad``: the low or high half of the product, or all of it."""
    kind = wide = parts[-1]
    left, right = numbers_of(x, kind), numbers_of(y, kind)
    if "wide" in parts:
        wide = f"{kind[0]}{2 * width_of(kind)}"
        numbers = np.dtype(f"{'i' if kind[0] == 's' else 'u'}{width_of(wide) // 8}")
        left, right = left.astype(numbers), right.astype(numbers)
    product = high_product(left, right) if "hi" in parts else left * right
    return bits_of(product + numbers_of(added[0], wide) if added else product, wide)


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


def _shift(parts: tuple[str, ...], value: Array, amount: Array) -> Array:
    name, kind = parts[0], parts[-1]
    numbers, width = numbers_of(value, kind), width_of(kind)
    steps = np.minimum(amount, np.asarray(width, amount.dtype))
    safe = np.minimum(steps, np.asarray(width - 1, amount.dtype)).astype(numbers.dtype)
    if name == "shr" and kind[0] == "s":
        return bits_of(numbers >> safe, kind)
    moved = numbers << safe if name == "shl" else numbers >> safe
    return bits_of(np.where(steps < width, moved, numbers.dtype.type(0)), kind)


def _extract_bits(parts: tuple[str, ...], value: Array, position: Array, length: Array) -> Array:
    """Extract bits by position and length, sign-extended for signed types."""
    kind = parts[-1]
    width, is_signed = width_of(kind), kind[0] == "s"
    place = np.minimum(position & 0xFF, width).astype(np.int64)
    count = np.minimum(length & 0xFF, width).astype(np.int64)
    wide = numbers_of(value, kind).astype(np.int64 if width < 64 or is_signed else np.uint64)
    moved = (wide >> np.minimum(place, 63).astype(wide.dtype)).astype(np.int64)
    left = (64 - count).clip(0, 63)
    high = moved << left
    result = high >> left if is_signed else (high.view(np.uint64) >> left.astype(np.uint64)).view(np.int64)
    return bits_of(np.where(count == 0, 0, result).astype(np.dtype(f"i{width // 8}")), kind)


def _insert_bits(parts: tuple[str, ...], source: Array, into: Array, position: Array, length: Array) -> Array:
    place, count = (np.minimum(field & 0xFF, 63).astype(np.uint64) for field in (position, length))
    mask = ((np.uint64(1) << count) - np.uint64(1)) << place
    result: Array = (into.astype(np.uint64) & ~mask) | ((source.astype(np.uint64) << place) & mask)
    return result.astype(bits_type(parts[-1]))


def _permute_bytes(parts: tuple[str, ...], low: Array, high: Array, selector: Array) -> Array:
    """Pick a byte of the two operands by each nibble of the selector."""
    both = _pair(low, high)
    result: Array = np.zeros(np.broadcast_shapes(both.shape, selector.shape), np.uint32)
    for place in range(4):
        nibble = (selector >> np.uint32(4 * place)) & np.uint32(15)
        byte = (both >> ((nibble & np.uint32(7)).astype(np.uint64) * np.uint64(8))) & np.uint64(0xFF)
        sign = np.where(byte & np.uint64(0x80), np.uint64(0xFF), np.uint64(0))
        chosen = np.where(nibble & np.uint32(8), sign, byte).astype(np.uint32)
        result = result | (chosen << np.uint32(8 * place))
    return result


def _pair(low: Array, high: Array) -> Array:
    """Return two words as one of 64 bits."""
    pair: Array = low.astype(np.uint64) | (high.astype(np.uint64) << np.uint64(32))
    return pair


def _is_unordered(parts: tuple[str, ...]) -> bool:
    """Whether a comparison is true where one side is not a number."""
    return parts[1].endswith("u") and parts[-1][0] in "fb" and parts[1][:-1] in _COMPARISONS


def _compare(parts: tuple[str, ...], x: Array, y: Array, *rest: Array) -> Array:
    name, kind = parts[1], parts[-1]
    left, right = numbers_of(x, kind), numbers_of(y, kind)
    if name in {"num", "nan"}:
        result = np.isnan(left) | np.isnan(right)
        result = result if name == "nan" else ~result
    elif _is_unordered(parts):
        result = _COMPARISONS[name[:-1]](left, right) | np.isnan(left) | np.isnan(right)
    else:
        result = _COMPARISONS[name](left, right)
        if left.dtype.kind == "f" and name == "ne":
            result = result & ~np.isnan(left) & ~np.isnan(right)
    combine = next((_BITWISE[part] for part in parts[2:-1] if part in _BITWISE), None)
    return combine(result, rest[0]) if combine is not None and rest else result


def _combine_by_table(parts: tuple[str, ...], a: Array, b: Array, c: Array, table: Array) -> Array:
    code = int(np.asarray(table).ravel()[0])
    result: Array = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), np.uint32)
    for row in range(8):
        if code >> row & 1:
            terms = (x if row >> bit & 1 else ~x for x, bit in ((a, 2), (b, 1), (c, 0)))
            result = result | np.bitwise_and.reduce(np.broadcast_arrays(*terms))
    return result


def _funnel_shift(parts: tuple[str, ...], low: Array, high: Array, amount: Array) -> Array:
    steps = (amount & np.uint32(31) if "wrap" in parts else np.minimum(amount, np.uint32(32))).astype(np.uint64)
    both = _pair(low, high)
    moved = (both << steps) >> np.uint64(32) if parts[1] == "l" else both >> steps
    return moved.astype(np.uint32)


def _convert(parts: tuple[str, ...], bits: Array, *low: Array) -> Array:
    """Convert numbers; of two for a pair of halves, the first is the upper one."""
    target, source = parts[-2], parts[-1]
    if target.endswith("x2"):
        half = target.removesuffix("x2")
        upper, lower = (bits_of(numbers_of(operand, source), half).astype(np.uint32) for operand in (bits, *low))
        return (upper << np.uint32(16)) | lower
    numbers = numbers_of(bits, source)
    if target in _FLOAT_KINDS:
        is_rounded = {"rzi", "rni", "rmi", "rpi"} & set(parts)
        return bits_of(_round_numbers(numbers, parts) if is_rounded else numbers, target)
    if numbers.dtype.kind != "f":
        return bits_of(_clamp_numbers(numbers, target) if "sat" in parts else numbers, target)
    whole = np.nan_to_num(_round_numbers(numbers.astype(np.float64), parts), nan=0.0)
    return bits_of(_clamp_numbers(whole, target), target)


def _round_numbers(numbers: Array, parts: tuple[str, ...]) -> Array:
    modes = {"rni": np.rint, "rmi": np.floor, "rpi": np.ceil}
    return next((modes[part] for part in parts if part in modes), np.trunc)(numbers)


def _clamp_numbers(numbers: Array, kind: str) -> Array:
    wanted = np.dtype(f"{'i' if kind[0] == 's' else 'u'}{width_of(kind) // 8}")
    limits = np.iinfo(wanted)
    if numbers.dtype.kind == "f":
        inside = (numbers > float(limits.min) - 1) & (numbers < float(limits.max) + (wanted.itemsize < 8))
        ends = np.where(numbers > 0, limits.max, limits.min).astype(wanted)
        return np.where(inside, np.where(inside, numbers, 0).astype(wanted), ends)
    return np.clip(numbers, limits.min, limits.max).astype(wanted)


def _bf16_bits(values: Array) -> Array:
    bits = np.ascontiguousarray(values.astype(np.float32, copy=False)).view(np.uint32)
    up = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded = np.where(np.isnan(values), np.uint32(0x7FFF0000), bits + up).astype(np.uint32)
    return (rounded >> np.uint32(16)).astype(np.uint16)


def _divide(x: Array, y: Array) -> Array:
    """Divide towards zero; by zero, undefined on a GPU, gives all bits set."""
    safe = np.where(y == 0, y.dtype.type(1), y)
    quotient = x // safe if x.dtype.kind == "u" else (x - np.fmod(x, safe)) // safe
    return np.where(y == 0, ~x.dtype.type(0), quotient)


def _remainder(x: Array, y: Array) -> Array:
    safe = np.where(y == 0, y.dtype.type(1), y)
    return np.where(y == 0, x, np.fmod(x, safe))


def _leading_zeros(parts: tuple[str, ...], x: Array) -> Array:
    for power in range((8 * x.dtype.itemsize).bit_length() - 1):
        x = x | (x >> x.dtype.type(1 << power))
    return (8 * x.dtype.itemsize - np.bitwise_count(x)).astype(np.uint32)


def _reverse_bits(x: Array) -> Array:
    bits = np.unpackbits(np.ascontiguousarray(x)[..., None].view(np.uint8), axis=-1, bitorder="little")
    reverse: Array = np.packbits(bits[..., ::-1], axis=-1, bitorder="little").view(x.dtype)[..., 0]
    return reverse


_ON_INTEGERS: dict[str, Operation] = {
    **INTEGER_UFUNCS,
    "sub": np.subtract,
    "not": np.invert,
    "neg": np.negative,
    "abs": np.abs,
    "div": _divide,
    "rem": _remainder,
    "mov": lambda x: x,
    "brev": _reverse_bits,
}
_ON_BITS: dict[str, Operation] = {
    **dict.fromkeys(("shl", "shr"), _shift),
    "bfe": _extract_bits,
    "bfi": _insert_bits,
    "prmt": _permute_bytes,
    "setp": _compare,
    "selp": lambda parts, x, y, condition: np.where(condition, bits_of(x, parts[-1]), bits_of(y, parts[-1])),
    "lop3": _combine_by_table,
    "shf": _funnel_shift,
    "cvt": _convert,
    "cvta": lambda parts, x: x,
    "popc": lambda parts, x: np.bitwise_count(x).astype(np.uint32),
    "clz": _leading_zeros,
}
