"""Kernel files: where they lie, how many kernels they have, what their ``arguments`` is told."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernellab import cli
from kernellab.cli.parser import value_of
from tests.cli.conftest import Call
from tests.labs import shared_lab

OPS = """\
import torch
import triton
import triton.language as tl

from .constants import tripled


@triton.autotune(configs=[triton.Config({"BLOCK": block}) for block in (64, 128)], key=["n"])
@triton.jit
def scale_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tripled(tl.load(x_ptr + offsets, mask=mask)), mask=mask)


@triton.jit
def fill_kernel(out_ptr, BLOCK: tl.constexpr):
    tl.store(out_ptr + tl.arange(0, BLOCK), 1.0)


def arguments(kernel, device, n=200):
    out = torch.zeros(n, device=device)
    if kernel == "fill_kernel":
        return (1,), [out], {"BLOCK": 128}
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
    return grid, {"x_ptr": torch.ones(n, device=device), "out_ptr": out, "n": n}, {}
"""
CONSTANTS = """\
import triton

@triton.jit
def tripled(value):
    return 3 * value
"""


@pytest.fixture
def package(tmp_path: Path) -> str:
    folder = tmp_path / "kernels_of_test"
    folder.mkdir()
    for name, text in {"__init__": "", "ops": OPS, "constants": CONSTANTS}.items():
        (folder / f"{name}.py").write_text(text)
    return "kernels_of_test/ops.py"


@pytest.mark.slow
def test_a_file_of_a_package_has_its_relative_imports_and_several_kernels(kernellab: Call, package: str) -> None:
    scaled = kernellab("run", f"{package}::scale_kernel", "--check", "3 * x_ptr", "--json").json
    assert (scaled["grid"], scaled["equals"]) == ([4, 1, 1], "3 * x_ptr")
    filled = kernellab("run", f"{package}::fill_kernel", "--json").json
    assert filled["changed"] == {"out_ptr": 128}
    several = kernellab("run", package)
    assert several.status == cli.WRONG_CALL
    assert "scale_kernel, fill_kernel" in several.err
    for name in [name for name in sys.modules if name.startswith("kernels_of_test")]:
        del sys.modules[name]


@pytest.mark.slow
def test_an_autotuned_kernel_of_a_file_is_tuned_over_its_own_configs(kernellab: Call, package: str) -> None:
    rows = kernellab("tune", f"{package}::scale_kernel", "--json").json["rows"]
    assert [row["BLOCK"] for row in rows] == [64, 128]
    for name in [name for name in sys.modules if name.startswith("kernels_of_test")]:
        del sys.modules[name]


@pytest.mark.slow
def test_a_file_that_is_called_like_a_module_of_python_stands_in_for_none(kernellab: Call) -> None:
    Path("random.py").write_text(Path("add.py").read_text())
    words = [sys.executable, "-m", "kernellab", "compile", "random.py::add_kernel", "--stage", "ttir"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "@add_kernel" in done.stdout


def test_what_an_output_cannot_encode_is_no_error(kernellab: Call) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    with contextlib.redirect_stdout(out):
        status = cli.main(["compile", "add.py"], open_lab=shared_lab)
    assert status == 0
    assert b"registers" in out.buffer.getvalue()  # type: ignore[attr-defined]
    assert os.linesep.encode() in out.buffer.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "value"),
    [("4096", 4096), ("2**20", 1048576), ("0.5", 0.5), ("True", True), ("(1, 2)", (1, 2)), ("float16", "float16")],
)
def test_values_are_literals_powers_or_texts(text: str, value: object) -> None:
    assert value_of(text) == value
