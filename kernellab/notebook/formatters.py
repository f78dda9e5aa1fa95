"""How each result type shows in a notebook and in a terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from IPython import get_ipython

from kernellab.benchmark.comparison import Comparison
from kernellab.benchmark.result import Benchmark
from kernellab.capture.program import Program
from kernellab.compile.types import Compiled
from kernellab.explain.result import Explanation
from kernellab.export.write import Exported
from kernellab.ir.effects import Effects
from kernellab.ir.graph import Graph
from kernellab.measure.ceilings import Ceilings
from kernellab.profile.result import Profile
from kernellab.registry import Listing, LoadedVersion
from kernellab.registry.regressions import Regressions
from kernellab.traffic.result import Traffic
from kernellab.tune.result import Tuning
from kernellab.views.cards import results
from kernellab.views.cards.benchmark import benchmark_html, benchmark_text, ceilings_text
from kernellab.views.cards.card import card_html, card_text
from kernellab.views.cards.comparison import comparison_html, comparison_text
from kernellab.views.cards.explanation import explanation_html, explanation_text
from kernellab.views.cards.kernels import listing_html, listing_text, loaded_html, loaded_text
from kernellab.views.cards.profile import profile_html, profile_text
from kernellab.views.cards.program import program_html, program_text
from kernellab.views.cards.regressions import regressions_html, regressions_text
from kernellab.views.cards.traffic import traffic_html, traffic_text
from kernellab.views.cards.tuning import tuning_html, tuning_text
from kernellab.views.report import CellReport, summary

SUMMARY_MIME = "application/vnd.kernellab.summary+json"

_CONFIG = ("triton.runtime.autotuner", "Config")  # by name: loading the extension loads no Triton

Bundle = dict[str, Any]


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


def _bundle(text: Callable[[Any], str], html: Callable[[Any], str]) -> Callable[[Any], Bundle]:
    return lambda result: {"text/plain": text(result), "text/html": html(result)}


_BUNDLES: dict[type, Callable[[Any], Bundle]] = {
    CellReport: lambda r: {"text/plain": card_text(r), "text/html": card_html(r), SUMMARY_MIME: summary(r)},
    Effects: _bundle(results.effects_text, results.effects_html),
    Graph: _bundle(results.graph_text, results.graph_html),
    Tuning: _bundle(tuning_text, tuning_html),
    Benchmark: _bundle(benchmark_text, benchmark_html),
    Ceilings: lambda ceilings: {"text/plain": ceilings_text(ceilings)},
    Listing: _bundle(listing_text, listing_html),
    LoadedVersion: _bundle(loaded_text, loaded_html),
    Explanation: _bundle(explanation_text, explanation_html),
    Exported: lambda exported: {"text/plain": results.exported_text(exported)},
    Comparison: _bundle(comparison_text, comparison_html),
    Profile: _bundle(profile_text, profile_html),
    Program: _bundle(program_text, program_html),
    Regressions: _bundle(regressions_text, regressions_html),
    Traffic: _bundle(traffic_text, traffic_html),
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
