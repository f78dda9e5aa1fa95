"""What an explanation states as a count are the executions and lanes that happened, as traffic counts them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.explain.causes import Cause
from kernellab.explain.compiled_facts import runs_of
from kernellab.explain.explanation import Explanation, explain_facts
from kernellab.explain.facts import AccessFacts, AtomicFacts
from tests.explain.invariants import require_agreement
from tests.explain.test_rules import access, facts
from tests.labs import lab_fixture

lab = lab_fixture("cuda:90")
pytestmark = pytest.mark.slow


@triton.jit
def sum_own_rows(x_ptr, len_ptr, out_ptr, G, W, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    for g in range(G):
        if g % tl.num_programs(0) == pid:
            n = tl.load(len_ptr + g)
            acc = tl.zeros((BLOCK,), tl.float32)
            for s in range(0, n, BLOCK):
                i = s + tl.arange(0, BLOCK)
                acc += tl.load(x_ptr + g * W + i, mask=i < n, other=0.0)
            tl.store(out_ptr + g, tl.sum(acc, 0))


@triton.jit
def sum_filled_rows(x_ptr, len_ptr, out_ptr, G, W, BLOCK: tl.constexpr):
    acc = 0.0
    for g in range(G):
        n = tl.load(len_ptr + g)
        if n > 0:
            i = tl.arange(0, BLOCK)
            row = tl.load(x_ptr + g * W + i, mask=i < n, other=0.0)
            acc += tl.sum(row)
    tl.store(out_ptr + tl.program_id(0), acc)


@triton.jit
def sum_chunks(len_ptr, x_ptr, out_ptr, BLOCK: tl.constexpr):
    n = tl.load(len_ptr + tl.program_id(0))
    acc = 0.0
    for s in range(n):
        for j in range(4):
            row = tl.load(x_ptr + (s * 4 + j) * BLOCK + tl.arange(0, BLOCK))
            acc += tl.sum(row)
    tl.store(out_ptr + tl.program_id(0), acc)


@triton.jit
def sum_repeated(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    acc = tl.zeros((BLOCK,), tl.float32)
    for s in range(0, N, BLOCK):
        acc += tl.load(x_ptr + (s + tl.arange(0, BLOCK)) // 4)
    tl.store(out_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), acc)


@triton.jit
def sum_if_flagged(flag_ptr, x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    acc = tl.zeros((BLOCK,), tl.float32)
    if tl.load(flag_ptr) > 0:
        for s in range(0, N, BLOCK):
            acc += tl.load(x_ptr + s + tl.arange(0, BLOCK))
    tl.store(out_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), acc)


@triton.jit
def count_values(x_ptr, h_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x_ptr + i, mask=i < n)
    tl.atomic_add(h_ptr + value, 1, mask=i < n)


@triton.jit
def count_large(x_ptr, h_ptr, R):
    i = tl.arange(0, 64)
    for r in range(R):
        if tl.load(x_ptr + r) > 3:
            tl.atomic_add(h_ptr + i % 2, 1, mask=i < 50)


@triton.jit
def sum_every_second(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    acc = tl.zeros((BLOCK,), tl.float32)
    for s in range(N):
        acc += tl.load(x_ptr + tl.arange(0, BLOCK))
        if s % 2 == 0:
            acc += tl.load(x_ptr + BLOCK + tl.arange(0, BLOCK))
    tl.store(out_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), acc)


def load_of_x(why: Explanation) -> AccessFacts:
    (load,) = [a for a in why.facts.accesses if a.argument == "x_ptr" and a.operation == "load"]
    return load


def explain_rows(lab: kernellab.Lab, lengths: torch.Tensor) -> Explanation:
    rows = lengths.numel()
    why = lab.explain(
        sum_own_rows, (64,), torch.rand(rows, 1024), lengths.int(), torch.zeros(rows), rows, 1024, BLOCK=1024
    )
    require_agreement(why)
    return why


def texts(why: Explanation, cause: Cause) -> list[str]:
    return [finding.text for finding in why.findings if finding.cause is cause]


def test_masked_lanes_are_those_of_the_executed_rounds(lab: kernellab.Lab) -> None:
    for lengths in (torch.full((512,), 700), torch.where(torch.arange(512) % 16 == 0, 700, 0)):
        why = explain_rows(lab, lengths)
        assert load_of_x(why).lanes_off == pytest.approx(1 - 700 / 1024)
        assert not texts(why, Cause.MASKED)
    few = explain_rows(lab, torch.full((512,), 100))
    assert (
        "disables 90 % of the lanes: the block has 1,024 elements, about 100 in bounds" in texts(few, Cause.MASKED)[0]
    )


def test_rounds_are_counted_with_the_warps_that_a_mask_switches_off(lab: kernellab.Lab) -> None:
    why = explain_rows(lab, torch.full((512,), 700))
    assert (load_of_x(why).trips, load_of_x(why).knows_trips) == (8.0, True)
    assert "Each of 8 iterations waits for x_ptr" in texts(why, Cause.NO_PIPELINE)[0]


def test_a_reduction_under_a_branch_runs_as_often_as_its_loads(lab: kernellab.Lab) -> None:
    lengths = (torch.arange(64) % 2 * 300).int()
    why = lab.explain(sum_filled_rows, (256,), torch.rand(64, 1024), lengths, torch.zeros(256), 64, 1024, BLOCK=512)
    require_agreement(why)
    assert load_of_x(why).trips == why.facts.reductions[0].trips == 32
    assert "Each of 32 iterations reduces" in texts(why, Cause.REDUCTION)[0]


def test_the_rounds_of_an_unrolled_loop_are_counted_one_by_one(lab: kernellab.Lab) -> None:
    lengths = torch.full((256,), 12, dtype=torch.int32)
    why = lab.explain(sum_chunks, (256,), lengths, torch.rand(48 * 1024), torch.zeros(256), BLOCK=1024)
    require_agreement(why)
    assert load_of_x(why).trips == why.facts.reductions[0].trips == 48


def test_lanes_that_load_the_same_element_are_not_masked(lab: kernellab.Lab) -> None:
    why = lab.explain(sum_repeated, (16,), torch.rand(2048), torch.zeros(16 * 1024), 8192, BLOCK=1024)
    assert load_of_x(why).lanes_off == 0


def test_a_branch_that_no_program_takes_loads_nothing(lab: kernellab.Lab) -> None:
    flag = torch.zeros(1, dtype=torch.int32)
    why = lab.explain(sum_if_flagged, (64,), flag, torch.rand(8192), torch.zeros(64 * 1024), 8192, BLOCK=1024)
    require_agreement(why)
    assert [(a.argument, a.operation) for a in why.facts.accesses] == [("flag_ptr", "load"), ("out_ptr", "store")]
    assert not why.unknown


def updates_of(why: Explanation) -> float:
    (atomic,) = why.facts.atomics
    assert atomic.knows_updates
    return atomic.updates


def test_masked_lanes_update_nothing(lab: kernellab.Lab) -> None:
    x, h = torch.randint(0, 64, (10000,), dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    why = lab.explain(count_values, (10,), x, h, 10000, BLOCK=1024)
    assert updates_of(why) == 10000
    why = lab.explain(count_large, (100,), torch.arange(8, dtype=torch.int32), torch.zeros(2, dtype=torch.int32), 8)
    assert updates_of(why) == 100 * 4 * 50
    assert "20 k atomic updates of h_ptr" in texts(why, Cause.ATOMICS)[0]
    assert "at 2 addresses, 200 per program" in texts(why, Cause.ATOMICS)[0]


def test_updates_that_nobody_counted_are_not_told_as_a_number() -> None:
    guess = AtomicFacts(8, "out", 16e6, 1.0, knows_updates=False)
    (text,) = texts(explain_facts(facts(access(64), atomics=(guess,))), Cause.ATOMICS)
    assert text.startswith("Atomic updates of out in line 8 at one address; updates of one address are serialized.")


def test_a_loop_that_is_too_long_to_be_followed_has_all_its_rounds(lab: kernellab.Lab) -> None:
    arguments: dict[str, Any] = {"x_ptr": torch.rand(512), "out_ptr": torch.zeros(1024), "N": 8000}
    compiled = lab.compile(sum_every_second, **arguments, BLOCK=256)
    runs = runs_of(compiled.graph, arguments, (4, 1, 1))
    outer, inner = (operation for operation in compiled.graph.operations if operation.name == "tt.load")
    assert (runs.trips(outer), runs.knows(outer)) == (8000.0, True)
    assert not runs.knows(inner)
