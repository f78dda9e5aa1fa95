"""The widgets of a notebook, with static pictures, and their functions: `graph_view`, `explorer`, `values_view`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anywidget
import traitlets

from kernellab.compile.types import Compiled
from kernellab.errors import KernellabError, UsageError, choice_message, value_message
from kernellab.inside.values import Values
from kernellab.ir.effects import Effects
from kernellab.ir.graph import Graph
from kernellab.launch.verbs import verb
from kernellab.views.elements import file_text
from kernellab.views.explorers import Rendering, explorer_html, explorer_script
from kernellab.views.explorers.exploration import explore
from kernellab.views.figures.raster import with_fallbacks
from kernellab.views.graph import Direction, GraphPictures, StateError, graph_pane, graph_script
from kernellab.views.graph.dataflow import SourceText
from kernellab.views.layouts import FEW_TILES, MOST_TILES
from kernellab.views.palette import GREY, MAGENTA, ORANGE, SCALE_COLOURS
from kernellab.views.report import CellReport, KernelReport
from kernellab.views.values import ValuesPage, script
from kernellab.views.values.graph import Place

# Of the picture and the widget, which stand one below the other, one shows: the picture where the widget is not alive.
_BESIDE = """<style>
.jp-OutputArea-child:has(.kl-still):has(+ .jp-OutputArea-child .kl-live),
.jp-OutputArea-child:has(.kl-still) + .jp-OutputArea-child:not(:has(.kl-live)) { display: none; }
</style>"""


class WidgetWithStill(anywidget.AnyWidget):
    """A widget whose page marks itself with the class ``kl-live`` once it is alive."""

    def still(self) -> str:
        """Return the static picture for pages where the widget is not alive."""
        raise NotImplementedError

    def words(self) -> str:
        """Return the text for a terminal."""
        raise NotImplementedError

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """Give pages without widgets the static picture."""
        data, metadata = self._live()
        return {**data, "text/html": self.still(), "text/plain": self.words()}, metadata

    def _ipython_display_(self) -> None:
        """Show the widget and its static picture, for a notebook without a kernel."""
        from IPython.display import display

        words = {"text/plain": self.words()}
        beside = display({**words, "text/html": f'<div class="kl-still">{_BESIDE}</div>'}, raw=True, display_id=True)
        display({**self._live()[0], **words}, raw=True)
        beside.update({**words, "text/html": f'<div class="kl-still">{_BESIDE}{self.still()}</div>'}, raw=True)

    def _live(self) -> tuple[dict[str, Any], dict[str, Any]]:
        bundle: Any = super()._repr_mimebundle_()
        return bundle if isinstance(bundle, tuple) else (bundle or {}, {})


def widget_module(script: str, render: str) -> str:
    """Return the module of a widget; ``render`` is its function in widgets.js."""
    linked = file_text(__package__, "widgets.js")
    return f"{script}\n{linked}\nconst render = {render};\nexport default {{ render }};\n"


def _require_choice(name: str, value: Any, choices: tuple[str, ...], owner: str = "") -> str:
    if value not in choices:
        raise StateError(choice_message(name, value, choices, owner=owner))
    return str(value)


class GraphView(WidgetWithStill):
    """The graph of one kernel. All of its state can be set from Python and observed.

    ``line`` is the source line whose boxes are lit, 0 for none; ``file`` is "" for the kernel's own file, else the last
    part of the path of a helper's. ``node`` is the id of the chosen box, "" for none. ``view`` is "source" or
    "operations"; ``collapsed`` names the frames that are folded (``r3``). ``query`` is what is searched for. ``slice``
    names the argument, box or frame whose slice is lit, "" for none, and ``direction`` the half of it: "forward",
    "backward" or "both"; ``members`` are the boxes of it. ``message`` says why something that the page asked for was
    not done.

    Raises:
        StateError: a trait is set to a view, frame, argument or box that does not exist, or to more boxes than can be
            laid out. It is a UsageError, and the state stays as it was.
    """

    _esm = widget_module(graph_script(), "renderGraph")
    html = traitlets.Unicode("").tag(sync=True)
    svg = traitlets.Unicode("").tag(sync=True)
    index: traitlets.List[Any] = traitlets.List().tag(sync=True)
    arguments = traitlets.List(traitlets.Unicode()).tag(sync=True)
    views = traitlets.List(traitlets.Unicode()).tag(sync=True)
    members = traitlets.List(traitlets.Unicode()).tag(sync=True)
    message = traitlets.Unicode("").tag(sync=True)

    line = traitlets.Int(0).tag(sync=True)
    file = traitlets.Unicode("").tag(sync=True)
    node = traitlets.Unicode("").tag(sync=True)
    view = traitlets.Unicode("").tag(sync=True)
    collapsed = traitlets.List(traitlets.Unicode()).tag(sync=True)
    query = traitlets.Unicode("").tag(sync=True)
    slice = traitlets.Unicode("").tag(sync=True)
    direction = traitlets.Unicode(Direction.BOTH.value).tag(sync=True)
    _drawing: GraphPictures | None = None

    def __init__(
        self,
        subject: Compiled | Graph,
        effects: Effects | None = None,
        *,
        view: str | None = None,
        argument: str = "",
        text: Mapping[int, str] | None = None,
    ) -> None:
        graph = subject.graph if isinstance(subject, Compiled) else subject
        if effects is None and isinstance(subject, Compiled):
            effects = subject.effects
        self._start(GraphPictures(graph, effects, text), view, argument)

    def _start(self, pictures: GraphPictures, view: str | None, argument: str, **state: Any) -> None:
        self._drawing = pictures
        view = pictures.checked_view(view or pictures.default)
        collapsed, start = pictures.collapsed_at_first(view), pictures.checked_start(view, argument)
        super().__init__(
            view=view,
            collapsed=collapsed,
            slice=start,
            svg=pictures.draw(view, collapsed).svg,
            index=pictures.index(view),
            members=pictures.members(view, collapsed, start, self.direction) if start else [],
            arguments=pictures.arguments,
            views=pictures.views,
            **{"html": graph_pane(""), **state},
        )

    @property
    def _pictures(self) -> GraphPictures:
        if self._drawing is None:
            raise StateError("This view has no graph: the kernel does not compile for the target.")
        return self._drawing

    @traitlets.validate("view")
    def _check_view(self, proposal: Any) -> str:
        return self._pictures.checked_view(proposal["value"])

    @traitlets.validate("collapsed")
    def _check_collapsed(self, proposal: Any) -> list[str]:
        return self._pictures.checked_frames(self.view, proposal["value"])

    @traitlets.validate("slice")
    def _check_slice(self, proposal: Any) -> str:
        return self._pictures.checked_start(self.view, proposal["value"])

    @traitlets.validate("direction")
    def _check_direction(self, proposal: Any) -> str:
        return _require_choice("direction", proposal["value"], tuple(Direction))

    @traitlets.observe("view")
    def _show_view(self, change: Any) -> None:
        """Draw another view. Its boxes have other names, so what was chosen by the name of a box is let go."""
        if self.slice not in self.arguments:
            self.slice = ""
        self.node = ""
        self.index = self._pictures.index(self.view)
        first = self._pictures.collapsed_at_first(self.view)
        if first == self.collapsed:
            self._draw(change)
        else:
            self.collapsed = first

    @traitlets.observe("collapsed")
    def _draw(self, change: Any) -> None:
        self.svg = self._pictures.draw(self.view, self.collapsed).svg
        self._light(change)

    @traitlets.observe("slice", "direction")
    def _light(self, change: Any) -> None:
        members = self._pictures.members
        self.members = members(self.view, self.collapsed, self.slice, self.direction) if self.slice else []

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take state from the page. What cannot be done is said there, and the state stays as it was."""
        self.message = ""
        try:
            super().set_state(sync_data)
        except KernellabError as error:
            self.message = error.message
            self.send_state(list(sync_data))

    def still(self) -> str:
        """Return the static picture for pages where the widget is not alive."""
        return with_fallbacks(graph_pane(self.svg))

    def words(self) -> str:
        """Return the text for a terminal."""
        return f"Graph of {self._pictures.graph.kernel.name}"


class Explorer(GraphView):
    """The explorer of one compiled kernel: its source, its stages and its graph.

    ``stage`` is the one that shows; it can be set and observed, as can all that a `GraphView` has: ``line`` and
    ``file`` are the chosen source line. ``value`` is that of TTGIR whose layout shows (``%a_44``), "" for the most
    informative one. SASS is disassembled when its stage is first opened.

    Raises:
        StateError: ``stage`` is set to one that the kernel does not have, or ``value`` to one without a drawn layout.
    """

    _esm = widget_module(explorer_script(), "renderExplorer")
    stage = traitlets.Unicode("").tag(sync=True)
    value = traitlets.Unicode("").tag(sync=True)

    def __init__(
        self,
        compiled: Compiled,
        text: SourceText | None = None,
        *,
        opened: str | None = None,
        view: str | None = "source",
        argument: str = "",
    ) -> None:
        self._compiled = compiled
        self._source = text
        self._has_sass = opened == "sass"
        rendering = self._rendering(opened)
        self._stages = [stage.name for stage in rendering.exploration.stages]
        self._values = rendering.drawn_values()
        stage = opened or self._stages[rendering.opened]
        self._start(rendering.pictures(), view, argument, html=rendering.html(graph_pane("")), stage=stage)

    def _rendering(self, opened: str | None) -> Rendering:
        exploration = explore(self._compiled, self._source, sass=self._has_sass, pending=True)
        return Rendering(exploration, opened, str(id(self)), tiles=MOST_TILES)

    @traitlets.validate("stage")
    def _check_stage(self, proposal: Any) -> str:
        return _require_choice("stage", proposal["value"], tuple(self._stages), self._compiled.kernel)

    @traitlets.validate("value")
    def _check_value(self, proposal: Any) -> str:
        value = proposal["value"]
        return _require_choice("value", value, self._values, self._compiled.kernel) if value else ""

    @traitlets.observe("stage")
    def _read_sass(self, change: Any) -> None:
        """Disassemble when SASS is first looked at, which may show lines of source that no other stage has."""
        if change["new"] != "sass" or self._has_sass:
            return
        self._has_sass = True
        rendering = self._rendering("sass")
        self._drawing = rendering.pictures()
        self._stages = [stage.name for stage in rendering.exploration.stages]
        with self.hold_sync():
            self.svg = self._pictures.draw(self.view, self.collapsed).svg
            self.html = rendering.html(graph_pane(""))
            if "sass" not in self._stages:
                self.stage = self._stages[rendering.opened]
                self.message = "There is no SASS: the disassembler cannot read the binary."

    def still(self) -> str:
        """Return the static explorer, SASS included."""
        uid, opened = f"still {id(self)}", self.stage
        html = explorer_html(self._compiled, self._source, opened=opened, uid=uid, graph=True, tiles=FEW_TILES)
        return with_fallbacks(html)

    def words(self) -> str:
        """Return the text for a terminal."""
        return f"Explorer of {self._compiled.kernel} for {self._compiled.target}"


@verb
def explorer(subject: Compiled | KernelReport | CellReport, *, opened: str | None = None) -> Explorer:
    """Return the widget that links the source of a kernel, its stages and its graph.

    ``subject`` is what `Lab.compile` returns, or the report of a cell with one kernel. ``opened`` is the stage that
    shows first.

    Raises:
        UsageError: ``subject`` is none of that.
    """
    compiled, text = _subject_and_text(subject, Compiled, "explorer() shows a compiled kernel")
    return Explorer(compiled, text, opened=opened)


@verb
def graph_view(
    subject: Compiled | Graph | KernelReport | CellReport,
    effects: Effects | None = None,
    *,
    view: str | None = None,
    argument: str = "",
) -> GraphView:
    """Return the widget of a kernel's graph: frames that fold, search, and the slice of ``argument``.

    ``subject`` is what `Lab.compile` or `Lab.graph` returns, or the report of a cell with one kernel. ``effects`` name
    the arguments that a bare graph loads from and stores to. ``view`` is "source" or "operations".

    Raises:
        UsageError: ``subject`` is none of that, or there is no such view or argument.
    """
    shown, text = _subject_and_text(subject, Compiled | Graph, "graph_view() shows a graph or a compiled kernel")
    return GraphView(shown, effects, view=view, argument=argument, text=None if text is None else text.own)


def _subject_and_text(subject: object, kinds: Any, what: str) -> tuple[Any, SourceText | None]:
    """Return the subject of a view, with the text of one that a cell reports on."""
    if isinstance(subject, CellReport):
        if len(subject.kernels) != 1:
            names = ", ".join(kernel.label for kernel in subject.kernels) or "none"
            raise UsageError(f"The cell has {len(subject.kernels)} kernels ({names}); name one: report.kernels[0].")
        subject = subject.kernels[0]
    if isinstance(subject, KernelReport):
        return subject.compiled, subject.text
    if not isinstance(subject, kinds):
        got = f"{type(subject).__module__}.{type(subject).__qualname__}"
        raise UsageError(f"{what}; got {got}. Compile the kernel first: lab.compile(kernel, *args).")
    return subject, None


class ValuesView(GraphView):
    """The source of a kernel with the values of its lines, the tile of the chosen one, and its place in the graph.

    ``position`` is the chosen value's place in ``values.values``, and ``page`` the plane of a tile with more than two
    axes; both can be set from Python and observed. ``tile`` is what the page draws of it. The rest is that of a
    `GraphView`: ``line`` and ``file`` follow the chosen value, and choose the first value of a line that is set.

    Raises:
        UsageError: there is no value at that position, or it has no such plane.
    """

    _esm = widget_module(script(), "renderValues")
    colours = traitlets.Dict().tag(sync=True)
    tile: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True)
    position = traitlets.Int(0).tag(sync=True)
    page = traitlets.Int(0).tag(sync=True)

    def __init__(self, values: Values) -> None:
        if not values.values:
            raise UsageError(f"No value of {values.kernel} was recorded; there is nothing to show.")
        self._page = ValuesPage(values)
        last = max((at for at, value in enumerate(values.values) if value.shape), default=0)
        colours = {"scale": list(SCALE_COLOURS), "nan": MAGENTA, "inf": ORANGE, "masked": GREY}
        place, pictures = self._page.place(last), self._page.pictures
        state = {"html": self._page.widget_html(), "colours": colours, "position": last, "tile": self._page.tile(last)}
        state |= {"file": place.file, "line": place.line}
        if isinstance(pictures, str):
            WidgetWithStill.__init__(self, **state)
        else:
            self._start(pictures, None, "", **state)

    @traitlets.validate("position")
    def _check_position(self, proposal: Any) -> int:
        count = len(self._page.values.values)
        if not 0 <= proposal["value"] < count:
            raise UsageError(value_message("position", proposal["value"], f"a number from 0 to {count - 1}"))
        return int(proposal["value"])

    @traitlets.validate("page")
    def _check_page(self, proposal: Any) -> int:
        if proposal["value"] < 0:
            raise UsageError(value_message("page", proposal["value"], "the number of a plane, from 0"))
        return int(proposal["value"])

    @traitlets.observe("position", "page")
    def _show(self, change: Any) -> None:
        if (self.tile["position"], self.tile["page"]) != (self.position, self.page):
            self.tile = self._page.tile(self.position, self.page)
            with self.hold_trait_notifications():
                self.file, self.line = self._page.place(self.position)

    @traitlets.observe("line", "file")
    def _choose_line(self, change: Any) -> None:
        """Choose the first value of a line, as where a box of the graph was clicked; a line without values has none."""
        place = Place(self.file, self.line)
        if place == self._page.place(self.position):
            return
        position = self._page.position_at(place)
        if position is not None:
            with self.hold_trait_notifications():
                self.position, self.page = position, 0

    def still(self) -> str:
        """Return the static page of the first program."""
        return with_fallbacks(self._page.html())

    def words(self) -> str:
        """Return the text for a terminal."""
        return f"Values of {self._page.values.kernel}"


@verb
def values_view(values: Values) -> ValuesView:
    """Return the widget of recorded values: the source, and the tile of each line, iteration and program.

    Raises:
        UsageError: ``values`` is not what `Lab.values` returns, or holds nothing.
    """
    if not isinstance(values, Values):
        raise UsageError(value_message("values", values, "what lab.values(kernel, grid, ...) returns"))
    return ValuesView(values)
