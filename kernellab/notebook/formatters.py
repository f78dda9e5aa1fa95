"""How each result type shows in a notebook and in a terminal."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from IPython import get_ipython

from kernellab.benchmark.comparison import Comparison
from kernellab.benchmark.result import Benchmark
from kernellab.capture.program import Program
from kernellab.compile.types import Compiled
from kernellab.export.write import Exported
from kernellab.ir.effects import Effects
from kernellab.ir.graph import Graph
from kernellab.measure.ceilings import Ceilings
from kernellab.registry import Listing, Loaded
from kernellab.tune.result import Tuning
from kernellab.views.cards import results
from kernellab.views.cards.benchmark import benchmark_html, benchmark_text, ceilings_text
from kernellab.views.cards.card import card_html, card_text
from kernellab.views.cards.comparison import comparison_html, comparison_text
from kernellab.views.cards.kernels import listing_html, listing_text, loaded_html, loaded_text
from kernellab.views.cards.program import program_html, program_text
from kernellab.views.cards.results import exported_text
from kernellab.views.cards.tuning import tuning_html, tuning_text
from kernellab.views.report import CellReport, summary_json

SUMMARY_MIME = "application/vnd.kernellab.summary+json"

_CONFIG = ("triton.runtime.autotuner", "Config")  # by name: loading the extension loads no Triton

Bundle = dict[str, Any]


def _report(report: CellReport) -> Bundle:
    return {
        "text/plain": card_text(report),
        "text/html": card_html(report),
        SUMMARY_MIME: json.loads(summary_json(report)),
    }


class _CompiledBundle:
    """Shows compiled kernels. It counts them by cell, since the explorers of one page must not share names."""

    def __init__(self) -> None:
        self._cell, self._shown = 0, 0

    def __call__(self, compiled: Compiled) -> Bundle:
        shell = get_ipython()
        cell = shell.execution_count if shell else 0
        self._shown = self._shown + 1 if cell == self._cell else 1
        self._cell = cell
        html = results.compiled_html(compiled, uid=f"{cell}.{self._shown}")
        return {"text/plain": results.compiled_text(compiled), "text/html": html}


def _effects(effects: Effects) -> Bundle:
    return {"text/plain": results.effects_text(effects), "text/html": results.effects_html(effects)}


def _graph(graph: Graph) -> Bundle:
    return {"text/plain": results.graph_text(graph), "text/html": results.graph_html(graph)}


def _tuning(tuning: Tuning) -> Bundle:
    return {"text/plain": tuning_text(tuning), "text/html": tuning_html(tuning)}


def _benchmark(benchmark: Benchmark) -> Bundle:
    return {"text/plain": benchmark_text(benchmark), "text/html": benchmark_html(benchmark)}


def _ceilings(ceilings: Ceilings) -> Bundle:
    return {"text/plain": ceilings_text(ceilings)}


def _listing(listing: Listing) -> Bundle:
    return {"text/plain": listing_text(listing), "text/html": listing_html(listing)}


def _loaded(loaded: Loaded) -> Bundle:
    return {"text/plain": loaded_text(loaded), "text/html": loaded_html(loaded)}


def _comparison(comparison: Comparison) -> Bundle:
    return {"text/plain": comparison_text(comparison), "text/html": comparison_html(comparison)}


def _exported(exported: Exported) -> Bundle:
    return {"text/plain": exported_text(exported)}


def _program(program: Program) -> Bundle:
    return {"text/plain": program_text(program), "text/html": program_html(program)}


_BUNDLES: dict[type, Callable[[Any], Bundle]] = {
    CellReport: _report,
    Effects: _effects,
    Graph: _graph,
    Tuning: _tuning,
    Benchmark: _benchmark,
    Ceilings: _ceilings,
    Listing: _listing,
    Loaded: _loaded,
    Exported: _exported,
    Comparison: _comparison,
    Program: _program,
}


def register_formatters(shell: Any, on_show: Callable[[Any], None] = lambda result: None) -> None:
    """Let the shell show every result type of the lab; ``on_show`` is told what is about to be shown."""
    bundles: dict[type, Callable[[Any], Bundle]] = {**_BUNDLES, Compiled: _CompiledBundle()}
    for kind, bundle in bundles.items():
        shell.display_formatter.mimebundle_formatter.for_type(kind, _formatter(bundle, on_show))
    shell.display_formatter.formatters["text/plain"].for_type_by_name(*_CONFIG, _pretty_config)


def unregister_formatters(shell: Any) -> None:
    """Take the formatters away again."""
    for kind in (*_BUNDLES, Compiled):
        shell.display_formatter.mimebundle_formatter.pop(kind, None)
    shell.display_formatter.formatters["text/plain"].pop(".".join(_CONFIG), None)


def _pretty_config(config: Any, printer: Any, cycle: bool) -> None:
    """Print a `triton.Config` as it is written, in the place of its address, which Triton gives it."""
    options = {name: value for name, value in vars(config).items() if name != "kwargs" and value is not None}
    if options.get("num_ctas") == 1:
        del options["num_ctas"]
    words = [repr(config.kwargs), *(f"{name}={getattr(v, '__name__', repr(v))}" for name, v in options.items())]
    printer.text(f"triton.Config({', '.join(words)})")


def _formatter(bundle: Callable[[Any], Bundle], on_show: Callable[[Any], None]) -> Callable[..., Bundle]:
    def formatted(result: Any, include: object = None, exclude: object = None) -> Bundle:
        on_show(result)
        return bundle(result)

    return formatted
