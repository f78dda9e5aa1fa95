"""Predictions of launches whose programs differ in length: the longest decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.explain.facts import MAY_MISS_LONGEST

WIDTH = 16384
SHORT, PROGRAMS = 200, 512


@triton.jit
def sum_of_length(x_ptr, length_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    length = tl.load(length_ptr + row)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, length, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * width + i, mask=i < length, other=0.0)
    tl.store(out_ptr + row, tl.sum(total, 0))


@triton.jit
def sum_of_largest_length(x_ptr, length_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    length = tl.max(tl.load(length_ptr + row + tl.zeros((BLOCK,), tl.int32)), 0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, length, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * width + i, mask=i < length, other=0.0)
    tl.store(out_ptr + row, tl.sum(total, 0))


@triton.jit
def sum_of_triangle(x_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, (row + 1) * BLOCK, BLOCK):
        total += tl.load(x_ptr + row * width + start + tl.arange(0, BLOCK))
    tl.store(out_ptr + row, tl.sum(total, 0))


def _call(lengths: Sequence[int]) -> tuple[Any, ...]:
    count = len(lengths)
    lengths_of_rows = torch.tensor(lengths, dtype=torch.int32)
    return (count,), torch.empty(count, WIDTH), lengths_of_rows, torch.empty(count), WIDTH


def _one_long(place: int) -> list[int]:
    return [WIDTH if row == place else SHORT for row in range(PROGRAMS)]


@pytest.fixture(scope="module")
def lab() -> Any:
    with kernellab.Lab("h100", store=":memory:") as lab:
        yield lab


@pytest.mark.parametrize("place", [PROGRAMS // 2, PROGRAMS - 1])
def test_launch_takes_no_less_than_the_latency_of_its_one_long_program(lab: Any, place: int) -> None:
    alone = lab.predict(sum_of_length, *_call([WIDTH]), BLOCK=256, device="h100")
    launch = lab.predict(sum_of_length, *_call(_one_long(place)), BLOCK=256, device="h100")
    assert launch.terms["latency"] >= 0.99 * alone.terms["latency"]
    assert launch.time_ms == pytest.approx(alone.time_ms, rel=0.1)
    assert launch.bound == "latency"
    assert launch.unknown == ()


def test_launch_of_growing_programs_takes_no_less_than_its_last_one(lab: Any) -> None:
    alone = lab.predict(sum_of_length, *_call([WIDTH]), BLOCK=256, device="h100")
    launch = lab.predict(sum_of_length, *_call(range(256, WIDTH + 1, 256)), BLOCK=256, device="h100")
    assert launch.time_ms >= alone.time_ms


def test_longest_program_is_found_by_program_id(lab: Any) -> None:
    arguments = torch.empty(1024, 1), torch.empty(1024), 0
    prediction = lab.predict(sum_of_triangle, (1024,), *arguments, BLOCK=256, device="h100")
    assert prediction.unknown == ()
    assert max(prediction.facts.longest.values()) == pytest.approx(1024 / 512.5, rel=0.01)


def test_programs_that_are_alike_have_no_longest(lab: Any) -> None:
    prediction = lab.predict(sum_of_length, *_call([SHORT] * PROGRAMS), BLOCK=256, device="h100")
    assert prediction.facts.longest == {}


def test_tuning_ranks_by_the_long_program(lab: Any) -> None:
    configs = [triton.Config({"BLOCK": block}, num_warps=4) for block in (128, 1024)]
    tuning = lab.tune(sum_of_length, *_call(_one_long(PROGRAMS // 2)), configs=configs)
    assert tuning.best.kwargs["BLOCK"] == 1024
    assert MAY_MISS_LONGEST not in tuning.notes


def test_prediction_and_tuning_say_where_a_longer_program_may_be_missed(lab: Any) -> None:
    call = _call(_one_long(PROGRAMS // 2))
    prediction = lab.predict(sum_of_largest_length, *call, BLOCK=256, device="h100")
    assert MAY_MISS_LONGEST in prediction.unknown
    assert prediction.high_ms > 2 * prediction.time_ms
    tuning = lab.tune(sum_of_largest_length, *call, configs=[triton.Config({"BLOCK": block}) for block in (128, 256)])
    assert MAY_MISS_LONGEST in tuning.notes
