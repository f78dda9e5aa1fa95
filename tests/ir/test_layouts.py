"""Places in memory are those of Triton, whose own linear layouts are asked where Gluon exposes them."""

from __future__ import annotations

import itertools
import re
from functools import reduce
from typing import Any

import pytest
import triton

from kernellab._triton.tiles import gluon_tile
from kernellab.errors import UsageError
from kernellab.ir.layouts import (
    Encoding,
    Holder,
    MemoryLayout,
    RegisterLayout,
    TensorMemoryLayout,
    encoding_in,
    encodings,
    layout_of,
)

TRITON = tuple(map(int, triton.__version__.split(".")[:2]))
gl = pytest.importorskip("triton.experimental.gluon.language")
blackwell = pytest.importorskip("triton.experimental.gluon.language.nvidia.blackwell")
gluon_ir = pytest.importorskip("triton._C.libtriton.gluon_ir")


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


@pytest.mark.skipif(TRITON < (3, 9), reason="Triton 3.6 aborts where it is asked for a layout of shared memory")
@pytest.mark.parametrize(("layout", "shape"), MEMORY, ids=str)
def test_places_in_shared_memory_are_those_of_triton(builder: Any, layout: Any, shape: list[int]) -> None:
    bases = _theirs(builder, layout, shape).offset_bases
    mine = gluon_tile(layout, shape).layout
    wanted = layout_of(Encoding("shared_linear", {"offset": bases}), shape)
    assert isinstance(mine, MemoryLayout)
    assert mine.places == dict(wanted.places)  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.skipif(TRITON < (3, 9), reason="Triton 3.6 aborts where it is asked for a layout of tensor memory")
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(
    ("block", "shape"),
    [
        ([128, 64], [128, 64]),
        ([128, 64], [256, 128]),
        ([128, 128], [128, 64]),
        ([64, 64], [64, 64]),
        ([64, 64], [128, 64]),
        ([64, 32], [64, 64]),
        ([64, 32], [256, 128]),
    ],
)
def test_places_in_tensor_memory_are_those_of_triton(
    builder: Any, block: list[int], shape: list[int], stride: int
) -> None:
    layout = blackwell.TensorMemoryLayout(block, stride)
    theirs = _theirs(builder, layout, shape)
    mine = gluon_tile(layout, shape, "f16").layout
    assert isinstance(mine, TensorMemoryLayout)
    wanted: dict[tuple[int, ...], tuple[int, int]] = {}
    for row, column in itertools.product(range(1 << len(theirs.rows)), range(1 << len(theirs.cols))):
        moves = [b for at, b in enumerate(theirs.rows) if row >> at & 1]
        moves += [b for at, b in enumerate(theirs.cols) if column >> at & 1]
        element = reduce(lambda a, b: (a[0] ^ b[0], a[1] ^ b[1]), moves, (0, 0))
        wanted.setdefault(element, (row, column))
    assert mine.places == wanted


def test_a_swizzle_that_rotates_starts_its_phases_at_others_in_each_repetition() -> None:
    text = "#ttg.{}<{{vec = 4, perPhase = 1, maxPhase = 4, order = [1, 0]}}>"
    rotating = layout_of(encoding_in(text.format("amd_rotating_shared"), {}), (16, 16))
    plain = layout_of(encoding_in(text.format("swizzled_shared"), {}), (16, 16))
    assert isinstance(rotating, MemoryLayout)
    assert isinstance(plain, MemoryLayout)
    assert [rotating.places[row, 0] % 16 // 4 for row in range(16)] == [0, 1, 2, 3, 1, 0, 3, 2, 2, 3, 0, 1, 3, 2, 1, 0]
    assert [plain.places[row, 0] % 16 // 4 for row in range(16)] == [0, 1, 2, 3] * 4


def test_an_element_that_several_hold_counts_them() -> None:
    layout = layout_of(Encoding("linear", {"register": [], "lane": [[1], [0]], "warp": [[0]]}), (2,))
    assert isinstance(layout, RegisterLayout)
    assert layout.holders() == {(0,): Holder(0, 0, 0, 4), (1,): Holder(0, 1, 0, 4)}


def test_padding_moves_what_lies_behind_it() -> None:
    layout = layout_of(encoding_in("#ttg.padded_shared<[8:+4, 16:+2] {order = [1, 0], shape = [4, 8]}>", {}), (4, 8))
    assert isinstance(layout, MemoryLayout)
    assert [layout.places[row, 0] for row in range(4)] == [0, 12, 16 + 8 + 2, 24 + 12 + 2]
    assert layout.banks(32)[1, 0] == 12


def test_padding_lies_between_places_that_bases_give() -> None:
    text = "#ttg.padded_shared<[4:+1] {offset = [[1, 0], [0, 1], [0, 2]], block = []}>"
    layout = layout_of(encoding_in(text, {}), (2, 4))
    assert isinstance(layout, MemoryLayout)
    assert [layout.places[0, column] for column in range(4)] == [0, 2, 5, 7]


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
        (lambda: encoding_in("blocked<{", {}), "is not a layout"),
        (lambda: encoding_in("i32", {}), "is not a layout"),
        (lambda: layout_of(Encoding("amd_wmma"), (64, 64)), "The layout amd_wmma() is not known to this version"),
        (lambda: layout_of(Encoding("blocked"), (48, 64)), "expected powers of two"),
        (lambda: layout_of(Encoding("blocked", {"CGALayout": ((1, 0),)}), (64, 64)), "num_ctas > 1"),
        (lambda: layout_of(encoding_in("#ttg.new_shared<{a = b}>", {}), (8, 8)), "new_shared(text=#ttg.new_shared"),
    ],
)
def test_what_cannot_be_drawn_is_said(call: Any, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        call()
