"""The algebra of addresses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernellab.ir.provenance import (
    MAX_ALTERNATIVES,
    MAX_COEFFICIENT,
    NUMBER,
    UNDEFINED,
    Alternative,
    Alternatives,
    Linear,
    OpaqueAddress,
    address_of,
    argument_in,
    combine,
    opaque_result,
    scaled_sum,
    union,
)

X, Y = ((0, 1),), ((1, 1),)
COEFFICIENTS = st.dictionaries(st.integers(0, 3), st.integers(-3, 3).filter(bool), max_size=3)
FORMS = COEFFICIENTS.map(lambda each: tuple(sorted(each.items())))


@pytest.mark.parametrize(
    ("alternative", "expected"),
    [
        (X, 0),
        (Y, 1),
        ((), None),
        (((0, 2),), None),
        (((0, 1), (1, 1)), None),
        (((0, -1),), None),
        (OpaqueAddress(3, ""), None),
    ],
)
def test_only_a_single_address_points_into_an_argument(alternative: Alternative, expected: int | None) -> None:
    assert argument_in(alternative) == expected


def test_distance_added_to_its_start_gives_its_end() -> None:
    distance = scaled_sum(X, Y, -1, 0)
    assert isinstance(distance, tuple)
    assert scaled_sum(distance, Y, 1, 0) == X


@pytest.mark.slow
@given(FORMS, FORMS)
def test_subtracting_what_was_added_gives_the_same_form(left: Linear, right: Linear) -> None:
    added = scaled_sum(left, right, 1, 0)
    assert isinstance(added, tuple)
    assert scaled_sum(added, right, -1, 0) == left


@pytest.mark.slow
@given(FORMS, FORMS)
def test_addition_commutes(left: Linear, right: Linear) -> None:
    assert scaled_sum(left, right, 1, 0) == scaled_sum(right, left, 1, 0)


def test_large_multiples_are_opaque() -> None:
    result = scaled_sum((), X, MAX_COEFFICIENT + 1, 5)
    assert isinstance(result, OpaqueAddress)
    assert (result.operation, result.arguments) == (5, {0})


def test_too_many_alternatives_become_one_that_absorbs() -> None:
    many = [address_of(each) for each in range(MAX_ALTERNATIVES + 1)]
    collapsed = union(many, 7)
    (single,) = collapsed
    assert isinstance(single, OpaqueAddress)
    assert len(single.arguments) == MAX_ALTERNATIVES + 1
    assert union([collapsed, address_of(3)], 9) == collapsed


@pytest.mark.slow
@given(st.lists(st.frozensets(FORMS, max_size=4), max_size=4))
def test_union_has_every_alternative(values: list[Alternatives]) -> None:
    assert union(values, 0) == frozenset().union(*values)


def test_mixing_numbers_gives_a_number_and_mixing_an_address_does_not() -> None:
    assert opaque_result([NUMBER, NUMBER], 4, "why") == NUMBER
    assert opaque_result([NUMBER, address_of(2)], 4, "why") == {OpaqueAddress(4, "why", frozenset({2}))}
    assert opaque_result([NUMBER, NUMBER | address_of(2)], 4, "why") == {(), OpaqueAddress(4, "why", frozenset({2}))}


def test_opaque_values_keep_the_operation_where_the_trace_was_lost() -> None:
    lost = OpaqueAddress(2, "first", frozenset({1}))
    assert opaque_result([frozenset({lost}), NUMBER], 9, "second") == {lost}
    assert combine(frozenset({lost}), address_of(0), lambda one, other: scaled_sum(one, other, 1, 9), 9) == {lost}


def test_undefined_operands_give_an_undefined_result() -> None:
    assert opaque_result([UNDEFINED, NUMBER], 4, "why") == UNDEFINED
    assert combine(UNDEFINED, address_of(0), lambda one, other: scaled_sum(one, other, 1, 9), 9) == UNDEFINED
