from __future__ import annotations

import linecache
import re
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from IPython.core.interactiveshell import InteractiveShell

import kernellab
from tests.alone import run_alone
from tests.export.exporting import RUNNER
from tests.labs import lend_lab
from tests.tables import every

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
SNIPPET = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROSE = re.sub(r"^```.*?^```$", "", TEXT, flags=re.MULTILINE | re.DOTALL)
LINKS = re.findall(r"\]\((?!https?:|#)([^)#]+)", PROSE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "expected"),
    every(
        2,
        [
            ("README.md", ["add_kernel@1", "hip:gfx942 ['ttir', 'ttgir', 'llir', 'amdgcn']"]),
            ("docs/which_verb.md", ["careless_kernel", "reads ['x_ptr', 'y_ptr'] writes ['out_ptr']", "add_kernel@2"]),
            ("docs/algebra.md", ["are equal in the algebra", "differ in the algebra: out_ptr[0, 0] first"]),
            ("docs/from_triton_tutorials.md", ["attention_forward", "atomics ['Lock']", "__nv_asinf", "hip:gfx942"]),
        ],
    ),
)
def test_every_cell_of_a_page_runs(
    page: str,
    expected: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    snippets = SNIPPET.findall((ROOT / page).read_text(encoding="utf-8"))
    assert len(snippets) >= 3
    monkeypatch.setenv("KERNELLAB_STORE", str(tmp_path / "store"))  # which no other test has put kernels into
    monkeypatch.chdir(tmp_path)
    shell = InteractiveShell.instance()
    lend_lab(shell)
    try:
        for snippet in snippets:
            shell.run_cell(snippet, store_history=True).raise_error()
        shown = capsys.readouterr().out
    finally:
        shell.run_line_magic("unload_ext", "kernellab")
        InteractiveShell.clear_instance()
    assert [words for words in expected if words not in shown] == []


@pytest.mark.slow
def test_the_first_cell_of_the_readme_runs_as_plain_python_without_its_first_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = next(snippet for snippet in SNIPPET.findall(TEXT) if snippet.startswith("%%triton"))
    script = tmp_path / "cell.py"
    script.write_text(cell.partition("\n")[2] + "torch.testing.assert_close(out, x + y)\n", encoding="utf-8")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = run_alone(RUNNER, "__main__", str(script), folder=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("link", LINKS)
def test_every_link_of_the_readme_leads_to_a_file(link: str) -> None:
    assert (ROOT / link).exists()


@triton.jit
def copy_kernel(x, y, n, STRIDE: tl.constexpr, BLOCK: tl.constexpr):
    offsets = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)) * STRIDE
    tl.store(y + offsets, tl.load(x + offsets, mask=offsets < n), mask=offsets < n)


@triton.jit
def scale_kernel(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, 2 * tl.load(x + offsets, mask=offsets < n), mask=offsets < n)


@triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["M"])
@triton.jit
def matmul_kernel(a, c, M, N, K, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(c + offsets, tl.load(a + offsets, mask=offsets < M, other=0.0) * N * K, mask=offsets < M)


def inputs(M: int, N: int, K: int) -> dict[str, object]:
    return {"a": torch.rand(M), "c": torch.empty(M), "M": M, "N": N, "K": K}


@pytest.mark.parametrize(
    "page",
    [
        "measurements",
        pytest.param("predictions", marks=pytest.mark.slow),
        pytest.param("traffic", marks=pytest.mark.slow),
        pytest.param("tuning_over_sizes", marks=pytest.mark.slow),
        pytest.param("programs_of_any_size", marks=pytest.mark.slow),
    ],
)
def test_what_a_page_shows_runs(lab: kernellab.Lab, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lab.kernels.add(matmul_kernel)
    known = {
        "torch": torch,
        "triton": triton,
        "lab": lab,
        "x": torch.rand(200),
        "y": torch.zeros(200),
        "total": torch.zeros(200),
        "n": 200,
        "copy_kernel": lab.bind(copy_kernel),
        "scale_kernel": lab.bind(scale_kernel),
        "matmul": matmul_kernel,
        "grid": lambda meta: (triton.cdiv(meta["M"], meta["BLOCK"]),),
        "inputs": inputs,
    }
    snippets = SNIPPET.findall((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"))
    assert snippets
    for at, snippet in enumerate(snippets):
        name = f"{page} {at}"  # what is captured needs its lines
        linecache.cache[name] = (len(snippet), None, snippet.splitlines(keepends=True), name)
        exec(compile(snippet, name, "exec"), known)
    own = known["lab"]
    if own is not lab:  # a page may make its own
        own.close()
