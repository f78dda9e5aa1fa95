"""What all figures share: axes, plain numbers on logarithmic scales."""

from __future__ import annotations

import base64
import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from kernellab.views.blocks import Drawing
from kernellab.views.palette import DARK, LIGHT, Theme
from kernellab.workers.forks_and_interrupts import import_uninterrupted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.gridspec import SubplotSpec

# The browser takes the version that the system prefers. Where the theme of JupyterLab, VS Code or marimo is the other
# one, colours are turned round; hues stay. A figure that stands alone has a light version only.
_TO_DARK = "invert(.92) hue-rotate(180deg)"
_DARKENED = f":is([data-jp-theme-light=false],.vscode-dark,.dark-theme) .kl-plot img{{filter:{_TO_DARK}}}"
_TO_LIGHT = "invert(1) hue-rotate(180deg) brightness(1.09)"
_LIGHTENED = f":is([data-jp-theme-light=true],.vscode-light,.light-theme) .kl-plot img{{filter:{_TO_LIGHT}}}"
_THEMES = f"@media (prefers-color-scheme:light){{{_DARKENED}}}@media (prefers-color-scheme:dark){{{_LIGHTENED}}}"
_ALONE = _DARKENED.replace("kl-plot", "kl-light")
_SENTENCE = 100  # characters of a line of `sentences_figure`
LINE_CHARACTERS = 118  # of a line of text below the axes
LINE_INCHES = 0.17
BAR_INCHES = 0.27
MARKERS = ("o", "s", "^", "D", "v", "P")


def new_figure(width: float, height: float, theme: Theme) -> Figure:
    """Return an empty figure of a width and height in inches."""
    return _shown_figure()(figsize=(width, height), dpi=110, facecolor=theme.background, layout="constrained")


@cache
def _shown_figure() -> type[Figure]:
    """Return the class of figures that show in a notebook, also where ``matplotlib.pyplot`` was never imported.

    One on white also has HTML with the same PNG, whose colours follow the theme of the notebook.
    """
    import_uninterrupted("matplotlib.figure")
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        _repr_png_ = file_of
        _repr_html_ = _picture_of_light_figure

    return ShownFigure


def theme_of(dark: bool) -> Theme:
    """Return the colours of a figure on white, or on black."""
    return DARK if dark else LIGHT


def single_axes(width: float, height: float, theme: Theme) -> tuple[Figure, Axes]:
    """Return a figure of a width and height in inches with its only axes."""
    figure = new_figure(width, height, theme)
    return figure, new_axes(figure, theme)


def new_axes(figure: Figure, theme: Theme, place: tuple[int, int, int] | SubplotSpec = (1, 1, 1)) -> Axes:
    """Return axes in the colours of a theme; ``place`` is (rows, columns, number), or a cell of a grid."""
    axes = figure.add_subplot(*place) if isinstance(place, tuple) else figure.add_subplot(place)
    axes.set_facecolor(theme.background)
    axes.tick_params(colors=theme.text, labelsize=7.5, length=2)
    axes.grid(visible=True, color=theme.faint, linewidth=0.6)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_color(theme.faint)
    return axes


def use_logarithm(axes: Axes, which: str, theme: Theme) -> None:
    """Scale an axis by logarithm, with plain numbers on it."""
    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    use_plain_numbers(axis)
    axis.set_tick_params(which="both", labelcolor=theme.text, labelsize=7.5)


def scale_times(axes: Axes, which: str, times_ms: Any, theme: Theme) -> None:
    """Scale an axis of times from zero on, or by logarithm where they differ much."""
    if times_ms.max() > 8 * times_ms.min():
        use_logarithm(axes, which, theme)
    else:
        axes.set(**{f"{which}lim": (0, None)})


def use_plain_numbers(axis: Axis) -> None:
    """Write plain numbers on a logarithmic axis, few of them between the powers of ten."""
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else "")


def label(axes: Axes, theme: Theme, *, x: str | None = None, y: str | None = None, title: str | None = None) -> None:
    """Write what axes show."""
    if x is not None:
        axes.set_xlabel(x, color=theme.text, fontsize=8)
    if y is not None:
        axes.set_ylabel(y, color=theme.text, fontsize=8)
    if title is not None:
        axes.set_title(title, color=theme.text, fontsize=10, loc="left")


def series_style(theme: Theme, place: int) -> tuple[str, str]:
    """Return the colour and the marker of a series."""
    return theme.series[place % len(theme.series)], MARKERS[place % len(MARKERS)]


def add_legend(place: Axes | Figure, theme: Theme, **options: Any) -> None:
    """Add a legend to axes or to a figure, in the colours of the figure; ``options`` are those of matplotlib."""
    legend = place.legend(**{"fontsize": 7.5, "labelcolor": theme.text, **options})
    legend.get_frame().set(facecolor=theme.background, edgecolor=theme.faint)


def name_bars(axes: Axes, names: Sequence[str], **font: Any) -> None:
    """Name horizontal bars, the first on top; ``font`` are options of matplotlib."""
    axes.grid(visible=False, axis="y")
    axes.set_yticks(range(len(names)), list(names), **font)
    axes.set_ylim(len(names) - 0.4, -0.6)


def write_beside(axes: Axes, at: float, row: float, words: str, theme: Theme) -> None:
    """Write words to the right of a bar, over the lines of the grid."""
    place: dict[str, Any] = {"xytext": (4, 0), "textcoords": "offset points", "va": "center"}
    box = {"facecolor": theme.background, "edgecolor": "none", "pad": 1}
    axes.annotate(words, (at, row), **place, color=theme.text, fontsize=7.5, bbox=box)


def write_below(figure: Figure, lines: Sequence[str], colour: str) -> None:
    """Write lines below the axes of a figure, which leave them the room: `LINE_INCHES` each."""
    height = LINE_INCHES / figure.get_figheight()
    for place, line in enumerate(reversed(lines)):
        figure.text(0.01, 0.012 + place * height, line, color=colour, fontsize=7.5)
    bottom = height * len(lines)
    figure.set_layout_engine("constrained", rect=(0, bottom, 1, 1 - bottom))


def sentences_figure(title: str, sentences: Sequence[str], theme: Theme) -> Figure:
    """Return a figure of sentences: what a result has to say where it has nothing to draw."""
    lines = [line for sentence in sentences for line in textwrap.wrap(sentence, _SENTENCE) or [""]]
    heads = textwrap.wrap(title, _SENTENCE - 10)
    figure = new_figure(8.0, 0.35 + 0.25 * len(heads) + 0.2 * len(lines), theme)
    figure.set_layout_engine("none")
    height = figure.get_figheight()
    for place, line in enumerate(heads):
        figure.text(0.02, 1 - (0.25 + 0.25 * place) / height, line, color=theme.text, fontsize=10)
    for place, line in enumerate(lines):
        below = 0.3 + 0.25 * len(heads) + 0.2 * place
        figure.text(0.02, 1 - below / height, line, color=theme.text, fontsize=8.5)
    return figure


def value_text(value: Any) -> str:
    """Return a value of a frame in short; "-" where there is none."""
    if str(value) in {"None", "nan", "<NA>"}:
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value)


def device_words(facts: Mapping[str, Any]) -> str:
    """Return the device of a measurement, or the target of a compile."""
    return str(facts.get("device") or f"{facts.get('target', '')}, no GPU")


def figure_block(draw: Callable[..., Figure | None], alt: str) -> Drawing:
    """Return a figure as a block of a card, in a light and a dark version."""
    return Drawing(lambda: picture(lambda dark: draw(dark=dark), alt))


def picture(draw: Callable[[bool], Figure | None], alt: str) -> str:
    """Return a figure as an image that is part of the page, light and dark; "" where there is nothing to draw."""
    figure = draw(False)
    if figure is None:
        return ""
    light, dark = _data_uri(figure), _data_uri(draw(True))
    source = f'<source srcset="{dark}" media="(prefers-color-scheme: dark)">'
    image = f'<img src="{light}" style="max-width:100%" alt="{alt}">'
    return f'<div class="kl-plot"><style>{_THEMES}</style><picture>{source}{image}</picture></div>'


def _picture_of_light_figure(figure: Figure) -> str | None:
    """Return a figure on white as an image that turns dark with the notebook's theme; None for one on black."""
    if sum(figure.get_facecolor()[:3]) < 1.5:
        return None
    image = f'<img src="{_data_uri(figure)}" style="max-width:100%" alt="figure">'
    return f'<div class="kl-light"><style>{_ALONE}</style>{image}</div>'


def _data_uri(figure: Figure | None) -> str:
    assert figure is not None, "a figure is there in both versions"
    return f"data:image/png;base64,{base64.b64encode(file_of(figure)).decode()}"


def file_of(figure: Figure, form: str = "png", **options: Any) -> bytes:
    """Return the content of a file of a figure; ``options`` are those of matplotlib."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=form, **options)
    return buffer.getvalue()
