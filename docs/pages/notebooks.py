"""The notebooks as pages, with the outputs that they were saved with."""

from __future__ import annotations

import re
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "notebooks"
_SLOT = '<div class="nb-slot" data-notebook="{notebook}" data-cell="{cell}"></div>'
_SLOTS = re.compile(_SLOT.format(notebook='([^"]+)', cell='([^"]+)'))
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_PICTURE = re.compile(
    r'<picture><source srcset="([^"]*)" media="\(prefers-color-scheme: dark\)"><img src="([^"]*)"([^>]*)></picture>'
)
_HEADING = re.compile(r"^# +(.+)$", re.MULTILINE)
_LINK = re.compile(r"(?<![!\w\]])\[([^\]]*)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")
_LIST_AFTER_TEXT = re.compile(r"^(?![ ]*(?:[-*+]|\d+\.|\|)[ ])(\S.*)\n(?=(?:[-*+]|\d+\.) )", re.MULTILINE)


@cache
def notebook(name: str) -> Any:
    """Return a notebook of the repository by the stem of its file."""
    import nbformat  # takes a second

    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def names() -> list[str]:
    """Return the notebooks in their order."""
    return sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def pages() -> dict[str, str]:
    """Return the page of each notebook, and one that lists them."""
    written = {f"notebooks/{name}.md": _page(name) for name in names()}
    return {"notebooks/index.md": _index(), **written}


def slot(name: str, cell: str) -> str:
    """Return the place in a page where `filled` puts the cell with this id."""
    return _SLOT.format(notebook=name, cell=cell)


def filled(html: str) -> str:
    """Return a page with the cells in their slots."""
    return _SLOTS.sub(lambda match: cell_html(_cell(match[1], match[2])), html)


def title(name: str) -> str:
    """Return the heading of a notebook."""
    for cell in notebook(name).cells:
        found = _HEADING.search(cell.source) if cell.cell_type == "markdown" else None
        if found:
            return str(found[1]).replace("`", "")
    return name


def cell_html(cell: Any) -> str:
    """Return a code cell and its outputs as HTML."""
    outputs = "".join(_output_html(output) for output in cell.outputs)
    shown = f'<div class="nb-output" data-search-exclude>{outputs}</div>' if outputs else ""
    return f'<div class="nb-cell">{highlighted(cell.source)}{shown}</div>'


def highlighted(source: str) -> str:
    """Return the code of a cell as HTML; IPython's own lexer would leave the body of a ``%%triton`` cell plain."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import Python3Lexer

    first, newline, rest = source.partition("\n") if source.startswith("%") else ("", "", source)
    code = highlight(rest, Python3Lexer(), HtmlFormatter(nowrap=True)) if rest else ""
    magic = f'<span class="nd">{escape(first)}</span>{newline}' if first else ""
    return f'<div class="highlight"><pre><span></span><code>{magic}{code}</code></pre></div>'


def shown_text(text: str, kind: str = "nb-text") -> str:
    """Return a text output as HTML."""
    return f'<pre class="{kind}">{escape(_ANSI.sub("", text).rstrip())}</pre>'


def _cell(name: str, identity: str) -> Any:
    return next(cell for cell in notebook(name).cells if cell.id == identity)


def _page(name: str) -> str:
    parts = [
        _for_markdown(cell.source) if cell.cell_type == "markdown" else slot(name, cell.id)
        for cell in notebook(name).cells
    ]
    return "\n\n".join(parts) + "\n"


def _index() -> str:
    rows = [f"- [{title(name)}]({name}.md)<br>{_lead(name)}" for name in names()]
    return "\n".join(
        [
            "# Notebooks",
            "",
            "Each runs from top to bottom on a machine without a GPU, as saved here, and on one with a GPU as it is.",
            "`make lab` opens them in JupyterLab.",
            "",
            *rows,
            "",
        ]
    )


def _lead(name: str) -> str:
    """Return the first paragraph under the heading of a notebook."""
    for cell in notebook(name).cells:
        if cell.cell_type == "markdown" and _HEADING.search(cell.source):
            rest = _HEADING.split(cell.source, maxsplit=1)[2].strip()
            return _for_markdown(" ".join(rest.split("\n\n", maxsplit=1)[0].split()))
    return ""


def _for_markdown(text: str) -> str:
    """Return the text of a cell for Python-Markdown, whose lists and folded parts differ; links lead to pages."""
    text = _LIST_AFTER_TEXT.sub(r"\1\n\n", text.replace("<details>", '<details markdown="1">'))
    return _LINK.sub(_linked, text)


def _linked(match: re.Match[str]) -> str:
    """Return a link to a file of the repository as one to its page, or its text where it has none."""
    text, path, anchor = match.groups(default="")
    page = path.removeprefix("../docs/") if path.startswith("../docs/") else ""
    if path.endswith(".ipynb") and path.removesuffix(".ipynb") in names():
        return f"[{text}]({path.removesuffix('.ipynb')}.md{anchor})"
    if page and (FOLDER.parent / "docs" / page).is_file():
        return f"[{text}](../{page}{anchor})"
    return text


def _output_html(output: Any) -> str:
    if output.output_type == "stream":
        return shown_text(output.text)
    if output.output_type == "error":
        return shown_text("\n".join(output.traceback), "nb-text nb-error")
    return _data_html(output.data)


def _data_html(data: Any) -> str:
    """Return the richest form of an output that a page can hold."""
    if "text/html" in data:
        return f'<div class="nb-html">{_by_palette(data["text/html"])}</div>'
    if "image/svg+xml" in data:
        return f'<div class="nb-html">{data["image/svg+xml"]}</div>'
    if "image/png" in data:
        return f'<div class="nb-html"><img alt="" src="data:image/png;base64,{data["image/png"].strip()}"></div>'
    if "text/markdown" in data:
        return shown_text(data["text/markdown"])
    return shown_text(data.get("text/plain", ""))


def _by_palette(html: str) -> str:
    """Return HTML whose pictures follow the palette of the site, which a reader may set against the system's."""
    return _PICTURE.sub(r'<img src="\2#only-light"\3><img src="\1#only-dark"\3>', html)
