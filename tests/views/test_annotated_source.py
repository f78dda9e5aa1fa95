from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape

import pytest

from kernellab.ir.operations import Access
from kernellab.views.cards.card import source_table
from kernellab.views.report import AnnotatedLine, KernelReport, annotate_lines

Reports = Callable[..., KernelReport]


def line_with(lines: tuple[AnnotatedLine, ...], text: str) -> AnnotatedLine:
    return next(line for line in lines if text in line.text)


def test_every_line_of_the_kernel_is_there_in_order(report: Reports) -> None:
    kernel = report("softmax")
    lines = [line for line in annotate_lines(kernel) if not line.file]
    assert [line.text for line in lines] == kernel.source.splitlines()
    assert [line.number for line in lines] == list(range(kernel.first_line, kernel.first_line + len(lines)))


def test_a_load_names_its_argument_and_its_bytes(report: Reports) -> None:
    line = line_with(annotate_lines(report("forward")), "q = tl.load(q_ptr")
    assert line.touch is not None
    assert line.touch.arguments == {Access.READ: ("q_ptr",)}
    assert line.bytes == 64 * 64 * 2
    assert "tt.load" in line.ttir


def test_work_inside_a_loop_is_hotter_than_the_same_outside(report: Reports) -> None:
    lines = annotate_lines(report("forward"))
    assert line_with(lines, "s = tl.dot(").heat > line_with(lines, "norm = tl.zeros").heat
    assert max(line.heat for line in lines) == 1.0
    assert line_with(lines, "def attention_forward").operations == 0


def test_lines_of_helpers_stand_with_their_operations(report: Reports) -> None:
    line = line_with(annotate_lines(report("backward")), "dv += tl.dot(")
    assert line.operations > 0


def test_every_operation_is_counted_once(report: Reports) -> None:
    kernel = report("matmul")
    ends = {"scf.yield", "tt.return"}
    located = [op for op in kernel.compiled.graph.operations if op.location.line is not None and op.name not in ends]
    assert sum(line.operations for line in annotate_lines(kernel)) == len(located)


@pytest.mark.slow
def test_a_line_that_became_very_much_shows_the_beginning(report: Reports) -> None:
    line = line_with(annotate_lines(report("unrolled")), "x = tl.where(")
    assert line.operations > 1000
    assert line.ttir.count("\n") < 30
    assert line.ttir.endswith("more")


def test_the_indentation_stays_where_style_sheets_are_dropped(report: Reports) -> None:
    lines = [line for line in annotate_lines(report("softmax")) if not line.file]
    shown = re.findall(r"<td>([^<]*)</td></tr>", source_table(tuple(lines)))
    collapsed = [unescape(re.sub(r"[ \n]+", " ", cell)) for cell in shown]  # as HTML has it without a style
    assert [text.replace("\u00a0", " ") for text in collapsed] == [line.text or " " for line in lines]
    assert any(text.startswith("\u00a0" * 4) for text in collapsed)
