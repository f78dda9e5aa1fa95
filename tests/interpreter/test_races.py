"""Atomics order what programs do: what they order is silent, what they do not order is a race."""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl

from kernellab.launch.run import Run
from tests.interpreter.bugs import block, integers

Launch = Callable[..., Run]


@triton.jit
def last_program_sums_up(x, totals, counter, out, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.atomic_add(totals + offs, tl.load(x + offs), sem="relaxed")
    if tl.atomic_add(counter, 1) == n - 1:
        tl.store(out + offs, tl.load(totals + offs))
        tl.store(counter, 0)


@triton.jit
def last_of_each_tile(totals, counters, out, BLOCK: tl.constexpr):
    tile = tl.program_id(1)
    offs = tile * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(totals + offs, 1.0, sem="relaxed")
    if tl.atomic_add(counters + tile, 1) == tl.num_programs(0) - 1:
        tl.store(out + offs, tl.load(totals + offs))


@triton.jit
def counts_under_a_lock(lock, counter):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.atomic_add(counter, 1)
    tl.store(counter, tl.load(counter) + 1)
    tl.atomic_xchg(lock, 0)


@triton.jit
def adds_and_reads_its_own(x):
    tl.atomic_add(x + tl.program_id(0), 1.0)
    tl.store(x + tl.program_id(0), tl.load(x + tl.program_id(0)) + 1)


@triton.jit
def reads_before_others_add(x, out):
    if tl.program_id(0) == 0:
        tl.store(out, tl.load(x))
    else:
        tl.atomic_add(x, 1.0)


@triton.jit
def scattered(index, totals, out, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    places = tl.load(index + pid * BLOCK + tl.arange(0, BLOCK))
    tl.atomic_add(totals + places, 1, sem="relaxed")
    tl.store(out + pid * BLOCK + tl.arange(0, BLOCK), tl.load(totals + places))


def test_a_counter_orders_the_sums_before_the_last_program(launch: Launch) -> None:
    totals, counter, out = torch.zeros(8), integers(0), torch.zeros(8)
    assert launch(last_program_sums_up, (5,), block(8), totals, counter, out, 5, BLOCK=8).findings == ()
    assert torch.equal(out, 5 * block(8))
    assert counter.item() == 0


def test_a_counter_of_a_tile_orders_the_sums_of_that_tile(launch: Launch) -> None:
    totals, out = torch.zeros(24), torch.zeros(24)
    assert launch(last_of_each_tile, (4, 3), totals, integers(0, 0, 0), out, BLOCK=8).findings == ()
    assert (out == 4).all()


def test_a_lock_orders_atomics_and_plain_accesses(launch: Launch) -> None:
    counter = integers(0)
    assert launch(counts_under_a_lock, (4,), integers(0), counter).findings == ()
    assert counter.item() == 8


def test_a_program_may_read_what_it_alone_updates(launch: Launch) -> None:
    assert launch(adds_and_reads_its_own, (4,), torch.zeros(4)).findings == ()


def test_an_atomic_after_a_plain_load_of_another_program_is_a_race(launch: Launch) -> None:
    (finding,) = launch(reads_before_others_add, (3,), torch.zeros(1), torch.zeros(1)).findings
    assert (finding.kind, finding.severity, finding.argument) == ("race", "warning", "x")
    assert "program (1, 0, 0) updates element 0 of x, which program (0, 0, 0) read" in finding.detail


def test_scattered_updates_are_races_with_loads_however_many_sets_there_are(launch: Launch) -> None:
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(0, 512, (24 * 256,), generator=generator, dtype=torch.int32)
    run = launch(scattered, (24,), index, torch.zeros(512, dtype=torch.int32), torch.zeros_like(index), BLOCK=256)
    assert {(f.kind, f.argument) for f in run.findings} == {("race", "totals")}
