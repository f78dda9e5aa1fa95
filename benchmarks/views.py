"""How long it takes to draw the graph of a kernel and to write its card, beside building the kernel's TTIR.

Run as ``python -m benchmarks.views``. The first drawing of a process loads the layout engine; the others are medians.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from kernellab.views.cards.card import cell_card
from kernellab.views.graph import View, default_view, svg
from kernellab.views.graph.diagram import warm
from tests.views.reports import cell_of, compiled_of, launches, report_of, ttir_of

RESULT = Path(__file__).parent / "results" / "views.txt"
REPETITIONS = 15
DRAWN_AT_MOST = 200  # operations
KERNELS = ("add", "softmax", "matmul", "forward", "backward", "unrolled")
HEAD = (
    f"{'kernel':<10} {'operations':>10} {'TTIR':>7} | {'by operation':>12} {'by line':>8} {'default/TTIR':>12} | "
    f"{'card, no graph':>14} {'card':>6} {'kB':>5} {'text':>6}"
)


def main() -> None:
    lines = [
        f"milliseconds, medians of {REPETITIONS}, Python {sys.version.split()[0]};",
        "goals: a view of 150 boxes in 150 ms, a card without graphs in 5 ms",
        f"loading the layout engine, once per process: {milliseconds(warm, 1):.0f}",
        "",
        HEAD,
    ]
    with tempfile.TemporaryDirectory() as name:
        lines += [row(kernel, Path(name)) for kernel in KERNELS]
    text = "\n".join(lines) + "\n"
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


def row(name: str, folder: Path) -> str:
    compiled = compiled_of(name, folder)
    graph, effects = compiled.graph, compiled.effects
    cell = cell_of(report_of(name, folder))
    ttir = milliseconds(lambda: ttir_of(*launches()[name]), 5)
    default = default_view(graph)
    views = tuple(View) if len(graph.operations) < DRAWN_AT_MOST else (View.SOURCE,)
    times = {view: milliseconds(partial(svg, graph, effects, view=view)) for view in views}
    by_operation = f"{times[View.OPERATIONS]:.1f}" if View.OPERATIONS in times else "-"
    bare, whole = (
        milliseconds(lambda: cell_card(cell, graphs=False).html()),
        milliseconds(lambda: cell_card(cell).html()),
    )
    return (
        f"{name:<10} {len(graph.operations):>10} {ttir:>7.1f} | {by_operation:>12} {times[View.SOURCE]:>8.1f} "
        f"{times[default] / ttir:>12.2f} | {bare:>14.2f} {whole:>6.1f} {len(cell_card(cell).html()) / 1000:>5.0f} "
        f"{milliseconds(lambda: cell_card(cell).text()):>6.2f}"
    )


def milliseconds(call: Callable[[], object], repetitions: int = REPETITIONS) -> float:
    """Return the median duration of a call."""
    taken = []
    for _ in range(repetitions):
        start = time.perf_counter()
        call()
        taken.append((time.perf_counter() - start) * 1000)
    return statistics.median(taken)


if __name__ == "__main__":
    main()
