"""Exported operators: PyTorch's own check, and their functional twins."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import kernellab
from kernellab.errors import UsageError
from tests.export.exporting import export_case, run_files
from tests.export.test_module import SCALE, cell, tensors
from tests.kernels.cases import all_cases
from tests.labs import lab_fixture

pytestmark = pytest.mark.slow

CASES = all_cases()
TWIN = """\
import sys, torch
sys.path.insert(0, {folder!r})
import k
x = torch.arange(300.0)
torch.testing.assert_close(torch.ops.kernellab.scale_functional(x, 300), 3 * x)
base = torch.zeros(700)
torch.ops.kernellab.scale(x, base[100:400], 300)
torch.testing.assert_close(base[100:400], 3 * x)
assert not base[:100].any() and not base[400:].any()
compiled = torch.compile(lambda x: torch.ops.kernellab.scale_functional(x + 1, 300), backend="aot_eager")
torch.testing.assert_close(compiled(x), 3 * x + 3)
"""
lab = lab_fixture("cuda:80", "function")


@pytest.mark.parametrize("name", ["add-float32", "layer-norm-float32", "matmul-float32", "histogram"])
def test_an_operator_passes_the_check_of_pytorch(lab: kernellab.Lab, tmp_path: Path, name: str) -> None:
    name = next(known for known in CASES if known.replace("_", "-").startswith(name))
    with lab:
        text = export_case(lab, CASES[name], tmp_path / "k.py", kind="torch-op")
    mutated = CASES[name].writes | CASES[name].atomics
    assert all(f'"{argument}"' in text for argument in mutated)
    result = run_files(tmp_path / "k.py")
    assert result.returncode == 0, result.stderr
    assert "outputs match those at export" in result.stdout
    assert "passes opcheck" in result.stdout


def test_the_functional_twin_allocates_and_the_operator_takes_views(lab: kernellab.Lab, tmp_path: Path) -> None:
    with lab:
        cell(lab, SCALE, **tensors())
        lab.export("scale", tmp_path / "k.py", kind="torch-op")
    (tmp_path / "twin.py").write_text(TWIN.format(folder=str(tmp_path)))
    result = run_files(tmp_path / "twin.py")
    assert result.returncode == 0, result.stderr


def test_a_grid_that_is_no_formula_is_refused(lab: kernellab.Lab, tmp_path: Path) -> None:
    with lab, pytest.raises(UsageError, match="not a formula"):
        export_case(lab, CASES["softmax-float32"], tmp_path / "k.py", kind="torch-op")


TRACED = """\
import sys, torch
sys.path.insert(0, {folder!r})
import k
from torch.fx.experimental.proxy_tensor import make_fx
op, pure = torch.ops.kernellab.scale, torch.ops.kernellab.scale_functional
device = "cpu" if k.INTERPRETED else "cuda"
values = lambda n: torch.arange(float(n), device=device)

for dynamic in (False, True):
    tripled = torch.compile(lambda x: pure(x + 1, x.shape[0]), backend="aot_eager", dynamic=dynamic, fullgraph=True)
    for n in (300, 200, 128):
        torch.testing.assert_close(tripled(values(n)), 3 * values(n) + 3)

traced = make_fx(lambda x: pure(x, x.shape[0]), tracing_mode="symbolic")(values(300))
assert "sym_size" in traced.code
torch.testing.assert_close(traced(values(128)), 3 * values(128))

class Written(torch.nn.Module):
    def forward(self, x):
        out = torch.zeros_like(x)
        op(x, out, x.shape[0])
        return out

sizes = {{"x": {{0: torch.export.Dim("n", min=2, max=4096)}}}}
exported = torch.export.export(Written(), (values(300),), dynamic_shapes=sizes)
torch.testing.assert_close(exported.module()(values(128)), 3 * values(128))

def into_view(x, base):
    op(x, base[100:400], 300)
    return base * 1

base = torch.zeros(700, device=device)
result = torch.compile(into_view, backend="aot_eager", fullgraph=True)(values(300), base)
for each in (result, base):
    torch.testing.assert_close(each[100:400], 3 * values(300))
    assert not each[:100].any() and not each[400:].any()
print("traced")
"""


def test_compile_make_fx_and_export_take_the_operator_with_views_and_symbolic_sizes(
    lab: kernellab.Lab, tmp_path: Path
) -> None:
    with lab:
        cell(lab, SCALE, **tensors())
        lab.export("scale", tmp_path / "k.py", kind="torch-op")
    (tmp_path / "traced.py").write_text(TRACED.format(folder=str(tmp_path)))
    result = run_files(tmp_path / "traced.py")
    assert result.returncode == 0, result.stderr
    assert "traced" in result.stdout


MEMBERS = """
@triton.jit
def squared(value):
    return value * value

@triton.jit
def members(pair, outs, sizes, F: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < sizes[0]
    x, y = tl.load(pair[0] + offsets, mask=mask), tl.load(outs[0] + offsets, mask=mask)
    tl.store(outs[1] + offsets, F(x + y), mask=mask)

members[lambda meta: (triton.cdiv(meta["sizes"][0], meta["BLOCK"]),)]((a, b), (a, c), (300, 300), F=squared, BLOCK=128)
"""
DESCRIBED = """
@triton.jit
def described(x, out, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK
    out.store([row, 0], 2 * x.load([row, 0]))

from triton.tools.tensor_descriptor import TensorDescriptor
described[(4,)](TensorDescriptor.from_tensor(a, [8, 16]), TensorDescriptor.from_tensor(c, [8, 16]), BLOCK=8)
"""


def test_tuples_and_functions_go_into_an_operator(lab: kernellab.Lab, tmp_path: Path) -> None:
    with lab:
        cell(lab, MEMBERS, a=torch.rand(300), b=torch.rand(300), c=torch.zeros(300))
        for kind in ("module", "torch-op"):
            lab.export("members", tmp_path / f"{kind.replace('-', '_')}.py", kind=kind)
    text = (tmp_path / "torch_op.py").read_text()
    assert 'operator("kernellab::members", {"outs"})' in text
    assert "pair: list[torch.Tensor]" in text
    assert "sizes: list[int]" in text
    result = run_files(tmp_path / "torch_op.py", tmp_path / "module.py")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("members outputs match those at export") == 2
    assert "passes opcheck" in result.stdout


def test_an_operator_makes_the_descriptors_of_its_kernel(lab: kernellab.Lab, tmp_path: Path) -> None:
    with lab:
        cell(lab, DESCRIBED, a=torch.rand(32, 16), c=torch.zeros(32, 16))
        for kind in ("module", "torch-op"):
            lab.export("described", tmp_path / f"{kind.replace('-', '_')}.py", kind=kind)
    assert "TensorDescriptor.from_tensor(x, [8, 16])" in (tmp_path / "torch_op.py").read_text()
    result = run_files(tmp_path / "torch_op.py", tmp_path / "module.py")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("described outputs match those at export") == 2
    assert "passes opcheck" in result.stdout


def test_what_no_schema_holds_is_refused_by_name(lab: kernellab.Lab, tmp_path: Path) -> None:
    mixed = MEMBERS.replace("(300, 300)", "(300, 0.5)")
    with lab:
        cell(lab, mixed, a=torch.rand(300), b=torch.rand(300), c=torch.zeros(300))
        with pytest.raises(UsageError, match=r"sizes is \(300, 0.5\), which the schema of an operator cannot hold"):
            lab.export("members", tmp_path / "k.py", kind="torch-op")


PARTIAL = """
@triton.jit
def partial(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(pid * BLOCK, n, tl.num_programs(0) * BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(out_ptr + pid, tl.sum(total))

partial[GRID](a, c, 1024, BLOCK=256)
"""
SUMS = """\
import sys, torch
sys.path.insert(0, {folder!r})
import k
for n in (1024, 10240):
    x = torch.ones(n)
    try:
        print(n, k.partial_functional(x, torch.zeros(4), n).tolist())
    except ValueError as exc:
        print(n, "refused:", exc)
"""


@pytest.mark.parametrize(
    ("grids", "wanted"),
    [
        (["(4,)"], "10240 refused: The grid of partial is known for the sizes of recorded launches alone"),
        (["(4,)", "lambda meta: (4,)"], "10240 [2560.0, 2560.0, 2560.0, 2560.0]"),
    ],
)
def test_an_operator_launches_a_persistent_kernel_on_the_recorded_grid_or_refuses(
    lab: kernellab.Lab, tmp_path: Path, grids: list[str], wanted: str
) -> None:
    with lab:
        names = cell(lab, "", a=torch.ones(1024), c=torch.zeros(4))
        for grid in grids:
            cell(lab, PARTIAL.replace("GRID", grid), **names)
        written = lab.export("partial", tmp_path / "k.py", kind="torch-op")
    assert bool(written.notes) == (grids == ["(4,)"])
    (tmp_path / "sums.py").write_text(SUMS.format(folder=str(tmp_path)))
    result = run_files(tmp_path / "k.py", tmp_path / "sums.py")
    assert result.returncode == 0, result.stderr
    assert "1024 [256.0, 256.0, 256.0, 256.0]" in result.stdout
    assert wanted in result.stdout
    assert "passes opcheck" in result.stdout


def test_the_refusal_of_a_grid_given_as_extents_says_how_to_launch(lab: kernellab.Lab, tmp_path: Path) -> None:
    with lab:
        cell(lab, PARTIAL.replace("GRID", "(4,)"), a=torch.ones(1024), c=torch.zeros(4))
        (note,) = lab.export("partial", tmp_path / "k.py", kind="torch-op").notes
        cell(lab, PARTIAL.replace("GRID", "(7,)"), a=torch.ones(1024), c=torch.zeros(8))
        with pytest.raises(UsageError, match=r"not a formula of its arguments; launch it by a function of them"):
            lab.export("partial", tmp_path / "k.py", kind="torch-op")
    assert "partial[lambda meta: (triton.cdiv(meta['n'], meta['BLOCK']),)]" in note
