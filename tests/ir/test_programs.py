"""Scalar integer operations, for one program and for many, as the machine computes them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernellab.ir.graph import Location, Operation
from kernellab.ir.programs import apply_operation, integers, select

NUMBERS = st.integers(-(2**31), 2**31 - 1)


def operation(name: str, **attributes: str) -> Operation:
    return Operation(0, name, (), (), (), (), tuple(attributes.items()), Location(), 0)


def result(name: str, *operands: int, element: str = "i32", **attributes: str) -> int | None:
    found = apply_operation(operation(name, **attributes), [integers(each) for each in operands], element)
    return None if found is None else int(found)


def wrapped(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


@pytest.mark.slow
@given(NUMBERS, NUMBERS.filter(bool))
def test_division_goes_towards_zero_and_the_remainder_has_the_sign_of_the_dividend(a: int, b: int) -> None:
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    assert result("arith.divsi", a, b) == wrapped(quotient)
    assert result("arith.remsi", a, b) == int(math.fmod(a, b))
    assert result("arith.floordivsi", a, b) == wrapped(a // b)
    assert result("arith.ceildivsi", a, b) == wrapped(-(-a // b))


@pytest.mark.slow
@given(NUMBERS, NUMBERS)
def test_results_wrap_to_their_type(a: int, b: int) -> None:
    assert result("arith.addi", a, b) == wrapped(a + b)
    assert result("arith.subi", a, b) == wrapped(a - b)
    assert result("arith.muli", a, b) == wrapped(a * b)


@pytest.mark.parametrize(
    ("predicate", "expected"), [("slt", 1), ("sgt", 0), ("eq", 0), ("ne", 1), ("sle", 1), ("sge", 0), ("ult", None)]
)
def test_comparisons_give_truth_values_and_unsigned_ones_only_where_signs_agree(
    predicate: str, expected: int | None
) -> None:
    assert result("arith.cmpi", -3, 5, element="i1", predicate=predicate) == expected


def test_unsigned_operations_on_negative_numbers_are_not_known() -> None:
    assert result("arith.divui", 7, 2) == 3
    assert result("arith.divui", -7, 2) is None
    assert result("arith.extui", -1, element="i64") is None


def test_an_unknown_operand_makes_the_result_unknown_unless_nobody_asks_for_it() -> None:
    known = integers(4)
    assert apply_operation(operation("arith.addi"), [known, None], "i32") is None
    assert apply_operation(operation("arith.select"), [integers(1), known, None], "i32") == 4
    assert apply_operation(operation("arith.select"), [integers(0), known, None], "i32") is None
    assert apply_operation(operation("arith.addf"), [known, known], "f32") is None


def test_programs_are_computed_side_by_side() -> None:
    programs = np.arange(4, dtype=np.int64)
    found = apply_operation(operation("arith.muli"), [programs, integers(3)], "i32")
    assert found is not None
    assert found.tolist() == [0, 3, 6, 9]
    picked = select(programs, programs, integers(7))
    assert picked is not None
    assert picked.tolist() == [7, 1, 2, 3]
