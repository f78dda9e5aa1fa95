"""The line in which a NaN or an infinity of an output arose, and from which operands."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

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


def test_a_program_without_a_nan_has_no_births() -> None:
    with shared_lab(store=":memory:") as lab:
        values = lab.values(PLANTED[1].kernel, (4,), **PLANTED[1].arguments(), program=0)
    assert births_in(values) == ()
