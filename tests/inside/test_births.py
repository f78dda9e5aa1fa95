"""The line in which a NaN or an infinity of an output arose, and from which operands."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from kernellab.inside.births import births_in, explain_births
from tests.inside import planted_nan
from tests.inside.planted_nan import PLANTED, PlantedNan
from tests.labs import shared_lab


def planted_line(planted: PlantedNan) -> int:
    """The line that ends in ``# born``, of the kernel or of the helper before it."""
    lines, first = inspect.getsourcelines(planted_nan)
    _, start = inspect.getsourcelines(planted.kernel.fn)
    end = start + len(inspect.getsourcelines(planted.kernel.fn)[0])
    begin = start - 6 if planted.kernel is planted_nan.in_a_helper else start
    return next(number for number in range(begin, end) if lines[number - 1 - first].rstrip().endswith("# born"))


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_the_line_where_a_nan_is_born_is_named_with_its_operands(planted: PlantedNan) -> None:
    arguments = planted.arguments()
    with shared_lab(store=":memory:") as lab:
        with lab.launches.recording() as recorder:
            lab.bind(planted.kernel)[planted.grid](**arguments)
        (record,) = recorder.records.values()
        sentence = explain_births(lab.session(), record)
    assert sentence is not None
    assert f"line {planted_line(planted)}: " in sentence, sentence
    assert planted.says in sentence


def test_there_are_twenty_plants() -> None:
    assert len({planted.name for planted in PLANTED}) == 20


def explained(planted: PlantedNan, **changed: Any) -> str | None:
    with shared_lab(store=":memory:") as lab:
        with lab.launches.recording() as recorder:
            lab.bind(planted.kernel)[planted.grid](**{**planted.arguments(), **changed})
        return explain_births(lab.session(), next(iter(recorder.records.values())))


def test_nothing_is_said_where_no_output_has_a_nan_or_an_input_has_one() -> None:
    planted = PLANTED[1]
    assert explained(planted, x=torch.ones(32)) is None
    assert explained(planted, x=torch.full((32,), torch.nan)) is None


def test_both_the_infinity_and_the_nan_that_follows_are_named() -> None:
    sentence = explained(PLANTED[6])
    assert sentence is not None
    assert sentence.index("exp(120) is inf in fp32") < sentence.index("inf / inf is NaN in fp32")
    assert "program (2, 0, 0)" in sentence


@triton.jit
def log_of_ratio(x, out, B: tl.constexpr):
    offsets = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + offsets)
    tl.store(out + offsets, value * tl.log(1.0 - value))


@triton.jit
def column_sums(x, out, n, B: tl.constexpr):
    columns = tl.arange(0, B)
    value = tl.load(x + tl.program_id(0) * n + columns, mask=columns < n, other=1.0)
    tl.atomic_add(out + columns, tl.log(value), mask=columns < n)


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [(-1.0, "log(-1) is NaN in fp32 (program (1, 0, 0))"), (2.0, None)],
    ids=["log of a negative", "none"],
)
def test_sums_by_atomics_are_explained_by_the_program_with_the_nan_and_stay_as_they_are(
    bad: float, sentence: str | None
) -> None:
    x, out = torch.full((3, 8), 2.0), torch.zeros(8)
    x[1, 4] = bad
    plant = PlantedNan(column_sums, lambda: {"x": x, "out": out, "n": 8, "B": 8}, "", (3,))
    said = explained(plant)
    assert sentence is None if said is None else str(sentence) in said
    torch.testing.assert_close(out, torch.log(x).sum(0), equal_nan=True)


def test_finite_operands_that_add_up_to_infinity_are_said() -> None:
    x = torch.full((3, 8), 2.0)
    plant = PlantedNan(powers_summed, lambda: {"x": x, "out": torch.zeros(8), "B": 8}, "", (3,))
    assert "the operands of its atomics have none, but add up to it" in str(explained(plant))


@triton.jit
def powers_summed(x, out, B: tl.constexpr):
    columns = tl.arange(0, B)
    tl.atomic_add(out + columns, tl.load(x + tl.program_id(0) * B + columns) * 1e38)


def test_a_nan_that_is_loaded_is_not_born_there() -> None:
    with shared_lab(store=":memory:") as lab:
        x, out = torch.full((8,), torch.nan), torch.zeros(8)
        values = lab.values(column_sums, (1,), x, out, 8, 8)
    assert [birth.event for birth in births_in(values)] == [None]


def test_a_negative_infinity_has_its_sign() -> None:
    plant = PlantedNan(log_of_ratio, lambda: {"x": torch.ones(32), "out": torch.zeros(32), "B": 8}, "")
    assert "log(0) is -inf in fp32" in str(explained(plant))


def test_a_program_without_a_nan_has_no_births() -> None:
    with shared_lab(store=":memory:") as lab:
        values = lab.values(PLANTED[1].kernel, (4,), **PLANTED[1].arguments(), program=0)
    assert births_in(values) == ()
