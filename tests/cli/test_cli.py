from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from kernellab import cli
from kernellab._triton.closure import closure_of
from kernellab.errors import KernellabError, UsageError
from kernellab.notebook.demo import demonstrate, summary_text
from kernellab.settings import child_environment
from kernellab.store import Store
from tests import samples
from tests.cli.conftest import ADD

KERNEL = """%%triton --check "2 * x"
@triton.jit
def double_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, 2 * tl.load(x_ptr + offsets))


x, out = torch.randn(64), torch.zeros(64)
double_kernel[(1,)](x, out, BLOCK=64)
"""


def notebook(folder: Path, *cells: str) -> Path:
    import nbformat  # takes a second
    from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

    path = folder / "demo.ipynb"
    code = [new_code_cell(cell) for cell in ("%load_ext kernellab", *cells)]
    nbformat.write(new_notebook(cells=[new_markdown_cell("# A title"), *code]), path)
    return path


@pytest.mark.slow
def test_the_demo_executes_sums_up_and_writes_a_page(tmp_path: Path) -> None:
    out = io.StringIO()
    result = demonstrate(notebook(tmp_path, KERNEL), tmp_path / "build" / "page.html", out)
    assert "2/2 double_kernel" in out.getvalue()
    text = summary_text(result)
    assert "double_kernel@" in text
    assert "reads x_ptr; writes out_ptr" in text
    assert "matches torch" in text
    assert str(tmp_path / "build" / "page.html") in text
    page = (tmp_path / "build" / "page.html").read_text()
    assert "<h1" in page
    assert "<svg" in page
    assert "<script" not in page
    assert 'src="http' not in page
    assert 'href="http' not in page


@pytest.mark.slow
def test_a_failing_cell_fails_the_demo(tmp_path: Path) -> None:
    with pytest.raises(KernellabError, match="cell number 2 of the notebook failed") as caught:
        demonstrate(notebook(tmp_path, "1/0"), tmp_path / "page.html", io.StringIO())
    assert "ZeroDivisionError" in caught.value.detail


@pytest.mark.slow
def test_a_missing_notebook_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match=r"There is no notebook .*nothing\.ipynb"):
        demonstrate(tmp_path / "nothing.ipynb", tmp_path / "page.html", io.StringIO())
    assert cli.main(["demo", str(tmp_path / "nothing.ipynb")]) == cli.WRONG_CALL
    assert capsys.readouterr().err.startswith("UsageError: There is no notebook")


def test_ls_lists_the_kernels_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KERNELLAB_STORE", str(tmp_path))
    Store(tmp_path).add(closure_of(samples.add_kernel)[0], "digest", "add_kernel")
    assert cli.main(["ls"]) == 0
    assert "add_kernel@1" in capsys.readouterr().out


SLOW_TO_LOAD = ("torch", "triton", "numpy", "pandas", "matplotlib", "IPython")
LIGHT_CALLS = (
    ["--version"],
    ["--help"],
    ["ls"],
    ["ls", "--json"],
    ["export", "add_kernel"],
    ["export", "add_kernel", "--json", "--as", "bundle"],
    ["explain", "add.py"],
)


@pytest.mark.slow
def test_what_needs_the_store_alone_loads_no_slow_library(tmp_path: Path) -> None:
    (tmp_path / "add.py").write_text(ADD)
    Store(tmp_path / "store").add(closure_of(samples.add_kernel)[0], "digest", "add_kernel")
    words = [sys.executable, "-m", "kernellab", "explain", "add.py", "--store", "store"]
    subprocess.run(words, capture_output=True, cwd=tmp_path, check=True)
    code = (
        f"import sys; from kernellab import cli; print([cli.main(words) for words in {LIGHT_CALLS!r}], "
        f"[name for name in {SLOW_TO_LOAD!r} if name in sys.modules], file=sys.stderr)"
    )
    environment = child_environment(KERNELLAB_STORE=str(tmp_path / "store"))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environment, check=True
    )
    assert done.stderr == f"{[0] * len(LIGHT_CALLS)} []\n"
    assert {"add_kernel.py", "add_kernel.zip"} <= {path.name for path in tmp_path.iterdir()}


def test_a_bad_setting_is_a_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("KERNELLAB_WORKERS", "many")
    assert cli.main(["ls"]) == cli.WRONG_CALL
    assert capsys.readouterr().err == "UsageError: KERNELLAB_WORKERS is 'many'; expected a positive number.\n"
