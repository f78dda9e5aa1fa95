"""The card of each type of result but the report of a cell, and what is shown of types without one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from kernellab.benchmark.comparison import Comparison
from kernellab.benchmark.result import Benchmark
from kernellab.capture.program import Program
from kernellab.compile.types import Compiled, CompiledDiff
from kernellab.display import Bundle
from kernellab.explain.explanation import Explanation
from kernellab.explain.prediction import Prediction
from kernellab.explain.profile import Profile
from kernellab.explain.traffic.result import Traffic
from kernellab.export.merging import Merged
from kernellab.export.write import Exported
from kernellab.inside.equivalence import Equivalence
from kernellab.inside.first_difference import FirstDifference
from kernellab.inside.timeline import Timeline
from kernellab.inside.values import Values
from kernellab.ir.effects import Effects
from kernellab.ir.graph import Graph
from kernellab.ir.layouts import LaidOutValue, Layouts
from kernellab.launch.run import Run
from kernellab.registry import Listing, LoadedVersion
from kernellab.registry.regressions import Regressions
from kernellab.timing.provenance import Ceilings
from kernellab.tune.dispatch.result import Dispatch
from kernellab.tune.result import Tuning
from kernellab.upgrade.gate_result import GateResult
from kernellab.upgrade.result import Upgrade
from kernellab.views.blocks import Card
from kernellab.views.cards import results
from kernellab.views.cards.benchmark import benchmark_card, ceilings_text, comparison_card
from kernellab.views.cards.diff import diff_html, diff_text
from kernellab.views.cards.explanation import explanation_card, prediction_card, profile_card
from kernellab.views.cards.inside import difference_card, equivalence_card, timeline_card, values_card
from kernellab.views.cards.kernels import merged_card, regressions_card
from kernellab.views.cards.listing import exported_card, listing_card, loaded_card
from kernellab.views.cards.program import program_card
from kernellab.views.cards.traffic import traffic_card
from kernellab.views.cards.tuning import dispatch_card, tuning_card
from kernellab.views.cards.upgrade import gate_card, upgrade_card
from kernellab.views.layouts import layout_card, layouts_card

_numbers = itertools.count(1)  # of the explorers of this process: those of one page must not share names


def _uid(kind: str) -> str:
    return f"{kind}.{next(_numbers)}"


CARDS: Mapping[type, Callable[[Any], Card]] = {
    Compiled: lambda compiled: results.compiled_card(compiled, uid=_uid("shown")),
    Dispatch: dispatch_card,
    Effects: results.effects_card,
    Graph: results.graph_card,
    Layouts: lambda layouts: layouts_card(layouts, _uid("layouts")),
    LaidOutValue: lambda value: layout_card(value, _uid("layout")),
    Run: results.run_card,
    Tuning: tuning_card,
    Benchmark: benchmark_card,
    Listing: listing_card,
    LoadedVersion: loaded_card,
    Explanation: lambda explanation: explanation_card(explanation, uid=_uid("why")),
    Prediction: prediction_card,
    Comparison: comparison_card,
    Merged: merged_card,
    Profile: lambda profile: profile_card(profile, uid=_uid("profile")),
    Program: program_card,
    Regressions: regressions_card,
    Timeline: timeline_card,
    Values: values_card,
    FirstDifference: difference_card,
    Equivalence: equivalence_card,
    Traffic: traffic_card,
    Upgrade: upgrade_card,
    GateResult: gate_card,
}
"""The card of each type of result that is drawn as one."""


BUNDLES: Mapping[type, Callable[[Any], Card | Bundle]] = {
    **CARDS,
    Ceilings: lambda ceilings: {"text/plain": ceilings_text(ceilings)},
    CompiledDiff: lambda diff: {
        "text/plain": diff_text(diff.left, diff.right, diff.stage),
        "text/html": diff_html(diff.left, diff.right, diff.stage),
    },
    Exported: lambda exported: {"text/plain": exported_card(exported).text()},
}
