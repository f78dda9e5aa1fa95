"""The outputs of two kernels that were compared without a tolerance, as a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernellab.inside.equivalence import Equivalence
from kernellab.views.figures.canvas import sentences_figure, theme_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def equivalence_figure(equivalence: Equivalence, *, dark: bool = False) -> Figure:
    """Draw the answer, with a line per output and per warning of the checked runs."""
    lines = [
        f"{output.name}: {output.different:,} of {output.elements:,} elements differ"
        + ("" if output.first is None else f", the first is [{', '.join(map(str, output.first))}]")
        for output in equivalence.outputs
    ]
    return sentences_figure(equivalence.summary, [*lines, *equivalence.warnings], theme_of(dark))
