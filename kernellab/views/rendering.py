"""The figures of every result by kind, its HTML page, and its files by suffix."""

from __future__ import annotations

import csv
import inspect
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernellab.benchmark.comparison import Comparison
from kernellab.benchmark.result import Benchmark
from kernellab.compile.types import Compiled
from kernellab.errors import UsageError, choice_message
from kernellab.explain.explanation import Explanation
from kernellab.explain.prediction import Prediction
from kernellab.explain.profile import Profile
from kernellab.explain.traffic.result import Traffic
from kernellab.export.frames import escape_formula
from kernellab.export.write import replace_file
from kernellab.inside.equivalence import Equivalence
from kernellab.inside.first_difference import FirstDifference
from kernellab.inside.timeline import Timeline
from kernellab.inside.values import Values
from kernellab.ir.effects import Effects
from kernellab.ir.graph import Graph
from kernellab.ir.layouts import Layouts
from kernellab.launch.run import Run
from kernellab.tune.dispatch.result import Dispatch
from kernellab.tune.result import Tuning
from kernellab.views import data as as_data
from kernellab.views.bundles import OwnView
from kernellab.views.card_table import CARDS
from kernellab.views.elements import html_page
from kernellab.views.explorers import page_script
from kernellab.views.figures.canvas import file_of
from kernellab.views.figures.diagrams import dataflow_figure, tiles_figure
from kernellab.views.figures.dispatch import cover_figure, dispatch_figure, plane_figure, regret_figure
from kernellab.views.figures.inside import difference_figure, equivalence_figure, timeline_figure, values_figure
from kernellab.views.figures.launches import (
    comparison_figure,
    explanation_figure,
    occupancy_figure,
    prediction_figure,
    profile_figure,
)
from kernellab.views.figures.memory import effects_figure, run_figure, traffic_figure
from kernellab.views.figures.sweep import benchmark_figure, roofline_figure, speedup_figure, sweep_heat_map
from kernellab.views.figures.tuning import agreement_figure, heat_map, parameters_figure, timings_figure
from kernellab.views.graph import svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class FigureKind:
    """A figure of a result. ``draw`` takes the result, or its frame where ``of_frame``, and options by name.

    It returns None where there is nothing to draw; ``needs`` then says what a result has to have.
    """

    draw: Callable[..., Figure | None]
    of_frame: bool = False
    needs: str = ""

    @property
    def options(self) -> tuple[str, ...]:
        """The names of the options, without ``dark``."""
        return tuple(name for name in [*inspect.signature(self.draw).parameters][1:] if name != "dark")


_ROOFLINE = FigureKind(
    roofline_figure, True, "measured times, known bytes and flops, and ceilings of the device (lab.ceilings() measures)"
)
_TIMES = "measured times of two values or more"
FIGURES: Mapping[type, Mapping[str, FigureKind]] = {
    Tuning: {
        "times": FigureKind(timings_figure, True),
        "parameters": FigureKind(parameters_figure, True, _TIMES),
        "heat_map": FigureKind(heat_map, True),
        "groups": FigureKind(agreement_figure, True, "configs whose outputs differ"),
        "roofline": _ROOFLINE,
    },
    Benchmark: {
        "sweep": FigureKind(benchmark_figure, True),
        "speedup": FigureKind(speedup_figure, True, "measured times, and a reference (versus=)"),
        "heat_map": FigureKind(sweep_heat_map, True, "measured times over two swept numbers"),
        "roofline": _ROOFLINE,
    },
    Dispatch: {
        "configs": FigureKind(dispatch_figure),
        "plane": FigureKind(plane_figure, needs="measured times over two sizes"),
        "regret": FigureKind(regret_figure, needs="measured times"),
        "cover": FigureKind(cover_figure, needs="measured times and a rule of two configs or more"),
    },
    Traffic: {"accesses": FigureKind(traffic_figure)},
    Explanation: {"times": FigureKind(explanation_figure)},
    Prediction: {"terms": FigureKind(prediction_figure)},
    Timeline: {"sms": FigureKind(timeline_figure)},
    Values: {"tile": FigureKind(values_figure)},
    FirstDifference: {"tiles": FigureKind(difference_figure)},
    Equivalence: {"outputs": FigureKind(equivalence_figure)},
    Profile: {"lines": FigureKind(profile_figure)},
    Comparison: {"sides": FigureKind(comparison_figure)},
    Effects: {"arguments": FigureKind(effects_figure)},
    Graph: {"dataflow": FigureKind(dataflow_figure)},
    Compiled: {"occupancy": FigureKind(occupancy_figure), "dataflow": FigureKind(dataflow_figure)},
    Run: {"changed": FigureKind(run_figure)},
    Layouts: {"tiles": FigureKind(tiles_figure)},
}
"""The figures of each type of result by kind, the default first; a default is never None."""


def figure_of(result: Any, kind: str | None = None, /, *, dark: bool = False, **options: Any) -> Figure:
    """Return a figure of a result, by default the first of its kinds.

    Raises:
        UsageError: there is no such kind or option, or the figure has nothing to show.
    """
    kinds, name = FIGURES[type(result)], type(result).__name__
    kind = next(iter(kinds)) if kind is None else kind
    if kind not in kinds:
        raise UsageError(choice_message("kind", kind, tuple(kinds), owner=f"{name}.plot"))
    entry = kinds[kind]
    for option in options:
        if option not in entry.options:
            known = f"; it takes {', '.join(entry.options)} and dark." if entry.options else ", only dark."
            raise UsageError(f"{name}.plot({kind!r}) takes no option {option!r}{known}")
    figure = entry.draw(result.frame if entry.of_frame else result, dark=dark, **options)
    if figure is None:
        raise UsageError(f"This {name} has no figure {kind!r}: it needs {entry.needs}.")
    return figure


_PAGE = """
body { margin: 12px; background: Canvas; color: CanvasText; }
.kl-card.kl-card { max-width: none; }
"""


def page_of(result: Any) -> str:
    """Return the card of a result as an HTML page, which needs no network."""
    card = result.card() if isinstance(result, OwnView) else CARDS[type(result)](result)
    body, name, kernel = card.html(), type(result).__name__, _kernel(result)
    title = f"{kernel}: {name}" if kernel else name
    if isinstance(result, Comparison | FirstDifference | Equivalence):
        title = " vs ".join(result.names)
    script = page_script() if 'class="kx' in body else ""
    return html_page(title, _PAGE, f"{body}\n{script}")


def _kernel(result: Any) -> str | None:
    """The name of the kernel, where the result has it; of a result with a view of its own, its name."""
    kernel: str | None
    if isinstance(result, OwnView):
        kernel = getattr(result, "name", None)
    else:
        kernel = result.kernel.name if isinstance(result, Graph) else getattr(result, "kernel", None)
    return kernel


_FRAMES = (Tuning, Benchmark, Dispatch, Traffic, Explanation, Prediction, Profile, Timeline, Values, Layouts)
ROWS: Mapping[type, Callable[[Any], list[dict[str, Any]]]] = {
    **{kind: lambda result: as_data.records(result.frame) for kind in _FRAMES},
    Comparison: as_data.comparison_rows,
    FirstDifference: as_data.first_difference_rows,
    Equivalence: as_data.equivalence_rows,
    Effects: lambda effects: as_data.effects_data(effects)["sites"],
    Graph: lambda graph: as_data.graph_data(graph)["operations"],
    Compiled: lambda one: [{"kernel": one.kernel, "target": str(one.target), **as_data.plain(one.resources)}],
    Run: lambda run: [{"argument": name, "changed": count} for name, count in run.changed.items()],
}
"""The rows of a ``.csv`` by type of result, all with the same fields."""
_EMPTY = {
    FirstDifference: ("side", "line", "source", "name", "program", "iteration", "dtype", "number"),
    Effects: ("argument", "kind", "operation", "file", "line", "masked", "conditional"),
    Run: ("argument", "changed"),
}
"""The head of a table without rows, of a type that has no frame."""


def _fields_and_rows(*fields: str) -> Callable[[Any], Mapping[str, Any]]:
    return lambda result: {**as_data.selected_fields(result, *fields), "rows": ROWS[type(result)](result)}


DATA: Mapping[type, Callable[[Any], Mapping[str, Any]]] = {
    Tuning: as_data.tuning_data,
    Benchmark: as_data.benchmark_data,
    Dispatch: as_data.dispatch_data,
    Traffic: as_data.traffic_data,
    Explanation: as_data.explanation_data,
    Prediction: as_data.prediction_data,
    Profile: _fields_and_rows(
        *("target", "device", "grid", "samples", "launches", "sessions", "seconds", "counters", "refused", "notes")
    ),
    Timeline: _fields_and_rows(
        *("device", "grid", "multiprocessors", "span_us", "gap_us", "tail_us", "idle_share", "resolution_ns"),
        *("launch_us", "plain_us", "stamped_us", "overhead", "waves", "shares", "notes"),
    ),
    Values: _fields_and_rows("grid", "where", "programs", "failure", "notes"),
    FirstDifference: _fields_and_rows("summary", "line", "reason", "element", "allowed", "compared", "programs"),
    Equivalence: _fields_and_rows("summary", "equal", "unmodelled", "warnings", "notes"),
    Comparison: as_data.comparison_data,
    Effects: as_data.effects_data,
    Graph: as_data.graph_data,
    Compiled: as_data.compiled_data,
    Run: as_data.run_data,
    Layouts: _fields_and_rows("target"),
}
"""The content of a ``.json`` by type of result."""


def save_result(
    result: Any, path: str | Path, /, *, kind: str | None = None, dark: bool = False, **options: Any
) -> Path:
    """Write a result as a file of the kind that the suffix names, whole or not at all; return its path.

    Raises:
        UsageError: there is no such suffix, the figure cannot be drawn, or the file cannot be written.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    writers = {end: write for end, write in SUFFIXES.items() if end not in _PICTURES or type(result) in FIGURES}
    if suffix not in writers:
        known = ", ".join(writers)
        name = type(result).__name__
        raise UsageError(f"A {name} cannot be saved as {path.name!r}; expected a file that ends in one of {known}.")
    asked = [*(["kind"] if kind is not None else []), *(["dark"] if dark else []), *options]
    if asked and suffix not in _PICTURES:
        names = " and ".join(_PICTURES)
        raise UsageError(f"{asked[0]} is an option of a figure, and {path.name!r} is none; figures are {names}.")
    replace_file(path, SUFFIXES[suffix](result, kind=kind, dark=dark, **options))
    return path


def _svg(result: Any, *, kind: str | None, dark: bool, **options: Any) -> bytes:
    if isinstance(result, Graph) and not dark:  # its own is smaller, has tooltips, and suits light and dark pages
        return svg(result, options.pop("effects", None), **options).encode()
    return file_of(figure_of(result, kind, dark=dark, **options), "svg", metadata={"Date": None})


def _png(result: Any, *, kind: str | None, dark: bool, **options: Any) -> bytes:
    return file_of(figure_of(result, kind, dark=dark, **options), "png", dpi=200)


def _csv(result: Any, **_: Any) -> bytes:
    rows = result.rows() if isinstance(result, OwnView) else ROWS[type(result)](result)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    head = rows[0] if rows else _EMPTY.get(type(result)) or result.frame.columns
    writer.writerow(map(escape_formula, head))
    writer.writerows([escape_formula(value) for value in row.values()] for row in rows)
    return text.getvalue().encode()


def _json(result: Any, **_: Any) -> bytes:
    if isinstance(result, OwnView):
        return f"{result.as_json()}\n".encode()
    content = {"result": type(result).__name__, "kernel": _kernel(result), **DATA[type(result)](result)}
    return (json.dumps(content, indent=1, allow_nan=False) + "\n").encode()


_PICTURES = (".png", ".svg")
SUFFIXES: Mapping[str, Callable[..., bytes]] = {
    ".html": lambda result, **_: page_of(result).encode(),
    ".svg": _svg,
    ".png": _png,
    ".csv": _csv,
    ".json": _json,
}
"""The writer of a file by its suffix."""
