"""A tuning that goes to another process, which measures on its GPU."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest
import torch
import triton
import triton.language as tl

import kernellab

pytestmark = pytest.mark.gpu


@triton.jit
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * 2, mask=offsets < n)


def test_a_lab_that_times_nothing_lets_a_process_with_a_gpu_measure() -> None:
    own = kernellab.Lab(store=":memory:").target
    other = "cuda:80" if str(own) != "cuda:80" else "cuda:90"
    n = 1 << 16
    x, out = torch.rand(n), torch.zeros(n)
    configs = [triton.Config({"BLOCK": block}) for block in (256, 1024)]
    spawned = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
    with spawned as executor, kernellab.Lab(target=other, store=":memory:") as lab:
        how = {"configs": configs, "executor": executor, "check": lambda x_ptr: {"out_ptr": 2 * x_ptr}}
        tuning = lab.tune(double, lambda meta: (triton.cdiv(n, meta["BLOCK"]),), x, out, n, **how)
        again = lab.tune(double, lambda meta: (triton.cdiv(n, meta["BLOCK"]),), x, out, n, **how)
    assert list(tuning.frame.status) == ["ok", "ok"]
    assert tuning.provenance["device"] == torch.cuda.get_device_name()
    assert tuning.provenance["target"] == str(own)
    assert again.from_cache
    assert not out.any()
