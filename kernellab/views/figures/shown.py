"""A matplotlib figure that shows as a picture in a notebook, also where pyplot was never imported."""

from __future__ import annotations

import io

from matplotlib.figure import Figure


class ShownFigure(Figure):
    """A figure with a PNG for IPython, whose own is there only after an import of ``matplotlib.pyplot``."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()
