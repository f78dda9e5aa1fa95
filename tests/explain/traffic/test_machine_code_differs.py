"""What the machine code does to accesses of PTX: it is counted, or said to be unknown."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

import kernellab
from kernellab.explain.traffic.assembler import assembled_kernel
from kernellab.explain.traffic.counting import atomic_count
from kernellab.explain.traffic.machine_code import CodeLine, code_lines, differences
from kernellab.explain.traffic.result import Traffic, TrafficRow
from kernellab.ir.ptx import PtxKernel, ptx_kernel
from tests.explain.traffic import kernels
from tests.explain.traffic.test_assembler import HEADER


def row_of(traffic: Traffic, operation: str, argument: str) -> TrafficRow:
    (found,) = [row for row in traffic.rows if (row.operation, row.argument) == (operation, argument)]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8])
def test_repeated_loads_under_a_mask_stay_as_the_machine_code_has_them(lab: kernellab.Lab, dtype: torch.dtype) -> None:
    n = 16384
    x, y = torch.zeros(n // 4, dtype=dtype), torch.zeros(n)
    traffic = lab.traffic(kernels.spreads, (16,), x, y, n, TIMES=4, BLOCK=1024)
    assert row_of(traffic, "load", "x").requests == 512  # four of each lane
    assert not traffic.unknown


@pytest.mark.slow
def test_loads_that_ptxas_joins_in_its_own_way_are_unknown(lab: kernellab.Lab) -> None:
    x, y = torch.zeros(4096), torch.zeros(4096)
    compiled = lab.compile(kernels.loads_with_and_without_a_mask, x, y, 4096, BLOCK=1024)
    loads = [line for line in compiled.sass.splitlines() if "LDG" in line]
    traffic = lab.traffic(kernels.loads_with_and_without_a_mask, (4,), x, y, 4096, BLOCK=1024)
    if len(loads) < 4:  # ptxas took one of both
        assert any("in the machine code" in each.reason for each in traffic.unknown)
    else:
        assert not traffic.unknown


@pytest.mark.slow
def test_threads_that_collide_unevenly_are_said_to_be_unknown(lab: kernellab.Lab) -> None:
    generator = torch.Generator().manual_seed(0)
    uneven = torch.randint(0, 16, (4096,), generator=generator, dtype=torch.int32)
    even, apart = torch.arange(4096, dtype=torch.int32) % 8, torch.arange(4096, dtype=torch.int32)
    told = [collisions_of(lab, index) for index in (uneven, even, apart)]
    assert [len(each) for each in told] == [1, 0, 0]
    assert "more often than others" in told[0][0]


def collisions_of(lab: kernellab.Lab, index: torch.Tensor) -> list[str]:
    x, y = torch.zeros(4096), torch.zeros(4096)
    return [str(each) for each in lab.traffic(kernels.adds_at, (4,), index, x, y, BLOCK=1024).unknown]


def test_even_collisions_are_told_from_uneven_ones() -> None:
    lanes = torch.arange(32).numpy()[None, :]
    assert atomic_count(4 * (lanes % 8), None, 4).uneven == 0
    assert atomic_count(0 * lanes, None, 4).uneven == 0
    assert atomic_count(4 * (lanes % 5), None, 4).uneven == 1
    assert atomic_count(4 * (lanes % 8), lanes < 12, 4).uneven == 1
    assert atomic_count(64 * (lanes % 5), None, 4).uneven == 0  # each in a sector of its own


@pytest.mark.slow
def test_integers_that_go_to_one_address_are_added_up_by_the_warp(lab: kernellab.Lab) -> None:
    for dtype, sectors in ((torch.int32, 128), (torch.float32, 128 * 32)):
        x, y = torch.zeros(4096, dtype=dtype), torch.zeros(1, dtype=dtype)
        arguments: tuple[Any, ...] = (x, y, 4096)
        compiled = lab.compile(kernels.adds_to_one, *arguments, BLOCK=1024)
        assert ("REDUX" in compiled.sass) == (dtype is torch.int32)
        atomic = row_of(lab.traffic(kernels.adds_to_one, (4,), *arguments, BLOCK=1024), "atomic", "y")
        assert (atomic.requests, atomic.sectors) == (128, sectors)


@pytest.mark.slow
def test_an_atomic_that_is_a_loop_in_the_machine_code_is_unknown(lab: kernellab.Lab) -> None:
    x, y, index = torch.zeros(1024).bfloat16(), torch.zeros(1024).bfloat16(), torch.arange(1024, dtype=torch.int32)
    arguments = (index, x, y)
    retries = "CAS" in lab.compile(kernels.adds_at, *arguments, BLOCK=1024).sass
    told = [each.reason for each in lab.traffic(kernels.adds_at, (1,), *arguments, BLOCK=1024).unknown]
    assert any("until it succeeds" in each for each in told) == retries


TWO_LOADS = """
.loc 1 5 0
ld.global.b32 %r8, [%rd1];
ld.global.b32 %r9, [%rd1+4];
.loc 1 6 0
st.global.b32 [%rd1], %r8;
st.global.b32 [%rd1+4], %r9;
"""
LOOP = TWO_LOADS.replace(".loc 1 5 0", "$L__BB0_1:\n.loc 1 5 0") + "setp.lt.s32 %p1, %r8, 3;\n@%p1 bra $L__BB0_1;"


def kernel_of(body: str) -> PtxKernel:
    return assembled_kernel(ptx_kernel('.file 1 "k.py"\n' + HEADER + body + "\n\tret;\n}\n"))


def sass_of(loads: int, stores: int = 2) -> dict[int | None, CodeLine]:
    return {
        5: CodeLine(Counter({("load", 4): loads})),
        6: CodeLine(Counter({("store", 4): stores})),
    }


def told(body: str, code: dict[int | None, CodeLine], executed: range = range(64)) -> list[tuple[int | None, str]]:
    return differences(kernel_of(body), executed, code)


def test_machine_code_with_other_accesses_is_unknown() -> None:
    assert told(TWO_LOADS, sass_of(2)) == []
    assert told(TWO_LOADS, sass_of(3)) == [(5, "load of 4 bytes: 3 in the machine code, 2 counted")]
    assert [line for line, _ in told(TWO_LOADS, sass_of(1))] == [5]


def test_what_no_thread_executed_may_be_missing_from_the_machine_code() -> None:
    assert told(TWO_LOADS, sass_of(0), range(0)) == []


def test_rounds_that_are_written_out_are_no_difference() -> None:
    assert told(LOOP, sass_of(8, 8)) == []
    assert [line for line, _ in told(LOOP, sass_of(7, 8))] == [5]


def test_loads_that_only_wait_are_no_accesses() -> None:
    lines = (
        "        /*05b0*/              @!PT LDS RZ, [RZ] ;",
        "        /*05c0*/              @!P4 LDG.E.U16 R15, desc[UR6][R6.64+0x2] ;",
        "        /*05d0*/                   VOTEU.ANY UR4, UPT, PT ;",
        "        /*05e0*/                   ATOMG.E.CAS.STRONG.GPU PT, R25, [R12], R24, R25 ;",
    )
    found = code_lines((line, 7) for line in lines)[7]
    assert found.accesses == Counter({("load", 2): 1, ("atomic", 0): 1})
    assert (found.votes, found.retries) == (True, True)
