"""Right kernels are not blamed: what a GPU leaves undefined, and promises, count where something depends on them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import triton
import triton.language as tl
from triton.language import max_contiguous, multiple_of

from kernellab.launch.run import Run
from tests.interpreter import planted
from tests.interpreter.bugs import block, integers

Launch = Callable[..., Run]


@triton.jit
def divides_where_it_may(x, y, out, total, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    divisors = tl.load(y + offs, mask=mask, other=0)
    quotients = tl.load(x + offs, mask=mask) // divisors
    even = mask & (divisors != 0) & (quotients % 2 == 0)
    tl.store(out + offs, tl.where(divisors != 0, quotients, -1), mask=mask)
    tl.atomic_add(total, tl.sum(even.to(tl.int32) + quotients * (divisors != 0)))


@triton.jit
def sums_quotients(x, y, out, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    quotients = tl.load(x + offs) // tl.load(y + offs)
    sums = tl.cumsum(quotients.to(tl.float32) * 2, 0)
    tl.store(out + offs, tl.reshape(sums, (BLOCK // 2, 2)).reshape(BLOCK))
    tl.store(out + BLOCK, tl.max(quotients, 0).to(tl.float32))


@triton.jit
def addresses_by_quotients(x, out, n):
    tl.store(out + tl.load(x) // n, 1)


@triton.jit
def loops_over_a_quotient(out, n):
    for _ in range(8 // n):
        tl.store(out, 1)


@triton.jit
def promises_what_holds(x, out, n, stride, BLOCK: tl.constexpr):
    stride = multiple_of(stride, 16)
    offs = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)) % n
    offs = tl.max_contiguous(tl.multiple_of(offs, BLOCK), BLOCK)
    rows = tl.max_constancy(tl.arange(0, BLOCK) // 4, 4)
    pointers = tl.multiple_of(x + offs[None, :], (1, 16))
    values = tl.load(pointers + (max_contiguous(tl.arange(0, 2), 2) * stride)[:, None])
    tl.store(out + offs, tl.sum(values, 0) + rows)


@triton.jit
def sums_of_wrapped_rows(x, out, m, n, ALL: tl.constexpr, BLOCK: tl.constexpr):
    rows, columns = tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    wrapped = tl.max_contiguous(tl.multiple_of(rows % m, BLOCK), BLOCK)
    values = tl.load(x + wrapped[:, None] * n + columns[None, :], mask=columns[None, :] < n, other=0.0)
    products = tl.dot(values, tl.trans(values), input_precision="ieee")
    sums = tl.sum(tl.where(rows[None, :] < m, products, 0.0), 1)
    tl.store(out + rows, sums, mask=(rows < m) | ALL)


@triton.jit
def copies_by_false_indices(x, out, ROTATED: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    places = tl.max_contiguous((offs + ROTATED) % BLOCK, BLOCK)
    tl.store(out + offs, tl.load(x + tl.max_contiguous(places * 1, BLOCK)))


@triton.jit
def promises_of_loaded_indices(index, x, out, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    places = tl.multiple_of(tl.load(index + offs), 4)
    tl.store(out + offs, tl.load(x + places))


@triton.jit
def groups_of_loaded_indices(index, x, out, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    places = tl.max_contiguous(tl.multiple_of(tl.load(index + offs), 4), 4)
    tl.store(out + offs, tl.load(x + places))


@triton.jit
def stores_what_atomics_return(counts, out, programs, lanes, BLOCK: tl.constexpr):
    pid, offs = tl.program_id(0), tl.arange(0, BLOCK)
    old = tl.atomic_add(counts + offs, 1, mask=(pid < programs) & (offs < lanes))
    tl.store(out + pid * BLOCK + offs, old)


@triton.jit
def uses_what_active_lanes_return(counts, out, lanes, BLOCK: tl.constexpr):
    pid, offs = tl.program_id(0), tl.arange(0, BLOCK)
    tickets = tl.atomic_add(counts + offs, 1, mask=offs < lanes)
    tl.store(out + pid * BLOCK + offs, tl.where(offs < lanes, tickets, -1))


def test_lanes_that_nothing_depends_on_may_be_undefined(launch: Launch) -> None:
    x, y, out, total = (integers(*values) for values in ((6,) * 12, (0, 1, 2) * 4, (0,) * 12, (0,)))
    run = launch(divides_where_it_may, (2,), x, y, out, total, 12, BLOCK=8)
    assert run.findings == ()
    assert out.tolist() == [-1, 6, 3] * 4
    assert total.item() == 4 * (6 + 3 + 1)


def test_what_is_undefined_is_followed_through_reductions_and_casts(launch: Launch) -> None:
    out = torch.zeros(9)
    run = launch(sums_quotients, (1,), integers(*range(8)), integers(1, 1, 1, 1, 1, 0, 1, 1), out, BLOCK=8)
    (finding,) = run.findings
    assert (finding.kind, finding.argument) == ("undefined_value", "out")
    assert "divided by zero" in finding.detail
    assert "(4 lanes of 1 program)" in finding.detail  # three sums and the maximum


@pytest.mark.parametrize("dtype", [torch.int32, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("programs", "lanes"), [(6, 64), (12, 32), (6, 32)])
def test_masked_lanes_of_an_atomic_return_zeros_that_may_not_be_stored(
    launch: Launch, programs: int, lanes: int, dtype: torch.dtype
) -> None:
    counts, out = torch.full((64,), 5, dtype=dtype), torch.full((12, 64), 9, dtype=dtype)
    (finding,) = launch(stores_what_atomics_return, (12,), counts, out, programs, lanes, BLOCK=64).findings
    assert (finding.kind, finding.argument) == ("undefined_value", "out")
    assert "what an atomic returns in a masked lane is undefined on a GPU" in finding.detail
    assert f"({12 * 64 - programs * lanes} lanes of {12 if lanes < 64 else 12 - programs} programs)" in finding.detail
    expected = torch.zeros(12, 64, dtype=dtype)
    expected[:programs, :lanes] = 5 + torch.arange(programs)[:, None].to(dtype)
    assert torch.equal(out, expected)


def test_what_active_lanes_of_an_atomic_return_may_be_stored(launch: Launch) -> None:
    counts, out = torch.zeros(64, dtype=torch.int32), torch.zeros(12, 64, dtype=torch.int32)
    assert launch(uses_what_active_lanes_return, (12,), counts, out, 32, BLOCK=64).findings == ()
    assert out[:, :32].unique(dim=1).flatten().tolist() == list(range(12))
    assert (out[:, 32:] == -1).all()


@pytest.mark.parametrize(
    ("kernel", "arguments", "use"),
    [
        (addresses_by_quotients, (integers(4), integers(0), 0), "the address of the store of out"),
        (loops_over_a_quotient, (integers(0), 0), "a branch or loop"),
    ],
)
def test_an_address_or_a_loop_by_an_undefined_number_is_found(
    launch: Launch, kernel: object, arguments: tuple[object, ...], use: str
) -> None:
    (finding,) = launch(kernel, (1,), *arguments).findings
    assert finding.kind == "undefined_value"
    assert use in finding.detail


def test_promises_that_hold_are_silent(launch: Launch) -> None:
    x, out = torch.zeros(128), torch.zeros(32)
    assert launch(promises_what_holds, (2,), x, out, 32, 64, BLOCK=16).findings == ()


def test_a_block_that_wraps_around_is_not_contiguous(launch: Launch) -> None:
    x, out = torch.zeros(128), torch.zeros(32)
    run = launch(promises_what_holds, (2,), x, out, 24, 64, BLOCK=16)
    assert ("false_promise", (1, 0, 0)) in {(f.kind, f.program) for f in run.findings}
    assert "0 comes after 23" in next(f.detail for f in run.findings if f.kind == "false_promise")


def test_rows_that_wrap_around_are_harmless_where_what_they_load_is_used_nowhere(launch: Launch) -> None:
    x = torch.randn(11, 16)
    out = torch.zeros(16)
    assert launch(sums_of_wrapped_rows, (1,), x, out, 11, 16, ALL=False, BLOCK=16).findings == ()
    (finding,) = launch(sums_of_wrapped_rows, (1,), x, out, 11, 16, ALL=True, BLOCK=16).findings
    assert finding.kind == "false_promise"
    assert finding.detail.startswith("tl.max_contiguous(16) does not hold: 0 comes after 10; the value of the store of")


def test_what_falsely_contiguous_indices_load_may_not_be_stored(launch: Launch) -> None:
    x, out = torch.arange(16.0), torch.zeros(16)
    assert launch(copies_by_false_indices, (1,), x, out, ROTATED=0, BLOCK=16).findings == ()
    run = launch(copies_by_false_indices, (1,), x, out, ROTATED=3, BLOCK=16)
    assert {finding.kind for finding in run.findings} == {"false_promise"}


def test_of_loaded_indices_each_has_to_be_a_multiple_unless_they_are_said_to_be_contiguous(launch: Launch) -> None:
    index, x, out = integers(0, 1, 2, 3, 8, 9, 10, 11), block(16), block(8)
    (finding,) = launch(promises_of_loaded_indices, (1,), index, x, out, BLOCK=8).findings
    assert finding.detail == "tl.multiple_of(4) does not hold: 1 is not a multiple (6 lanes of 1 program)"
    assert launch(groups_of_loaded_indices, (1,), index, x, out, BLOCK=8).findings == ()
    (finding,) = launch(groups_of_loaded_indices, (1,), index + 2, x, out, BLOCK=8).findings
    assert finding.detail == "tl.multiple_of(4) does not hold: 2 is not a multiple (2 lanes of 1 program)"


def test_rows_with_gaps_are_silent_where_the_mask_is_right(launch: Launch) -> None:
    x, out = block(4, 16)[:, :10], torch.zeros(4, 16)[:, :10]
    run = launch(planted.wrong_stride, (4,), x, out, 4, 10, 16, BLOCK=16)
    assert {f.argument for f in run.findings} == {"out"}  # whose rows it takes for contiguous
