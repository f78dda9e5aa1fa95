"""A matplotlib figure that shows as a picture in a notebook, also where pyplot was never imported."""

from __future__ import annotations

from matplotlib.figure import Figure

from kernellab.views.figures.canvas import file_of, picture_of_light_figure


class ShownFigure(Figure):
    """A figure with a PNG for IPython, which draws others only after an import of ``matplotlib.pyplot``.

    One on white also has HTML with the same PNG, whose colours follow the theme of the notebook.
    """

    def _repr_png_(self) -> bytes:
        return file_of(self)

    def _repr_html_(self) -> str | None:
        return picture_of_light_figure(self)
