"""A notebook as one HTML file that opens from disk, without a network and without scripts."""

from __future__ import annotations

from html import escape
from typing import Any

from kernellab.views.page import html_page

_STYLE = """
body { margin: 0; font: 16px/1.55 system-ui, sans-serif; background: Canvas; color: CanvasText; }
main { max-width: 60rem; margin: 0 auto; padding: 1rem 1.25rem 4rem; }
pre, code { font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: 0.82rem; }
h1, h2, h3 { line-height: 1.25; }
a.anchor-link, .prompt, .jp-InputPrompt, .jp-OutputPrompt, .jp-Collapser { display: none; }
.highlight, .jp-InputArea-editor { border-radius: 6px; }
.highlight { background: color-mix(in srgb, CanvasText 5%, Canvas); padding: 0.1rem 0.8rem; overflow-x: auto; }
.output_area pre, .jp-OutputArea-output pre { overflow-x: auto; white-space: pre-wrap; margin: 0.5rem 0; }
.output_error pre, .jp-RenderedText[data-mime-type="application/vnd.jupyter.stderr"] pre {
  background: color-mix(in srgb, #d33 14%, Canvas); padding: 0.5rem 0.8rem; border-radius: 6px; }
table.dataframe { border-collapse: collapse; font-size: 0.85rem; }
table.dataframe th, table.dataframe td { padding: 0.2rem 0.6rem; text-align: right; border: 0; }
table.dataframe tbody tr { border-top: 1px solid color-mix(in srgb, CanvasText 15%, Canvas); }
"""


def notebook_page(notebook: Any, title: str) -> str:
    """Return an executed notebook as one HTML page.

    Raises:
        ModuleNotFoundError: nbconvert, which the extra ``demo`` brings, is not installed.
    """
    from nbconvert import HTMLExporter  # only here
    from pygments.formatters import HtmlFormatter

    exporter = HTMLExporter(template_name="basic", filters={"highlight_code": _highlighted})
    body, _ = exporter.from_notebook_node(notebook)
    light = HtmlFormatter(style="default", nobackground=True).get_style_defs(".highlight")
    dark = HtmlFormatter(style="github-dark", nobackground=True).get_style_defs(".highlight")
    style = f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n{_STYLE}"
    return html_page(title, style, f"<main>\n{body}\n</main>")


def _highlighted(source: str, language: str = "python", metadata: object = None) -> str:
    """Return a code cell as HTML; IPython's own lexer would leave the body of a ``%%triton`` cell plain."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import Python3Lexer

    first, newline, rest = source.partition("\n") if source.startswith("%") else ("", "", source)
    code = highlight(rest, Python3Lexer(), HtmlFormatter(nowrap=True))
    return f'<div class="highlight"><pre><span class="nb">{escape(first)}</span>{newline}{code}</pre></div>'
