"""Where in a matrix an output differs from its reference, as a small picture."""

from __future__ import annotations

from kernellab.measure.comparison import Check
from kernellab.views.drawing import svg_element

_CELL_PX = 7
_LEAST_OPACITY = 0.25  # a single wrong element among many must still be seen


def heat_svg(check: Check) -> str:
    """Return a grid over the output, each cell the darker the more of its elements are wrong; "" where it has none."""
    if not check.heat:
        return ""
    rows, columns = len(check.heat), len(check.heat[0])
    width, height = columns * _CELL_PX, rows * _CELL_PX
    body = [f'<rect width="{width}" height="{height}" fill="#8a8f98" fill-opacity=".12" stroke="#8a8f98"/>']
    for y, row in enumerate(check.heat):
        for x, share in enumerate(row):
            if share:
                opacity = _LEAST_OPACITY + (1 - _LEAST_OPACITY) * share
                place = f'x="{x * _CELL_PX}" y="{y * _CELL_PX}" width="{_CELL_PX}" height="{_CELL_PX}"'
                body.append(f'<rect {place} fill="#e03e4a" fill-opacity="{opacity:.2f}"/>')
    title = f"Where {check.argument} differs from {check.expression}"
    return svg_element(title, f"{check.mismatched:,} of {check.elements:,} elements differ", width, height, body)
