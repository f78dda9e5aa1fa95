"""Exported modules: they run without the lab, and give what the kernel gave."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import torch

import kernellab
from kernellab.errors import UnknownName, UsageError
from kernellab.notebook.cell import CellOptions, run_cell
from tests.export.exporting import export_case, run_files
from tests.kernels import pointers
from tests.kernels.cases import all_cases
from tests.labs import lab_fixture

CASES = {name: case for name, case in all_cases().items() if not name.endswith("bfloat16")}

AWKWARD = r'''
KIND = tl.constexpr('"it\'s"')
INFINITY = tl.constexpr(float("inf"))

@triton.jit
def shifted(value):
    """A docstring with \\ backslashes, 'single' and "double" quotes, and \"\"\" three."""
    return value + ONE

ONE = tl.constexpr(1)

@triton.jit
def awkward(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Ends with a quote: "x" """
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=-INFINITY)
    if KIND == '"it\'s"':
        tl.store(out_ptr + offsets, shifted(x) + libdevice_free(x), mask=offsets < n)

@triton.jit
def libdevice_free(x):
    return tl.exp(x)
'''
lab = lab_fixture("cuda:80", "function")


def cell(lab: kernellab.Lab, text: str, check: str | None = None, **names: Any) -> dict[str, Any]:
    run_cell(lab, text, names, "In[3]", CellOptions(check=check), lambda value: None)
    return names


def tensors() -> dict[str, Any]:
    return {"a": torch.linspace(-1, 1, 300), "c": torch.zeros(300)}


@pytest.mark.slow
def test_every_kernel_of_the_suite_runs_alone_and_gives_what_it_gave(lab: kernellab.Lab, tmp_path: Path) -> None:
    files = [tmp_path / f"{name.replace('-', '_')}.py" for name in CASES]
    for case, file in zip(CASES.values(), files, strict=True):
        export_case(lab, case, file)
    result = run_files(*files)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("outputs match those at export") == len(CASES)


@pytest.mark.slow
def test_a_wrong_kernel_fails_the_check_of_its_file(lab: kernellab.Lab, tmp_path: Path) -> None:
    text = export_case(lab, CASES["softmax-float32"], tmp_path / "k.py")
    (tmp_path / "k.py").write_text(text.replace("numerator / tl.sum", "numerator * tl.sum"))
    result = run_files(tmp_path / "k.py")
    assert result.returncode == 1
    assert "AssertionError" in result.stderr


@pytest.mark.slow
def test_without_a_gpu_the_file_says_what_to_do(lab: kernellab.Lab, tmp_path: Path) -> None:
    export_case(lab, CASES["add-float32"], tmp_path / "k.py")
    result = run_files(tmp_path / "k.py", interpret=False)
    if torch.cuda.is_available():
        assert "GB/s" in result.stdout
    else:
        assert result.returncode == 1
        assert "There is no GPU: set TRITON_INTERPRET=1" in result.stderr


@pytest.mark.slow
def test_strings_quotes_and_docstrings_arrive_to_the_byte(lab: kernellab.Lab, tmp_path: Path) -> None:
    names = cell(lab, AWKWARD + "awkward[(3,)](a, c, 300, BLOCK=128)\n", **tensors())
    lab.export("awkward", tmp_path / "k.py")
    written = {n.name: n for n in ast.parse((tmp_path / "k.py").read_text()).body if isinstance(n, ast.FunctionDef)}
    original = {n.name: n for n in ast.parse(AWKWARD).body if isinstance(n, ast.FunctionDef)}
    for name, node in original.items():
        assert ast.get_docstring(written[name], clean=False) == ast.get_docstring(node, clean=False)
        assert ast.dump(written[name]) == ast.dump(node)
    result = run_files(tmp_path / "k.py")
    assert result.returncode == 0, result.stderr
    assert names["c"].isfinite().all()


@pytest.mark.slow
def test_helpers_of_one_name_do_not_meet(lab: kernellab.Lab, tmp_path: Path) -> None:
    text = """
def helper_of(factor):
    FACTOR = tl.constexpr(factor)

    @triton.jit
    def helper(value):
        return value * FACTOR

    return helper

twice, thrice = helper_of(2), helper_of(3)

@triton.jit
def both(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, twice(tl.load(x_ptr + offsets)) + thrice(1.0))

both[(1,)](a, c, BLOCK=256)
"""
    names = cell(lab, text, **tensors())
    torch.testing.assert_close(names["c"][:256], 2 * names["a"][:256] + 3)
    lab.export("both", tmp_path / "k.py")
    result = run_files(tmp_path / "k.py")
    assert result.returncode == 0, result.stderr
    assert "outputs match those at export" in result.stdout


SCALE = """
@triton.autotune([triton.Config({"BLOCK": 2 ** i}, num_warps=2) for i in (7, 8)], key=["n"])
@triton.heuristics({"EVEN": lambda a: a["n"] % a["BLOCK"] == 0})
@triton.jit
def scale(x_ptr, out_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, 3 * tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)

scale[lambda meta: (triton.cdiv(300, meta["BLOCK"]),)](a, c, 300)
"""
OTHER_SIZE = """\
import sys, torch
sys.path.insert(0, sys.argv[1])
import k
x = torch.arange(1000.0)
torch.testing.assert_close(k.launch(x, 1000), 3 * x)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["module", "autotune"])
def test_an_autotuned_kernel_keeps_its_configs_and_serves_other_sizes(
    lab: kernellab.Lab, tmp_path: Path, kind: str
) -> None:
    cell(lab, SCALE, **tensors())
    lab.export("scale", tmp_path / "k.py", kind=kind)
    text = (tmp_path / "k.py").read_text()
    assert ("triton.Config(" in text) == (kind == "autotune")
    assert ("(300,): {" in text) == (kind == "module")
    (tmp_path / "other.py").write_text(OTHER_SIZE.replace("sys.argv[1]", repr(str(tmp_path))))
    result = run_files(tmp_path / "k.py", tmp_path / "other.py")
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
def test_the_reference_of_a_check_goes_along(lab: kernellab.Lab, tmp_path: Path) -> None:
    cell(lab, SCALE, check="3 * a", **tensors())
    lab.export("scale", tmp_path / "k.py")
    result = run_files(tmp_path / "k.py")
    assert result.stdout.startswith("scale equals its reference")
    broken = (tmp_path / "k.py").read_text().replace("return 3 * x_ptr", "return 4 * x_ptr")
    (tmp_path / "k.py").write_text(broken)
    assert run_files(tmp_path / "k.py").returncode == 1


@pytest.mark.slow
def test_strides_and_shared_arguments_are_made_anew(lab: kernellab.Lab, tmp_path: Path) -> None:
    text = """
@triton.jit
def rows(x_ptr, also_ptr, out_ptr, stride, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    at = tl.program_id(0) * stride + offsets
    tl.store(out_ptr + tl.program_id(0) * BLOCK + offsets, tl.load(x_ptr + at) + tl.load(also_ptr + at))

rows[lambda meta: (x.shape[0],)](x, x, out, x.stride(0), BLOCK=16)
"""
    x = torch.rand(8, 40)[:, :16]
    cell(lab, text, x=x, out=torch.zeros(8, 16))
    lab.export("rows", tmp_path / "k.py")
    text = (tmp_path / "k.py").read_text()
    assert "random_tensor((8, 16), (40, 1), torch.float32" in text
    assert "also_ptr = x_ptr" in text
    assert "out_ptr = torch.zeros((x_ptr.shape[0], x_ptr.shape[1]), dtype=x_ptr.dtype, device=x_ptr.device)" in text
    assert run_files(tmp_path / "k.py").returncode == 0


@pytest.mark.slow
def test_names_that_the_module_needs_itself_are_kept_apart(lab: kernellab.Lab, tmp_path: Path) -> None:
    text = """
META = tl.constexpr(2)

@triton.jit
def check(value):
    return value * META

@triton.jit
def named(x_ptr, grid, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, check(tl.load(x_ptr + offsets)) + grid)

@triton.jit
def doubled(x_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, check(tl.load(x_ptr + offsets)))

named[(1,)](c, 3, BLOCK=256)
doubled[(1,)](a, BLOCK=256)
"""
    cell(lab, text, **tensors())
    lab.export("doubled", tmp_path / "doubled.py")
    lab.export("named", tmp_path / "named.py")
    assert "It has a parameter called grid" in (tmp_path / "named.py").read_text()
    result = run_files(tmp_path / "doubled.py", tmp_path / "named.py")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("doubled outputs match those at export")
    with pytest.raises(UsageError, match="parameter called grid"):
        lab.export("named", tmp_path / "op.py", kind="torch-op")


@pytest.mark.slow
def test_a_launch_on_addresses_is_not_written_down_since_they_hold_in_one_process(
    lab: kernellab.Lab, tmp_path: Path
) -> None:
    tensors = [torch.zeros(30), torch.zeros(7)]
    addresses = torch.tensor([tensor.data_ptr() for tensor in tensors])
    lab.kernels.add(pointers.foreach_add)
    lab.run(pointers.foreach_add, (2,), addresses, torch.tensor([30, 7]), 1.0, BLOCK=32)
    file = lab.export("foreach_add", tmp_path / "foreach.py").path
    text = " ".join(file.read_text().split())
    assert "It takes addresses out of" in text
    assert "nothing is checked" in text
    assert str(tensors[0].data_ptr()) not in text
    assert run_files(file).returncode == 0
    with pytest.raises(UsageError, match=r"cannot be an operator\. It takes addresses out of"):
        lab.export("foreach_add", kind="torch-op")


@pytest.mark.slow
def test_a_kernel_that_was_never_launched_is_written_without_a_check(lab: kernellab.Lab, tmp_path: Path) -> None:
    cell(lab, AWKWARD)
    exported = lab.export("awkward", tmp_path / "k.py")
    assert "no check and no benchmark" in exported.notes[0]
    assert "__main__" not in (tmp_path / "k.py").read_text()
    assert run_files(tmp_path / "k.py").returncode == 0


def test_what_cannot_be_exported_is_an_error_that_says_why(lab: kernellab.Lab, tmp_path: Path) -> None:
    cell(lab, AWKWARD)
    with pytest.raises(UsageError, match="expected one of module, torch-op, autotune, report, binaries, bundle"):
        lab.export("awkward", tmp_path / "k.py", kind="wheel")
    with pytest.raises(UnknownName):
        lab.export("nothing", tmp_path / "k.py")
    with pytest.raises(UsageError, match="was never launched in a cell"):
        lab.export("awkward", tmp_path / "k.py", kind="torch-op")
    with pytest.raises(UsageError, match="cannot be written"):
        lab.export("awkward", "/proc/nowhere/k.py")
    assert not (tmp_path / "k.py").exists()


@pytest.mark.slow
def test_a_reference_that_names_an_output_sees_it_after_the_launch(lab: kernellab.Lab, tmp_path: Path) -> None:
    text = """
@triton.jit
def positive(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    tl.store(out_ptr + offsets, tl.where(x > 0, 2 * x, 0.0))

positive[(1,)](a, c, BLOCK=256)
"""
    names = {"a": torch.linspace(-1, 1, 256), "c": torch.zeros(256)}
    cell(lab, text, check="torch.where(c != 0, 2 * a, 0.0)", **names)
    lab.export("positive", tmp_path / "k.py")
    result = run_files(tmp_path / "k.py")
    assert result.stdout.startswith("positive equals its reference"), result.stderr


TOTAL = """
@triton.jit
def total(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + offsets)))

total[(1,)](a, c, BLOCK=256)
"""


@pytest.mark.slow
def test_an_accumulator_is_not_held_to_a_reference_that_knew_its_first_contents(
    lab: kernellab.Lab, tmp_path: Path
) -> None:
    check = "torch.stack([a.sum(), 7 + 0 * a.sum()])"  # made anew, it holds values from 0 to 7
    cell(lab, TOTAL, check=check, a=torch.rand(256), c=torch.tensor([0.0, 7.0]))
    lab.export("total", tmp_path / "k.py")
    result = run_files(tmp_path / "k.py")
    assert result.stdout.startswith("total outputs match those at export"), result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("check", "held"),
    [
        ("a.sum()[None]", [0.0]),
        ("c + a.sum()", [3.0]),
        ("torch.cat([c[:1] + a.sum(), c[1:]])", [0.0, 7.0]),
    ],
)
def test_an_accumulator_is_held_to_a_reference_that_knows_its_contents_before_the_launch(
    lab: kernellab.Lab, tmp_path: Path, check: str, held: list[float]
) -> None:
    cell(lab, TOTAL, check=check, a=torch.rand(256), c=torch.tensor(held))
    lab.export("total", tmp_path / "k.py")
    result = run_files(tmp_path / "k.py")
    assert result.stdout.startswith("total equals its reference"), result.stderr


@pytest.mark.slow
def test_a_reference_of_several_launches_is_none_of_the_module_that_launches_once(
    lab: kernellab.Lab, tmp_path: Path
) -> None:
    twice = TOTAL + "total[(1,)](a, c, BLOCK=256)\n"
    cell(lab, twice, check="c + 2 * a.sum()", a=torch.rand(256), c=torch.zeros(1))
    lab.export("total", tmp_path / "k.py")
    result = run_files(tmp_path / "k.py")
    assert result.stdout.startswith("total outputs match those at export"), result.stderr


@pytest.mark.slow
def test_a_module_starts_from_the_counter_that_was_launched(lab: kernellab.Lab, tmp_path: Path) -> None:
    text = """
@triton.jit
def count_up(c_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(c_ptr + at, tl.load(c_ptr + at) + 1000)

count_up[(1,)](c, BLOCK=16)
"""
    cell(lab, text, check="c + 1000", c=torch.arange(16))
    lab.export("count_up", tmp_path / "k.py")
    assert f"listed_tensor({list(range(16))}, " in (tmp_path / "k.py").read_text()
    result = run_files(tmp_path / "k.py")
    assert result.stdout.startswith("count_up equals its reference"), result.stderr


@pytest.mark.slow
def test_a_cooperative_launch_stays_one_in_its_module(lab: kernellab.Lab, tmp_path: Path) -> None:
    names = cell(lab, SCALE.replace("(a, c, 300)", "(a, c, 300, launch_cooperative_grid=True)"), **tensors())
    assert names["c"].any()
    lab.export("scale", tmp_path / "k.py")
    assert '"launch_cooperative_grid": True' in (tmp_path / "k.py").read_text()
