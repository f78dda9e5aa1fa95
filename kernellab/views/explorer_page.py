"""The explorer with its script: for a page of its own, and as the module that the widget loads."""

from __future__ import annotations

from functools import cache
from importlib import resources

from kernellab.compile.types import Compiled
from kernellab.views.explorer import explorer_html
from kernellab.views.graph_pane import graph_script
from kernellab.views.page import html_page

_STYLE = """
body { margin: 8px; }
.kx.kx { max-width: none; }
.kx.kx.kx .kx-panes { height: calc(58vh - 40px); }
"""
_SCRIPT = """<script type="module">
{script}
document.querySelectorAll(".kx").forEach(root => enhance(root, graphPane(root.querySelector(".kg"))));
</script>"""


@cache
def explorer_script() -> str:
    """Return the script: an ES module that exports ``enhance(root, graph)`` and ``graphPane(root)``."""
    own = resources.files(__package__).joinpath("explorer.js").read_text(encoding="utf-8")
    return f"{graph_script()}\n{own}"


def explorer_page(
    compiled: Compiled,
    source_text: str = "",
    first_line: int = 1,
    file: str | None = None,
    *,
    opened: str | None = None,
) -> str:
    """Return one HTML file with the graph, search, keys and linked scrolling, which opens without a network."""
    body = explorer_html(compiled, source_text, first_line, file, opened=opened, graph=True)
    title = f"{compiled.kernel} for {compiled.target}"
    return html_page(title, _STYLE, f"{body}\n{_SCRIPT.format(script=explorer_script())}")
