"""The C launcher built ahead is the one that a launch would compile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import kernellab
from kernellab._triton.drivers import build_launcher, compiled_from_files, compiles_launchers, specialization_of
from kernellab.compile.entries import triton_files
from kernellab.compile.types import compile_job
from kernellab.target import parse_target
from tests import samples

X = torch.rand(64)

pytestmark = pytest.mark.skipif(not compiles_launchers(), reason="this Triton compiles no launchers")


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The source texts of launchers that Triton is to compile, in order."""
    from triton.backends.nvidia import driver as nvidia

    texts: list[str] = []

    def compile_module(src: str, **more: Any) -> Any:
        texts.append(src)
        return SimpleNamespace(launch=None)

    monkeypatch.setattr(nvidia, "compile_module_from_src", compile_module)
    monkeypatch.setattr(nvidia, "library_dirs", list)
    return texts


@pytest.mark.parametrize("n", [64, 1])
def test_it_has_the_text_of_a_launch(lab: kernellab.Lab, sources: list[str], n: int) -> None:
    from triton.backends.nvidia.driver import CudaLauncher

    arguments = (X, X, torch.zeros(64), n)
    job = compile_job(samples.add_kernel, parse_target("cuda:90"), arguments, {"BLOCK": 16})
    constants = tuple(path for path, _ in job.constants)
    build_launcher(dict(job.signature), constants)
    compiled = lab.compile(samples.add_kernel, *arguments, BLOCK=16, target="cuda:90")
    handle = compiled_from_files(triton_files(compiled), compiled.digest, dict(job.signature), constants)
    assert specialization_of(handle) == (dict(job.signature), constants)
    CudaLauncher(handle.src, handle.metadata)
    first, second = sources
    assert first == second


def test_one_of_a_descriptor_is_left_to_the_launch(sources: list[str]) -> None:
    build_launcher({"a": "tensordesc<fp16[16, 16]>"}, [])
    assert sources == []
