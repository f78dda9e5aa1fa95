"""Exported files on a GPU: they run natively, and PyTorch's compiler looks into the operators."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import kernellab
from kernellab.errors import UsageError
from tests.export.binary_cases import export_launch, run_without_triton, special_cases, suite_cases
from tests.export.exporting import export_case, run_files
from tests.export.test_module import SCALE, cell, tensors
from tests.export.test_torch_op import MEMBERS, TRACED, TWIN
from tests.kernels.cases import all_cases
from tests.labs import lab_fixture

pytestmark = pytest.mark.gpu
CASES = all_cases()
WITHOUT_HEURISTIC = "".join(
    line.replace("EVEN: tl.constexpr, ", "") for line in SCALE.splitlines(keepends=True) if "heuristics" not in line
)
lab = lab_fixture(scope="function", open_lab=kernellab.Lab)


def test_every_kernel_of_the_suite_runs_alone_and_gives_what_it_gave(lab: kernellab.Lab, tmp_path: Path) -> None:
    files = [tmp_path / f"{name.replace('-', '_')}.py" for name in CASES]
    for case, file in zip(CASES.values(), files, strict=True):
        export_case(lab, case, file, device="cuda")
    result = run_files(*files, interpret=False)
    print(result.stdout)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("outputs match those at export") == len(CASES)
    assert result.stdout.count("GB/s") == len(CASES)


def test_operators_pass_the_check_of_pytorch(lab: kernellab.Lab, tmp_path: Path) -> None:
    files = []
    for name, case in CASES.items():
        file = tmp_path / f"{name.replace('-', '_')}.py"
        try:
            export_case(lab, case, file, kind="torch-op", device="cuda")
        except UsageError:  # its grid is no formula
            continue
        files.append(file)
    assert len(files) > 10
    with ThreadPoolExecutor(8) as pool:  # one process each: an operator has its name once
        results = list(pool.map(lambda file: run_files(file, interpret=False), files))
    for file, result in zip(files, results, strict=True):
        assert result.returncode == 0, f"{file}: {result.stderr}"
        assert "passes opcheck" in result.stdout


def test_the_compiler_of_pytorch_looks_into_the_operator(lab: kernellab.Lab, tmp_path: Path) -> None:
    cell(lab, SCALE, **{name: tensor.cuda() for name, tensor in tensors().items()})
    lab.export("scale", tmp_path / "k.py", kind="torch-op")
    twin = TWIN.format(folder=str(tmp_path)).replace("(300.0)", "(300.0).cuda()").replace("(700)", "(700).cuda()")
    (tmp_path / "twin.py").write_text(twin.replace('backend="aot_eager"', "fullgraph=True") + "k.opcheck('cuda')\n")
    result = run_files(tmp_path / "twin.py", interpret=False)
    assert result.returncode == 0, result.stderr


def test_a_slower_version_is_called_slower(lab: kernellab.Lab) -> None:
    size = 2**24
    names = {"a": torch.rand(size, device="cuda"), "c": torch.zeros(size, device="cuda")}
    cell(lab, SCALE.replace("300", str(size)), **names)
    slow = SCALE.replace("300", str(size)).replace("3 * tl.load(", "3 * tl.load(out_ptr + offsets) * 0 + 3 * tl.load(")
    cell(lab, slow, **names)
    timing = lab.compare("scale@1", "scale@2").timing
    assert timing is not None
    assert (timing.verdict, timing.low > 1) == ("slower", True)
    same = lab.compare("scale@1", "scale@1").timing
    assert same is not None
    assert same.verdict == "no difference"


def traced(lab: kernellab.Lab, text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Export the kernel of a cell as an operator, and take it through PyTorch's tracers."""
    cell(lab, text, **{name: tensor.cuda() for name, tensor in tensors().items()})
    lab.export("scale", folder / "k.py", kind="torch-op")
    (folder / "traced.py").write_text(TRACED.format(folder=str(folder)))
    return run_files(folder / "traced.py", interpret=False)


def test_symbolic_sizes_and_views_go_through_every_tracer(lab: kernellab.Lab, tmp_path: Path) -> None:
    result = traced(lab, WITHOUT_HEURISTIC, tmp_path)
    assert result.returncode == 0, result.stderr
    assert "traced" in result.stdout


def test_an_export_for_all_sizes_names_the_heuristic_that_splits_them(lab: kernellab.Lab, tmp_path: Path) -> None:
    result = traced(lab, SCALE, tmp_path)
    assert "Constraints violated" in result.stderr
    assert re.search(r"% (128|256)\) != 0", result.stderr)  # by the block of the config that won


def test_tuples_and_functions_go_into_an_operator(lab: kernellab.Lab, tmp_path: Path) -> None:
    names = {"a": torch.rand(300), "b": torch.rand(300), "c": torch.zeros(300)}
    cell(lab, MEMBERS, **{name: tensor.cuda() for name, tensor in names.items()})
    lab.export("members", tmp_path / "k.py", kind="torch-op")
    result = run_files(tmp_path / "k.py", interpret=False)
    assert result.returncode == 0, result.stderr
    assert "members outputs match those at export" in result.stdout
    assert "passes opcheck" in result.stdout


def test_binaries_launched_without_triton_leave_the_bits_of_triton(lab: kernellab.Lab, tmp_path: Path) -> None:
    capability = torch.cuda.get_device_capability()[0]
    cases = {n: case for n, case in {**suite_cases(), **special_cases()}.items() if case.least <= capability}
    for name, case in cases.items():
        export_launch(lab, name, case, tmp_path / name)
    result = run_without_triton(tmp_path / name for name in cases)
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer == {"launched": list(cases), "same": list(cases)}


def test_a_captured_graph_replays_a_binary(lab: kernellab.Lab, tmp_path: Path) -> None:
    case = special_cases()["describing"]  # with scratch memory
    export_launch(lab, "describing", case, tmp_path)
    program = GRAPHED.format(folder=str(tmp_path))
    result = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


GRAPHED = """\
import sys
sys.modules["triton"] = None
sys.path.insert(0, {folder!r})
import torch, describing
saved = torch.load({folder!r} + "/launch.pt")
x, out = (saved["arguments"][name].cuda() for name in ("x_ptr", "out_ptr"))
describing.describing[(2,)](x, out, 64, BLOCK=32)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    describing.describing[(2,)](x, out, 64, BLOCK=32)
out.zero_()
graph.replay()
assert torch.equal(out.cpu(), saved["outputs"]["out_ptr"])
"""
