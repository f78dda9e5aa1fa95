"""What Triton says of tiles, on kernels that it compiled for each family of targets, and of Gluon's layouts."""

from __future__ import annotations

import pytest
import torch

import kernellab
from kernellab._triton.tiles import gluon_tile, layouts_in
from kernellab.errors import UsageError
from kernellab.ir.layouts import MemoryLayout, RegisterLayout, TensorMemoryLayout
from tests.kernels.matmul import matmul_kernel

gl = pytest.importorskip("triton.experimental.gluon.language")

KINDS = {
    "cuda:80": "nvidia_mma",
    "cuda:100": "tensor_memory_encoding",
    "hip:gfx942": "amd_mfma",
    "hip:gfx1100": "amd_wmma",
    "hip:gfx1200": "amd_wmma",
}


@pytest.mark.slow
@pytest.mark.parametrize("target", KINDS)
def test_each_value_of_a_matrix_product_has_a_layout_that_holds_each_element(lab: kernellab.Lab, target: str) -> None:
    tile = torch.zeros(64 * 64, dtype=torch.float16)
    sizes = {"m": 64, "n": 64, "k": 64, "a_stride": 64, "b_stride": 64, "c_stride": 64}
    blocks = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 2}
    found = lab.layouts(matmul_kernel, a_ptr=tile, b_ptr=tile, c_ptr=tile, target=target, **sizes, **blocks)
    layouts = {(str(value.encoding), value.shape): value.layout for value in found.values}
    kinds = {value.encoding.kind for value in found.values}
    assert KINDS[target] in kinds
    warps, lanes = 4, 64 if target.startswith("hip:gfx9") else 32
    for (_, shape), layout in layouts.items():
        elements = 1
        for size in shape:
            elements *= size
        if isinstance(layout, RegisterLayout):
            assert (len(layout.warps), len(layout.lanes)) == (warps.bit_length() - 1, lanes.bit_length() - 1)
            holders = layout.holders()
            assert len(holders) == elements
            assert sum(each.copies for each in holders.values()) == 2 ** len(layout.registers) * lanes * warps
        else:
            assert isinstance(layout, MemoryLayout | TensorMemoryLayout)
            assert len(layout.places) == len(set(layout.places.values())) == elements


def test_a_module_that_this_triton_cannot_read_has_values_whose_layout_is_unknown() -> None:
    text = """
#blocked = #ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>
  %x = new.operation : tensor<64xf32, #blocked>
"""
    (value,) = layouts_in("k", "cuda:80", text).values
    assert value.encoding.kind == "blocked"
    with pytest.raises(UsageError, match="is not known to this version of Triton"):
        assert value.layout


def test_a_tile_in_a_layout_of_gluon_tells_who_holds_it() -> None:
    rows = gl.BlockedLayout([1, 4], [8, 4], [4, 1], [1, 0])
    tile = gluon_tile(gl.SliceLayout(1, rows), [64])
    assert isinstance(tile.layout, RegisterLayout)
    assert tile.layout.lanes == ((0,), (0,), (1,), (2,), (4,))
    assert tile.encoding.fields["parent"].kind == "blocked"


@pytest.mark.parametrize(
    ("layout", "shape", "words"),
    [
        ("gl.BlockedLayout([1, 4], [8, 4], [4, 1], [1, 0])", [64], "is of 2 axes"),
        ("gl.BlockedLayout([1, 4], [8, 4], [4, 1], [1, 0])", [48, 64], "expected powers of two"),
        ("gl.BlockedLayout([3, 4], [8, 4], [4, 1], [1, 0])", [64, 64], "must be a power of two"),
        ("gl.AutoLayout()", [64], "once the compiler has chosen it"),
        (
            "gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 100, 16])",
            [64, 64],
            "no instruction has the shape",
        ),
        ("gl.DistributedLinearLayout([[0, 3]], [[1, 0]], [[2, 0]], [], [4, 4])", [4, 4], "does not reach each element"),
        ("'blocked'", [64], "is not a layout of Gluon"),
    ],
)
def test_a_layout_that_cannot_be_is_refused_and_the_process_lives(layout: str, shape: list[int], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        gluon_tile(eval(layout, {"gl": gl}), shape)
