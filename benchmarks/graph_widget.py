"""How long the linked explorer and the graph widget take to open, fold, slice and change their view.

Run as ``python -m benchmarks.graph_widget``. Figures are medians; nothing is drawn from memory but where it says so.
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton

import kernellab
from benchmarks.explorer import kernels
from benchmarks.views import milliseconds
from kernellab.compile.types import Compiled
from kernellab.views.explorers import explorer_html
from kernellab.views.graph import GraphPictures, View
from kernellab.views.graph.diagram import warm
from kernellab.views.widgets import Explorer, GraphView
from tests.views.kernels import unrolled
from tests.views.reports import TARGET, compiled_of

RESULT = Path(__file__).parent / "results" / "graph_widget.txt"
REPETITIONS = 7
GRAPHS = ("softmax", "matmul", "forward", "backward")
GRAPH_HEAD = f"{'graph':<22} {'boxes':>5} {'open':>8} {'fold all':>9} {'unfold':>7} {'again':>7} {'slice':>7} {'kB':>5}"
HEAD = f"{'explorer':<22} {'target':<10} {'widget':>8} {'with SASS':>10} {'static HTML':>12}"


def main() -> None:
    warm()
    lines = [
        f"milliseconds, medians of {REPETITIONS}, Python {sys.version.split()[0]}, Triton {triton.__version__}",
        "goal: fold or unfold 300 boxes in 300 ms; 'again' is from memory",
        "",
        GRAPH_HEAD,
    ]
    with tempfile.TemporaryDirectory() as folder:
        lines += [graph_row(name, compiled_of(name, Path(folder))) for name in GRAPHS]
    lines += ["", "the disassembler, a program of its own, ran before; a widget asks it when SASS is opened", "", HEAD]
    with kernellab.Lab(store=":memory:") as lab:
        lines.insert(4 + len(GRAPHS), graph_row("unrolled, 50 steps", _unrolled(lab)))
        for name, (kernel, arguments, meta) in kernels().items():
            compiled = lab.compile(kernel, target="cuda:90", **arguments, **meta)
            lines.append(explorer_row(name, compiled))
    text = "\n".join(lines) + "\n"
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


def _unrolled(lab: kernellab.Lab) -> Compiled:
    values = torch.zeros(64)
    return lab.compile(unrolled, values, values, 50, 64, target=str(TARGET))


def graph_row(name: str, compiled: Compiled) -> str:
    def fresh() -> GraphView:
        widget = GraphView(compiled, view="operations")
        widget.collapsed = []
        return widget

    def fold(widget: GraphView) -> None:
        widget.collapsed = frames if not widget.collapsed else []

    widget = fresh()
    frames = sorted({each for _, _, around in widget.index for each in around})
    opened = milliseconds(lambda: GraphView(compiled, view="operations"), REPETITIONS)
    undrawn = [_undrawn(compiled) for _ in range(2 * REPETITIONS)]
    folded = milliseconds(lambda: undrawn.pop().draw(View.OPERATIONS, frames), REPETITIONS)
    whole = milliseconds(lambda: undrawn.pop().draw(View.OPERATIONS, ()), REPETITIONS)
    fold(widget)
    again = milliseconds(partial(fold, widget), REPETITIONS)
    starts = iter(compiled.graph.kernel.parameters * REPETITIONS)
    part = milliseconds(lambda: setattr(widget, "slice", _next(widget, starts)), REPETITIONS)
    size = len(fresh().svg) / 1000
    times = f"{opened:>8.1f} {folded:>9.1f} {whole:>7.1f} {again:>7.1f} {part:>7.1f}"
    return f"{name:<22} {len(widget.index):>5} {times} {size:>5.0f}"


def _undrawn(compiled: Compiled) -> GraphPictures:
    """Return the pictures of a graph that knows its boxes and has laid out none."""
    pictures = GraphPictures(compiled.graph, compiled.effects)
    pictures.whole(View.OPERATIONS)
    return pictures


def _next(widget: GraphView, starts: Any) -> str:
    return next(name for name in starts if name in widget.arguments and name != widget.slice)


def explorer_row(name: str, compiled: Compiled) -> str:
    _ = compiled.sass
    lazy = milliseconds(lambda: Explorer(compiled), REPETITIONS)
    whole = milliseconds(lambda: Explorer(compiled, opened="sass"), REPETITIONS)
    static = milliseconds(partial(explorer_html, compiled, graph=True), REPETITIONS)
    return f"{name:<22} {compiled.target!s:<10} {lazy:>8.0f} {whole:>10.0f} {static:>12.0f}"


if __name__ == "__main__":
    main()
