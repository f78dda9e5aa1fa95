"""One HTML file that opens from disk, without a network, in light and dark."""

from __future__ import annotations

from html import escape

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
{style}
</style>
</head>
<body>
{body}
</body>
</html>
"""


def html_page(title: str, style: str, body: str) -> str:
    """Return the whole file; ``title`` is text, ``style`` a style sheet and ``body`` HTML."""
    return _PAGE.format(title=escape(title), style=style.strip(), body=body)
