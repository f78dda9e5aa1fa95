"""Layouts are computed as Triton computes them; what its own linear layouts say is asked where Gluon exposes it."""

from __future__ import annotations

from typing import Any

import pytest
import triton

from kernellab.errors import UsageError
from kernellab.ir.layouts import (
    Encoding,
    Holder,
    MemoryLayout,
    RegisterLayout,
    encoding_in,
    encoding_of,
    encodings,
    layout_of,
)

TRITON = tuple(map(int, triton.__version__.split(".")[:2]))
gl = pytest.importorskip("triton.experimental.gluon.language")
gluon_ir = pytest.importorskip("triton._C.libtriton.gluon_ir")


def _blocked(*parts: list[int]) -> Any:
    return gl.BlockedLayout(*parts)


def _mma(version: int, warps: list[int], instruction: list[int]) -> Any:
    return gl.NVMMADistributedLayout(version=[version, 0], warps_per_cta=warps, instr_shape=instruction)


ROWS = _blocked([1, 4], [8, 4], [4, 1], [1, 0])
SQUARE = _blocked([4, 4], [8, 4], [2, 2], [1, 0])
AMPERE, HOPPER = _mma(2, [2, 2], [16, 8]), _mma(3, [4, 1], [16, 64, 16])
REGISTERS = [
    (ROWS, [64, 64]),
    (ROWS, [16, 8]),  # smaller than the layout: several hold the same
    (_blocked([2, 2], [4, 8], [2, 2], [0, 1]), [128, 32]),
    (_blocked([4], [32], [4], [0]), [1024]),
    (_blocked([4], [32], [4], [0]), [64]),
    (_blocked([1, 2, 2], [2, 4, 4], [1, 2, 2], [2, 1, 0]), [4, 16, 32]),
    (gl.SliceLayout(1, ROWS), [64]),
    (gl.SliceLayout(0, ROWS), [64]),
    (gl.SliceLayout(0, AMPERE), [128]),
    (AMPERE, [64, 64]),
    (AMPERE, [16, 8]),
    (_mma(2, [4, 1], [16, 8]), [128, 64]),
    (HOPPER, [128, 128]),
    (_mma(3, [4, 2], [16, 128, 16]), [128, 256]),
    (gl.DotOperandLayout(0, AMPERE, 2), [64, 64]),
    (gl.DotOperandLayout(1, AMPERE, 2), [64, 64]),
    (gl.DotOperandLayout(0, _mma(2, [4, 1], [16, 8]), 4), [64, 32]),
    (gl.DotOperandLayout(1, _mma(2, [4, 1], [16, 8]), 1), [32, 64]),
    (gl.DotOperandLayout(0, HOPPER, 2), [64, 64]),
    (gl.DotOperandLayout(0, SQUARE, 0), [32, 16]),
    (gl.DotOperandLayout(1, SQUARE, 0), [16, 32]),
]
amd = pytest.importorskip("triton.experimental.gluon.language.amd")
for side in (32, 16):
    for transposed in (True, False):
        shape = [side, side, 256 // side]
        cores = amd.AMDMFMALayout(version=3, instr_shape=shape, transposed=transposed, warps_per_cta=[2, 2])
        REGISTERS += [(cores, [128, 64]), *((gl.DotOperandLayout(n, cores, 4), [128, 128]) for n in (0, 1))]
        REGISTERS += [(gl.DotOperandLayout(1, cores, 8), [64, 128])]
MEMORY = [
    (gl.SwizzledSharedLayout(8, 1, 8, [1, 0]), [64, 64]),
    (gl.SwizzledSharedLayout(4, 2, 4, [0, 1]), [32, 64]),
    (gl.SwizzledSharedLayout(1, 1, 1, [0]), [64]),
    *(
        (gl.NVMMASharedLayout(swizzle, bits, 2, transposed=transposed), [64, 128] if not transposed else [128, 64])
        for swizzle in (0, 32, 64, 128)
        for bits in (8, 16, 32)
        for transposed in (False, True)
    ),
]


@pytest.fixture(scope="module")
def builder() -> Any:
    ir = pytest.importorskip("triton._C.libtriton.ir")
    context = ir.context()
    ir.load_dialects(context)
    found = gluon_ir.GluonOpBuilder(context)
    if not hasattr(found, "to_linear_layout"):
        pytest.skip("this Triton does not expose its linear layouts")
    return found, context


def _theirs(builder: Any, layout: Any, shape: list[int]) -> Any:
    return builder[0].to_linear_layout(layout._to_ir(builder[0]), shape)


@pytest.mark.parametrize(("layout", "shape"), REGISTERS, ids=str)
def test_registers_lanes_and_warps_are_those_of_triton(builder: Any, layout: Any, shape: list[int]) -> None:
    theirs = _theirs(builder, layout, shape)
    mine = layout_of(encoding_of(layout), shape)
    assert isinstance(mine, RegisterLayout)
    for found, wanted in (
        (mine.registers, theirs.reg_bases),
        (mine.lanes, theirs.lane_bases),
        (mine.warps, theirs.warp_bases),
    ):
        assert [list(basis) for basis in found] == wanted


@pytest.mark.skipif(TRITON < (3, 9), reason="Triton 3.6 aborts where it is asked for a layout of shared memory")
@pytest.mark.parametrize(("layout", "shape"), MEMORY, ids=str)
def test_places_in_shared_memory_are_those_of_triton(builder: Any, layout: Any, shape: list[int]) -> None:
    bases = _theirs(builder, layout, shape).offset_bases
    mine = layout_of(encoding_of(layout), shape)
    wanted = layout_of(Encoding("shared_linear", {"offset": bases}), shape)
    assert isinstance(mine, MemoryLayout)
    assert mine.places == dict(wanted.places)  # type: ignore[union-attr]


def test_an_element_that_several_hold_counts_them() -> None:
    layout = layout_of(Encoding("linear", {"register": [], "lane": [[1], [0]], "warp": [[0]]}), (2,))
    assert isinstance(layout, RegisterLayout)
    assert layout.holders() == {(0,): Holder(0, 0, 0, 4), (1,): Holder(0, 1, 0, 4)}


def test_padding_moves_what_lies_behind_it() -> None:
    layout = layout_of(encoding_in("#ttg.padded_shared<[8:+4, 16:+2] {order = [1, 0], shape = [4, 8]}>", {}), (4, 8))
    assert isinstance(layout, MemoryLayout)
    assert [layout.places[row, 0] for row in range(4)] == [0, 12, 16 + 8 + 2, 24 + 12 + 2]
    assert layout.banks(32)[1, 0] == 12


def test_columns_of_a_swizzled_tile_lie_in_different_banks() -> None:
    counts = []
    for vector, phases in ((1, 1), (8, 8)):
        text = f"#ttg.swizzled_shared<{{vec = {vector}, perPhase = 1, maxPhase = {phases}, order = [1, 0]}}>"
        layout = layout_of(encoding_in(text, {}), (8, 64))
        assert isinstance(layout, MemoryLayout)
        counts.append(len({layout.banks(16)[row, 0] for row in range(8)}))
    assert counts == [1, 8]


def test_names_at_the_head_of_a_module_may_refer_to_each_other() -> None:
    found = encodings(
        "#mma = #ttg.nvidia_mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [2, 2], instrShape = [16, 8]}>\n"
        "#loc = loc(unknown)\n"
        "#operand = #ttg.dot_op<{opIdx = 0, parent = #mma, kWidth = 2}>\n"
    )
    assert list(found) == ["#mma", "#operand"]
    assert found["#operand"].fields["parent"] == found["#mma"]
    inline = encoding_in("#ttg.slice<{dim = 1, parent = #ttg.dot_op<{opIdx = 0, parent = #mma, kWidth = 2}>}>", found)
    assert inline.fields == {"dim": 1, "parent": found["#operand"]}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: encoding_in("#ttg.blocked<{", {}), "is no layout"),
        (lambda: encoding_in("i32", {}), "is no layout"),
        (lambda: layout_of(Encoding("amd_wmma"), (64, 64)), "There is no rule for the layout amd_wmma"),
        (lambda: layout_of(Encoding("blocked"), (48, 64)), "expected powers of two"),
        (lambda: layout_of(Encoding("blocked", {"CGALayout": ((1, 0),)}), (64, 64)), "num_ctas > 1"),
        (lambda: encoding_of("AutoLayout"), "expected one of BlockedLayout"),
    ],
)
def test_what_cannot_be_drawn_is_said(call: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words.replace("(", r"\(").replace(")", r"\)")):
        call()
