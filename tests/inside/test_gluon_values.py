"""Values of kernels in Gluon: the copy that stores them compiles, and on a GPU they are those of a transcript."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import kernellab
from kernellab.errors import LaunchError
from kernellab.inside.device_texts import INFERRED
from kernellab.inside.rewriting import BUFFER, LogEvent, LoggingKernel, logging_kernel
from kernellab.inside.rewritten import closure_to_rewrite, rewritten_implementation
from kernellab.launch.calls import UserCall
from kernellab.launch.recorded_values import ValueKind
from kernellab.registry.calls import compile_call
from kernellab.timing.launches import Implementation
from tests._triton import gluon_kernels
from tests._triton.test_gluon import add, product_arguments, through_shared
from tests.labs import lab_fixture

pytest.importorskip("triton.experimental.gluon")

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

needs_gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")]
pytestmark = pytest.mark.slow
ROWS, COLUMNS, ROUNDS = 16, 32, 2


@gluon.jit
def scaled(value, by):
    product = value * by
    return product + 0.0


@gluon.jit
def sum_of_rows(x, out, rows, ROWS: gl.constexpr, COLUMNS: gl.constexpr, ROUNDS: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    row = gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
    column = gl.arange(0, COLUMNS)
    offsets = gl.program_id(0) * ROUNDS * ROWS * COLUMNS + row[:, None] * COLUMNS + column[None, :]
    acc = gl.zeros([ROWS, COLUMNS], gl.float32, layout)
    for step in range(ROUNDS):
        tile = gl.load(x + step * ROWS * COLUMNS + offsets, mask=row[:, None] < rows, other=0.0)
        acc += scaled(tile, 2.0)
    total = gl.sum(acc, 1)
    gl.store(out + gl.program_id(0) * ROWS + row, total, mask=row < rows)


lab = lab_fixture()


def logging_copy(lab: kernellab.Lab, kernel: Any, *args: Any) -> tuple[LoggingKernel, Implementation]:
    plain = compile_call(lab.session(), UserCall(lab.bind(kernel), (2,), args, {}))
    logging = logging_kernel(closure_to_rewrite(plain.kernel_launch.function), None, 3, 1 << 10)
    buffer = torch.zeros(logging.buffer_words, dtype=torch.int64)
    return logging, rewritten_implementation(lab.session(), plain, logging.closure, {BUFFER: buffer})


def test_the_copy_of_a_kernel_stores_tiles_in_layouts_of_their_own(lab: kernellab.Lab) -> None:
    x, out = torch.zeros(2 * ROUNDS * ROWS * COLUMNS), torch.zeros(2 * ROWS)
    kernel, copy = logging_copy(lab, sum_of_rows, x, out, 3, ROWS, COLUMNS, ROUNDS)
    names = {site.name for site in kernel.sites if site.event is LogEvent.ASSIGNMENT}
    assert {"row", "column", "offsets", "acc", "total", "product"} <= names
    assert {site.event for site in kernel.sites} >= {LogEvent.LOAD, LogEvent.STORE, LogEvent.ITERATION, LogEvent.RETURN}
    effects = copy.kernel.effects
    assert effects.unknown == ()
    assert effects.writes >= {"out", BUFFER}
    assert copy.kernel.ttgir.count("tensor<512xf32") > 0, "a tile of 16 x 32 is stored as a row"


@pytest.mark.slow
def test_effects_alone_are_those_of_the_whole_compile(lab: kernellab.Lab) -> None:
    x, out = torch.zeros(2 * ROUNDS * ROWS * COLUMNS), torch.zeros(2 * ROWS)
    _, copy = logging_copy(lab, sum_of_rows, x, out, 3, ROWS, COLUMNS, ROUNDS)
    with kernellab.Lab(store=":memory:") as other:
        effects = other.compiler.effects(copy.kernel_launch.job)
    assert (effects.reads, effects.writes, effects.unknown) == (copy.kernel.effects.reads, {"out", BUFFER}, ())


@pytest.mark.parametrize("kernel", ["add", "through_shared", "wgmma_product"])
def test_methods_of_shared_memory_stay_as_they_are(lab: kernellab.Lab, kernel: str) -> None:
    x = torch.zeros(256)
    launches: dict[str, tuple[Any, ...]] = {
        "add": (add, x, x, torch.zeros(256), 200, 128),
        "through_shared": (through_shared, x, torch.zeros(256), 128),
        "wgmma_product": (gluon_kernels.wgmma_product, *product_arguments()),
    }
    logging, copy = logging_copy(lab, *launches[kernel])
    assert "kl_descriptor" not in logging.closure.functions[0].text
    plain = lab.compile(*launches[kernel])
    for instruction in ("wgmma.mma_async", "ttg.local_store"):
        texts = [implementation.ptx + implementation.ttgir for implementation in (plain, copy.kernel)]
        assert texts[0].count(instruction) == texts[1].count(instruction)


def test_without_a_gpu_it_says_that_a_kernel_in_gluon_needs_one(lab: kernellab.Lab) -> None:
    if torch.cuda.is_available():
        pytest.skip("needs a machine without a GPU")
    with pytest.raises(LaunchError, match="in Gluon, which Triton's interpreter does not run: launch it on a GPU"):
        lab.values(through_shared, (1,), torch.zeros(128), torch.zeros(128), 128)


class TestOnGpu:
    pytestmark = needs_gpu

    def test_values_are_those_of_a_transcript(self) -> None:
        x = torch.randn(2, ROUNDS, ROWS, COLUMNS)
        with kernellab.Lab(store=":memory:") as lab:
            arguments = (x.cuda(), torch.zeros(2 * ROWS, device="cuda"), 3, ROWS, COLUMNS, ROUNDS)
            values = lab.values(sum_of_rows, (2,), *arguments, program=1)
        row, column = np.arange(ROWS), np.arange(COLUMNS)
        tiles = np.where(row[:, None] < 3, x[1].numpy(), 0)
        assert values.where == "gpu"
        np.testing.assert_array_equal(values.find("row").data, row)
        offsets = ROUNDS * ROWS * COLUMNS + row[:, None] * COLUMNS + column
        np.testing.assert_array_equal(values.find("offsets").data, offsets)
        assert bool(INFERRED) or values.find("column").data.tolist() == column.tolist()
        for step in range(ROUNDS):
            tile = values.find("tile", iteration=step)
            np.testing.assert_array_equal(tile.data, tiles[step])
            assert tile.argument == "x"
            assert tile.elements is not None
            np.testing.assert_array_equal(tile.elements, step * ROWS * COLUMNS + offsets)
            assert tile.summary.masked == (ROWS - 3) * COLUMNS
            np.testing.assert_array_equal(values.find("product", iteration=step).data, 2 * tiles[step])
        np.testing.assert_allclose(values.find("total").data, 2 * tiles.sum((0, 2)), rtol=1e-5, atol=1e-5)
        assert any("shared and tensor memory" in note for note in values.notes)
        assert any("same outputs" in note for note in values.notes)

    def test_what_is_loaded_from_shared_memory_is_recorded(self) -> None:
        x = torch.randn(256, device="cuda")
        with kernellab.Lab(store=":memory:") as lab:
            values = lab.values(through_shared, (2,), x, torch.zeros_like(x), 128, programs=[0, 1])
        stored = [value for value in values.values if value.kind is ValueKind.STORE]
        assert [value.program[0] for value in stored] == [0, 1]
        for program, value in enumerate(stored):
            np.testing.assert_array_equal(value.data, x.cpu()[program * 128 : program * 128 + 128].numpy())
