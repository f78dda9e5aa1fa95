"""The default config of an export is that of the last launch, until a measured winner or the user replaces it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import triton

import kernellab
from kernellab._triton.kernel import jit_function
from kernellab.export.write import ExportContext, SessionKernel, compiled_launch
from kernellab.notebook.cell import CellOptions, run_cell
from kernellab.registry import recorded_version
from kernellab.registry.listing import search
from tests.labs import lab_fixture

SCALE = """
@triton.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, 3 * tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)
"""
LAUNCH = "scale[lambda meta: (triton.cdiv(n, meta['BLOCK']),)](x, out, n, BLOCK=128)\n"
CONFIGS = [triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64})]
lab = lab_fixture("cuda:80", "function")


def names() -> dict[str, Any]:
    return {"x": torch.rand(300), "out": torch.zeros(300), "n": 300}


def tune(lab: kernellab.Lab, scope: dict[str, Any]) -> None:
    def grid(meta: dict[str, Any]) -> tuple[int]:
        return (triton.cdiv(meta["n"], meta["BLOCK"]),)

    tuning = lab.tune(scope["scale"], grid, scope["x"], scope["out"], 300, configs=CONFIGS)
    assert tuning.best is not None


def run(lab: kernellab.Lab, text: str, scope: dict[str, Any], **options: Any) -> None:
    run_cell(lab, text, scope, "In[3]", CellOptions(**options), lambda value: None)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["module", "torch-op", "autotune"])
def test_a_tuning_without_a_gpu_leaves_the_launched_config_the_default(
    lab: kernellab.Lab, tmp_path: Path, kind: str
) -> None:
    scope = names()
    run(lab, SCALE + LAUNCH, scope)
    tune(lab, scope)
    lab.export("scale", tmp_path / "k.py", kind=kind)
    text = (tmp_path / "k.py").read_text()
    assert ("BLOCK: int = 128" if kind == "torch-op" else '"BLOCK": 128') in text
    assert "BLOCK: int = 32" not in text
    assert '"BLOCK": 32' not in text


@pytest.mark.slow
def test_the_report_compiles_the_launched_config(lab: kernellab.Lab, tmp_path: Path) -> None:
    scope = names()
    run(lab, SCALE + LAUNCH, scope)
    tune(lab, scope)
    recorded = recorded_version(lab.kernels.store, lab.kernels.version("scale"))
    live = SessionKernel(jit_function(lab.kernels["scale"]), lab.compile, "cpu", lab.compiler)
    context = ExportContext(lab.kernels.store, lab.compiler.folder, lambda *_: "", live)
    compiled = compiled_launch(context, recorded)
    assert compiled is not None
    assert "tensor<128x" in compiled.ttir
    assert "tensor<32x" not in compiled.ttir
    (row,) = search(lab.kernels.store, "scale").rows
    assert (row.launches, row.runs) == (1, 0)


def test_what_was_compiled_alone_leaves_the_launched_config_the_default(lab: kernellab.Lab, tmp_path: Path) -> None:
    scope = names()
    run(lab, SCALE + LAUNCH, scope)
    run(lab, LAUNCH.replace("128", "64"), scope, run=False)
    lab.export("scale", tmp_path / "k.py")
    assert '"BLOCK": 128' in (tmp_path / "k.py").read_text()


@pytest.mark.slow
def test_a_launch_after_a_tuning_sets_the_default(lab: kernellab.Lab, tmp_path: Path) -> None:
    scope = names()
    run(lab, SCALE, scope)
    tune(lab, scope)
    lab.export("scale", tmp_path / "k.py")
    assert '"BLOCK": 32' in (tmp_path / "k.py").read_text()  # nothing was launched: what the tuning would launch
    lab.run(scope["scale"], (5,), scope["x"], scope["out"], 300, BLOCK=64)
    lab.export("scale", tmp_path / "k.py")
    assert '"BLOCK": 64' in (tmp_path / "k.py").read_text()
    run(lab, LAUNCH, scope)
    tune(lab, scope)
    lab.export("scale", tmp_path / "k.py")
    assert '"BLOCK": 128' in (tmp_path / "k.py").read_text()
