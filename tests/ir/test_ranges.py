"""Intervals of operations, bounds of forms under inequalities, and random kernels within what is shown of them."""

from __future__ import annotations

import warnings
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

import kernellab
from kernellab.ir.affine import INTERVALS, Form, Term, bounds_of
from kernellab.ir.containment import ArgumentMemory, KnownLaunch, NotContained, require_contained
from kernellab.ir.programs import apply_operation
from kernellab.ir.uses import depends_on_data

SMALL = st.integers(-9, 9)
TERMS: list[Term] = [(1, (0,)), (2, (1,)), (3, ())]


def intervals(least: int = -9, most: int = 9) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(least, most), st.integers(least, most)).map(lambda pair: (min(pair), max(pair)))


@pytest.mark.parametrize("name", sorted(INTERVALS))
@given(one=intervals(), other=intervals())
@settings(max_examples=80, deadline=None)
def test_an_interval_holds_every_result(name: str, one: tuple[int, int], other: tuple[int, int]) -> None:
    found = INTERVALS[name](one, other)
    if found is None:
        return
    operation: Any = SimpleNamespace(name=name, attributes=())
    for left, right in product(range(one[0], one[1] + 1), range(other[0], other[1] + 1)):
        result = apply_operation(operation, [np.asarray(left, np.int64), np.asarray(right, np.int64)], "i64")
        if result is not None and not (right == 0 and ("div" in name or "rem" in name)):
            assert found[0] <= int(result) <= found[1], (left, right, int(result))


def forms() -> st.SearchStrategy[Form]:
    weights = st.lists(st.tuples(st.sampled_from(TERMS), SMALL), max_size=3)
    made = weights.map(lambda pairs: [Form(((term, weight),)) for term, weight in pairs if weight])
    return st.tuples(made, SMALL).map(lambda pair: _added([*pair[0], Form((), pair[1])]))


def _added(parts: list[Form]) -> Form:
    total = Form()
    for part in parts:
        total = total.plus(part)
    return total


@given(form=forms(), inequalities=st.lists(forms(), max_size=3), ranges=st.tuples(*[intervals(-4, 4)] * 3))
@settings(max_examples=300, deadline=None)
def test_bounds_hold_every_value_that_the_inequalities_allow(form: Form, inequalities: list[Form], ranges: Any) -> None:
    held = {term[0]: interval for term, interval in zip(TERMS, ranges, strict=True)}
    low, high = bounds_of(form, held, [each.reduced() for each in inequalities])
    for point in product(*(range(a, b + 1) for a, b in ranges)):
        values = dict(zip(TERMS, point, strict=True))
        if all(_at(each, values) <= 0 for each in inequalities):
            assert low <= _at(form, values) <= high


def _at(form: Form, values: dict[Term, int]) -> int:
    return form.constant + sum(weight * values[term] for term, weight in form.terms)


def test_a_bound_is_exact_where_one_inequality_is_about_all_terms() -> None:
    row, column, block = (Form(((term, 1),)) for term in TERMS)
    columns = block.times(128).plus(column)
    address = row.times(1000).plus(columns)
    ranges = {1: (0, 9), 2: (0, 127), 3: (0, 7)}
    assert bounds_of(address, ranges) == (0, 10_023)
    assert bounds_of(address, ranges, [columns.plus(Form((), -999))]) == (0, 9_999)


@triton.jit
def stepped(index, other, OP: tl.constexpr, BY: tl.constexpr):  # noqa: C901 - the eleven steps that there are
    if OP == 0:
        index = index + BY
    elif OP == 1:
        index = index * BY
    elif OP == 2:
        index = index // (BY * BY + 1)
    elif OP == 3:
        index = index % (BY * BY + 1)
    elif OP == 4:
        index = tl.minimum(index, BY)
    elif OP == 5:
        index = tl.maximum(index, other)
    elif OP == 6:
        index = tl.where(index < BY, index + other, index - BY)
    elif OP == 7:
        index = index & (BY + 8)
    elif OP == 8:
        index = (index ^ BY) & 63
    elif OP == 9:
        index = other - index
    elif OP == 10:
        index = (index * other) >> 2
    return index


@triton.jit
def walked(idx_ptr, out_ptr, n, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, M: tl.constexpr, W: tl.constexpr):
    offsets = tl.program_id(0) * 8 + tl.arange(0, 8)
    mask = offsets < n
    index = tl.load(idx_ptr + offsets, mask=mask, other=0)
    other = offsets + W[0]
    index = stepped(index, other, A[0], A[1])
    index = stepped(index, other, B[0], B[1])
    index = stepped(index, other, C[0], C[1])
    if M == 1:
        mask = mask & (index < W[1] * offsets + 5)
    elif M == 2:
        mask = mask & (index >= W[1]) & (2 * index + offsets <= W[0] + 9)
    if W[2] == 1:
        tl.store(out_ptr + index * 2 + W[1], 1.0, mask=mask)
    elif W[2] == 2:
        first = tl.load(idx_ptr)
        for at in range(first, tl.load(idx_ptr + 1) + W[0], 3):
            tl.store(out_ptr + at + index, 1.0, mask=mask & (at + offsets < W[1]))
    elif W[2] == 3:
        pointers = out_ptr + index
        place = tl.program_id(0)
        for _ in range(W[0] * W[0]):
            tl.store(pointers + place, 1.0, mask=mask)
            pointers += W[1]
            place = tl.load(idx_ptr + (place & 7))
    else:
        if tl.load(idx_ptr + 2) < W[1]:  # noqa: SIM108 - a branch
            place = tl.load(idx_ptr + 3) + W[0]
        else:
            place = tl.max(index, 0)
        tl.store(out_ptr + place, 1.0)


STEPS = st.tuples(st.integers(0, 10), st.integers(-5, 5))
FARTHEST = 1 << 12
N = 14


@pytest.mark.slow
@given(
    steps=st.tuples(STEPS, STEPS, STEPS),
    mask=st.integers(0, 2),
    ways=st.tuples(st.integers(-3, 3), st.integers(-6, 6), st.integers(0, 3)),
    values=st.lists(st.integers(-6, 12), min_size=16, max_size=16),
    bounds=intervals(-2, 3),
)
@settings(max_examples=25, deadline=None, phases=[Phase.reuse, Phase.generate])  # shrinking compiles hundreds
def test_a_random_kernel_stays_in_the_least_memory_that_is_shown_to_hold_it(
    lab: kernellab.Lab, steps: Any, mask: int, ways: Any, values: list[int], bounds: tuple[int, int]
) -> None:
    low, high = min(values) + min(0, bounds[0]), max(values) + max(0, bounds[1])
    constants = {"A": steps[0], "B": steps[1], "C": steps[2], "M": mask, "W": ways}
    idx = torch.tensor(values, dtype=torch.int32)
    graph = lab.graph(walked, idx, torch.zeros(1), N, **constants)
    assume(depends_on_data(graph))  # else a trial says it all

    def is_shown(ahead: int, behind: int) -> bool:
        extents = {"idx_ptr": ArgumentMemory(0, 64, 64, 4), "out_ptr": ArgumentMemory(4 * ahead, 4 * behind, 0, 4)}
        try:
            require_contained(graph, KnownLaunch((2, 1, 1), {"n": N}, extents, {"idx_ptr": (low, high)}))
        except NotContained:
            return False
        return True

    assume(is_shown(FARTHEST, FARTHEST))
    ahead = _least(lambda size: is_shown(size, FARTHEST))
    behind = _least(lambda size: is_shown(FARTHEST, size))
    whole = torch.zeros(max(1, ahead + behind))
    assume(ahead < whole.numel())
    with warnings.catch_warnings():  # outside of the view is a warning, outside of the storage an error
        warnings.simplefilter("ignore")
        lab.bind(walked)[(2,)](idx, whole[ahead:], N, **constants)


def _least(holds: Any) -> int:
    low, high = 0, FARTHEST
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low
