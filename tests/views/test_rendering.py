"""What every result offers: figures, a page, files."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
import triton
from matplotlib.figure import Figure
from matplotlib.text import Text

import kernellab
from kernellab.display import Drawable
from kernellab.errors import UsageError
from kernellab.explain.profile import Profile
from kernellab.ir.effects import NO_EFFECTS
from kernellab.launch.run import Finding, FindingKind, Run, Severity
from kernellab.views.rendering import DATA, FIGURES, ROWS
from tests.samples import add_kernel
from tests.tune.frames import divided_tuning, small_tuning, untimed_tuning

ROOT = Path(__file__).parents[2]
RACE = Finding(FindingKind.RACE, Severity.WARNING, "out", "In[1]", 3, (0, 0, 0), "two programs write it")
RUN = Run("add_kernel", (4, 1, 1), 0.25, {"out": 1024, "x": 0}, (RACE,), "interpreter")
REFUSED = Profile("add_kernel", "cuda:90", "", (4, 1, 1), refused="There is no GPU to sample on.")


def words_of(figure: Figure) -> str:
    return "\n".join(found.get_text() for found in figure.findobj(Text))  # type: ignore[attr-defined]


def test_every_drawable_type_has_figures_rows_and_data() -> None:
    drawable = {kind for name in kernellab.__all__ if _is_drawable(kind := getattr(kernellab, name))}
    assert len(drawable) == 17
    assert set(FIGURES) == set(ROWS) == set(DATA) == drawable


def _is_drawable(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Drawable)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("result", [RUN, NO_EFFECTS, REFUSED, small_tuning(), untimed_tuning()], ids=repr)
def test_a_result_is_drawn_on_white_and_on_black(result: Any, dark: bool) -> None:
    figure = result.plot(dark=dark)
    assert isinstance(figure, Figure)
    assert (sum(figure.get_facecolor()[:3]) < 1.5) is dark


def test_a_figure_shows_in_a_notebook_that_never_imported_pyplot() -> None:
    assert RUN.plot()._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]


def test_a_figure_on_white_shows_in_the_colours_of_a_dark_notebook_and_one_on_black_as_it_is() -> None:
    html = RUN.plot()._repr_html_()  # type: ignore[attr-defined]
    assert 'class="kl-light"' in html
    assert "[data-jp-theme-light=false]" in html
    assert "data:image/png;base64," in html
    assert RUN.plot(dark=True)._repr_html_() is None  # type: ignore[attr-defined]


def test_a_run_shows_changed_elements_and_findings() -> None:
    words = words_of(RUN.plot())
    for part in ("add_kernel: elements changed", "1,024", "none", "two programs write it"):
        assert part in words


def test_a_refused_profile_says_why() -> None:
    assert "There is no GPU to sample on." in words_of(REFUSED.plot())


def test_a_tuning_without_times_shows_what_each_config_needs() -> None:
    words = words_of(untimed_tuning().plot())
    assert "occupancy by config" in words
    assert "registers" in words


def test_grid_lines_end_where_the_words_begin() -> None:
    (axes,) = untimed_tuning().plot().axes
    assert not axes.xaxis.get_gridlines()[0].get_visible()
    assert max(found.get_position()[0] for found in axes.texts) > 100  # beside the bars, which end at 100 %


@pytest.mark.parametrize("result", [RUN, NO_EFFECTS, REFUSED, small_tuning()], ids=repr)
def test_the_suffix_decides_what_is_written(result: Any, tmp_path: Path) -> None:
    written = {suffix: result.save(tmp_path / f"result.{suffix}") for suffix in ("html", "svg", "png", "csv", "json")}
    assert sorted(tmp_path.iterdir()) == sorted(written.values())
    page = written["html"].read_text()
    assert page == result.to_html()
    assert page.startswith("<!DOCTYPE html>")
    assert 'src="http' not in page
    assert ElementTree.parse(written["svg"]).getroot().tag.endswith("svg")
    assert written["png"].read_bytes().startswith(b"\x89PNG")
    assert json.loads(written["json"].read_text())["result"] == type(result).__name__
    head, *rows = csv.reader(io.StringIO(written["csv"].read_text()))
    assert head
    assert all(len(row) == len(head) for row in rows)


def test_a_saved_table_has_the_rows_of_the_frame(tmp_path: Path) -> None:
    path = small_tuning().save(tmp_path / "tuning.csv")
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    assert [row["status"] for row in rows] == ["ok", "ok", "ok", "cannot_run"]
    assert rows[1]["time_ms"] == "1.01"


def test_another_suffix_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Run cannot be saved as 'run\.pdf'.*\.html, \.svg, \.png, \.csv, \.json"):
        RUN.save(tmp_path / "run.pdf")


def test_what_cannot_be_drawn_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "tuning.png"
    path.write_text("before")
    with pytest.raises(UsageError, match="has no figure 'groups': it needs configs whose outputs differ"):
        small_tuning().save(path, "groups")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_an_option_of_a_figure_is_refused_where_no_figure_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"dark is an option of a figure.*\.png and \.svg"):
        RUN.save(tmp_path / "run.csv", dark=True)


def test_kinds_and_options_are_checked() -> None:
    with pytest.raises(UsageError, match=r"'time'.*times, parameters, heat_map"):
        small_tuning().plot("time")
    with pytest.raises(UsageError, match=r"takes no option 'down_'; it takes across, down and dark"):
        small_tuning().plot("heat_map", down_="BLOCK")
    with pytest.raises(UsageError, match="only dark"):
        RUN.plot(size=3)


def test_a_kind_has_options_of_its_own() -> None:
    assert small_tuning().plot("heat_map", across="BLOCK", down="num_warps").axes[0].get_xlabel() == "BLOCK"
    assert "more than half" in words_of(divided_tuning(has_majority=True).plot("groups"))


@pytest.fixture(scope="module")
def twelve(lab: kernellab.Lab) -> dict[str, Any]:
    """One result of each type, made without a GPU."""

    def inputs(n: int) -> dict[str, Any]:
        return {"x_ptr": torch.randn(n), "y_ptr": torch.randn(n), "out_ptr": torch.zeros(n), "n": n}

    def grid(meta: Any) -> tuple[int, ...]:
        return (triton.cdiv(meta["n"], meta["BLOCK"]),)

    arguments = [*inputs(300).values()]
    kernel = lab.bind(add_kernel)
    configs = [triton.Config({"BLOCK": block}) for block in (64, 128)]
    kernel[grid](*arguments, BLOCK=64)
    results = [
        lab.run(kernel, grid, *arguments, BLOCK=64),
        lab.compile(kernel, *arguments, BLOCK=64),
        lab.effects(kernel, *arguments, BLOCK=64),
        lab.graph(kernel, *arguments, BLOCK=64),
        lab.layouts(kernel, *arguments, BLOCK=64),
        lab.traffic(kernel, grid, *arguments, BLOCK=64),
        lab.explain(kernel, grid, *arguments, BLOCK=64),
        lab.profile(kernel, grid, *arguments, BLOCK=64),
        lab.tune(kernel, grid, *arguments, configs=configs),
        lab.bench(kernel, grid, inputs=inputs, over={"n": [64, 128]}, BLOCK=64),
        lab.tune_over(kernel, grid, over={"n": [64, 128]}, inputs=inputs, configs=configs),
        lab.compare("add_kernel", lambda x_ptr, y_ptr: {"out_ptr": x_ptr + y_ptr}),
    ]
    return {type(result).__name__: result for result in results}


@pytest.mark.slow
def test_all_twelve_are_drawn_and_saved(twelve: dict[str, Any], tmp_path: Path) -> None:
    assert len(twelve) == 12
    for name, result in twelve.items():
        for suffix in ("html", "svg", "png", "csv", "json"):
            path = result.save(tmp_path / f"{name}.{suffix}")
            assert path.stat().st_size > 20, path
        assert words_of(result.plot(dark=True))


@pytest.mark.slow
def test_a_graph_is_drawn_with_its_boxes_as_words(twelve: dict[str, Any]) -> None:
    words = words_of(twelve["Graph"].plot())
    assert "x_ptr" in words
    assert "store" in words
    assert "get_program_id" in words
    part = words_of(twelve["Compiled"].plot("dataflow", argument="n"))
    assert "get_program_id" not in part


def notebooks_and_pages() -> Iterator[Path]:
    yield from sorted((ROOT / "notebooks").glob("*.ipynb"))
    yield from sorted((ROOT / "docs").rglob("*.md"))
    yield ROOT / "README.md"


def test_no_notebook_and_no_page_imports_the_views() -> None:
    forbidden = ("from kernellab.views", "import kernellab.views")
    found = [path.name for path in notebooks_and_pages() for words in forbidden if words in path.read_text()]
    assert found == []


def test_the_page_of_results_lists_every_figure_with_its_options() -> None:
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    listed: dict[str, dict[str, set[str]]] = {}
    name = ""
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and cells[2].startswith("`"):
            name = cells[0].strip("`") or name
            listed.setdefault(name, {})[cells[2].strip("`")] = set(re.findall(r"`(\w+)`", cells[4]))
    drawn = {
        kind.__name__: {name: set(entry.options) for name, entry in kinds.items()} for kind, kinds in FIGURES.items()
    }
    assert listed == drawn


@pytest.mark.parametrize("name", ["matmul_h200", "column_sum_h200"])
def test_a_tuning_comes_back_from_its_frame(name: str) -> None:
    frame = kernellab.read_frame(ROOT / "notebooks" / "data" / f"{name}.json")
    tuning = kernellab.Tuning.from_frame(frame)
    assert tuning.frame[list(frame.columns)].equals(frame)
    assert frame.attrs.items() <= tuning.frame.attrs.items()
    assert words_of(tuning.plot("heat_map"))


def test_groups_of_outputs_come_back_from_a_frame() -> None:
    tuning = divided_tuning(has_majority=True)
    assert kernellab.Tuning.from_frame(tuning.frame).agreement == tuning.agreement


def test_a_benchmark_comes_back_from_its_frame() -> None:
    frame = kernellab.read_frame(ROOT / "notebooks" / "data" / "matmul_sweep_h200.json")
    benchmark = kernellab.Benchmark.from_frame(frame)
    assert benchmark.frame.drop(columns="created").equals(frame.drop(columns="created"))
    assert "TFLOP/s" in words_of(benchmark.plot("roofline"))


def test_another_frame_is_refused() -> None:
    with pytest.raises(UsageError, match=r"not a frame of a tuning: it lacks .*winner"):
        kernellab.Tuning.from_frame(kernellab.read_frame(ROOT / "notebooks" / "data" / "matmul_sweep_h200.json"))
