"""PTX arithmetic on arrays of bits, against Python's integers and the words of the PTX ISA."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest

from kernellab.explain.traffic.arithmetic import operation_of

RANDOM = np.random.default_rng(1)
EDGES = [0, 1, 2, 5, 31, 32, 33, 63, 64, 127, 128, 255, 2**15, 2**31 - 1, 2**31, 2**32 - 1]
M32, M64 = 2**32 - 1, 2**64 - 1


def signed(value: int, width: int = 32) -> int:
    return value - (1 << width) if value >> (width - 1) & 1 else value


def quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


BINARY: dict[str, Callable[[int, int], int]] = {
    "add.s32": lambda a, b: a + b,
    "sub.u32": lambda a, b: a - b,
    "mul.lo.s32": lambda a, b: a * b,
    "mul.hi.u32": lambda a, b: a * b >> 32,
    "mul.hi.s32": lambda a, b: signed(a) * signed(b) >> 32,
    "mul.wide.u32": lambda a, b: a * b,
    "mul.wide.s32": lambda a, b: signed(a) * signed(b),
    "min.s32": lambda a, b: min(signed(a), signed(b)),
    "max.u32": max,
    "and.b32": lambda a, b: a & b,
    "or.b32": lambda a, b: a | b,
    "xor.b32": lambda a, b: a ^ b,
    "shl.b32": lambda a, b: a << b if b < 32 else 0,
    "shr.u32": lambda a, b: a >> b if b < 32 else 0,
    "shr.s32": lambda a, b: signed(a) >> min(b, 31),
    "div.s32": lambda a, b: quotient(signed(a), signed(b)) if b else M32,
    "rem.s32": lambda a, b: signed(a) - quotient(signed(a), signed(b)) * signed(b) if b else a,
    "div.u32": lambda a, b: a // b if b else M32,
    "rem.u32": lambda a, b: a % b if b else a,
}
COMPARED: dict[str, Callable[[int, int], bool]] = {
    "setp.lt.s32": lambda a, b: signed(a) < signed(b),
    "setp.lt.u32": lambda a, b: a < b,
    "setp.ge.s32": lambda a, b: signed(a) >= signed(b),
    "setp.eq.b32": lambda a, b: a == b,
    "setp.hi.u32": lambda a, b: a > b,
}


def values() -> np.ndarray:
    return np.array([*EDGES, *RANDOM.integers(0, 2**32, 48)], np.uint32)


def computed(opcode: str, *operands: np.ndarray) -> list[int]:
    operation = operation_of(tuple(opcode.split(".")))
    assert operation is not None
    return [int(each) for each in operation(*operands)]


@pytest.mark.parametrize("opcode", BINARY)
def test_integers_wrap_shift_and_divide_as_on_a_gpu(opcode: str) -> None:
    a, b = values(), RANDOM.permutation(values())
    mask = M64 if "wide" in opcode else M32
    assert computed(opcode, a, b) == [BINARY[opcode](int(x), int(y)) & mask for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize("opcode", COMPARED)
def test_comparisons_know_signs(opcode: str) -> None:
    a, b = values(), RANDOM.permutation(values())
    assert computed(opcode, a, b) == [COMPARED[opcode](int(x), int(y)) for x, y in zip(a, b, strict=True)]


def test_the_high_half_of_64_bits() -> None:
    a, b = (RANDOM.integers(0, 2**64, 64, dtype=np.uint64) for _ in range(2))
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    assert computed("mul.hi.u64", a, b) == [x * y >> 64 for x, y in pairs]
    assert computed("mul.hi.s64", a, b) == [signed(x, 64) * signed(y, 64) >> 64 & M64 for x, y in pairs]


def test_fields_are_taken_out_and_put_in() -> None:
    value, position, length = values(), np.uint32(5) + np.zeros(64, np.uint32), np.uint32(7) + np.zeros(64, np.uint32)
    assert computed("bfe.u32", value, position, length) == [int(each) >> 5 & 127 for each in value]
    assert computed("bfe.s32", value, position, length) == [signed(int(each) >> 5 & 127, 7) & M32 for each in value]
    into = RANDOM.permutation(values())
    expected = [(int(y) & ~(127 << 5)) | (int(x) & 127) << 5 for x, y in zip(value, into, strict=True)]
    assert computed("bfi.b32", value, into, position, length) == expected


def test_bytes_are_permuted() -> None:
    low, high = np.array([0x44332211], np.uint32), np.array([0x88776655], np.uint32)
    assert computed("prmt.b32", low, high, np.array([0x7531], np.uint32)) == [0x88664422]
    assert computed("prmt.b32", low, high, np.array([0x000F], np.uint32)) == [0x111111FF]


def test_three_inputs_go_through_a_table() -> None:
    a, b, c = values(), RANDOM.permutation(values()), RANDOM.permutation(values())
    expected = [(int(x) & int(y)) ^ int(z) for x, y, z in zip(a, b, c, strict=True)]
    assert computed("lop3.b32", a, b, c, np.array([0x6A])) == expected


def test_a_funnel_shifts_two_registers_as_one() -> None:
    low, high = values(), RANDOM.permutation(values())
    steps = np.full(64, 9, np.uint32)
    both = [int(x) | int(y) << 32 for x, y in zip(low, high, strict=True)]
    assert computed("shf.l.wrap.b32", low, high, steps) == [each << 9 >> 32 & M32 for each in both]
    assert computed("shf.r.wrap.b32", low, high, steps) == [each >> 9 & M32 for each in both]


def bits(number: float) -> int:
    return struct.unpack("<I", struct.pack("<f", number))[0]


def test_numbers_become_integers_towards_zero_and_saturate() -> None:
    numbers = np.array([1.9, -1.9, 3e9, -3e9, float("nan"), float("inf")], np.float32).view(np.uint32)
    assert computed("cvt.rzi.s32.f32", numbers) == [1, -1 & M32, 2**31 - 1, 2**31, 0, 2**31 - 1]
    assert computed("cvt.rni.s32.f32", numbers)[0] == 2


def test_integers_are_widened_by_their_own_sign() -> None:
    value = np.array([0xFFFFFFFF, 5], np.uint32)
    assert computed("cvt.s64.s32", value) == [M64, 5]
    assert computed("cvt.u64.u32", value) == [M32, 5]
    assert computed("cvt.u16.u32", value) == [0xFFFF, 5]


def test_floats_are_computed_on_their_bits() -> None:
    a, b = np.array([bits(1.5)], np.uint32), np.array([bits(-2.0)], np.uint32)
    assert computed("add.f32", a, b) == [bits(-0.5)]
    assert computed("fma.rn.f32", a, b, a) == [bits(-1.5)]
    assert computed("setp.gt.f32", a, b) == [1]
    nan = np.array([bits(float("nan"))], np.uint32)
    assert computed("setp.ne.f32", nan, a) == [0]
    assert computed("setp.neu.f32", nan, a) == [1]
    assert computed("cvt.rn.bf16.f32", np.array([bits(1.00390625)], np.uint32)) == [0x3F80]


def test_what_is_not_known_is_none() -> None:
    assert operation_of(("dp4a", "u32", "u32")) is None
    assert operation_of(("mma", "sync", "f32")) is None
