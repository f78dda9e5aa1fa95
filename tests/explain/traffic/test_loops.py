"""Loops of which only the first rounds are followed: what is counted is scaled to all rounds."""

from __future__ import annotations

import pytest
import torch

from kernellab.explain.traffic.accesses import Trace
from kernellab.explain.traffic.launch import rows_of, trace_launch
from kernellab.explain.traffic.loops import control_of, loops_of
from kernellab.explain.traffic.parameters import RuntimeArgument, bind_arguments
from kernellab.ir.ptx import ptx_kernel
from tests.explain.traffic.test_trace import text

INNER = """
	mov.b32 %r2, 0;
$loop:
	st.global.b32 [%rd4], %r1;
	add.s64 %rd4, %rd4, 4;
	add.s32 %r2, %r2, 1;
	setp.lt.s32 %p1, %r2, ROUNDS;
	@%p1 bra $loop;
	st.global.b32 [%rd5], %r1;
"""
OUTER = """
	mov.b32 %r3, 0;
$outer:
INNER
	add.s32 %r3, %r3, 1;
	setp.lt.s32 %p2, %r3, 30;
	@%p2 bra $outer;
"""
LOADED = """
	ld.global.b32 %r4, [%rd4];
	mov.b32 %r2, 0;
$loop:
	st.global.b32 [%rd5], %r1;
	add.s32 %r2, %r2, 1;
	setp.lt.s32 %p1, %r2, %r4;
	@%p1 bra $loop;
"""


def traced(body: str, most_rounds: int | None) -> Trace:
    given = [RuntimeArgument(name, "*i32", torch.full((4096,), 50, dtype=torch.int32)) for name in ("x", "y")]
    launch = bind_arguments(ptx_kernel(text(body)), (3, 1, 1), given)
    return trace_launch(launch, most_rounds=most_rounds)


def counts(trace: Trace) -> list[tuple[int, int]]:
    return [(row.requests, row.sectors) for row in rows_of(trace)]


@pytest.mark.parametrize("rounds", [1, 7, 50, 1000])
def test_a_loop_cut_short_counts_all_its_rounds(rounds: int) -> None:
    body = INNER.replace("ROUNDS", str(rounds))
    cut, whole = traced(body, 8), traced(body, None)
    assert sum(requests for requests, _ in counts(cut)) == 3 * 2 * (rounds + 1)
    assert counts(cut) == [
        (requests, pytest.approx(sectors, rel=0.02)) for requests, sectors in counts(whole)
    ]  # fmt: skip


def test_loops_in_loops_are_cut_at_both_levels() -> None:
    body = OUTER.replace("INNER", INNER.replace("ROUNDS", "40"))
    cut = traced(body, 8)
    assert sum(requests for requests, _ in counts(cut)) == 3 * 2 * 30 * 41
    assert cut.runs.warps.sum() < 0.1 * traced(body, None).runs.warps.sum()


def test_a_loop_that_loaded_values_end_runs_to_its_end() -> None:
    kernel = ptx_kernel(text(LOADED))
    assert control_of(kernel) is None
    assert sum(requests for requests, _ in counts(traced(LOADED, 8))) == 3 * 2 * 51


def test_rounds_are_counted_without_computing_addresses() -> None:
    control = control_of(ptx_kernel(text(INNER.replace("ROUNDS", "9"))))
    assert control is not None
    steps = [step for block in control.steps for step in block if not (step.is_access or step.ends_block)]
    assert [step.instruction.opcode for step in steps] == ["mov.b32", "add.s32", "setp.lt.s32"]


def test_the_exit_of_a_loop_is_where_all_threads_continue() -> None:
    ((last, loop),) = loops_of(ptx_kernel(text(INNER.replace("ROUNDS", "9")))).items()
    assert (loop.first, loop.last, loop.exit) == (1, last, last + 1)


def test_short_loops_keep_the_coverage_of_arguments() -> None:
    body = INNER.replace("ROUNDS", "9")
    assert traced(body, 8).is_complete
    assert not traced(body.replace("9;", "90;"), 8).is_complete
