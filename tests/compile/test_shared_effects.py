"""Launches that differ only in options which do not enter TTIR share one entry of effects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra import cuda

import kernellab
from kernellab.compile.entries import EFFECTS
from kernellab.source import INTEGER_OPTIONS
from tests import samples
from tests.labs import shared_lab

X, OUT = torch.zeros(1024), torch.zeros(1024)
ADD = {"x_ptr": X, "y_ptr": torch.zeros(1024), "out_ptr": OUT, "n": 1000, "BLOCK": 256}
ONE_ENTRY, TWO_ENTRIES = 1, 2


@triton.jit
def warps_asked(x_ptr, out_ptr):
    if cuda.num_warps() == 8:
        tl.store(x_ptr, 1.0)
    else:
        tl.store(out_ptr, 1.0)


@triton.jit
def threads_asked_by(x_ptr, out_ptr):
    if cuda.num_threads() == 256:
        tl.store(x_ptr, 1.0)
    else:
        tl.store(out_ptr, 1.0)


@triton.jit
def threads_asked(x_ptr, out_ptr):
    threads_asked_by(x_ptr, out_ptr)


@triton.jit
def warps_as_a_parameter(x_ptr, out_ptr, num_warps: tl.constexpr):
    if num_warps == 8:
        tl.store(x_ptr, 1.0)
    else:
        tl.store(out_ptr, 1.0)


@gluon.jit
def warps_of_gluon(x_ptr, out_ptr):
    if gl.num_warps() == 8:
        gl.store(x_ptr, 1.0)
    else:
        gl.store(out_ptr, 1.0)


def entries(store: Path) -> int:
    return len(list(store.rglob(EFFECTS)))


@pytest.mark.parametrize("name", INTEGER_OPTIONS)
def test_an_option_that_no_one_reads_for_ttir_asks_no_worker_again(tmp_path: Path, name: str) -> None:
    with shared_lab(store=tmp_path) as lab:
        first = lab.effects(samples.add_kernel, **ADD)
    with kernellab.Lab(store=tmp_path) as lab:
        assert lab.effects(samples.add_kernel, **ADD, **{name: 2}) == first
        assert all(worker.pid is None for worker in lab._pool.workers)
    assert entries(tmp_path) == ONE_ENTRY


@pytest.mark.parametrize("kernel", [warps_asked, threads_asked, warps_as_a_parameter, warps_of_gluon])
def test_a_kernel_that_reads_the_number_of_warps_has_effects_for_each(tmp_path: Path, kernel: Any) -> None:
    with shared_lab(store=tmp_path) as lab:
        for _ in range(2):
            assert lab.effects(kernel, X, OUT, num_warps=4).writes == {"out_ptr"}
            assert lab.effects(kernel, X, OUT, num_warps=8).writes == {"x_ptr"}
    assert entries(tmp_path) == TWO_ENTRIES


def test_a_kernel_that_reads_its_warps_shares_nothing_with_other_stages_either(tmp_path: Path) -> None:
    with shared_lab(store=tmp_path) as lab:
        assert lab.effects(warps_asked, X, OUT, num_warps=8, num_stages=2).writes == {"x_ptr"}
        assert lab.effects(warps_asked, X, OUT, num_warps=8, num_stages=3).writes == {"x_ptr"}
    assert entries(tmp_path) == TWO_ENTRIES


def test_another_block_has_an_entry_of_its_own(tmp_path: Path) -> None:
    with shared_lab(store=tmp_path) as lab:
        for block in (128, 256):
            lab.effects(samples.add_kernel, **{**ADD, "BLOCK": block})
    assert entries(tmp_path) == TWO_ENTRIES
