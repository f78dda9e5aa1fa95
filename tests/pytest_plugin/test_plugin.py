"""The plugin in a repository of its own: its test suite runs in other processes, with baselines beside its tests."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.alone import run_with_lab

PAGE = (Path(__file__).parents[2] / "docs" / "pytest.md").read_text(encoding="utf-8")
KERNEL, TEST = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PROGRAM = """
import sys
import pytest
sys.exit(pytest.main(["-p", "kernellab.pytest_plugin", "-p", "no:nbval", "-q", *sys.argv[1:]]))
"""
Suite = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Suite:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    (tmp_path / "ops.py").write_text(KERNEL)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    (tmp_path / "test_ops.py").write_text(TEST)
    return lambda *options: run_with_lab(PROGRAM, *options, folder=tmp_path)


@pytest.mark.slow
def test_a_suite_writes_its_baselines_and_fails_where_a_kernel_gets_worse(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    missing = suite()
    assert missing.returncode == 1
    assert "test_ops.baselines.json has no baseline 'main' of test_add[500] on no GPU, cuda:90" in missing.stdout

    written = suite("--kernellab-update")
    assert written.returncode == 0, written.stdout
    kept = json.loads((tmp_path / "test_ops.baselines.json").read_text())
    assert sorted(kept["baselines"]) == ["test_add[1000]", "test_add[500]"]
    baseline = kept["baselines"]["test_add[500]"]["main"]["no GPU, cuda:90"]
    assert (baseline["reads"], baseline["writes"]) == (["x_ptr", "y_ptr"], ["out_ptr"])
    assert baseline["registers"] > 0
    assert '"reads": ["x_ptr", "y_ptr"],' in (tmp_path / "test_ops.baselines.json").read_text()

    good = suite()
    assert good.returncode == 0, good.stdout
    assert "kernels vs their baselines" in good.stdout
    assert re.search(r"^test_add\[500\] +add_kernel +main +no GPU, cuda:90 .* ok$", good.stdout, re.MULTILINE)

    kernel = KERNEL.replace("x + tl.load", "2 * x + tl.load") + "    tl.store(x_ptr, 0.0)\n"
    (tmp_path / "ops.py").write_text(kernel)
    (tmp_path / "test_ops.py").write_text(TEST.replace(', check="x_ptr + y_ptr"', ""))
    bad = suite()
    assert bad.returncode == 1
    assert "failed: writes is out_ptr, x_ptr, and was out_ptr" in bad.stdout
    assert "failed: out_ptr holds other values than in the baseline" in bad.stdout
    assert "pytest --kernellab-update" in bad.stdout


@pytest.mark.slow
def test_the_plugin_imports_nothing_heavy_for_a_suite_that_does_not_use_it(tmp_path: Path) -> None:
    (tmp_path / "test_plain.py").write_text(
        "import sys\n\ndef test_plain():\n"
        "    assert not {'torch', 'triton', 'numpy', 'pandas', 'kernellab.lab'} & set(sys.modules)\n"
    )
    words = [sys.executable, "-m", "pytest", "-p", "kernellab.pytest_plugin", "-p", "no:cacheprovider", "-q"]
    environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PATH": ""}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "baselines" not in done.stdout


@pytest.mark.gpu
def test_on_a_gpu_a_kernel_is_timed_and_a_slower_one_fails(suite: Suite, tmp_path: Path) -> None:
    assert suite("--kernellab-update").returncode == 0
    path = tmp_path / "test_ops.baselines.json"
    kept = json.loads(path.read_text())
    baselines = [each for test in kept["baselines"].values() for named in test.values() for each in named.values()]
    assert all(0 < each["low_ms"] <= each["time_ms"] <= each["high_ms"] for each in baselines)
    good = suite("--kernellab-margin", "0.5")
    assert good.returncode == 0, good.stdout
    for each in baselines:
        for name in ("low_ms", "time_ms", "high_ms"):
            each[name] /= 4
    path.write_text(json.dumps(kept))
    slow = suite()
    assert slow.returncode == 1
    assert "longer than" in slow.stdout
