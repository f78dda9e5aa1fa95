"""What a kernel asks the device for, on a machine that has none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import smid as imported_smid

from kernellab import Lab
from kernellab.errors import RunError

PROGRAMS = 200


@triton.jit
def smid_kernel(out_ptr):  # type: ignore[no-untyped-def]
    tl.store(out_ptr + tl.program_id(0) + 100 * tl.program_id(1), tl.extra.cuda.smid())


@triton.jit
def imported_smid_kernel(out_ptr):  # type: ignore[no-untyped-def]
    tl.store(out_ptr + tl.program_id(0) + 100 * tl.program_id(1), imported_smid())


@triton.jit
def register_kernel(out_ptr):  # type: ignore[no-untyped-def]
    smid = tl.inline_asm_elementwise("mov.u32 $0, %smid;", "=r", [], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(out_ptr + tl.program_id(0) + 100 * tl.program_id(1), smid)


@triton.jit
def count_kernel(out_ptr):  # type: ignore[no-untyped-def]
    tl.store(out_ptr, tl.inline_asm_elementwise("mov.u32 $0, %nsmid;", "=r", [], dtype=tl.int32, is_pure=True, pack=1))


@triton.jit
def timer_kernel(out_ptr):  # type: ignore[no-untyped-def]
    tl.store(out_ptr + tl.program_id(0), tl.extra.cuda.globaltimer())


@triton.jit
def warps_kernel(out_ptr):  # type: ignore[no-untyped-def]
    tl.store(out_ptr, tl.extra.cuda.num_warps())
    tl.store(out_ptr + 1, tl.extra.cuda.num_threads())


@triton.jit
def lane_kernel(out_ptr):  # type: ignore[no-untyped-def]
    tl.store(out_ptr, tl.inline_asm_elementwise("mov.u32 $0, %laneid;", "=r", [], dtype=tl.int32, is_pure=True, pack=1))


@triton.jit
def library_kernel(out_ptr):  # type: ignore[no-untyped-def]
    tl.store(out_ptr, tl.extra.cuda.libdevice.brev(tl.program_id(0)))


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [smid_kernel, imported_smid_kernel, register_kernel])
def test_programs_take_turns_on_the_multiprocessors_that_the_device_is_said_to_have(lab: Lab, kernel: Any) -> None:
    found, count = torch.full((PROGRAMS,), -1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    run = lab.run(kernel, (100, 2), found)
    lab.run(count_kernel, (1,), count)
    assert found.tolist() == [number % count.item() for number in range(PROGRAMS)]
    assert any("SM number" in note for note in run.notes)


def test_the_timer_only_grows(lab: Lab) -> None:
    found = torch.zeros(PROGRAMS, dtype=torch.int64)
    lab.run(timer_kernel, (PROGRAMS,), found)
    assert found[0] > 0
    assert (found.diff() >= 0).all()


@pytest.mark.parametrize("warps", [1, 8])
def test_a_kernel_is_told_its_warps_and_threads(lab: Lab, warps: int) -> None:
    found = torch.zeros(2, dtype=torch.int32)
    lab.run(warps_kernel, (1,), found, num_warps=warps)
    assert found.tolist() == [warps, 32 * warps]


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "said"), [(lane_kernel, "inline assembly"), (library_kernel, "__nv_brev")])
def test_what_cannot_be_modelled_is_told_in_a_sentence(lab: Lab, kernel: Any, said: str) -> None:
    with pytest.raises(RunError, match=rf"the CPU interpreter cannot run .*{said}\. It runs on a GPU"):
        lab.run(kernel, (1,), torch.zeros(1, dtype=torch.int32))
