"""Where ``TRITON_INTERPRET=1`` is set: the lab compiles and checks all the same, or says what it cannot take."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.alone import run_alone

pytestmark = pytest.mark.slow

KERNELS = """
import triton, triton.language as tl
@triton.jit
def add_one(x, out, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    values = tl.load(x + offs, mask=offs < n)
    tl.store(out + offs, values + 1 + 0 * tl.max(values, 0), mask=offs < n)
@triton.jit
def beyond(out):
    tl.store(out + 10**9, 1.0)
"""
SHELL = """
import os, sys, warnings
{before}
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
def cell(text):
    result = shell.run_cell(text)
    error = result.error_before_exec or result.error_in_exec
    print("raised", type(error).__name__) if error else None
if __name__ == "__main__":
    cell("%load_ext kernellab")
    cell("import torch, triton, triton.language as tl\\nx, out = torch.arange(8.0), torch.zeros(8)")
{cells}
    import kernellab
    lab = kernellab.current_lab()
    print("variable", os.environ.get("TRITON_INTERPRET"))
    lab.close()
    print("variable", os.environ.get("TRITON_INTERPRET"))
"""


def run_in_fork(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a process that has imported torch and Triton under the variable, and nothing of the lab."""
    path = folder / "script.py"
    path.write_text(text, encoding="utf-8")
    program = (
        f"import os, runpy, sys; sys.path[:0] = [{os.getcwd()!r}, {str(folder)!r}]\n"
        f"os.environ['KERNELLAB_STORE'] = {str(folder / 'store')!r}\n"
        f"os.environ['PYTHONPATH'] = os.pathsep.join(sys.path[:2])\n"
        f"runpy.run_path({str(path)!r}, run_name='__main__')"
    )
    return run_alone(program, folder=folder)


def run_python(folder: Path, text: str, *arguments: str, value: str = "1") -> subprocess.CompletedProcess[str]:
    path = folder / "script.py"
    path.write_text(text, encoding="utf-8")
    variables = {**os.environ, "TRITON_INTERPRET": value, "KERNELLAB_STORE": str(folder / "store")}
    variables["PYTHONPATH"] = os.pathsep.join([os.getcwd(), str(folder)])
    command = [sys.executable, *(arguments or [str(path)])]
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=240, check=False)


def run_cells(folder: Path, *cells: str, before: str = "import triton") -> subprocess.CompletedProcess[str]:
    """Run cells after the statements ``before``, without which nothing of Triton is imported before the lab."""
    calls = "\n".join(f"    cell({text!r})" for text in cells)
    run = run_in_fork if before else run_python
    return run(folder, SHELL.format(before=before, cells=calls))


@pytest.mark.parametrize("before", ["", "import triton", "import torch, triton.language.extra"])
def test_cells_compile_and_check_under_the_variable(tmp_path: Path, before: str) -> None:
    result = run_cells(
        tmp_path,
        f"%%triton\n{KERNELS}\nadd_one[(1,)](x, out, 8, BLOCK=8)",
        "print('sum', out.sum().item())",
        "%%triton --no-run\nadd_one[(1,)](out, out, 8, BLOCK=8)",
        "print('sum', out.sum().item())",
        "%%triton\nbeyond[(1,)](out)",
        "@triton.jit\ndef plain(x):\n    tl.store(x, 5.0)\nplain[(1,)](x); print('first', x[0].item())",
        before=before,
    )
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    assert result.stderr.count("TRITON_INTERPRET=1 is set aside") == 1
    lines = result.stdout.splitlines()
    assert [line for line in lines if line.startswith(("sum", "first", "raised"))] == [
        "sum 36.0",
        "sum 36.0",
        "raised OutOfBounds",
        "first 5.0",
    ]
    assert [line for line in lines if line.startswith("variable")] == ["variable None", "variable 1"]
    assert any("ran on the interpreter" in line for line in lines)


def test_a_variable_that_a_cell_sets_is_set_aside_by_the_next(tmp_path: Path) -> None:
    result = run_cells(
        tmp_path,
        "os = __import__('os'); os.environ['TRITON_INTERPRET'] = 'true'",
        f"%%triton\n{KERNELS}\nadd_one[(1,)](x, out, 8, BLOCK=8)",
        "print('type', type(add_one).__name__, out.sum().item())",
    )
    assert result.returncode == 0, result.stderr
    assert "type BoundKernel 36.0" in result.stdout


def test_a_cell_refuses_kernels_that_were_imported_under_the_variable(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(KERNELS, encoding="utf-8")
    result = run_cells(
        tmp_path,
        "import mine\nfrom mine import beyond",
        "%%triton\nbeyond[(1,)](out)",
        "%%triton --no-run\nmine.add_one[(1,)](x, out, 8, BLOCK=8)",
        f"%%triton\n{KERNELS}\nadd_one[(1,)](x, out, 8, BLOCK=8)",
        "print('sum', out.sum().item())",
        before="import mine",
    )
    assert result.returncode == 0, result.stderr
    assert "Defined before, and so neither compiled nor checked: add_one, beyond." in result.stderr
    told = [line for line in result.stdout.splitlines() if line.startswith(("sum", "raised"))]
    assert told == ["raised UsageError", "raised UsageError", "sum 36.0"]


def test_a_lab_refuses_kernels_and_helpers_that_were_defined_before_it(tmp_path: Path) -> None:
    text = f"""
import os, torch, kernellab
{KERNELS}
if __name__ == "__main__":
    x, out = torch.arange(8.0), torch.zeros(8)
    with kernellab.Lab() as lab:
        @triton.jit
        def outer(x, out):
            beyond(out)
        tuned = triton.autotune([triton.Config({{"BLOCK": 8}})], key=["n"])(add_one)
        for kernel, args in ((add_one, (x, out, 8, 8)), (tuned, (x, out, 8)), (outer, (x, out))):
            try:
                lab.run(kernel, (1,), *args)
            except kernellab.KernellabError as exc:
                print("refused", str(exc).split()[0], "TRITON_INTERPRET=1" in str(exc))
    add_one[(1,)](x, out, 8, BLOCK=8)
    print("sum", out.sum().item(), os.environ["TRITON_INTERPRET"])
"""
    result = run_in_fork(tmp_path, text)
    assert result.returncode == 0, result.stderr
    told = ["refused add_one True", "refused add_one True", "refused beyond True", "sum 36.0 1"]
    assert result.stdout.splitlines() == told


def test_the_command_line_runs_under_the_variable(tmp_path: Path) -> None:
    arguments = "import torch\ndef arguments():\n    return (1,), (torch.zeros(8), torch.zeros(8), 8), {'BLOCK': 8}\n"
    path = tmp_path / "file.py"
    path.write_text(KERNELS + arguments, encoding="utf-8")
    result = run_python(tmp_path, "", "-m", "kernellab", "run", f"{path}::add_one", "--json")
    assert result.returncode == 0, result.stdout + result.stderr
    assert '"where": "interpreter"' in result.stdout


@pytest.mark.parametrize("value", ["0", ""])
def test_a_variable_that_is_off_is_left_alone(tmp_path: Path, value: str) -> None:
    text = "import os, kernellab\nwith kernellab.Lab():\n    print(repr(os.environ['TRITON_INTERPRET']))"
    result = run_python(tmp_path, text, value=value)
    assert (result.stdout.strip(), result.stderr) == (repr(value), "")
