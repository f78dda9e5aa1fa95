"""The widgets without a page: what their state does, and what they leave where they are not alive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import kernellab
from kernellab.compile.types import Compiled
from kernellab.errors import UsageError
from kernellab.views.graph import StateError
from kernellab.views.report import KernelReport
from kernellab.views.widgets import GraphView
from tests.views.reports import cell_of

Kernels = Callable[[str], Compiled]


@pytest.fixture
def view(compiled: Kernels) -> Iterator[Callable[..., GraphView]]:
    made: list[GraphView] = []

    def of(name: str, **options: Any) -> GraphView:
        made.append(GraphView(compiled(name), **options))
        return made[-1]

    yield of
    for widget in made:
        widget.close()


@pytest.mark.slow
def test_a_small_graph_opens_by_operation_and_a_large_one_by_line(view: Callable[..., GraphView]) -> None:
    assert view("add").view == "operations"
    assert view("matmul").view == "source"
    assert view("backward").view == "source"
    unrolled = view("unrolled")
    assert (unrolled.view, unrolled.views) == ("source", ["source"])


@pytest.mark.slow
def test_frames_of_a_large_view_are_folded_at_first(view: Callable[..., GraphView]) -> None:
    widget = view("backward", view="operations")
    assert widget.collapsed
    assert widget.svg.count("data-node=") <= 150
    widget.collapsed = []
    assert widget.svg.count("data-node=") > 150


def test_a_picture_is_drawn_once(view: Callable[..., GraphView], monkeypatch: pytest.MonkeyPatch) -> None:
    widget = view("matmul")
    whole = widget.svg
    (frame,) = {each for _, _, around in widget.index for each in around}
    widget.collapsed = [frame]
    assert widget.svg != whole
    monkeypatch.setattr("kernellab.views.graph.picture", lambda *_: pytest.fail("was laid out again"))
    widget.collapsed = []
    assert widget.svg == whole


def test_a_slice_holds_what_an_argument_leads_to_and_what_leads_to_its_accesses(
    view: Callable[..., GraphView],
) -> None:
    widget = view("matmul", argument="a_ptr", view="operations")
    titles = {name: words.partition("\n")[0] for name, words, _ in widget.index}
    both = {titles[name] for name in widget.members}
    assert {"a_ptr", "load a_ptr", "dot", "store c_ptr"} <= both
    assert {"b_ptr", "load b_ptr", "c_ptr"}.isdisjoint(both)
    widget.direction = "backward"
    backward = {titles[name] for name in widget.members}
    assert {"load a_ptr", "a_stride"} <= backward
    assert "dot" not in backward
    widget.direction = "forward"
    assert "a_stride" not in {titles[name] for name in widget.members}
    widget.slice = ""
    assert widget.members == []


@pytest.mark.parametrize("wanted", ["for start", "total"])
def test_a_loop_and_a_carried_value_have_slices(view: Callable[..., GraphView], wanted: str) -> None:
    widget = view("matmul", view="operations")
    titles = {name: words.partition("\n")[0] for name, words, _ in widget.index}
    widget.slice = next(name for name, title in titles.items() if title.startswith(wanted))
    inside = {titles[name] for name in widget.members}
    assert {"dot", "store c_ptr"} <= inside


def test_a_folded_frame_belongs_to_a_slice_that_passes_through_it(view: Callable[..., GraphView]) -> None:
    widget = view("matmul", argument="a_ptr")
    (frame,) = {each for _, _, around in widget.index for each in around}
    widget.collapsed = [frame]
    assert frame in widget.members
    widget.slice = frame
    assert frame in widget.members


@pytest.mark.parametrize(
    ("trait", "value", "named"),
    [
        ("view", "sideways", "operations, source"),
        ("collapsed", ["r99"], "r99"),
        ("slice", "nonsense", "a_ptr"),
        ("direction", "up", "forward, backward, both"),
    ],
)
def test_a_state_that_does_not_exist_is_refused_with_the_choices(
    view: Callable[..., GraphView], trait: str, value: Any, named: str
) -> None:
    widget = view("matmul")
    before = getattr(widget, trait)
    with pytest.raises(StateError, match=named):
        setattr(widget, trait, value)
    assert isinstance(StateError(""), UsageError)
    assert getattr(widget, trait) == before


@pytest.mark.slow
def test_what_the_page_asks_in_vain_is_told_there(view: Callable[..., GraphView]) -> None:
    widget = view("unrolled")
    widget.set_state({"view": "operations"})
    assert widget.view == "source"
    assert "at most 500" in widget.message
    widget.set_state({"slice": "x_ptr"})
    assert widget.message == ""
    assert widget.members


def test_another_view_lets_go_of_boxes_and_keeps_the_argument(view: Callable[..., GraphView]) -> None:
    widget = view("matmul", argument="a_ptr", view="operations")
    widget.node = widget.members[0]
    widget.view = "source"
    assert (widget.node, widget.slice) == ("", "a_ptr")
    shown = {name for name, _, _ in widget.index}
    assert set(widget.members) <= shown
    widget.slice = next(name for name, words, _ in widget.index if "tl.dot" in words)
    widget.view = "operations"
    assert (widget.slice, widget.members) == ("", [])


def test_a_widget_leaves_a_static_picture_beside_it(view: Callable[..., GraphView]) -> None:
    InteractiveShell.instance()
    with capture_output() as captured:
        view("add")._ipython_display_()
    first, live, still = (output.data for output in captured.outputs)
    assert "application/vnd.jupyter.widget-view+json" in live
    assert 'class="kl-still"' in first["text/html"]
    assert "load x_ptr" in still["text/html"]
    assert "<script" not in still["text/html"]
    assert still["text/plain"] == "Graph of add_kernel"


def test_widgets_are_made_of_results_and_reports(compiled: Kernels, report: Callable[..., KernelReport]) -> None:
    kernel = compiled("add")
    cell = cell_of(report("add"))
    for widget in (
        kernellab.graph_view(kernel),
        kernellab.graph_view(kernel.graph, kernel.effects),
        kernellab.graph_view(cell),
        kernellab.graph_view(cell.kernels[0], view="source"),
        kernellab.explorer(kernel),
        kernellab.explorer(cell),
    ):
        assert "x_ptr" in widget.svg
        widget.close()


@pytest.mark.parametrize("make", [kernellab.explorer, kernellab.graph_view])
def test_what_is_not_compiled_is_refused_with_what_to_do(make: Callable[[Any], Any]) -> None:
    with pytest.raises(UsageError, match=r"builtins\.str.*lab\.compile"):
        make("add_kernel")


def test_a_kernel_shown_twice_in_a_cell_has_two_explorers(compiled: Kernels, folder: Path) -> None:
    shell = InteractiveShell()
    format_ = shell.display_formatter.mimebundle_formatter
    first, second = (format_(compiled("add"))[0]["text/html"] for _ in range(2))
    names = [{part.split('"', 1)[0] for part in html.split(' id="')[1:]} for html in (first, second)]
    assert names[0]
    assert names[0].isdisjoint(names[1])
