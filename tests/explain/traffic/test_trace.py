"""Programs written in PTX: threads that part and meet, loops, loads that nothing uses."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernellab.explain.traffic.accesses import Trace
from kernellab.explain.traffic.launch import trace_launch
from kernellab.explain.traffic.parameters import RuntimeArgument, bind_arguments
from kernellab.explain.traffic.relevance import relevance_of
from kernellab.ir.ptx import ptx_kernel

HEADER = """
.version 8.7
.target sm_90a
.visible .entry kernel(
	.param .u64 .ptr .global .align 1 kernel_param_0,
	.param .u64 .ptr .global .align 1 kernel_param_1
)
.reqntid THREADS
{
	ld.param.b64 %rd1, [kernel_param_0];
	ld.param.b64 %rd2, [kernel_param_1];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd3, %r1, 4;
	add.s64 %rd4, %rd1, %rd3;
	add.s64 %rd5, %rd2, %rd3;
"""


def text(body: str, threads: int = 64) -> str:
    return HEADER.replace("THREADS", str(threads)) + body + "\n\tret;\n}\n"


def run(body: str, threads: int = 64, programs: int = 1, x: torch.Tensor | None = None) -> Trace:
    given = [
        RuntimeArgument("x", "*i32", torch.zeros(4096, dtype=torch.int32) if x is None else x),
        RuntimeArgument("y", "*i32", torch.zeros(4096, dtype=torch.int32)),
    ]
    kernel = ptx_kernel(text(body, threads))
    return trace_launch(bind_arguments(kernel, (programs, 1, 1), given))


def requests(trace: Trace) -> list[int]:
    return [access.count.requests for access in trace.accesses]


def test_a_guard_leaves_out_warps_without_active_threads() -> None:
    trace = run("setp.lt.u32 %p1, %r1, 40;\n@%p1 st.global.b32 [%rd4], %r1;", threads=128)
    (store,) = trace.accesses
    assert (store.count.requests, store.count.sectors, store.count.lanes, store.count.lanes_off) == (2, 5, 40, 24)


def test_threads_that_part_meet_again() -> None:
    body = """
	and.b32 %r2, %r1, 1;
	setp.eq.u32 %p1, %r2, 0;
	@%p1 bra $even;
	st.global.b32 [%rd4], %r1;
	bra.uni $done;
$even:
	st.global.b32 [%rd4+4096], %r1;
$done:
	st.global.b32 [%rd5], %r1;"""
    trace = run(body)
    assert requests(trace) == [2, 2, 2]
    assert [access.count.lanes for access in trace.accesses] == [32, 32, 64]


def test_threads_leave_a_loop_one_by_one() -> None:
    body = """
	mov.u32 %r2, 0;
$loop:
	st.global.b32 [%rd4], %r2;
	add.s32 %r2, %r2, 1;
	setp.le.u32 %p1, %r2, %r1;
	@%p1 bra $loop;
	st.global.b32 [%rd5], %r2;"""
    trace = run(body, threads=32, programs=3)
    assert requests(trace) == [3 * 32, 3]
    assert trace.accesses[0].count.lanes == 3 * sum(range(1, 33))


def test_threads_that_end_early_do_no_more() -> None:
    body = "setp.lt.u32 %p1, %r1, 32;\n@%p1 ret;\nst.global.b32 [%rd4], %r1;"
    assert requests(run(body)) == [1]


def test_a_branch_to_the_next_block_needs_no_condition() -> None:
    body = "setp.lt.u32 %p1, %r1, 32;\n@%p1 bra $next;\n$next:\nst.global.b32 [%rd4], %r1;"
    trace = run(body)
    assert (requests(trace), trace.unknown) == ([2], {})


def test_programs_take_ways_of_their_own() -> None:
    body = """
	mov.u32 %r2, %ctaid.x;
	setp.gt.u32 %p1, %r2, 2;
	@%p1 bra $done;
	st.global.b32 [%rd4], %r1;
$done:
	st.global.b32 [%rd5], %r1;"""
    assert requests(run(body, programs=10)) == [6, 20]


def test_a_load_that_nothing_uses_is_left_out() -> None:
    trace = run("ld.global.b32 %r2, [%rd4];\nadd.s32 %r3, %r2, 1;\nst.global.b32 [%rd5], %r1;")
    assert [access.operation for access in trace.accesses] == ["store"]
    kept = run("ld.volatile.global.b32 %r2, [%rd4];\nst.global.b32 [%rd5], %r1;")
    assert [access.operation for access in kept.accesses] == ["load", "store"]


def test_a_branch_without_accesses_is_not_followed() -> None:
    body = """
	mov.u32 %r2, %clock;
	setp.gt.u32 %p1, %r2, 100;
	@%p1 bra $done;
	add.s32 %r3, %r2, 1;
$done:
	st.global.b32 [%rd4], %r3;"""
    trace = run(body)
    assert requests(trace) == [2]
    assert not trace.unknown
    assert relevance_of(ptx_kernel(text(body))).skipped == {0: 2}


def test_a_branch_on_a_clock_is_unknown() -> None:
    body = """
	mov.u32 %r2, %clock;
	setp.gt.u32 %p1, %r2, 100;
	@%p1 bra $done;
	st.global.b32 [%rd4], %r1;
$done:
	st.global.b32 [%rd5], %r1;"""
    trace = run(body)
    assert len(trace.unknown) == 1
    assert "%clock" in next(iter(trace.unknown))[1]


def test_values_travel_through_shuffles_and_shared_memory() -> None:
    body = """
	shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;
	shl.b32 %r3, %r1, 2;
	st.shared.b32 [%r3], %r2;
	bar.sync 0;
	ld.shared.b32 %r4, [%r3];
	mul.wide.u32 %rd6, %r4, 128;
	add.s64 %rd7, %rd1, %rd6;
	st.global.b32 [%rd7], %r1;"""
    trace = run(body, threads=32)
    (store,) = [access for access in trace.accesses if access.space == "global"]
    assert store.count.sectors == 32
    assert store.example is not None
    assert store.example.offsets[:4] == (128, 0, 384, 256)


def test_warps_reduce_and_vote() -> None:
    body = """
	redux.sync.add.s32 %r2, %r1, -1;
	setp.lt.u32 %p1, %r1, 3;
	vote.sync.ballot.b32 %r3, %p1, -1;
	add.s32 %r4, %r2, %r3;
	mul.wide.u32 %rd6, %r4, 4;
	add.s64 %rd7, %rd1, %rd6;
	st.global.b32 [%rd7], %r1;"""
    (store,) = run(body, threads=32).accesses
    assert store.example is not None
    assert store.example.offsets[0] == 4 * (sum(range(32)) + 0b111)


def test_loaded_values_decide_what_is_touched() -> None:
    x = torch.from_numpy(np.arange(4096, dtype=np.int32) % 7)
    body = "ld.global.b32 %r2, [%rd4];\nsetp.eq.u32 %p1, %r2, 3;\n@%p1 st.global.b32 [%rd5], %r1;"
    trace = run(body, x=x)
    assert trace.accesses[1].count.lanes == int((x[:64] == 3).sum())


@pytest.mark.slow
def test_waiting_for_another_program_ends_and_says_so() -> None:
    body = """
$wait:
	atom.global.cas.b32 %r2, [%rd1], 0, 1;
	setp.ne.u32 %p1, %r2, 0;
	@%p1 bra $wait;
	atom.global.exch.b32 %r3, [%rd1], 0;"""
    trace = run(body, threads=1, programs=4)
    assert trace.accesses[1].count.requests == 4
    assert any("spin until another one is done" in reason for _, reason in trace.unknown)


def test_threads_choose_between_parameters_by_their_addresses() -> None:
    body = """
	mov.b32 %r2, kernel_param_0;
	mov.b32 %r3, kernel_param_1;
	and.b32 %r4, %r1, 1;
	setp.eq.u32 %p1, %r4, 0;
	selp.b32 %r5, %r2, %r3, %p1;
	ld.param.b64 %rd6, [%r5];
	add.s64 %rd7, %rd6, %rd3;
	ld.global.b32 %r6, [%rd7];
	st.global.b32 [%rd5+8192], %r6;"""
    trace = run(body)
    load, store = trace.accesses
    assert not trace.unknown
    assert (load.count.requests, load.count.sectors, load.count.lanes) == (2, 16, 64)
    assert (store.count.requests, store.count.sectors) == (2, 8)


def test_numbers_of_floating_point_decide_what_is_touched() -> None:
    body = """
	cvt.rn.f32.u32 %r2, %r1;
	mul.f32 %r3, %r2, 0f41000000;
	neg.f32 %r4, %r3;
	abs.f32 %r5, %r4;
	setp.lt.f32 %p1, %r5, 0f43000000;
	cvt.rzi.u32.f32 %r6, %r5;
	mul.wide.u32 %rd6, %r6, 4;
	add.s64 %rd7, %rd1, %rd6;
	@%p1 st.global.b32 [%rd7], %r1;"""
    (store,) = run(body).accesses
    assert (store.count.requests, store.count.lanes, store.count.sectors) == (1, 16, 16)
