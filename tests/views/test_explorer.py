"""What the explorer links and tells, on kernels that were really compiled."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import kernellab
from kernellab.compile import STAGES
from kernellab.compile.types import Compiled
from kernellab.ir.graph import Location
from kernellab.ir.instructions import InstructionKind
from kernellab.ir.lines import StageLine
from kernellab.views.explorers import STAGE_BYTES_AT_MOST, Rendering, explorer_html, explorer_page, fit_stage
from kernellab.views.explorers.exploration import Badge, Stage, badges_of, explore
from kernellab.views.graph.dataflow import SourceText
from tests.kernels.elementwise import add_case
from tests.kernels.matmul import grouped_tile, line_of, matmul_kernel
from tests.views.test_card import Reader

Compile = Callable[..., Compiled]
FILE = "matmul.py"
DOT, LOAD, STORE = "tl.dot(", "a = tl.load(", "tl.store("


@pytest.fixture(scope="module")
def matmul(lab: kernellab.Lab) -> Compile:
    """Return a matrix product compiled: ``stride=17`` for addresses that are not known to be aligned."""

    def compiled(target: str = "cuda:90", dtype: Any = torch.float16, stride: int = 64) -> Compiled:
        tile = torch.zeros(64 * 64, dtype=dtype)
        strides = {"a_stride": stride, "b_stride": stride, "c_stride": stride}
        blocks = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 2}
        sizes = {"m": 64, "n": 64, "k": 64}
        return lab.compile(
            matmul_kernel, target=target, a_ptr=tile, b_ptr=tile, c_ptr=tile, **sizes, **strides, **blocks
        )

    return compiled


def badges(compiled: Compiled, text: str) -> dict[str, Badge]:
    found = badges_of(explore(compiled)).get((FILE, line_of(text)), ())
    return {badge.text: badge for badge in found}


def labels(html: str, line: int) -> str:
    """Return all text of the stages that belongs to a source line."""
    return "\n".join(re.findall(rf'<label class="k[^>]*data-n="{line}">([^<]*)', html))


@pytest.mark.slow
def test_tensor_core_instructions_belong_to_the_line_of_the_dot(matmul: Compile) -> None:
    html = explorer_html(matmul())
    assert "wgmma.mma_async" in labels(html, line_of(DOT))
    assert "HGMMA" in labels(html, line_of(DOT))
    assert "wgmma.mma_async" not in labels(html, line_of(LOAD))
    assert "cp.async.cg" in labels(html, line_of(LOAD))
    assert "st.global" in labels(html, line_of(STORE))


@pytest.mark.slow
def test_badges_tell_widths_and_tensor_cores(matmul: Compile) -> None:
    compiled = matmul()
    assert "wgmma" in badges(compiled, DOT)
    assert "cp.async 16 B" in badges(compiled, LOAD)
    assert not badges(compiled, LOAD)["cp.async 16 B"].alarm


@pytest.mark.slow
@pytest.mark.parametrize(("target", "unit"), [("cuda:80", "mma"), ("hip:gfx942", "mfma")])
def test_each_target_has_its_tensor_cores(matmul: Compile, target: str, unit: str) -> None:
    assert unit in badges(matmul(target), DOT)


@pytest.mark.slow
def test_a_dot_that_misses_the_tensor_cores_is_an_alarm(matmul: Compile) -> None:
    found = badges(matmul("cuda:80", torch.float32), DOT)
    assert found["no tensor cores"].alarm


@pytest.mark.slow
def test_loads_narrower_than_they_could_be_are_an_alarm(matmul: Compile) -> None:
    found = badges(matmul(stride=17), LOAD)
    assert found["▽ 2 B"].alarm
    assert "16 would fit" in found["▽ 2 B"].tip


@pytest.mark.slow
def test_loads_of_several_registers_stay_on_their_line_down_to_sass(lab: kernellab.Lab) -> None:
    case, values = add_case(torch.float32), torch.zeros(4096)
    compiled = lab.compile(case.kernel, values, values, values, 4096, 1024, target="cuda:90")
    first = case.kernel.starting_line_number
    source = "".join(case.kernel.raw_src).splitlines()
    loads = {first + at for at, text in enumerate(source) if "tl.load" in text}
    for stage in explore(compiled).stages:
        if stage.name in {"ptx", "sass"}:
            found = {key[1]: profile.of(InstructionKind.LOAD) for key, profile in stage.profiles.items() if key}
            widths = {line: {instruction.bytes for instruction, _ in wide} for line, wide in found.items() if wide}
            assert widths == {line: {16} for line in loads}, stage.name


@pytest.mark.slow
def test_inlined_helpers_show_with_their_calls(matmul: Compile) -> None:
    html = explorer_html(matmul())
    band = line_of("band = ", grouped_tile)
    assert "def grouped_tile(" in html
    assert "div" in labels(html, band)
    call = re.search(rf'<div class="s k(\d+)"><i>{line_of("grouped_tile(")}</i>', html)
    assert call
    assert re.search(rf'<label class="k\d+ c{call[1]}" for="[^"]*" data-n="{band}">', html)
    assert f":has(.k{call[1]}:hover) .c{call[1]}" in html


@pytest.mark.slow
def test_every_label_has_its_button_and_every_id_is_used_once(matmul: Compile) -> None:
    html = explorer_html(matmul())
    ids = re.findall(r' id="([^"]*)"', html)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r' for="([^"]*)"', html)) <= set(ids)


@pytest.mark.slow
def test_two_explorers_of_one_page_share_no_names(matmul: Compile) -> None:
    compiled = matmul()
    first, second = (re.findall(r' (?:id|name)="([^"]*)"', explorer_html(compiled, uid=uid)) for uid in ("1", "2"))
    assert not set(first) & set(second)
    assert explorer_html(compiled, uid="1") == explorer_html(compiled, uid="1")


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cuda:90", "hip:gfx942"])
def test_the_html_is_whole_and_needs_no_script_and_no_network(matmul: Compile, target: str) -> None:
    html = explorer_html(matmul(target))
    reader = Reader(html)
    assert "script" not in reader.tags
    assert "http" not in html
    assert len(html) < 600_000
    assert ("SASS" in reader.text) == target.startswith("cuda")


@pytest.mark.slow
def test_sizes_and_times_of_the_stages_show(matmul: Compile) -> None:
    compiled = replace(matmul(), stage_seconds={"ttir": 0.004, "llir": 0.1, "cubin": 0.0312})
    text = Reader(explorer_html(compiled)).text
    lines = explore(compiled).stages[0].lines
    assert f"{len(lines)} lines" in text
    assert "cubin 31.2 ms" in text
    assert "made in 100 ms" in text


@pytest.mark.slow
def test_counts_of_a_stage_add_up_to_its_instructions(matmul: Compile) -> None:
    for stage in explore(matmul()).stages:
        assert sum(profile.instructions for profile in stage.profiles.values()) == stage.instructions > 0


@pytest.mark.slow
def test_a_stage_without_a_reader_of_instructions_has_no_count_and_is_not_opened(matmul: Compile) -> None:
    exploration = explore(matmul("hip:gfx942"))
    stages = (*exploration.stages, Stage("raw", (StageLine("module {", Location(None, None)),), 8, None))
    rendering = Rendering(replace(exploration, stages=stages), None, "")
    assert stages[rendering.opened].name == "amdgcn"
    assert stages[-1].instructions is None
    text = Reader(rendering.html()).text
    assert "RAW" in text
    assert "1 line · 8 B" in text


def test_no_stage_has_the_name_of_another_view() -> None:
    assert not {"source", "graph", "resources"} & {*STAGES}


@pytest.mark.slow
def test_the_source_of_a_cell_is_shown_as_it_was_given(matmul: Compile) -> None:
    compiled = matmul()
    text = "".join(matmul_kernel.raw_src).replace("total = ", "whole = ")
    html = explorer_html(
        compiled, SourceText.of(text, matmul_kernel.starting_line_number, matmul_kernel.fn.__code__.co_filename)
    )
    assert "whole = tl.dot" in html
    assert html.count("def matmul_kernel(") == 1
    assert html.index("def matmul_kernel(") < html.index("def grouped_tile(")


@pytest.mark.slow
def test_the_named_stage_is_open(matmul: Compile) -> None:
    html = explorer_html(matmul(), opened="ttgir", sass=False)
    opened = re.findall(r'<input[^>]*-tab"[^>]* checked[^>]*><b>(\w+)</b>', html)
    assert opened == ["TTGIR"]
    assert "<b>SASS</b>" not in html


@pytest.mark.slow
def test_a_long_stage_is_folded_and_keeps_every_source_line() -> None:
    places = [Location("k.py", number) for number in range(1, 41)]
    lines = tuple(StageLine(f"\tfma.rn.f32 \t%f{n}, %f1, %f2, %f3;", place) for place in places for n in range(500))
    runs = fit_stage(Stage("ptx", lines, 0, None))
    assert sum(len(line) for run in runs for line in run.lines) < STAGE_BYTES_AT_MOST
    assert [run.key for run in runs] == [("k.py", place.line) for place in places]
    assert "more lines: " in runs[0].lines[-1]
    assert "fma.rn.f32" in runs[0].lines[-1]


@pytest.mark.slow
def test_the_page_brings_its_script_along(matmul: Compile) -> None:
    page = explorer_page(matmul())
    assert "export function enhance" in page
    assert "export function graphPane" in page
    assert "src=" not in page
    assert set(re.findall(r"https?://[^\"<]*", page)) == {"http://www.w3.org/2000/svg"}


@pytest.mark.slow
def test_the_widget_falls_back_to_the_static_explorer(matmul: Compile) -> None:
    from kernellab.views.widgets import Explorer

    widget = Explorer(matmul(), opened="ttgir")
    data, _ = widget._repr_mimebundle_()
    assert "HGMMA" in data["text/html"]
    assert "<svg" in data["text/html"]
    assert "script" not in Reader(data["text/html"]).tags
    assert data["text/plain"] == "Explorer of matmul_kernel for cuda:90"
    assert widget.stage == "ttgir"
    assert "application/vnd.jupyter.widget-view+json" in data
    widget.close()
