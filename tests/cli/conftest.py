from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernellab import cli
from tests.labs import shared_lab

ADD = """\
import torch
import triton
import triton.language as tl

print("imported")


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask), mask=mask)


def arguments(n=1000, block=256, elements=None, device="cpu"):
    x, y = torch.arange(n, dtype=torch.float32, device=device), torch.ones(n, device=device)
    out = torch.zeros(elements or n, device=device)
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),), (x, y, out, n), {"BLOCK": block}


def reference(x_ptr, y_ptr):
    return x_ptr + y_ptr


def wrong_sum(x_ptr, y_ptr):
    return x_ptr
"""

Call = Callable[..., "Called"]


class Called:
    """What a call of the command line left."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = self.json["error"]
        return found


@pytest.fixture
def kernellab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Call the command line in a folder that has the kernel file ``add.py``, with a store of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERNELLAB_STORE", str(tmp_path / "store"))
    monkeypatch.syspath_prepend(tmp_path)
    Path("add.py").write_text(ADD)

    def called(*words: str) -> Called:
        status = cli.main(words, open_lab=shared_lab)
        return Called(status, *capsys.readouterr())

    return called
