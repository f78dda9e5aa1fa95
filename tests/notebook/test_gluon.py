"""Cells with kernels in Gluon."""

from __future__ import annotations

import pytest

from kernellab.errors import LaunchError
from tests.notebook.conftest import Notebook

pytest.importorskip("triton.experimental.gluon")

CELL = """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

@gluon.jit
def twice_gluon(x_ptr, out_ptr, n, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    place = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    gl.store(out_ptr + place, 2 * gl.load(x_ptr + place, mask=place < n), mask=place < n)

twice_gluon[(1,)](x, out, 100, BLOCK=128)
"""


@pytest.mark.slow
def test_a_cell_compiles_and_shows_a_kernel_in_gluon(notebook: Notebook) -> None:
    ran = notebook.triton(CELL, options="--no-run --show ttgir")
    assert ran.error is None
    text = ran.shown[0]["text/plain"]
    assert "twice_gluon" in text
    assert "registers" in text
    assert any("<svg" in shown.get("text/html", "") for shown in ran.shown)


def test_a_launch_without_a_gpu_is_an_error_of_a_few_lines(notebook: Notebook) -> None:
    ran = notebook.triton(CELL)
    assert isinstance(ran.error, LaunchError)
    assert "which Triton's interpreter does not run" in " ".join(ran.error_lines)
    assert not notebook.names["out"].any()
