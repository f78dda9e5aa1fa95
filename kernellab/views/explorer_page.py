"""The explorer with its script: for a page of its own, and as the module that the widget loads."""

from __future__ import annotations

from functools import cache
from html import escape
from importlib import resources

from kernellab.compile import Compiled
from kernellab.views.explorer import explorer_html
from kernellab.views.graph_pane import graph_script

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>:root {{ color-scheme: light dark }} body {{ margin: 8px }} .kx.kx {{ max-width: none }}
.kx.kx.kx .kx-panes {{ height: calc(58vh - 40px) }}
.kx.kx .kg .kg-canvas {{ max-height: none }}</style>
</head>
<body>
{body}
<script type="module">
{script}
document.querySelectorAll(".kx").forEach(root => enhance(root, graphPane(root.querySelector(".kg"))));
</script>
</body>
</html>
"""


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
    title = escape(f"{compiled.kernel} for {compiled.target}")
    return _PAGE.format(title=title, body=body, script=explorer_script())
