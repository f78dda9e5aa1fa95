"""The explorer as a widget of a notebook: source, stages and graph linked, with the static HTML as its fallback."""

from __future__ import annotations

from typing import Any

import traitlets

from kernellab.compile.types import Compiled
from kernellab.errors import choice_message
from kernellab.views.exploration import explore
from kernellab.views.explorer import Explored, explorer_html
from kernellab.views.explorer_page import explorer_script
from kernellab.views.graph_pane import graph_pane
from kernellab.views.graph_pictures import StateError
from kernellab.views.graph_widget import LINK, GraphView

_RENDER = """
function render({ model, el }) {
  el.classList.add("kl-live");
  const drawn = [], dropped = () => { drawn.splice(0).forEach(stop => stop()); };
  const build = () => {
    const before = el.querySelector(".kx-source")?.scrollTop ?? 0;
    dropped();
    el.innerHTML = model.get("html");
    const root = el.querySelector(".kx");
    root.querySelector(".kg-canvas").innerHTML = model.get("svg");
    const pane = graphPane(root.querySelector(".kg"), linkOf(model)), controls = enhance(root, pane);
    root.addEventListener("kx-line", event => {
      model.set("line", event.detail.line);
      model.set("file", event.detail.file);
      model.save_changes();
    });
    root.addEventListener("kx-stage", event => { model.set("stage", event.detail); model.save_changes(); });
    const line = () => controls.showLine(model.get("file"), model.get("line"));
    const stage = () => controls.showStage(model.get("stage"));
    for (const [name, act] of [["line", line], ["file", line], ["stage", stage]]) {
      model.on(`change:${name}`, act);
      drawn.push(() => model.off(`change:${name}`, act));
    }
    stage();
    line();
    root.querySelector(".kx-source").scrollTop ||= before;
    drawn.push(linked(model, root, pane));
  };
  build();
  model.on("change:html", build);
  return () => { model.off("change:html", build); dropped(); };
}
export default { render };
"""


class Explorer(GraphView):
    """The explorer of one compiled kernel: its source, its stages and its graph.

    ``stage`` is the one that shows; it can be set and observed, as can all that a `GraphView` has: ``line`` and
    ``file`` are the chosen source line. SASS is disassembled when its stage is first opened.

    Raises:
        StateError: ``stage`` is set to one that the kernel does not have.
    """

    _esm = f"{explorer_script()}\n{LINK}\n{_RENDER}"
    stage = traitlets.Unicode("").tag(sync=True)

    def __init__(
        self,
        compiled: Compiled,
        source_text: str = "",
        first_line: int = 1,
        file: str | None = None,
        *,
        opened: str | None = None,
        view: str | None = "source",
        argument: str = "",
    ) -> None:
        self._compiled = compiled
        self._source = (source_text, first_line, file)
        self._has_sass = opened == "sass"
        explored = self._explored(opened)
        names = [stage.name for stage in explored.exploration.stages]
        self._stages = names
        html = explored.html(graph_pane(""))
        self._start(explored.pictures(), view, argument, html=html, stage=opened or names[explored.opened])

    def _explored(self, opened: str | None) -> Explored:
        exploration = explore(self._compiled, *self._source, sass=self._has_sass, pending=True)
        return Explored(exploration, opened, str(id(self)))

    @traitlets.validate("stage")
    def _check_stage(self, proposal: Any) -> str:
        if proposal["value"] not in self._stages:
            raise StateError(
                choice_message("stage", proposal["value"], tuple(self._stages), owner=self._compiled.kernel)
            )
        return str(proposal["value"])

    @traitlets.observe("stage")
    def _read_sass(self, change: Any) -> None:
        """Disassemble when SASS is first looked at, which may show lines of source that no other stage has."""
        if change["new"] != "sass" or self._has_sass:
            return
        self._has_sass = True
        explored = self._explored("sass")
        self._pictures = explored.pictures()
        self._stages = [stage.name for stage in explored.exploration.stages]
        with self.hold_sync():
            self.svg = self._pictures.drawn(self.view, self.collapsed).svg
            self.html = explored.html(graph_pane(""))
            if "sass" not in self._stages:
                self.stage = self._stages[explored.opened]
                self.message = "There is no SASS: the disassembler cannot read the binary."

    def still(self) -> str:
        """Return the static explorer, SASS included."""
        return explorer_html(self._compiled, *self._source, opened=self.stage, uid=f"still {id(self)}", graph=True)

    def words(self) -> str:
        return f"Explorer of {self._compiled.kernel} for {self._compiled.target}"
