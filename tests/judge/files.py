"""Specifications and candidates of the tests of a judge, as texts."""

from __future__ import annotations

from pathlib import Path

HEAD = "import torch\nimport triton\nimport triton.language as tl\n"

ADDITION = """
import torch

sizes = {"shown": [{"n": 1024}], "hidden": [{"n": 997}, {"n": 1}, {"n": 0}]}


def inputs(generator, n):
    return {"x": torch.randn(n, generator=generator), "y": torch.randn(n, generator=generator)}


def reference(x, y):
    return x + y
"""

ADDER = (
    HEAD
    + """

@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)


def solve(x, y):
    out = torch.empty_like(x)
    add[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
    return out
"""
)

SOFTMAX = """
import torch

sizes = {"shown": [{"m": 8, "n": 64}], "hidden": [{"m": 3, "n": 37}]}


def inputs(generator, m, n):
    return {"x": torch.randn(m, n, generator=generator)}


def reference(x):
    return torch.softmax(x, 1)
"""


def write(folder: Path, specification: str, candidate: str) -> tuple[Path, Path]:
    """Write a specification and a candidate; return their paths."""
    files = folder / "spec.py", folder / "candidate.py"
    for file, text in zip(files, (specification, candidate), strict=True):
        file.write_text(text)
    return files
