"""The option --check: what passes, what is caught, and how it is shown."""

from __future__ import annotations

import re

import pytest
import torch

from kernellab.errors import CheckFailed
from tests.notebook.conftest import Notebook

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TILE = """
@triton.jit
def {name}(x_ptr, out_ptr, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows = tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, COLUMNS)[None, :]
    at = rows * COLUMNS + columns
    tl.store(out_ptr + at, 2 * tl.load(x_ptr + at), mask=columns < n)
{name}[(1,)](x, out, {n}, ROWS=16, COLUMNS=32)
"""


@pytest.fixture
def tiles(notebook: Notebook) -> Notebook:
    notebook.names.update(x=torch.rand(16, 32, device=DEVICE), out=torch.zeros(16, 32, device=DEVICE))
    return notebook


def test_a_right_result_passes_in_double_precision(tiles: Notebook) -> None:
    ran = tiles.triton(TILE.format(name="passing", n=32), '--check "x + x"')
    assert ran.error is None
    assert "out_ptr equals x + x: yes" in ran.shown[0]["text/plain"]


def test_a_stale_result_is_caught_and_the_output_keeps_its_values(tiles: Notebook) -> None:
    tiles.names["out"] = out = 2 * tiles.names["x"]
    held = out.clone()
    ran = tiles.triton(TILE.format(name="stale", n=20), '--check "2 * x"')
    assert isinstance(ran.error, CheckFailed)
    assert str(ran.error).endswith("192 of 512 elements were never written.")
    assert torch.equal(out, held)


def test_a_difference_is_told_and_drawn(tiles: Notebook) -> None:
    ran = tiles.triton(
        TILE.format(name="differing", n=32), '--check "2 * x + (torch.arange(32, device=x.device) == 5)"'
    )
    assert isinstance(ran.error, CheckFailed)
    assert "[0, 5] is " in str(ran.error)
    (card,) = ran.shown
    assert "all lie in [0 to 15, 5]" in card["text/plain"]
    assert "Where out_ptr differs from 2 * x" in card["text/html"]


def test_what_changed_is_counted_against_the_values_before_the_poison(tiles: Notebook) -> None:
    tiles.names["out"][:8] = 2 * tiles.names["x"][:8]
    ran = tiles.triton(TILE.format(name="half_changed", n=32), '--check "2 * x"')
    assert ran.error is None
    assert "256 of 512 changed" in ran.shown[0]["text/plain"]


def test_an_expression_that_has_no_double_precision_is_evaluated_as_it_is(tiles: Notebook) -> None:
    ran = tiles.triton(
        TILE.format(name="single_only", n=32), '--check "2 * x if x.dtype == torch.float32 else undefined"'
    )
    assert ran.error is None


SUMS = """
@triton.jit
def {name}(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, {end}, BLOCK):
        total += tl.sum(tl.load(x_ptr + row * n + start + tl.arange(0, BLOCK)))
    tl.store(out_ptr + row, total)
{name}[(8,)](x, out, 4096, BLOCK=128)
"""


def test_long_sums_pass_and_a_missing_block_of_them_does_not(notebook: Notebook) -> None:
    notebook.names.update(x=torch.rand(8, 4096, device=DEVICE), out=torch.zeros(8, device=DEVICE))
    assert notebook.triton(SUMS.format(name="whole", end="n"), '--check "x.sum(1)"').error is None
    ran = notebook.triton(SUMS.format(name="shortened", end="n - 128"), '--check "x.sum(1)"')
    assert isinstance(ran.error, CheckFailed)


PRODUCT = """
@triton.jit
def {name}(a_ptr, b_ptr, out_ptr, K, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    one, inner = tl.arange(0, BLOCK), tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, {end}, BLOCK_K):
        a = tl.load(a_ptr + one[:, None] * K + k + inner)
        total = tl.dot(a, tl.load(b_ptr + (k + inner)[:, None] * BLOCK + one), total)
    tl.store(out_ptr + one[:, None] * BLOCK + one, total)
{name}[(1,)](a, b, out, 4096, BLOCK=32, BLOCK_K=64)
"""


@pytest.mark.slow
def test_long_products_pass_and_the_bound_told_is_that_of_the_element(notebook: Notebook) -> None:
    notebook.names.update(
        a=torch.randn(32, 4096, device=DEVICE),
        b=torch.randn(4096, 32, device=DEVICE),
        out=torch.zeros(32, 32, device=DEVICE),
    )
    assert notebook.triton(PRODUCT.format(name="dotted", end="K"), '--check "a @ b"').error is None
    ran = notebook.triton(PRODUCT.format(name="cut_short", end="K - 64"), '--check "a @ b"')
    assert isinstance(ran.error, CheckFailed)
    told = re.search(r"elements\. \[\d+, \d+\] is off by (\S+) where (\S+) is allowed", str(ran.error))
    assert told is not None
    assert float(told[1]) > float(told[2])
