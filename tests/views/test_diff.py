from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kernellab.compile.types import Compiled, Parameter
from kernellab.errors import UsageError
from kernellab.target import parse_target
from kernellab.views.cards.diff import Change, changed_words, diff_html, diff_rows, diff_text
from tests.views.test_card import Reader

Kernels = Callable[[str], Compiled]

PTX = """.target sm_90a
{
\t.loc\t1 7 3
\tld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1];
\tadd.s32 \t%r9, %r1, %r2;
\tret;
}
\t.file\t1 "k.py"
"""


@pytest.fixture
def two(compiled: Kernels, tmp_path: Path) -> tuple[Compiled, Compiled]:
    """Return a kernel compiled well, and with narrow loads, fewer warps and spills."""
    folders = [tmp_path / "wide", tmp_path / "narrow"]
    texts = [PTX, PTX.replace(".v4.b32 {%r1, %r2, %r3, %r4}", ".b32 {%r21}").replace("%r9, %r1, %r2", "%r7, %r5, %r6")]
    for folder, text in zip(folders, texts, strict=True):
        folder.mkdir()
        (folder / "k.ptx").write_text(text)
    wide = replace(compiled("add"), folder=folders[0], digest="a" * 64)
    worse = replace(wide.resources, registers=64, spill_bytes=128)
    return wide, replace(wide, folder=folders[1], resources=worse, options={"num_warps": 8, "num_stages": 3})


def test_facts_that_differ_are_told_with_both_values(two: tuple[Compiled, Compiled]) -> None:
    text = diff_text(*two, "resources")
    assert "registers: 40 per thread -> 64 per thread" in text
    assert text.count("num_warps: 4 -> 8") == 1
    assert "loads, 16 B wide: 1 -> none" in text
    assert "loads, 4 B wide: none -> 1" in text
    assert "shared memory" not in text


def test_an_occupancy_stands_with_its_limit_and_stages_only_where_a_loop_has_some(
    two: tuple[Compiled, Compiled],
) -> None:
    full, half = (replace(two[0], resources=replace(two[0].resources, occupancy=share)) for share in (1.0, 0.5))
    half = replace(half, resources=replace(half.resources, limiter="registers"))
    text = diff_text(full, half, "resources")
    assert "occupancy: 100% -> 50%, limited by " in text
    assert "num_stages" not in diff_html(full, half, "resources")
    other = replace(half, options={**half.options, "num_stages": 5})
    assert "num_stages" in diff_html(full, other, "resources")


def test_sides_with_equal_options_are_named_by_their_constexprs_else_by_side(two: tuple[Compiled, Compiled]) -> None:
    def named(block: str) -> Compiled:
        return replace(two[0], parameters=(Parameter("BLOCK", "constexpr", block),))

    assert re.findall(r"(?:---|\+\+\+) .*, (\S+)$", diff_text(named("64"), named("128"), "resources"), re.M) == [
        "BLOCK=64",
        "BLOCK=128",
    ]
    same = diff_text(named("64"), named("64"), "resources")
    assert re.findall(r"(?:---|\+\+\+) .*, (\S+)$", same, re.M) == ["left", "right"]


def test_renamed_registers_are_no_difference(two: tuple[Compiled, Compiled]) -> None:
    text = diff_text(*two, "ptx")
    assert "PTX: 1 line removed, 1 line added" in text
    assert "- \tld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1];\n+ \tld.global.b32 {%r21}, [%rd1];" in text
    assert "  \tadd.s32" in text
    assert ".loc" not in text


def test_the_html_stands_by_itself_and_marks_the_words_that_differ(two: tuple[Compiled, Compiled]) -> None:
    html = diff_html(*two, "ptx")
    reader = Reader(html)
    assert "script" not in reader.tags
    assert "≠" in html
    assert '<tr class="kd-differs"><th>registers</th><td>40 per thread</td><td>64 per thread</td></tr>' in html
    assert "<mark>.v4</mark>" in html or "<mark>v4</mark>" in html or "<mark>v4.</mark>" in html
    assert '<tr class="kd-renamed">' in html


def test_the_same_kernel_twice_differs_in_nothing(two: tuple[Compiled, Compiled]) -> None:
    wide, _ = two
    assert "no difference" in diff_text(wide, wide, "ptx")
    assert "kd-differs" not in diff_html(wide, wide, "ptx").partition("</style>")[2]


def test_sources_given_as_text_are_compared(two: tuple[Compiled, Compiled]) -> None:
    wide, _ = two
    text = diff_text(wide, wide, sources=("a = 1\nb = 2\n", "a = 1\nb = 3\n"), names=("add@1", "add@2"))
    assert text.splitlines() == [
        "--- add@1",
        "+++ add@2",
        "source: 1 line removed, 1 line added",
        "  a = 1",
        "- b = 2",
        "+ b = 3",
    ]


def test_the_source_is_read_from_its_file(compiled: Kernels) -> None:
    text = diff_text(compiled("add"), compiled("softmax"))
    assert "- def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):" in text
    assert "+ def softmax_kernel(" in text


def test_a_target_that_differs_and_an_argument_that_only_one_has(two: tuple[Compiled, Compiled]) -> None:
    wide, _ = two
    other = replace(wide, target=parse_target("cuda:80"), parameters=(*wide.parameters, Parameter("extra", "i32", "")))
    text = diff_text(wide, other, "resources")
    assert "target: cuda:90 -> cuda:80" in text
    assert "extra: none -> i32" in text


def test_an_unknown_stage_is_refused_with_the_known_ones(two: tuple[Compiled, Compiled]) -> None:
    with pytest.raises(UsageError, match="'cubin'; expected one of source, resources, ttir"):
        diff_html(*two, "cubin")


def test_text_of_kernels_cannot_break_the_html(two: tuple[Compiled, Compiled]) -> None:
    wide, _ = two
    html = diff_html(wide, wide, sources=("x = '<script>'", "x = '<b>'"), names=("<i>", "&"))
    assert "script" not in Reader(html).tags
    assert "&lt;i&gt;" in html


def test_long_equal_stretches_are_skipped() -> None:
    left = [str(number) for number in range(100)]
    rows = diff_rows("source", left, [*left[:50], "new", *left[50:]])
    assert [row.change for row in rows].count(Change.ADDED) == 1
    assert [row.skipped for row in rows if row.change is Change.SKIPPED] == [47, 47]


def test_thousands_of_equal_lines_are_compared_line_by_line() -> None:
    same = ["\tfma.rn.f32 \t%f1, %f2, %f3, %f4;"] * 4000
    rows = diff_rows("ptx", ["\tmov.u32 %r1, 1;", *same], ["\tmov.u32 %r1, 2;", *same])
    assert next(row.change for row in rows if row.change is not Change.SKIPPED) is Change.CHANGED
    assert sum(row.skipped for row in rows) == 3997


def test_words_that_differ_are_found_within_a_line() -> None:
    left, right = changed_words("ld.global.v4.b32", "ld.global.b32")
    assert "".join(text for text, _ in left) == "ld.global.v4.b32"
    assert "v4" in "".join(text for text, differs in left if differs)
    assert not [text for text, differs in right if differs]
