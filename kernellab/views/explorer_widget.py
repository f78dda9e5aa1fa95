"""The explorer as a widget of a notebook: search, keys and linked scrolling, with the static HTML as its fallback."""

from __future__ import annotations

from typing import Any

import anywidget
import traitlets

from kernellab.compile import Compiled
from kernellab.views.explorer import explorer_html
from kernellab.views.explorer_page import explorer_script

_RENDER = """
function render({ model, el }) {
  el.innerHTML = model.get("html");
  const root = el.querySelector(".kx");
  const controls = enhance(root);
  const tell = name => event => { model.set(name, event.detail); model.save_changes(); };
  root.addEventListener("kx-line", tell("line"));
  root.addEventListener("kx-stage", tell("stage"));
  const line = () => controls.showLine(model.get("line")), stage = () => controls.showStage(model.get("stage"));
  model.on("change:line", line);
  model.on("change:stage", stage);
  stage();
  line();
  return () => { model.off("change:line", line); model.off("change:stage", stage); };
}
export default { render };
"""


class Explorer(anywidget.AnyWidget):
    """The explorer of one compiled kernel.

    ``line`` is the chosen source line, 0 for none, and ``stage`` the one that shows; both can be set and observed.
    """

    _esm = f"{explorer_script()}\n{_RENDER}"
    html = traitlets.Unicode("").tag(sync=True)
    line = traitlets.Int(0).tag(sync=True)
    stage = traitlets.Unicode("").tag(sync=True)

    def __init__(
        self,
        compiled: Compiled,
        source_text: str = "",
        first_line: int = 1,
        file: str | None = None,
        *,
        opened: str | None = None,
    ) -> None:
        html = explorer_html(compiled, source_text, first_line, file, opened=opened, uid=str(id(self)))
        super().__init__(html=html, stage=opened or "")
        self._kernel = f"{compiled.kernel} for {compiled.target}"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """Give pages without widgets the static explorer."""
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        return {**data, "text/html": self.html, "text/plain": f"Explorer of {self._kernel}"}, metadata
