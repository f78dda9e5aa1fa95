from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from kernellab.checking.comparison import Check, Difference
from kernellab.compile.argument_values import ArgumentValue
from kernellab.explain.alignment import NarrowAccess
from kernellab.ir.operations import Access
from kernellab.launch.run import Finding, FindingKind, Severity
from kernellab.views.blocks import WIDTH, Message
from kernellab.views.cards.arguments import narrow_words
from kernellab.views.cards.card import cell_card
from kernellab.views.report import KernelReport
from tests.views.reports import RESOURCES, cell_of, launches

Reports = Callable[..., KernelReport]
VOID = {"hr", "img", "input", "meta", "br", "path", "rect"}
HOSTILE = '<img src=x onerror="alert(1)">&\'</style>'


class Reader(HTMLParser):
    """Checks that every element is closed in order, and keeps the text and the tags."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(launches()))
def test_the_card_is_well_formed_without_scripts_or_network(report: Reports, name: str) -> None:
    html = cell_card(cell_of(report(name))).html()
    tags = Reader(html).tags
    assert not {"script", "link", "iframe", "img"} & set(tags)
    assert set(re.findall(r"(?:https?:)?//[\w.]+[^\"\s<)]*", html)) <= {"http://www.w3.org/2000/svg"}
    assert "url(" not in html
    assert "@import" not in html


@pytest.mark.parametrize("name", sorted(launches()))
def test_every_argument_has_a_row_with_what_is_done_to_it(report: Reports, name: str) -> None:
    kernel = report(name)
    html, text = cell_card(cell_of(kernel), graphs=False).html(), cell_card(cell_of(kernel)).text()
    rows = {
        re.search(r'scope="row">([^<]*)', row)[1]: row
        for row in re.findall(r"<tr.*?</tr>", html, re.DOTALL)
        if 'scope="row' in row
    }
    assert set(rows) == {argument.name for argument in kernel.arguments}
    for argument in kernel.arguments:
        line = next(line for line in text.splitlines() if line.split()[:1] == [argument.name])
        for kind, word in ((Access.READ, "read"), (Access.WRITE, "written"), (Access.ATOMIC, "atomic")):
            expected = kind in (argument.lines or {})
            assert (f"kl-{kind}" in rows[argument.name]) == expected
            assert (f"{word} (line" in line) == expected


def test_the_line_that_writes_is_named(report: Reports) -> None:
    kernel = report("add")
    number = next(
        kernel.first_line + index for index, line in enumerate(kernel.source.splitlines()) if "tl.store(" in line
    )
    row = next(argument for argument in kernel.arguments if argument.name == "out_ptr")
    assert row.lines == {Access.WRITE: (number,)}
    assert f"written line {number}" in Reader(cell_card(cell_of(kernel), graphs=False).html()).text
    assert f"written (line {number})" in cell_card(cell_of(kernel)).text()


def test_changed_elements_are_counted_with_separators(report: Reports) -> None:
    kernel = report("add")
    arguments = tuple(
        replace(argument, changed=1234, value=ArgumentValue((5678,), (1,))) if argument.name == "out_ptr" else argument
        for argument in kernel.arguments
    )
    cell = cell_of(replace(kernel, arguments=arguments))
    words = "1,234 elements changed, 4,444 same as before"
    assert words in Reader(cell_card(cell, graphs=False).html()).text
    assert words in " ".join(cell_card(cell).text().split())


def test_a_rerun_that_stores_the_same_values_does_not_look_like_a_failed_store(report: Reports) -> None:
    kernel = report("add")
    cell = cell_of(replace(kernel, arguments=tuple(replace(row, changed=0) for row in kernel.arguments)))
    text = " ".join(cell_card(cell).text().split())
    assert re.search(r"written \(line \d+\); same values as before", text)
    assert "unchanged" not in text


def test_shapes_strides_and_values_stand_in_the_rows_of_their_arguments(report: Reports) -> None:
    kernel = report("add")
    values = (ArgumentValue((4, 3), (1, 4)), ArgumentValue((4, 3), (3, 1)), ArgumentValue(value=1000))
    rows = tuple(replace(row, value=value) for row, value in zip(kernel.arguments, values, strict=False))
    cell = cell_of(replace(kernel, arguments=rows))
    for text in (Reader(cell_card(cell, graphs=False).html()).text, cell_card(cell).text()):
        assert "(4, 3), strides (1, 4)" in text
        assert text.count("(4, 3)") == 2
        assert text.count("strides") == 1
        assert "1,000" in text


def test_what_an_undivided_size_costs_stands_in_its_row(report: Reports) -> None:
    kernel = report("add")
    narrow = tuple(NarrowAccess(kind, line, 2, 16) for kind, line in ((Access.READ, 7), (Access.WRITE, 9)))
    rows = (replace(kernel.arguments[0], value=ArgumentValue(value=1000), narrow=narrow), *kernel.arguments[1:])
    cell = cell_of(replace(kernel, arguments=rows))
    words = "1,000 is not divisible by 16: loads of 2 bytes (line 7), stores of 2 bytes (line 9); 16 if it were"
    for text in (Reader(cell_card(cell, graphs=False).html()).text, cell_card(cell).text()):
        assert words in " ".join(text.split())


def test_a_size_that_widens_an_access_only_with_others_names_them(report: Reports) -> None:
    kernel = report("add")
    narrow = (NarrowAccess(Access.READ, 7, 2, 16, also=("stride", "n")), NarrowAccess(Access.WRITE, 9, 2, 16))
    assert narrow_words(replace(kernel.arguments[0], narrow=narrow)).endswith("; 16 if it and stride and n were")


def test_a_failed_check_gives_its_worst_error_with_its_tolerance_and_the_line_that_stores(report: Reports) -> None:
    worst = Difference((3, 5), 1.5, 1.0, 1e-6)
    check = Check("x + y", "out_ptr", False, 0.5, 1e-6, 17, 100, worst=worst, differences=(worst,))
    kernel = report("add", checks=(check,))
    (line,) = next(row for row in kernel.arguments if row.name == "out_ptr").lines[Access.WRITE]
    words = f"max error 0.5 at [3, 5], tolerance 1e-06; 17 of 100 elements wrong, stored in line {line}"
    assert f"out_ptr differs from x + y: {words}" in " ".join(cell_card(cell_of(kernel)).text().split())


def test_an_untouched_argument_is_said_to_be_so(report: Reports) -> None:
    kernel = report("add")
    arguments = (replace(kernel.arguments[0], lines={}, changed=None), *kernel.arguments[1:])
    cell = cell_of(replace(kernel, arguments=arguments))
    assert "untouched" in Reader(cell_card(cell, graphs=False).html()).text
    assert "untouched" in cell_card(cell).text()


def test_unknown_effects_are_named_and_never_read_as_untouched(report: Reports) -> None:
    kernel = report("unknown")
    arguments = (replace(kernel.arguments[0], lines={}), *kernel.arguments[1:])
    cell = cell_of(replace(kernel, arguments=arguments))
    for text in (Reader(cell_card(cell, graphs=False).html()).text, cell_card(cell).text()):
        assert "tt.store" in text
        assert "memory through the pointers in table_ptr" in " ".join(text.split())
        assert "untouched" not in text
        assert "not known" in text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"registers": None, "occupancy": None, "limiter": None}, ["registers not known", "occupancy not known"]),
        ({"spill_bytes": 128, "shared_bytes": 98304}, ["spills 128 B", "shared memory 96 KiB"]),
        ({"occupancy": 0.125, "limiter": "registers"}, ["occupancy 12.5%", "limited by registers"]),
        ({"registers": 82, "occupancy": 0.3125}, ["limited by registers; 2 registers fewer: one more block per SM"]),
        ({"fits": False, "why_not": "300 KiB of 227 KiB"}, ["cannot run on cuda:90: 300 KiB of 227 KiB"]),
    ],
)
def test_resources_are_told_in_words(report: Reports, changes: dict[str, object], words: list[str]) -> None:
    kernel = report("add")
    compiled = replace(kernel.compiled, resources=replace(RESOURCES, **changes))  # type: ignore[arg-type]
    cell = cell_of(replace(kernel, compiled=compiled))
    for text in (Reader(cell_card(cell, graphs=False).html()).text, " ".join(cell_card(cell).text().split())):
        for word in words:
            assert word in text


@pytest.mark.parametrize(
    ("equal", "words"),
    [(True, "matches torch.softmax(x, -1); max error 1.2e-07"), (False, "differs from torch.softmax(x, -1)")],
)
def test_the_check_is_told(report: Reports, equal: bool, words: str) -> None:
    check = Check("torch.softmax(x, -1)", "out_ptr", equal, 1.2e-7, 1e-6, 0 if equal else 17, 100)
    cell = cell_of(report("softmax", checks=(check,)))
    assert words in Reader(cell_card(cell, graphs=False).html()).text
    assert words in " ".join(cell_card(cell).text().split())


def test_outputs_that_equal_one_reference_share_a_sentence(report: Reports) -> None:
    errors = {"x_ptr": 0.5, "out_ptr": 0.25}
    checks = tuple(Check("expected", name, True, error, 1.0, 0, 100) for name, error in errors.items())
    wrong = Check("expected", "y_ptr", False, 2.0, 1.0, 3, 100)
    text = cell_card(cell_of(report("add", checks=(*checks, wrong)))).text()
    assert "x_ptr, out_ptr match expected; max error 0.5" in text
    assert "y_ptr differs from expected: max error 2; 3 of 100 elements wrong" in text


def test_findings_are_told_with_argument_line_and_program(report: Reports) -> None:
    kernel = report("add")
    finding = Finding(
        FindingKind.OUTSIDE_VIEW, Severity.WARNING, "x_ptr", kernel.file, 9, (3, 0, 0), "offset 1,200 of 1,024"
    )
    assert kernel.run is not None
    cell = cell_of(replace(kernel, run=replace(kernel.run, findings=(finding,), notes=("rounded",))))
    for text in (Reader(cell_card(cell, graphs=False).html()).text, " ".join(cell_card(cell).text().split())):
        assert "warning: outside view of x_ptr in line 9 by program (3, 0, 0): offset 1,200 of 1,024" in text
        assert "rounded" in text


def test_an_earlier_compile_and_a_missing_launch_are_said(report: Reports) -> None:
    kernel = report("add")
    cell = cell_of(replace(kernel, compiled=replace(kernel.compiled, from_cache=True), run=None, grid=None, launches=0))
    text = cell_card(cell).text()
    assert "compiled earlier" in text
    assert "not launched" in text


def test_what_stands_between_backticks_in_a_message_is_code() -> None:
    assert Message("through `ptrs<1>`").html() == '<p class="kl-note">through <code>ptrs&lt;1&gt;</code></p>'
    assert Message("through `ptrs`").lines(80) == ["through `ptrs`"]


def test_everything_from_outside_is_escaped(report: Reports) -> None:
    kernel = report("add")
    assert kernel.run is not None
    argument = replace(kernel.arguments[0], name=HOSTILE, type=HOSTILE, specialization=HOSTILE)
    hostile = replace(
        kernel,
        label=HOSTILE,
        source=HOSTILE,
        config=HOSTILE,
        notes=(HOSTILE,),
        arguments=(argument,),
        checks=(Check(HOSTILE, HOSTILE, False, 1.0, 0.1, 1, 2),),
        run=replace(kernel.run, output=HOSTILE, where=HOSTILE),
    )
    html = cell_card(cell_of(hostile, hints=(HOSTILE,), show="source")).html()
    assert "img" not in Reader(html).tags
    assert html.count("</style>") == html.count("<style>")


@pytest.mark.parametrize("show", ["ttir", "graph", "source", "ttir,source"])
def test_what_was_asked_for_is_open(report: Reports, show: str) -> None:
    html = cell_card(cell_of(report("backward"), show=show)).html()
    opened = re.findall(r"<details open><summary>([^<]*)", html)
    titles = {"ttir": "Source and stages", "graph": "Dataflow by source line", "source": "Source, annotated"}
    assert opened == [titles[part] for part in ("graph", "source", "ttir") if part in show.split(",")]


def test_a_stage_that_does_not_exist_is_explained(report: Reports) -> None:
    cell = cell_of(report("add"), show="ptx")
    assert "has no ptx" in Reader(cell_card(cell).html()).text
    assert "has no ptx" in cell_card(cell).text()


def test_several_kernels_share_one_card_with_closed_graphs(report: Reports) -> None:
    html = cell_card(cell_of(report("add"), report("softmax"), hints=("launch reduce_kernel as ...",))).html()
    assert html.count('class="kl-name"') == 2
    assert "<details open" not in html
    assert "launch reduce_kernel as ..." in Reader(html).text


@pytest.mark.slow
def test_the_same_report_gives_the_same_bytes(report: Reports) -> None:
    assert cell_card(cell_of(report("matmul"))).html() == cell_card(cell_of(report("matmul"))).html()


@pytest.mark.parametrize("name", sorted(launches()))
def test_the_text_card_keeps_within_its_width(report: Reports, name: str) -> None:
    kernel = report(name)
    long = replace(
        kernel,
        label="a_kernel_with_quite_a_long_name_that_goes_on_and_on@12",
        config=", ".join(f"BLOCK_{letter}=128" for letter in "MNKABCDEFGH"),
        notes=("word " * 60,),
        arguments=tuple(
            replace(argument, lines={kind: tuple(range(1, 40)) for kind in Access}) for argument in kernel.arguments
        ),
    )
    for cell in (cell_of(kernel), cell_of(long, hints=("hint " * 50,))):
        assert max(map(len, cell_card(cell).text().splitlines())) <= WIDTH
