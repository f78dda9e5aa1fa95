"""Tolerances that a specification states for its outputs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from kernellab.checking.comparison import ExpectedValue, wrong_elements
from kernellab.errors import UsageError
from kernellab.judge.judging import judge
from kernellab.judge.specification import ALL_OUTPUTS, Tolerance, tolerances_of, with_tolerance
from kernellab.judge.verdict import Verdict
from tests.judge.files import HEAD, write

SPECIFICATION = """
import torch

sizes = {"shown": [{"m": 16, "n": 32}], "hidden": [{"m": 5, "n": 48}]}
distributions = ("normal", "uniform")
tolerance = {"rtol": 0.07, "atol": 0.02}


def inputs(generator, m, n):
    return {"x": torch.randn(m, n, generator=generator)}


def reference(x):
    return x * 2
"""

ROUNDED = (
    HEAD
    + """

@triton.jit
def twice(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + offsets, mask=mask).to(tl.float8e4nv).to(tl.float32)
    tl.store(out + offsets, value * 2, mask=mask)


def solve(x):
    out = torch.empty_like(x)
    n = x.numel()
    twice[(triton.cdiv(n, 256),)](x, out, n, BLOCK=256)
    return out
"""
)


def judged(folder: Path, candidate: str, specification: str = SPECIFICATION) -> Verdict:
    return judge(*write(folder, specification, candidate), time=False, seed=1)


def test_a_tolerance_is_relative_to_the_element_not_to_the_largest():
    want = torch.tensor([1.0, 100.0, math.inf, math.nan, -2.0])
    allowed = Tolerance(0.1, 0.01).allowed_error(want)
    assert torch.allclose(allowed, torch.tensor([0.11, 10.01, 0.01, 0.01, 0.21], dtype=torch.float64))


def test_the_bound_is_the_larger_one_of_tolerance_and_own_bound():
    got = torch.tensor([1.05, 1.11, 1.4, 1.6])
    errors = torch.tensor([0.0, 0.0, 0.5, 0.5], dtype=torch.float64)
    expected = ExpectedValue(torch.ones(4, dtype=torch.float64), errors)
    assert wrong_elements(got, expected).tolist() == [True, True, False, True]
    assert wrong_elements(got, with_tolerance(got, expected, Tolerance(0.1))).tolist() == [False, True, False, True]


def test_without_bounds_of_its_own_an_integer_output_may_be_off_by_the_tolerance():
    got = torch.tensor([3, 4, 6], dtype=torch.int8)
    expected = ExpectedValue(torch.tensor([3, 3, 4], dtype=torch.int8))
    assert wrong_elements(got, expected).tolist() == [False, True, True]
    assert wrong_elements(got, with_tolerance(got, expected, Tolerance(0.0, 1.0))).tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("value", "dtype", "want"),
    [
        (math.nan, torch.float8_e4m3fn, 300.0),
        (math.nan, torch.float16, 5e4),
        (math.inf, torch.float16, 5e4),
        (-math.inf, torch.float32, 3e38),
    ],
)
def test_no_tolerance_accepts_nan_or_infinity_in_place_of_a_number(value, dtype, want):
    got = torch.tensor([value]).to(dtype)
    expected = ExpectedValue(torch.tensor([want], dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
    assert wrong_elements(got, with_tolerance(got, expected, Tolerance(0.9))).tolist() == [True]


def test_zeros_are_accepted_only_where_every_element_is_small():
    assert Tolerance(0.5, 1.0).accepts_zeros(torch.tensor([0.5, -1.0]))
    assert not Tolerance(0.5, 1.0).accepts_zeros(torch.tensor([0.5, 3.0]))
    assert not Tolerance(0.5, 1.0).accepts_zeros(torch.tensor([0.0, 0.0]))
    assert not Tolerance(0.99).accepts_zeros(torch.tensor([1e30, 1e-30]))


@pytest.mark.parametrize(
    ("value", "tolerances"),
    [
        (None, {}),
        (0.05, {ALL_OUTPUTS: Tolerance(0.05)}),
        ({"rtol": 0.05, "atol": 1}, {ALL_OUTPUTS: Tolerance(0.05, 1.0)}),
        ({"output": 0.1, "scale": {"atol": 0.2}}, {"output": Tolerance(0.1), "scale": Tolerance(0.0, 0.2)}),
    ],
)
def test_tolerances_are_read_for_all_outputs_or_by_name(value, tolerances):
    assert tolerances_of(value, "spec.py") == tolerances


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("loose", "tolerance in spec.py is 'loose'; expected a number such as 0.05"),
        (True, "tolerance in spec.py is True; expected a number"),
        ({}, "tolerance of spec.py is {} .dict.; expected a number"),
        ({"output": {"rel": 0.1}}, "tolerance of output in spec.py is {'rel': 0.1} .dict.; expected"),
        ({"output": {}}, "tolerance of output in spec.py is {} .dict.; expected"),
        ({"rtol": 0.1, "output": 0.1}, "expected a number such as"),
        (1.0, "rtol is 1 in tolerance of spec.py; expected 0 or more and less than 1"),
        (-0.1, "rtol is -0.1"),
        (math.nan, "rtol is nan"),
        ({"output": {"atol": math.inf}}, "atol is inf in tolerance of output of spec.py; expected a finite number"),
        (0, "is 0; leave it out"),
    ],
)
def test_a_wrong_tolerance_is_a_wrong_specification(value, message):
    with pytest.raises(UsageError, match=message):
        tolerances_of(value, "spec.py")


@pytest.mark.slow
def test_a_candidate_that_rounds_to_fp8_is_accepted_with_a_tolerance_alone(tmp_path):
    verdict = judged(tmp_path, ROUNDED)
    assert verdict.is_accepted, verdict.reasons
    (note,) = [note for note in verdict.notes if "tolerance" in note]
    assert note.startswith("output has the tolerance of the specification, rtol 0.07, atol 0.02")
    assert note.endswith("runs needed it")
    strict = SPECIFICATION.replace('tolerance = {"rtol": 0.07, "atol": 0.02}\n', "")
    assert judged(tmp_path, ROUNDED, strict).verdict == "wrong"


@pytest.mark.slow
def test_an_exact_candidate_needs_no_tolerance_and_the_verdict_says_so(tmp_path):
    exact = ROUNDED.replace(".to(tl.float8e4nv).to(tl.float32)", "")
    assert any(note.endswith("no run needed it") for note in judged(tmp_path, exact).notes)


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        ("value * 2", "value * 2.2"),
        ("value * 2", "tl.where(tl.abs(value) > 1.0, value * 2, 0.0)"),
        ("value * 2", "value * 0"),
        ("value * 2", "tl.where(offsets % 37 == 5, 0.0, value * 2)"),
        ("mask = offsets < n\n", "mask = offsets < n - 1\n"),
    ],
)
def test_a_tolerance_does_not_accept_another_factor_zeros_or_lost_elements(tmp_path, change):
    verdict = judged(tmp_path, ROUNDED.replace(*change))
    assert verdict.verdict == "wrong"
    assert verdict.reasons[0].rule == "values"
    assert "(the specification states rtol 0.07, atol 0.02)" in verdict.reasons[0].detail


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tolerance", "message"),
    [
        ({"atol": 100}, "accepts zeros in place of all of output .* its atol is 100"),
        ({"out": 0.1}, "tolerance of spec.py names 'out', which is not an output; the outputs: output"),
    ],
)
def test_a_tolerance_of_zeros_or_of_no_output_is_a_wrong_specification(tmp_path, tolerance, message):
    with pytest.raises(UsageError, match=message):
        judged(tmp_path, ROUNDED, f"{SPECIFICATION}\n\ntolerance = {tolerance}\n")
