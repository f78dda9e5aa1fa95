from __future__ import annotations

import re
from typing import Any

import pytest

from kernellab._triton.tiles import gluon_tile, layouts_in
from kernellab.errors import UsageError
from kernellab.ir.layouts import Encoding, LaidOutValue
from kernellab.views.bundles import bundle_of
from kernellab.views.layouts import tile_maps, tile_svg
from tests.views.test_card import Reader

OPERAND = "#ttg.dot_op<{opIdx = 0, parent = #mma, kWidth = 2}>"
OTHER = OPERAND.replace("opIdx = 0", "opIdx = 1")
SHARED, LINE = "!ttg.memdesc<64x32xf16, #shared, #smem, mutable>", "loc(#loc)"
BUFFERS, PART = SHARED.replace("<", "<3x"), "!ttg.memdesc<64x16xf16, #shared, #smem, mutable, 64x32>"
RESULT = "tensor<64x64xf32, #mma>"
TTGIR = f"""
#blocked = #ttg.blocked<{{sizePerThread = [1, 8], threadsPerWarp = [4, 8], warpsPerCTA = [4, 1], order = [1, 0]}}>
#mma = #ttg.nvidia_mma<{{versionMajor = 2, versionMinor = 0, warpsPerCTA = [2, 2], instrShape = [16, 8]}}>
#shared = #ttg.swizzled_shared<{{vec = 8, perPhase = 2, maxPhase = 4, order = [1, 0]}}>
#smem = #ttg.shared_memory
#loc = loc("kernel.py":12:1)
module attributes {{"ttg.num-warps" = 4 : i32, ttg.target = "cuda:80", "ttg.threads-per-warp" = 32 : i32}} {{
  tt.func @k(%p: tensor<64x32x!tt.ptr<f16>, #blocked>, %b: tensor<32x64xf16, {OTHER}>, %c: {RESULT}) {{
    %n = arith.constant 3 : i32 {LINE}
    %x = tt.load %p : tensor<64x32x!tt.ptr<f16>, #blocked> {LINE}
    %s = ttg.local_alloc : () -> {BUFFERS} {LINE}
    %w = ttg.memdesc_index %s[%n] : {BUFFERS} -> {SHARED} {LINE}
    %t = ttg.memdesc_subslice %w[0, 0] : {SHARED} -> {PART} {LINE}
    %a = ttg.local_load %w : {SHARED} -> tensor<64x32xf16, {OPERAND}> {LINE}
    %d = tt.dot %a, %b, %c : tensor<64x32xf16, {OPERAND}> * tensor<32x64xf16, {OTHER}> -> {RESULT} {LINE}
    %f:2 = scf.for %i = %n to %n step %n iter_args(%e = %d, %j = %n) -> ({RESULT}, i32) : i32 {{
      scf.yield %e, %j : {RESULT}, i32
    }} {LINE}
    tt.return
  }}
}}
"""
FOUND = layouts_in("kernel<1>", "cuda:80", TTGIR)


def test_values_with_a_layout_are_read_with_their_types_and_lines() -> None:
    read = [(v.name, v.operation, v.shape, v.buffers, v.encoding.kind, v.line) for v in FOUND.values]
    assert read == [
        ("%x", "tt.load", (64, 32), 1, "blocked", 12),
        ("%s", "ttg.local_alloc", (64, 32), 3, "swizzled_shared", 12),
        ("%w", "ttg.memdesc_index", (64, 32), 1, "swizzled_shared", 12),
        ("%a", "ttg.local_load", (64, 32), 1, "dot_op", 12),
        ("%d", "tt.dot", (64, 64), 1, "nvidia_mma", 12),
    ]
    assert FOUND["x"].element_bits == 64
    assert FOUND["%s"].element_bits == 16
    assert list(FOUND.frame["kind"]) == [row[4] for row in read]


def test_an_unknown_value_names_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"no value 'y'.*%x, %s, %w, %a, %d"):
        FOUND["y"]


@pytest.mark.slow
def test_the_card_offers_each_value_and_shows_one_tile() -> None:
    html = bundle_of(FOUND)["text/html"]
    page = Reader(html)
    assert "kernel<1>" in "".join(page.words)
    assert len(re.findall(r'name="layouts-\d+-value"', html)) == 5
    assert len(re.findall(r'<div class="t\d+" data-tile="[^"]*">', html)) == 1
    assert len(re.findall(r'<div class="t\d+" data-tile="[^"]*" style="display:none"><rp>', html)) == 3
    assert "nvidia_mma" in re.findall(r"<label[^>]*><input[^>]*-value[^>]*checked>(.*?)</label>", html)[0]
    assert all(value.name in bundle_of(FOUND)["text/plain"] for value in FOUND.values)


def test_a_kernel_without_layouts_says_so() -> None:
    assert "has a layout" in bundle_of(layouts_in("k", "cuda:80", ""))["text/html"]


def test_the_maps_of_registers_tell_warp_lane_and_register() -> None:
    warp, lane, register = tile_maps(FOUND["d"].layout)
    assert (warp.rows, warp.columns, warp.block) == (32, 32, (2, 2))
    assert [warp.numbers[0, column] for column in (0, 4, 8)] == [0, 1, 0]  # two warps side by side, 8 columns each
    assert [lane.numbers[row, 0] for row in range(9)] == [0, 4, 8, 12, 16, 20, 24, 28, 0]
    assert [register.numbers[0, column] for column in range(3)] == [0, 1, 0]
    svg = tile_svg(lane)
    assert "<title>lane 31</title>" in svg
    assert svg.count("<path") == 32


def test_the_map_of_shared_memory_tells_banks() -> None:
    (banks,) = tile_maps(FOUND["s"].layout, 16)
    assert banks.unit == "bank"
    assert [banks.numbers[0, column] for column in range(4)] == [0, 0, 1, 1]
    assert banks.numbers[2, 0] == 4  # the second phase: 2 rows of 64 bytes on, and 8 elements aside


def test_tiles_of_one_axis_are_drawn_in_rows() -> None:
    gl: Any = pytest.importorskip("triton.experimental.gluon.language")
    lane = tile_maps(gluon_tile(gl.BlockedLayout([4], [32], [4], [0]), [1024]).layout)[1]
    assert (lane.rows, lane.columns) == (32, 32)
    assert (lane.numbers[0, 4], lane.numbers[1, 0]) == (1, 8)


def test_a_layout_without_a_rule_is_shown_with_the_reason() -> None:
    value = LaidOutValue("%m", "tt.dot", (64, 64), "f32", Encoding("amd_wmma", {"version": 3}), 4, "k.py")
    assert "The layout amd_wmma(version=3) is not known" in bundle_of(value)["text/html"]


def test_a_tile_in_a_layout_of_gluon_shows_itself() -> None:
    gl: Any = pytest.importorskip("triton.experimental.gluon.language")
    tile = gluon_tile(gl.BlockedLayout([1, 4], [8, 4], [4, 1], [1, 0]), [64, 32])
    assert (tile._repr_html_() or "").count("<svg") == 3
