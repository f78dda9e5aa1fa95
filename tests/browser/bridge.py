"""A widget of this process in a page without a notebook: what either side sets, the other is told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

HEAD = "<!DOCTYPE html><meta charset=utf-8><style>:root{color-scheme:light dark}</style><body>"
MODEL = """
const values = {}, listeners = {}, dirty = {};
const take = changes => {
  Object.assign(values, changes);
  for (const name of Object.keys(changes)) (listeners[name] || []).slice().forEach(f => f());
};
window.model = {
  values, get: name => values[name], take,
  set: (name, value) => {
    if (JSON.stringify(values[name]) === JSON.stringify(value)) return;
    dirty[name] = value;
    take({ [name]: value });
  },
  save_changes: async () => {
    const sent = { ...dirty };
    for (const name of Object.keys(dirty)) delete dirty[name];
    if (Object.keys(sent).length) take(await window.toPython(sent));
  },
  on: (name, f) => { (listeners[name.slice(7)] ||= []).push(f); },
  off: (name, f) => { const key = name.slice(7); listeners[key] = (listeners[key] || []).filter(each => each !== f); },
};
"""


class Bridge:
    """A widget and the page that shows it."""

    def __init__(self, widget: Any, page: Any) -> None:
        self.widget, self.page = widget, page
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        self._names = [name for name in widget.keys if not name.startswith("_")]
        self._told = self._state()
        page.expose_function("toPython", self._from_page)
        module = str(widget._esm).replace("export default { render };", "window.render = render;")
        page.set_content(f"{HEAD}<div id=el></div><script>{MODEL}</script><script type=module>{module}</script>")
        page.wait_for_function("() => window.render")
        page.evaluate(
            "state => { Object.assign(model.values, state); render({ model, el: document.querySelector('#el') }); }",
            self._told,
        )

    def _state(self) -> dict[str, Any]:
        return {name: json.loads(json.dumps(getattr(self.widget, name), default=str)) for name in self._names}

    def _from_page(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        self._told.update(changes)
        self.widget.set_state(dict(changes))
        return self._news()

    def _news(self) -> dict[str, Any]:
        state = self._state()
        news = {name: value for name, value in state.items() if value != self._told[name]}
        self._told = state
        return news

    def set(self, **state: Any) -> None:
        """Set traits in Python and tell the page."""
        for name, value in state.items():
            setattr(self.widget, name, value)
        self.page.evaluate("news => model.take(news)", self._news())

    def wait(self, condition: str, argument: Any = None) -> None:
        self.page.wait_for_function(condition, arg=argument, timeout=5000)
