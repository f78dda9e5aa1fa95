"""The widget of the values of a launch, and what opens it: `kernellab.values_view`."""

from __future__ import annotations

from typing import Any

import traitlets

from kernellab.errors import UsageError, value_message
from kernellab.inside.values import Values
from kernellab.launch.verbs import verb
from kernellab.views.figures.raster import with_fallbacks
from kernellab.views.palette import GREY, MAGENTA, ORANGE, SCALE_COLOURS
from kernellab.views.still import WidgetWithStill
from kernellab.views.values import ValuesPage, script
from kernellab.views.values.graph import Place
from kernellab.views.widgets import GraphView, widget_module


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
        if pictures is None:
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
