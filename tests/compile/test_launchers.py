"""Launchers in C, which some versions of Triton compile for each signature: while the kernel compiles."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import kernellab
from kernellab.target import parse_target
from tests import samples

X, OUT = torch.rand(64), torch.zeros(64)


class Builds:
    """The launchers that were built, by the types of their parameters, each with an ``error`` of Triton."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.signatures: list[dict[str, Any]] = []
        self.has_begun, self.may_end = threading.Event(), threading.Event()

    def build(self, signature: dict[str, Any], constants: tuple[tuple[int, ...], ...]) -> None:
        self.has_begun.set()
        assert self.may_end.wait(30)
        self.signatures.append(signature)
        if self.error is not None:
            raise self.error


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[kernellab.Lab]:
    with kernellab.Lab(store=tmp_path, target="cuda:90") as lab:
        yield lab


@pytest.mark.slow
@pytest.mark.parametrize(
    "error", [None, RuntimeError("Failed to find C compiler."), AssertionError("libcuda.so cannot found!")]
)
def test_the_launcher_of_a_new_signature_is_built_once_beside_the_kernel(
    fresh: kernellab.Lab, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    builds = Builds(error)
    monkeypatch.setattr("kernellab.compile.cache.build_launcher", builds.build)
    fresh.compiler.launches_on = parse_target("cuda:90")
    builds.may_end.set()
    for block in (16, 32):
        assert fresh.compile(samples.add_kernel, X, X, OUT, 64, BLOCK=block).binary
    assert [signature["x_ptr"] for signature in builds.signatures] == ["*fp32"]
    fresh.compile(samples.add_kernel, X.double(), X, OUT, 64, BLOCK=16)
    assert [signature["x_ptr"] for signature in builds.signatures] == ["*fp32", "*fp64"]


@pytest.mark.slow
def test_a_compiled_kernel_is_not_launched_before_its_launcher_is_there(
    fresh: kernellab.Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds = Builds()
    monkeypatch.setattr("kernellab.compile.cache.build_launcher", builds.build)
    fresh.compiler.launches_on = parse_target("cuda:90")
    threading.Timer(2.0, builds.may_end.set).start()
    fresh.compile(samples.add_kernel, X, X, OUT, 64, BLOCK=16)
    assert len(builds.signatures) == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_a_fork_waits_for_no_launcher_that_the_process_it_was_forked_from_compiles(
    fresh: kernellab.Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds = Builds()
    monkeypatch.setattr("kernellab.compile.cache.build_launcher", builds.build)
    fresh.compiler.launches_on = parse_target("cuda:90")
    compiling = threading.Thread(target=lambda: fresh.compile(samples.add_kernel, X, X, OUT, 64, BLOCK=16))
    compiling.start()
    assert builds.has_begun.wait(30)
    fork = multiprocessing.get_context("fork").Process(
        target=lambda: fresh.compile(samples.add_kernel, X, X, OUT, 64, BLOCK=32)
    )
    fork.start()
    fork.join(20)
    exit_code = fork.exitcode
    fork.kill()
    builds.may_end.set()
    compiling.join()
    assert exit_code == 0


@pytest.mark.slow
def test_a_kernel_for_another_target_gets_no_launcher(fresh: kernellab.Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    builds = Builds()
    monkeypatch.setattr("kernellab.compile.cache.build_launcher", builds.build)
    fresh.compiler.launches_on = parse_target("cuda:80")
    fresh.compile(samples.add_kernel, X, X, OUT, 64, BLOCK=16)
    assert builds.signatures == []
    builds.may_end.set()
    fresh.compile(samples.add_kernel, X, X, OUT, 64, BLOCK=16, target="cuda:80")
    assert len(builds.signatures) == 1
