"""The explorer with its script: for a page of its own, and as the module that the widget loads."""

from __future__ import annotations

from functools import cache
from html import escape
from importlib import resources

from kernellab.compile import Compiled
from kernellab.views.explorer import explorer_html

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>:root {{ color-scheme: light dark }} body {{ margin: 8px }} .kx.kx {{ max-width: none }}
.kx.kx .kx-panes {{ height: calc(100vh - 80px) }}</style>
</head>
<body>
{body}
<script type="module">
{script}
document.querySelectorAll(".kx").forEach(enhance);
</script>
</body>
</html>
"""


@cache
def explorer_script() -> str:
    """Return the script: an ES module that exports ``enhance(root)``."""
    return resources.files(__package__).joinpath("explorer.js").read_text(encoding="utf-8")


def explorer_page(
    compiled: Compiled,
    source_text: str = "",
    first_line: int = 1,
    file: str | None = None,
    *,
    opened: str | None = None,
) -> str:
    """Return one HTML file with search, keys and linked scrolling, which opens without a network."""
    body = explorer_html(compiled, source_text, first_line, file, opened=opened)
    title = escape(f"{compiled.kernel} for {compiled.target}")
    return _PAGE.format(title=title, body=body, script=explorer_script())
