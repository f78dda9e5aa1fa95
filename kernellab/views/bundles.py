"""What each type of result shows, by MIME type: HTML for notebooks, text for terminals."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from kernellab.benchmark.comparison import Comparison
from kernellab.benchmark.result import Benchmark
from kernellab.capture.program import Program
from kernellab.compile.types import Compiled
from kernellab.errors import Bundle
from kernellab.explain.explanation import Explanation
from kernellab.explain.profile import Profile
from kernellab.explain.traffic.result import Traffic
from kernellab.export.merging import Merged
from kernellab.export.write import Exported
from kernellab.ir.effects import Effects
from kernellab.ir.graph import Graph
from kernellab.ir.layouts import LaidOutValue, Layouts
from kernellab.launch.run import Run
from kernellab.measure.provenance import Ceilings
from kernellab.registry import Listing, LoadedVersion
from kernellab.registry.regressions import Regressions
from kernellab.tune.dispatch.result import Dispatch
from kernellab.tune.result import Tuning
from kernellab.views.cards import results
from kernellab.views.cards.benchmark import (
    benchmark_html,
    benchmark_text,
    ceilings_text,
    comparison_html,
    comparison_text,
)
from kernellab.views.cards.card import card_html, card_text
from kernellab.views.cards.explanation import explanation_html, explanation_text, profile_html, profile_text
from kernellab.views.cards.kernels import (
    listing_html,
    listing_text,
    loaded_html,
    loaded_text,
    merged_html,
    merged_text,
    regressions_html,
    regressions_text,
)
from kernellab.views.cards.program import program_html, program_text
from kernellab.views.cards.traffic import traffic_html, traffic_text
from kernellab.views.cards.tuning import dispatch_html, dispatch_text, tuning_html, tuning_text
from kernellab.views.figures.raster import with_fallbacks
from kernellab.views.layouts import layout_html, layouts_html, layouts_text
from kernellab.views.report import CellReport, summary

SUMMARY_MIME = "application/vnd.kernellab.summary+json"

_numbers = itertools.count(1)  # of the explorers of this process, of which those of one page must not share names


def bundle_of(result: Any) -> Bundle:
    """Return what a result shows, ``text/plain`` always among it."""
    kind = next((kind for kind in type(result).__mro__ if kind in BUNDLES), None)
    return {"text/plain": repr(result)} if kind is None else BUNDLES[kind](result)


def _bundle(text: Callable[[Any], str], html: Callable[[Any], str]) -> Callable[[Any], Bundle]:
    return lambda result: {"text/plain": text(result), "text/html": with_fallbacks(html(result))}


_card = _bundle(card_text, card_html)

BUNDLES: dict[type, Callable[[Any], Bundle]] = {
    CellReport: lambda report: {**_card(report), SUMMARY_MIME: summary(report)},
    Compiled: _bundle(results.compiled_text, lambda found: results.compiled_html(found, uid=f"shown.{next(_numbers)}")),
    Dispatch: _bundle(dispatch_text, dispatch_html),
    Effects: _bundle(results.effects_text, results.effects_html),
    Graph: _bundle(results.graph_text, results.graph_html),
    Layouts: _bundle(layouts_text, lambda found: layouts_html(found, f"layouts.{next(_numbers)}")),
    LaidOutValue: _bundle(lambda value: f"{value.name}  {value.encoding}", layout_html),
    Run: _bundle(results.run_text, results.run_html),
    Tuning: _bundle(tuning_text, tuning_html),
    Benchmark: _bundle(benchmark_text, benchmark_html),
    Ceilings: lambda ceilings: {"text/plain": ceilings_text(ceilings)},
    Listing: _bundle(listing_text, listing_html),
    LoadedVersion: _bundle(loaded_text, loaded_html),
    Explanation: _bundle(explanation_text, explanation_html),
    Exported: lambda exported: {"text/plain": results.exported_text(exported)},
    Comparison: _bundle(comparison_text, comparison_html),
    Merged: _bundle(merged_text, merged_html),
    Profile: _bundle(profile_text, profile_html),
    Program: _bundle(program_text, program_html),
    Regressions: _bundle(regressions_text, regressions_html),
    Traffic: _bundle(traffic_text, traffic_html),
}
