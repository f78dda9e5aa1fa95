"""A second session with the same store: what is known is neither compiled nor timed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.errors import UsageError
from kernellab.target import Target
from kernellab.timing.bench import Bench
from kernellab.timing.config import Config
from kernellab.timing.launches import Launches
from kernellab.timing.provenance import Device
from kernellab.tune.options import Options
from kernellab.tune.result import Tuning
from kernellab.tune.run_tuning import Environment, MakeBench, tune_launches
from tests.tune.fakes import FakeBench

DEVICE = Device(Target("cuda", 90, 32), "NVIDIA H200", "580.1", {"device": "NVIDIA H200", "triton": "3.9.0"})
CONFIGS = [triton.Config({"ROWS": rows, "BLOCK": block}) for rows in (1, 2) for block in (64, 128)]
TIMES = {Config.from_triton(config): 1.0 + place / 10 for place, config in enumerate(CONFIGS)}
X, OUT = torch.zeros(300), torch.zeros(300)


@triton.jit
def scale(x_ptr, out_ptr, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    for row in range(ROWS):
        offsets = (tl.program_id(0) * ROWS + row) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * 2, mask=offsets < n)


def session(folder: Path, configs: list[triton.Config], make_bench: MakeBench) -> tuple[Tuning, bool]:
    """Tune in a lab of its own; return the tuning, and whether a compile worker ran."""
    with kernellab.Lab(target="cuda:90", store=folder) as lab:
        environment = Environment(lab.compiler, lab.kernels, DEVICE, make_bench)
        found = tune_launches(
            environment, Launches(scale, (3,), (X, OUT, 300), {}, environment.device.target), Options(configs)
        )
        return found, any(worker.pid for worker in lab.compiler.pool.workers)


def timing(launches: Launches, timeout_s: float, device: int | None) -> Bench:
    return FakeBench(TIMES)


def refusing(launches: Launches, timeout_s: float, device: int | None) -> Bench:
    return FakeBench(dict.fromkeys(TIMES, UsageError("nothing is to be timed")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def first(folder: Path) -> Tuning:
    found, compiled = session(folder, CONFIGS, timing)
    assert compiled
    assert not found.from_cache
    return found


@pytest.mark.slow
def test_a_known_list_is_neither_compiled_nor_timed(folder: Path, first: Tuning) -> None:
    again, compiled = session(folder, CONFIGS, refusing)
    assert again.from_cache
    assert not compiled
    assert again.best is first.best
    assert list(again.frame.columns) == list(first.frame.columns)
    assert list(again.frame.status) == ["ok"] * 4


@pytest.mark.slow
def test_the_order_of_the_list_is_that_of_the_table_and_does_not_change_the_winner(folder: Path, first: Tuning) -> None:
    again, _ = session(folder, CONFIGS[::-1], refusing)
    assert again.from_cache
    assert again.best is first.best
    assert [row.config for row in again.rows] == [Config.from_triton(config) for config in CONFIGS[::-1]]
