"""Runtime that are to run on the CPU although the lab claims to have a GPU; here it has the offline driver still."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.errors import OutOfBounds
from kernellab.launch.runtime import Runtime
from tests.labs import shared_lab

N = 512


@triton.jit
def doubled(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


@triton.jit
def shifted(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets + 1), mask=offsets < n)


class WithGpu(Runtime):
    """The launches of a lab with a GPU; ``tuned`` counts how often it was to choose a config for it."""

    tuned = 0

    def is_offline(self) -> bool:
        return False

    def best_config(self, kernel: Any, args: tuple[Any, ...], meta: dict[str, Any]) -> Any:
        self.tuned += 1
        return kernel.configs[-1]


@pytest.fixture
def lab() -> Iterator[kernellab.Lab]:
    with shared_lab("cuda:90", ":memory:") as opened:
        own = opened.launches
        opened._launches = WithGpu(**{field.name: getattr(own, field.name) for field in fields(own) if field.init})
        yield opened


def grid(meta: dict[str, int]) -> tuple[int, ...]:
    return (triton.cdiv(N, meta["BLOCK"]),)


@pytest.mark.slow
def test_it_runs_there_and_changes_the_tensors(lab: kernellab.Lab) -> None:
    x = torch.ones(N)
    run = lab.run(doubled, grid, x, N, BLOCK=128, interpret=True)
    assert (run.where, run.grid, run.changed) == ("interpreter", (4, 1, 1), {"x_ptr": N})
    assert x.eq(2).all()


@pytest.mark.slow
def test_a_read_out_of_bounds_is_found(lab: kernellab.Lab) -> None:
    out = torch.zeros(N)
    with pytest.raises(OutOfBounds, match="x_ptr"):
        lab.run(shifted, grid, torch.ones(N), out, N, BLOCK=128, interpret=True)
    assert not out.any()


def test_an_empty_grid_runs_nothing(lab: kernellab.Lab) -> None:
    x = torch.ones(N)
    run = lab.run(doubled, (0,), x, N, BLOCK=128, interpret=True)
    assert (run.grid, run.changed) == ((0, 1, 1), {})
    assert x.eq(1).all()


@pytest.mark.slow
def test_an_autotuned_kernel_runs_once_in_a_config_that_fits_and_is_tuned_by_the_next_launch(
    lab: kernellab.Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    configs = [triton.Config({"BLOCK": size}) for size in (64, 128)]
    kernel = lab.bind(triton.autotune(configs, key=["n"], cache_results=True)(doubled))
    x = torch.ones(N)
    with lab.launches.recording(interpret=True) as recorder:
        kernel[grid](x, N)
    (record,) = recorder.records.values()
    assert (record.launches, record.grid) == (1, (8, 1, 1))
    assert x.eq(2).all()
    launches: Any = lab.launches
    assert launches.tuned == 0
    assert not kernel.cache
    assert not list(tmp_path.rglob("*.autotune.json"))
    kernel.nargs = {"x_ptr": x, "n": N}
    assert kernel.prune_configs({"grid": grid}) == [kernel.configs[-1]]
    assert launches.tuned == 1
