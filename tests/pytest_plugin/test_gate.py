"""The fixture `kernel_gate` in a repository of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pytest_plugin.test_plugin import KERNEL, Suite, suite
from tests.upgrade.test_revisions import git

__all__ = ["suite"]

TEST = """
import torch
from ops import add_kernel

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def test_add_is_as_fast_as_before(kernel_gate):
    x, y = torch.randn(2, 2**16, device=DEVICE)
    found = kernel_gate(add_kernel, (256,), (x, y, torch.empty_like(x), 2**16), against="HEAD", BLOCK=256)
    assert found.names[0].startswith("add_kernel of HEAD")
"""


@pytest.mark.slow
def test_a_kernel_is_compared_with_a_commit_and_a_worse_one_fails(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (tmp_path / "test_ops.py").write_text(TEST)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    good = suite()
    assert good.returncode == 0, good.stdout
    assert "kernels vs earlier revisions" in good.stdout
    assert "test_add_is_as_fast_as_before: No reason to expect a slowdown" in good.stdout

    (tmp_path / "ops.py").write_text(KERNEL.replace("tl.arange(0, BLOCK)\n", "tl.arange(0, BLOCK) * 17 % BLOCK\n"))
    bad = suite()
    assert bad.returncode == 1
    assert "Suspect, by " in bad.stdout
    assert "bytes wide per thread" in bad.stdout

    (tmp_path / "ops.py").write_text(KERNEL.replace("x + tl.load", "x - tl.load"))
    unchecked = suite()
    assert unchecked.returncode == 0, unchecked.stdout
    (tmp_path / "test_ops.py").write_text(TEST.replace('"HEAD", BLOCK', '"HEAD", check=True, BLOCK'))
    other = suite()
    assert other.returncode == 1
    assert "test_add_is_as_fast_as_before: Outputs differ: " in other.stdout
