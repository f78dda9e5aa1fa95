from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kernellab.compile.types import Compiled
from kernellab.views.cards.card import cell_card
from kernellab.views.cards.results import (
    compiled_card,
    effects_card,
    graph_card,
)
from kernellab.views.report import KernelReport
from tests.views.reports import cell_of
from tests.views.test_card import Reader

Kernels = Callable[[str], Compiled]


def test_a_compiled_kernel_shows_its_arguments_resources_and_stages(compiled: Kernels) -> None:
    html = compiled_card(compiled("add")).html()
    text = Reader(html).text
    assert "written line" in text
    assert "registers 40" in text
    assert "TTIR" in text
    assert "not launched" not in text
    assert "<b>TTIR</b>" in html
    assert "written (line" in compiled_card(compiled("add")).text()


def test_effects_tell_the_lines_of_every_argument(compiled: Kernels) -> None:
    effects = compiled("branches").effects
    for text in (Reader(effects_card(effects).html()).text, effects_card(effects).text()):
        assert "x_ptr" in text
        assert "spare_ptr" in text
        assert "atomic" in text
    assert "in a branch or loop that may not be entered" in effects_card(effects).html()


def test_unknown_effects_are_told_beside_the_known_ones(compiled: Kernels) -> None:
    effects = replace(compiled("unknown").effects, sites=())
    for text in (Reader(effects_card(effects).html()).text, effects_card(effects).text()):
        assert "memory through the pointers in table_ptr" in text
        assert "not known" in text
        assert "untouched" not in text


def test_a_graph_shows_as_a_picture_and_as_an_indented_list(compiled: Kernels) -> None:
    assert "svg" in Reader(graph_card(compiled("matmul").graph).html()).tags
    text = graph_card(compiled("matmul").graph).text()
    assert "    ▽ 45  a = tl.load(" in text
    assert "← " in text


def test_arguments_in_the_same_memory_are_told(compiled: Kernels, report: Callable[..., KernelReport]) -> None:
    kernel = compiled("add")
    effects = replace(kernel.effects, aliases=(frozenset({"out_ptr", "x_ptr"}),))
    cell = cell_of(report("add", compiled=replace(kernel, effects=effects)))
    assert "out_ptr and x_ptr are the same memory" in cell_card(cell).text()
    assert "out_ptr and x_ptr are the same memory" in cell_card(cell, graphs=False).html()
