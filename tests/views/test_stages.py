from __future__ import annotations

import re
from collections.abc import Callable

from kernellab.ir.lines import stage_lines
from kernellab.views.cards.card import cell_card
from kernellab.views.report import KernelReport
from tests.views.reports import cell_of

Reports = Callable[..., KernelReport]


def test_ttir_loses_its_locations_and_keeps_the_lines(report: Reports) -> None:
    kernel = report("softmax")
    lines = stage_lines("ttir", kernel.compiled.ttir)
    assert not [line for line in lines if "loc(" in line.text or line.text.startswith("#loc")]
    own = {line.place.line for line in lines if line.place.file == kernel.file}
    written = {
        kernel.first_line + index
        for index, text in enumerate(kernel.source.splitlines())
        if "tl.load" in text or "tl.sum" in text or "tl.store" in text
    }
    assert written <= own


def test_the_card_opens_the_explorer_on_the_stage(report: Reports) -> None:
    kernel = report("add")
    html = cell_card(cell_of(kernel, show="ttir"), graphs=False).html()
    stage = html[html.index("<b>TTIR</b>") :]
    assert "tt.func" in stage
    assert "loc(" not in stage
    number = next(kernel.first_line + at for at, text in enumerate(kernel.source.splitlines()) if "tl.store(" in text)
    assert re.search(f'data-n="{number}">[^<]*tt.store', stage)


def test_the_card_says_why_a_stage_is_missing(report: Reports) -> None:
    html = cell_card(cell_of(report("add"), show="amdgcn"), graphs=False).html()
    assert "add_kernel has no amdgcn for cuda:90; it has ttir." in html
    assert "<b>TTIR</b>" not in html
