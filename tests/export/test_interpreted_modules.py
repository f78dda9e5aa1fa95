"""Exported files under TRITON_INTERPRET=1: they give what the kernel gave, or say why Triton's interpreter cannot."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import kernellab
from kernellab.errors import UsageError
from tests.export.exporting import run_files
from tests.export.test_module import cell
from tests.labs import lab_fixture

HEAD = "offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n    x = tl.load(x_ptr + offsets, mask=offsets < n)"
GRID = 'lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)'
lab = lab_fixture("cuda:90", "function")


def kernel(name: str, value: str, given: str = "a, c, n, BLOCK=128", *, more: str = "", above: str = "") -> str:
    return f"""
{above}
@triton.jit
def {name}(x_ptr, out_ptr, n{more}, BLOCK: tl.constexpr):
    {HEAD}
    tl.store(out_ptr + offsets, {value}, mask=offsets < n)

{name}[{GRID}]({given})
"""


def launch_and_export(lab: kernellab.Lab, folder: Path, name: str, text: str, *kinds: str, **names: Any) -> list[Path]:
    files = []
    cell(lab, text, **{"a": torch.linspace(-1, 1, 300), "c": torch.zeros(300), "n": 300, **names})
    for kind in kinds or ("module", "autotune", "torch-op"):
        files.append(folder / f"{name}_{kind.replace('-', '_')}.py")
        lab.export(name, files[-1], kind=kind)
    return files


def is_checked(files: list[Path]) -> None:
    result = run_files(*files)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("outputs match those at export") == len(files)


@pytest.mark.slow
def test_a_float64_kernel_passes_its_own_check(lab: kernellab.Lab, tmp_path: Path) -> None:
    double = {"a": torch.linspace(-1, 1, 300, dtype=torch.float64), "c": torch.zeros(300, dtype=torch.float64)}
    files = launch_and_export(lab, tmp_path, "third", kernel("third", "tl.exp(x) / 3"), "module", "torch-op", **double)
    is_checked(files)


@pytest.mark.slow
def test_heuristics_over_an_autotuner_run_with_its_first_config(lab: kernellab.Lab, tmp_path: Path) -> None:
    above = '@triton.heuristics({"EVEN": lambda a: a["n"] % 2 == 0})\n@triton.autotune([CONFIGS], key=["n"])'
    configs = 'triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128}, num_warps=2)'
    text = kernel("even", "x + EVEN", "a, c, n", more=", EVEN: tl.constexpr", above=above.replace("CONFIGS", configs))
    files = launch_and_export(lab, tmp_path, "even", text)
    assert "triton.Config(" in files[1].read_text()
    is_checked(files)


@pytest.mark.slow
def test_scalars_that_are_true_or_false_reach_the_kernel(lab: kernellab.Lab, tmp_path: Path) -> None:
    text = kernel("flagged", "tl.where(flag, 2 * x, 0.0)", "a, c, n, True, BLOCK=128", more=", flag")
    is_checked(launch_and_export(lab, tmp_path, "flagged", text))


CALLS = """\
import sys
sys.path.insert(0, {folder!r})
import importlib
for name in {names}:
    module = importlib.import_module(name)
    for call in (lambda: module.launch(**module.inputs("cpu")), lambda: module.check("cpu")):
        try:
            call()
        except NotImplementedError as exc:
            print(name, "refused:", exc)
"""
CANNOT = {
    "narrow": ("2 * x + 1", "cannot compute bfloat16 and float8"),
    "rounded": ("x.to(tl.bfloat16).to(tl.float32)", "cannot compute bfloat16 and float8"),
    "foreign": ("libdevice.sinh(x)", "has no libdevice"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["module", "torch-op"])
def test_what_triton_cannot_interpret_is_refused_by_each_function(
    lab: kernellab.Lab, tmp_path: Path, kind: str
) -> None:
    names = {}
    for name, (value, why) in CANNOT.items():
        above = "from triton.language.extra import libdevice" if name == "foreign" else ""
        tensors = {each: torch.zeros(300, dtype=torch.bfloat16) for each in "ac"} if name == "narrow" else {}
        (file,) = launch_and_export(lab, tmp_path, name, kernel(name, value, above=above), kind, **tensors)
        names[file.stem] = why
        text = file.read_text()
        assert why in text.split('"""')[1]
        assert "TRITON_INTERPRET=1 python" not in text
    (tmp_path / "calls.py").write_text(CALLS.format(folder=str(tmp_path), names=list(names)))
    result = run_files(tmp_path / "calls.py")
    assert result.returncode == 0, result.stderr
    for name, why in names.items():
        assert len(re.findall(rf"{name} refused: Triton's interpreter {why}: this needs a GPU", result.stdout)) == 2


@pytest.mark.slow
def test_a_parameter_called_grid_is_no_grid(lab: kernellab.Lab, tmp_path: Path) -> None:
    text = kernel("moved", "x + grid * FACTOR", "a, c, n, 2, 3, BLOCK=128", more=", FACTOR: tl.constexpr, grid")
    (file,) = launch_and_export(lab, tmp_path, "moved", text, "module")
    assert "launch_grid=None" in file.read_text()
    is_checked([file])


@pytest.mark.slow
def test_tensors_without_elements_are_not_one_tensor(lab: kernellab.Lab, tmp_path: Path) -> None:
    empty = {"a": torch.zeros(0), "c": torch.zeros(0), "n": 0}
    text = kernel("none", "x").replace(GRID, "(1,)")
    (file,) = launch_and_export(lab, tmp_path, "none", text, "module", **empty)
    assert "out_ptr = x_ptr" not in file.read_text()
    is_checked([file])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["device", "generator", "RECORD", "META", "shadowed"])
def test_a_parameter_with_a_name_of_the_module_is_told_and_not_checked(
    lab: kernellab.Lab, tmp_path: Path, name: str
) -> None:
    text = kernel("shadowed", f"x * {name}", "a, c, n, 2, BLOCK=128", more=f", {name}")
    (file,) = launch_and_export(lab, tmp_path, "shadowed", text, "module")
    assert f"It has a parameter called {name}" in file.read_text()
    result = run_files(file)
    assert (result.returncode, result.stderr) == (0, "")
    with pytest.raises(UsageError, match=f"It has a parameter called {name}; --as module can"):
        lab.export("shadowed", tmp_path / "op.py", kind="torch-op")
