"""Results as plain data, with the fields of their classes: what ``--json`` prints and ``.save("x.json")`` writes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernellab.benchmark.comparison import Comparison
    from kernellab.benchmark.result import Benchmark
    from kernellab.compile.types import Compiled
    from kernellab.explain.explanation import Explanation
    from kernellab.explain.prediction import Prediction
    from kernellab.explain.traffic.result import Traffic
    from kernellab.export.merging import Merged
    from kernellab.inside.equivalence import Equivalence
    from kernellab.inside.first_difference import FirstDifference
    from kernellab.ir.effects import Effects
    from kernellab.ir.graph import Graph
    from kernellab.launch.run import Run
    from kernellab.registry.regressions import Regressions
    from kernellab.tune.dispatch.result import Dispatch
    from kernellab.tune.result import Tuning
    from kernellab.upgrade.gate_result import GateResult
    from kernellab.upgrade.result import Upgrade

_PROVENANCE = ("device", "predicted_for", "driver", "target", "triton", "torch")


def plain(value: Any) -> Any:
    """Return a value as JSON has it: sets as sorted lists, paths and enums as text, NaN and infinity as None."""
    if value is None or isinstance(value, bool | int) or type(value) is str:
        return value
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, set | frozenset):
        return sorted(plain(part) for part in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return _of_libraries(value)


def _of_libraries(value: Any) -> Any:
    """Return a number, time or missing value of NumPy or pandas as JSON has it; anything else as text."""
    if isinstance(value, str | Path):
        return str(value)
    if callable(getattr(value, "isoformat", None)):
        return None if type(value).__name__ == "NaTType" else value.isoformat()
    if type(value).__name__ == "NAType":
        return None
    item = getattr(value, "item", None)
    return plain(item()) if callable(item) else str(value)


def records(frame: Any) -> list[dict[str, Any]]:
    """Return the rows of a DataFrame by column; what is missing is None."""
    return [plain(row) for row in frame.to_dict("records")]


def selected_fields(result: object, *names: str) -> dict[str, Any]:
    """Return fields of a result by name, as JSON has them."""
    return {name: plain(getattr(result, name)) for name in names}


def compiled_data(compiled: Compiled) -> dict[str, Any]:
    """Return a compiled kernel without the texts of its stages, which are long."""
    return {
        **selected_fields(compiled, "parameters", "options", "resources"),
        "effects": effects_data(compiled.effects),
        "stages": [*compiled.stages, *(["sass"] if compiled.target.backend == "cuda" else [])],
        **selected_fields(compiled, "seconds", "stage_seconds", "from_cache", "digest"),
    }


def effects_data(effects: Effects) -> dict[str, Any]:
    """Return the effects of a kernel, each site with its place."""
    return {
        "arguments": list(effects.arguments),
        **selected_fields(effects, "reads", "writes", "atomics", "mutated"),
        "aliases": [sorted(group) for group in effects.aliases],
        "sites": [
            _with_place(site, ("argument", "kind", "operation"), ("masked", "conditional")) for site in effects.sites
        ],
        "unknown": [_with_place(gap, ("kind", "operation"), ("reason", "arguments")) for gap in effects.unknown],
    }


def _with_place(thing: Any, before: tuple[str, ...], after: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return fields of an operation or effect, with the file and line of its location between them."""
    place = selected_fields(thing.location, "file", "line")
    return {**selected_fields(thing, *before), **place, **selected_fields(thing, *after)}


def run_data(run: Run, reference: str | None = None) -> dict[str, Any]:
    """Return a run; ``reference`` names what its outputs equal, None where nothing was compared."""
    fields = ("grid", "seconds", "where", "changed", "findings", "output", "notes")
    return {**selected_fields(run, *fields), "equals": reference}


def traffic_data(traffic: Traffic) -> dict[str, Any]:
    """Return the traffic of a launch: a row per access as `Traffic.frame` has it, and one per argument."""
    return {
        "grid": list(traffic.grid),
        "rows": records(traffic.frame),
        "arguments": records(traffic.argument_frame),
        **selected_fields(traffic, "unknown", "share", "wave_programs", "notes"),
    }


def explanation_data(explanation: Explanation) -> dict[str, Any]:
    """Return why a launch takes as long as it does: what limits it, and findings with their gains."""
    findings = [selected_fields(each, "cause", "line", "text", "evidence", "gain") for each in explanation.findings]
    about = selected_fields(explanation, "bound", "summary", "share")
    return {**about, "findings": findings, **selected_fields(explanation, "unknown")}


def prediction_data(prediction: Prediction) -> dict[str, Any]:
    """Return a predicted time with its interval, its bound, and the milliseconds of each unit alone."""
    names = ("device", "time_ms", "low_ms", "high_ms", "bound", "share", "unknown")
    return {**selected_fields(prediction, *names), "terms": dict(prediction.terms)}


def tuning_data(tuning: Tuning) -> dict[str, Any]:
    """Return a tuning: the winner, its ties, and a row per config as `Tuning.frame` has it."""
    best = {} if tuning.winner is None else tuning.rows[tuning.winner].config.stored
    return {
        "best": None if tuning.winner is None else {name: plain(v) for name, v in best.items() if v is not None},
        "winner": tuning.winner,
        "tied": list(tuning.ties),
        "rows": records(tuning.frame),
        **_measurement_data(tuning, "from_cache"),
    }


def benchmark_data(benchmark: Benchmark) -> dict[str, Any]:
    """Return a benchmark: a row per point and implementation as `Benchmark.frame` has it."""
    return {
        **selected_fields(benchmark, "swept", "implementations", "reference"),
        "rows": records(benchmark.frame),
        "ceilings": None if benchmark.ceilings is None else plain(benchmark.ceilings.as_dict()),
        **_measurement_data(benchmark),
    }


def _measurement_data(result: Tuning | Benchmark | Dispatch, *names: str) -> dict[str, Any]:
    provenance = {name: plain(result.provenance.get(name)) for name in _PROVENANCE}
    return {**selected_fields(result, *names, "seconds"), "provenance": provenance, "notes": list(result.notes)}


def dispatch_data(dispatch: Dispatch) -> dict[str, Any]:
    """Return a dispatch: the rule, a row per case and config as `Dispatch.frame` has it, and its regrets."""
    return {
        "rule": plain(dispatch.rule.as_json),
        "regret": records(dispatch.regret),
        "rows": records(dispatch.frame),
        **_measurement_data(dispatch),
    }


def first_difference_rows(difference: FirstDifference) -> list[dict[str, Any]]:
    """Return a row per side of a first difference."""
    values = (difference.left, difference.right)
    sides = zip(difference.names, values, difference.texts, difference.numbers, strict=True)
    return [
        {
            "side": name,
            "line": value.line,
            "source": text,
            **selected_fields(value, "name", "program", "iteration", "dtype"),
            "number": number,
        }
        for name, value, text, number in sides
        if value is not None
    ]


def equivalence_rows(equivalence: Equivalence) -> list[dict[str, Any]]:
    """Return a row per output of two kernels that were compared without a tolerance."""
    fields = ("name", "equal", "first", "different", "elements")
    return [selected_fields(output, *fields) for output in equivalence.outputs]


def graph_data(graph: Graph) -> dict[str, Any]:
    """Return a graph: its operations in order, each with its place and the types that it takes and gives."""
    return {
        "operations": [
            {
                **_with_place(operation, ("index", "name")),
                "operands": " ".join(f"v{value}" for value in operation.operands),
                "results": " ".join(f"v{value}" for value in operation.results),
                "types": ", ".join(graph.values[value].type for value in operation.results),
            }
            for operation in graph.operations
        ]
    }


def comparison_data(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison: outputs, effects, timing, the resources of both sides, and the difference of the sources."""
    predicted = comparison.predicted
    sides = {side: prediction_data(getattr(predicted, side)) for side in ("left", "right")} if predicted else {}
    return {
        **selected_fields(comparison, "names", "equal", "same_inputs", "effects", "outputs", "timing", "notes"),
        "why_no_timing": comparison.why_no_timing,
        "predicted": None if predicted is None else {**selected_fields(predicted, "ratio", "may_tie"), **sides},
        "failures": [None if failure is None else str(failure) for failure in comparison.failures],
        "resources": [None if side is None else plain(side.resources) for side in comparison.compiled],
        "source_diff": comparison.source_diff,
    }


def comparison_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """Return a row per side of a comparison: its name, its time, and its resources where it compiled."""
    timing = comparison.timing
    times = (None, None) if timing is None else (timing.left_ms, timing.right_ms)
    predicted = comparison.predicted
    predicted_ms = (None, None) if predicted is None else (predicted.left.time_ms, predicted.right.time_ms)
    fields = [field.name for side in comparison.compiled if side for field in dataclasses.fields(side.resources)]
    columns = zip(comparison.names, times, predicted_ms, comparison.compiled, strict=True)
    return [
        {
            "name": name,
            "time_ms": time_ms,
            "predicted_ms": guess_ms,
            **{field: plain(getattr(side.resources, field)) if side else None for field in dict.fromkeys(fields)},
        }
        for name, time_ms, guess_ms, side in columns
    ]


def merged_data(merged: Merged) -> dict[str, Any]:
    """Return the rows of `Merged.frame`, and the conflicts as sentences with their kind."""
    from kernellab.views.cards.kernels import conflict_words

    conflicts = [
        {**selected_fields(conflict, "kind", "by"), "text": conflict_words(conflict)} for conflict in merged.conflicts
    ]
    return {**selected_fields(merged, "source", "versions", "new", "known", "rows"), "conflicts": conflicts}


def regressions_data(regressions: Regressions) -> dict[str, Any]:
    """Return the rows of `Regressions.frame`."""
    from kernellab.registry.regressions import row_fields  # loads numpy

    rows = plain([row_fields(row) for row in regressions.rows])
    return {**selected_fields(regressions, "kernel", "since", "margin"), "summary": regressions.text, "rows": rows}


def upgrade_data(upgrade: Upgrade) -> dict[str, Any]:
    """Return the versions, the summary and the rows of `Upgrade.frame`."""
    from kernellab.upgrade.result import row_fields  # loads numpy

    rows = plain([row_fields(row) for row in upgrade.rows])
    fields = selected_fields(upgrade, "store", "before", "after")
    return {**fields, "summary": upgrade.text, "notes": plain(upgrade.notes), "rows": rows}


def gate_data(result: GateResult) -> dict[str, Any]:
    """Return the verdict with its figures; an open bound of the interval is None."""
    from kernellab.upgrade.gate_result import gate_fields  # loads Triton

    return {name: plain(value) for name, value in gate_fields(result).items()}
