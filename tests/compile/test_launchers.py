"""Launchers in C, which some versions of Triton compile for each signature: while the kernel compiles."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import kernellab
from kernellab.compile.worker import build_launcher_of
from kernellab.errors import WorkerError
from kernellab.target import parse_target
from tests import samples

X, OUT = torch.rand(64), torch.zeros(64)


class Jobs:
    """The jobs of a pool; that of a launcher fails where ``fails``."""

    def __init__(self, run: Callable[..., Any], *, fails: bool = False) -> None:
        self.run_job, self.fails = run, fails
        self.launchers: list[Any] = []
        self.may_end = threading.Event()

    def run(self, job: Any, *limits: Any, **more: Any) -> Any:
        if job.handler is not build_launcher_of:
            return self.run_job(job, *limits, **more)
        assert self.may_end.wait(30)
        self.launchers.append(job.payload)
        if self.fails:
            raise WorkerError("no compiler")
        return None


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[kernellab.Lab]:
    with kernellab.Lab(store=tmp_path, target="cuda:90") as lab:
        yield lab


@pytest.mark.slow
@pytest.mark.parametrize("fails", [False, True])
def test_the_launcher_of_a_new_signature_is_built_once_beside_the_kernel(
    fresh: kernellab.Lab, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    jobs = Jobs(fresh.compiler.pool.run, fails=fails)
    monkeypatch.setattr(fresh.compiler.pool, "run", jobs.run)
    fresh.compiler.launches_on = parse_target("cuda:90")
    jobs.may_end.set()
    for block in (16, 32):
        assert fresh.compile(samples.add_kernel, X, X, OUT, 64, BLOCK=block).binary
    assert [dict(job.signature)["x_ptr"] for job in jobs.launchers] == ["*fp32"]
    fresh.compile(samples.add_kernel, X.double(), X, OUT, 64, BLOCK=16)
    assert [dict(job.signature)["x_ptr"] for job in jobs.launchers] == ["*fp32", "*fp64"]


@pytest.mark.slow
def test_a_compiled_kernel_is_not_launched_before_its_launcher_is_there(
    fresh: kernellab.Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = Jobs(fresh.compiler.pool.run)
    monkeypatch.setattr(fresh.compiler.pool, "run", jobs.run)
    fresh.compiler.launches_on = parse_target("cuda:90")
    threading.Timer(2.0, jobs.may_end.set).start()
    fresh.compile(samples.add_kernel, X, X, OUT, 64, BLOCK=16)
    assert len(jobs.launchers) == 1


@pytest.mark.slow
def test_a_kernel_for_another_target_gets_no_launcher(fresh: kernellab.Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Jobs(fresh.compiler.pool.run)
    monkeypatch.setattr(fresh.compiler.pool, "run", jobs.run)
    fresh.compiler.launches_on = parse_target("cuda:80")
    fresh.compile(samples.add_kernel, X, X, OUT, 64, BLOCK=16)
    assert jobs.launchers == []
    jobs.may_end.set()
    fresh.compile(samples.add_kernel, X, X, OUT, 64, BLOCK=16, target="cuda:80")
    assert len(jobs.launchers) == 1
