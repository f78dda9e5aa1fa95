"""What stands in for SVG where a page drops it.

JupyterLab sanitizes the outputs of notebooks that the user does not trust, and code hosts those of all: style sheets
and SVG go, and the text of the SVG stays behind as a wall of words. So a PNG stands beside each picture. Which of the
two shows is decided without a script: the PNG hides where the picture beside it is an SVG still, and the picture is
held by what hides by itself, and shows only by our style sheet. A ``display`` of its own does that in JupyterLab;
``hidden`` would not: it is dropped there without a value, and no style sheet overrules it in pages with Tailwind, as
marimo's. Where attributes go, too, ``<rp>`` hides, the parenthesis around ruby text, which browsers do not show
(https://html.spec.whatwg.org/multipage/rendering.html#hidden-elements).
PNG, since what shows notebooks on GitHub refuses SVG in a data URI (https://github.com/jupyter/nbconvert/pull/2106).
"""

from __future__ import annotations

import base64
import re
from functools import lru_cache
from html import escape, unescape
from xml.etree.ElementTree import ParseError

from kernellab.views.figures.raster import rasterized

_STYLE = (
    "<style>.kl-drawn:has(svg),.kl-drawn:has(svg)>rp{display:contents!important}"
    ".kl-drawn:has(svg)+.kl-flat{display:none!important}</style>"
)
_ALONE = 'data-fallback="none"'
_SVG = re.compile(r"<svg\b.*?</svg>", re.DOTALL)
_LABEL = re.compile(r'\baria-label="([^"]*)"')


def with_fallbacks(html: str) -> str:
    """Return HTML in which a PNG stands beside each inline SVG of ours; HTML that has these stays as it is."""
    if "<svg" not in html or 'class="kl-flat"' in html:
        return html
    return _STYLE + _SVG.sub(lambda found: _beside(found.group()), html)


def without_fallbacks(html: str) -> str:
    """Return HTML whose pictures get no PNG: those that show only when a page with a style sheet is clicked on."""
    return html.replace("<svg ", f"<svg {_ALONE} ")


@lru_cache(maxsize=64)
def _beside(svg: str) -> str:
    if svg.startswith(f"<svg {_ALONE}"):
        return svg
    try:
        png, (width, _) = rasterized(svg)
    except ParseError:
        return svg
    label = _LABEL.search(svg)
    alt = escape(unescape(label.group(1))) if label else "picture"
    data = base64.b64encode(png).decode()
    image = (
        f'<img class="kl-flat" alt="{alt}" width="{width}" style="max-width:100%" src="data:image/png;base64,{data}">'
    )
    return f'<span class="kl-drawn" style="display:none"><rp>{svg}</rp></span>{image}'
