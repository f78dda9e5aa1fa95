"""Benchmarks as text, HTML and figures, drawn from their frames alone."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest

from kernellab.benchmark.result import Benchmark
from kernellab.errors import UsageError
from kernellab.store.columns import Status
from kernellab.views.cards.benchmark import benchmark_card, ceilings_text, summary
from kernellab.views.cards.tuning import tuning_card
from kernellab.views.figures.sweep import main_metric, roofline_figure, sweep_figure, sweep_heat_map
from tests.benchmark.frames import CEILINGS, blocks, dtypes, products, roofed, sweep, untimed
from tests.tables import every
from tests.tune.frames import large_tuning, small_tuning

BENCHMARKS = {
    "sweep": sweep(),
    "two dtypes": sweep(("float32", "float16")),
    "products": products(),
    "eighty configs": products(80),
    "two blocks": blocks(),
    "dtypes": dtypes(),
}


def texts(figure: Any) -> list[str]:
    from matplotlib.text import Text

    return [found.get_text() for found in figure.findobj(Text) if found.get_text()]


def lines_of(figure: Any, label: str) -> list[Any]:
    from matplotlib.lines import Line2D

    return [line for line in figure.findobj(Line2D) if line.get_label() == label and len(line.get_xdata())]


def assert_fits(figure: Any) -> None:
    figure.savefig(io.BytesIO(), format="png")
    width, height = figure.get_size_inches() * figure.dpi
    for axes in figure.axes:
        box = axes.get_tightbbox()
        assert box is not None
        assert min(box.x0, box.y0) >= -1
        assert box.x1 <= width + 1
        assert box.y1 <= height + 1


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", every(3, BENCHMARKS))
def test_a_sweep_fits_its_canvas(name: str, dark: bool) -> None:
    assert_fits(sweep_figure(BENCHMARKS[name].frame, dark=dark))


@pytest.mark.slow
@pytest.mark.parametrize("frame", [products(80).frame, roofed(small_tuning()).frame, roofed(large_tuning()).frame])
def test_a_roofline_fits_its_canvas(frame: Any) -> None:
    for dark in (False, True):
        assert_fits(roofline_figure(frame, dark=dark))


@pytest.mark.slow
def test_a_line_per_implementation_runs_along_the_first_swept_number() -> None:
    figure = sweep_figure(sweep().frame)
    (own,) = lines_of(figure, "add")[:1]
    assert list(own.get_xdata()) == [2.0**power for power in range(10, 28)]
    (torch,) = lines_of(figure, "torch")[:1]
    assert len(torch.get_xdata()) == 17  # the last point failed
    assert "memory 4,200 GB/s" in texts(figure)


def test_products_are_told_in_tflops_under_the_roof_of_their_dtype() -> None:
    frame = products().frame
    assert main_metric(frame) == "tflops"
    assert "torch fp16 740 TFLOP/s" in texts(sweep_figure(frame))


@pytest.mark.slow
def test_of_many_configs_the_line_is_the_fastest() -> None:
    frame = products(80).frame
    (line,) = lines_of(sweep_figure(frame), "matmul")[:1]
    own = frame[frame.implementation == "matmul"]
    assert list(line.get_ydata()) == pytest.approx(own.groupby("size").tflops.max().tolist())


@pytest.mark.slow
def test_other_swept_values_have_a_panel_each() -> None:
    figure = sweep_figure(sweep(("float32", "float16")).frame)
    assert {"dtype=float32", "dtype=float16"} <= set(texts(figure))
    assert len(figure.axes) == 2


def test_without_a_swept_number_there_is_a_bar_per_row() -> None:
    figure = sweep_figure(dtypes().frame)
    assert {"softmax float16", "torch bfloat16"} <= set(texts(figure))


@pytest.mark.slow
def test_of_very_many_rows_the_fastest_and_all_peers_have_a_bar() -> None:
    frame = products(80).frame
    at_once = frame[frame["size"] == 8192].drop(columns="size")
    at_once.attrs = {**frame.attrs, "swept": ["config"]}
    figure = sweep_figure(at_once)
    assert figure is not None
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert "torch" in labels
    assert len(labels) == 40
    assert any("40 of 81 rows" in text for text in texts(figure))


@pytest.mark.slow
def test_panels_share_their_scale() -> None:
    figure = sweep_figure(blocks().frame)
    assert figure is not None
    assert len({axes.get_ylim() for axes in figure.axes}) == 1


@pytest.mark.slow
def test_speedups_are_told_against_the_reference() -> None:
    figure = sweep_figure(sweep().frame, metric="speedup")
    assert "torch = 1" in texts(figure)
    assert not lines_of(figure, "torch")
    with pytest.raises(UsageError, match="expected one of gbps, tflops, time_ms, speedup"):
        sweep_figure(sweep().frame, metric="joules")  # type: ignore[arg-type]


@pytest.mark.slow
def test_two_swept_numbers_give_a_heat_map() -> None:
    figure = sweep_heat_map(blocks().frame)
    assert {"BLOCK_M", "BLOCK_N", "best ms"} <= set(texts(figure))
    assert sweep_heat_map(sweep().frame) is None


@pytest.mark.slow
def test_a_roofline_has_measured_roofs_and_names_the_winner() -> None:
    found = texts(roofline_figure(roofed(small_tuning()).frame))
    assert {"memory 4,200 GB/s", "fp16, bf16 750 TFLOP/s", "fp32 52 TFLOP/s"} <= set(found)
    assert "best of 3: BLOCK=64 warps=8" in found


@pytest.mark.slow
def test_a_roofline_of_one_kind_of_number_has_its_roof_alone() -> None:
    found = texts(roofline_figure(products().frame))
    assert "fp16 740 TFLOP/s" in found
    assert not any("fp32" in text for text in found)


@pytest.mark.parametrize("frame", [small_tuning().frame, sweep().frame, untimed().frame])
def test_without_ceilings_or_flops_there_is_no_roofline(frame: Any) -> None:
    assert roofline_figure(frame) is None


@pytest.mark.slow
def test_a_tuning_shows_its_roofline_where_the_ceilings_are_known() -> None:
    assert "under the roofline" in tuning_card(roofed(small_tuning())).html()
    assert "under the roofline" not in tuning_card(small_tuning()).html()


def test_nothing_timed_gives_no_figure_and_a_table_of_what_is_needed() -> None:
    assert sweep_figure(untimed().frame) is None
    text = benchmark_card(untimed()).text()
    assert "not timed" in text
    assert "registers" in text
    assert "12,000" in text
    assert "<img" not in benchmark_card(untimed()).html()


def test_the_text_has_a_line_per_row_and_the_failures_with_their_reason() -> None:
    text = benchmark_card(sweep()).text()
    lines = text.splitlines()
    assert lines[0].startswith("add: 18 points of n vs torch in 4.2 s; speedup 1.03 to 1.62 vs torch; up to 95%")
    assert lines[1].split() == [
        *("n", "implementation", "ms", "interval", "GB/s", "of", "ceiling", "speedup", "status")
    ]
    assert "fault: torch at n=134217728: CUDA out of memory" in lines


def test_a_constant_speedup_is_one_number() -> None:
    assert "; speedup 0.80 vs torch;" in summary(products(3))


@pytest.mark.slow
def test_a_long_table_is_cut_in_text_and_folded_in_html() -> None:
    found = products(80)
    assert "... and 365 more in .frame" in benchmark_card(found).text()
    html = benchmark_card(found).html()
    assert "<summary>405 rows</summary>" in html
    assert html.count("<tr") == 406


@pytest.mark.slow
def test_html_is_one_text_with_light_and_dark_pictures_and_escapes_what_users_write() -> None:
    rows = tuple(replace(row, reason="a < b & c", status=Status.WRONG) for row in sweep().rows[:1])
    html = benchmark_card(replace(sweep(), rows=(*rows, *sweep().rows[1:]))).html()
    assert "a &lt; b &amp; c" in html
    assert html.count("prefers-color-scheme: dark") == html.count("<picture>") >= 2
    assert "http" not in html


def test_equal_failures_are_one_line() -> None:
    rows = tuple(replace(row, status=Status.WRONG, reason="out differs", time_ms=None) for row in sweep().rows)
    found: Benchmark = replace(sweep(), rows=rows)
    assert "wrong: add at n=1024 and 17 more: out differs" in benchmark_card(found).text()
    assert summary(found).endswith("not timed")


def test_ceilings_are_a_line_each() -> None:
    lines = ceilings_text(CEILINGS).splitlines()
    assert lines[0] == "NVIDIA H200, driver 580.1"
    assert lines[1].split() == ["memory", "4,200.0", "GB/s"]
    assert len(lines) == 2 + len(CEILINGS.tflops)
