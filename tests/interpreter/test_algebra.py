"""The ring that floats are evaluated in: the identities that Triton's floating-point sanitizer keeps."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernellab.interpreter import algebra
from kernellab.interpreter.algebra import FORMATS, FloatFormat, Payload

NAMES = sorted(FORMATS)
TYPES: dict[str, Any] = {
    "fp64": np.float64,
    "fp32": np.float32,
    "fp16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "fp8e4nv": ml_dtypes.float8_e4m3fn,
    "fp8e5": ml_dtypes.float8_e5m2,
    "fp8e4b8": ml_dtypes.float8_e4m3fnuz,
    "fp8e5b16": ml_dtypes.float8_e5m2fnuz,
}


def payloads(format: FloatFormat, *values: int) -> list[Payload]:
    return [algebra.canonical(np.array([value], np.int64), format) for value in values]


def bits_of(name: str, *numbers: float) -> np.ndarray[Any, Any]:
    values = np.array(numbers, TYPES[name])
    return values.view(f"u{values.itemsize}")


@pytest.fixture(autouse=True)
def overflow_is_meant() -> Any:
    with np.errstate(all="ignore"):
        yield


integers = st.integers(-(2**63) + 2, 2**63 - 3)
formats = st.sampled_from(NAMES).map(FORMATS.__getitem__)


@pytest.mark.parametrize("name", [name for name in NAMES if FORMATS[name].bits <= 16])
def test_embedding_is_a_bijection_of_all_bit_patterns(name: str) -> None:
    format = FORMATS[name]
    bits = np.arange(1 << format.bits, dtype=np.uint64).astype(f"u{format.bits // 8}")
    embedded = algebra.embed(bits, format)
    assert len(np.unique(embedded)) == len(bits)
    assert (algebra.unembed(embedded, format) == bits).all()


@given(integers)
def test_bit_patterns_of_64_bits_come_back(value: int) -> None:
    for name in ("fp32", "fp64"):
        bits = np.array([value], np.int64).view(np.uint64).astype(f"u{FORMATS[name].bits // 8}")
        assert (algebra.unembed(algebra.embed(bits, FORMATS[name]), FORMATS[name]) == bits).all()


@pytest.mark.parametrize("name", sorted(TYPES))
def test_zero_one_and_minus_one_are_the_integers(name: str) -> None:
    assert algebra.embed(bits_of(name, 0.0, 1.0, -1.0), FORMATS[name]).tolist() == [0, 1, -1]


@pytest.mark.parametrize("name", sorted(TYPES))
def test_a_negated_number_has_the_negated_payload(name: str) -> None:
    one, other = algebra.embed(bits_of(name, 0.75, -0.75), FORMATS[name]).tolist()
    assert one == -other != 0


@settings(max_examples=50)
@given(formats, integers, integers, integers)
def test_sums_and_products_are_those_of_a_ring(format: FloatFormat, a: int, b: int, c: int) -> None:
    x, y, z = payloads(format, a, b, c)
    add, multiply = algebra.add, algebra.multiply
    assert add(add(x, y, format), z, format) == add(x, add(y, z, format), format)
    assert multiply(x, add(y, z, format), format) == add(multiply(x, y, format), multiply(x, z, format), format)
    assert algebra.subtract(x, x, format) == 0
    assert algebra.multiply_add(x, y, z, format) == add(multiply(x, y, format), z, format)


@settings(max_examples=50)
@given(formats, integers, integers)
def test_quotients_by_odd_payloads_are_inverse_products_and_inversion_is_an_involution(
    format: FloatFormat, a: int, b: int
) -> None:
    x, y = payloads(format, a, b)
    assert algebra.divide(x, np.array([1]), format) == x
    assert algebra.inverse(algebra.inverse(y, format), format) == y
    assert (algebra.inverse(y, format) & 1) == (y & 1)
    product = algebra.inverse(algebra.multiply(x, y, format), format)
    assert product == algebra.multiply(algebra.inverse(x, format), algebra.inverse(y, format), format)
    odd = algebra.canonical(y | 1, format)
    assert algebra.multiply(odd, algebra.inverse(odd, format), format) == 1


@settings(max_examples=50)
@given(formats, integers, integers)
def test_exponentials_turn_sums_into_products(format: FloatFormat, a: int, b: int) -> None:
    x, y = payloads(format, a, b)
    for function in (algebra.exp2, algebra.exp):
        product = algebra.multiply(function(x, format), function(y, format), format)
        assert function(algebra.add(x, y, format), format) == product
        assert function(np.array([0]), format) == 1


@settings(max_examples=50)
@given(formats, integers, integers)
def test_sines_and_cosines_keep_sums_of_angles(format: FloatFormat, a: int, b: int) -> None:
    x, y = payloads(format, a, b)
    cos, sin, add, multiply = algebra.cos, algebra.sin, algebra.add, algebra.multiply
    squares = [multiply(part, part, format) for part in (cos(x, format), sin(x, format))]
    assert add(*squares, format) == 1
    angle = add(x, y, format)
    both = [multiply(sin(x, format), cos(y, format), format), multiply(cos(x, format), sin(y, format), format)]
    assert sin(angle, format) == add(*both, format)
    difference = algebra.subtract(
        multiply(cos(x, format), cos(y, format), format), multiply(sin(x, format), sin(y, format), format), format
    )
    assert cos(angle, format) == difference


@settings(max_examples=50)
@given(integers)
def test_casts_extend_the_sign_and_a_cast_to_a_wider_type_and_back_changes_nothing(value: int) -> None:
    narrow, wide = FORMATS["fp16"], FORMATS["fp32"]
    (x,) = payloads(narrow, value)
    extended = algebra.cast(x, narrow, wide)
    assert extended == x
    assert algebra.cast(extended, wide, narrow) == x
    (y,) = payloads(wide, value)
    assert (algebra.cast(y, wide, narrow) & 0xFFFF) == (y & 0xFFFF)


def test_the_cast_of_a_sum_or_product_is_that_of_the_casts() -> None:
    narrow, wide = FORMATS["fp16"], FORMATS["fp32"]
    x, y = payloads(wide, 123456789, 987654321)
    for function in (algebra.add, algebra.multiply):
        first, second, both = (algebra.cast(one, wide, narrow) for one in (x, y, function(x, y, wide)))
        assert function(first, second, narrow) == both


def test_minus_zero_of_float64_is_no_infinity() -> None:
    format = FORMATS["fp64"]
    zero = algebra.embed(bits_of("fp64", -0.0), format)
    assert zero == -(2**63)
    assert not algebra.is_infinite(zero, format)
    assert algebra.absolute(zero, format) == 0
    assert algebra.unembed(zero, format) == bits_of("fp64", -0.0)


@settings(max_examples=50)
@given(formats, integers)
def test_tags_are_invertible_and_differ_by_operation(format: FloatFormat, value: int) -> None:
    (x,) = payloads(format, value)
    assert algebra.tag(x, "log", format) != algebra.tag(algebra.add(x, np.array([1]), format), "log", format)
    if format.bits >= 16:
        names = ("log", "log2", "sqrt", "erf", "floor", "ceil")
        assert len({int(algebra.tag(x, name, format)[0]) for name in names}) == len(names)
    assert algebra.rsqrt(x, format) == algebra.divide(np.array([1]), algebra.sqrt(x, format), format)


def test_external_functions_depend_on_symbol_and_order_of_operands() -> None:
    format = FORMATS["fp32"]
    x, y = payloads(format, 12345, 6789)
    assert algebra.external("f", [x, y], format) != algebra.external("f", [y, x], format)
    assert algebra.external("f", [x, y], format) != algebra.external("g", [x, y], format)


def test_a_remainder_has_the_sign_of_the_number_and_an_odd_divisor() -> None:
    format = FORMATS["fp32"]
    x, y = payloads(format, -7, 4)
    assert algebra.remainder(x, y, format) == -2
    assert algebra.remainder(x, np.array([0]), format) == 0


@pytest.mark.parametrize("name", ["fp64", "fp32", "fp16", "bf16", "fp8e5"])
def test_masked_lanes_of_minus_infinity_vanish(name: str) -> None:
    format = FORMATS[name]
    infinite, number = algebra.embed(bits_of(name, -np.inf), format), payloads(format, 77)[0]
    assert algebra.is_infinite(infinite, format).all()
    assert algebra.exp(algebra.subtract(infinite, number, format), format) == 0
    assert np.maximum(infinite, number) == number
    assert algebra.unembed(infinite, format) == bits_of(name, -np.inf)
    assert algebra.total(np.array([int(infinite[0]), 5, 6]), (0,), format) == infinite


def test_a_product_of_blocks_is_the_sum_of_products() -> None:
    format = FORMATS["fp32"]
    random = np.random.default_rng(0)
    a, b = (random.integers(-(2**31), 2**31, shape) for shape in ((4, 5), (5, 3)))
    expected = [[sum(int(a[i, k]) * int(b[k, j]) for k in range(5)) + 9 for j in range(3)] for i in range(4)]
    result = algebra.dot(a, b, np.full((4, 3), 9), format)
    assert (result == [[(value + 2**31) % 2**32 - 2**31 for value in row] for row in expected]).all()
