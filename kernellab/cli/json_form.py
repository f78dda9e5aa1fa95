"""Results and errors as plain data: what ``--json`` writes, with the fields of the result classes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernellab import errors
from kernellab.advice import advice_in

if TYPE_CHECKING:
    from kernellab import (
        Benchmark,
        Compiled,
        Effects,
        Explanation,
        Exported,
        Listing,
        Merged,
        Regressions,
        Run,
        Traffic,
        Tuning,
    )

SCHEMA = 1
"""Raised when a field is renamed, removed, or means something else; not when one is added."""

_OF_FINDING = ("cause", "line", "text", "evidence", "gain")
_PROVENANCE = ("device", "driver", "target", "triton", "torch")


def plain(value: Any) -> Any:
    """Return a value as JSON has it: sets as sorted lists, paths and enums as text, what is no number as None."""
    if value is None or isinstance(value, bool | int) or type(value) is str:
        return value
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, set | frozenset):
        return sorted(plain(each) for each in value)
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
    columns = list(frame.columns)
    return [
        {str(name): plain(value) for name, value in zip(columns, row, strict=True)}
        for row in frame.itertuples(index=False, name=None)
    ]


def _selected_fields(result: object, *names: str) -> dict[str, Any]:
    return {name: plain(getattr(result, name)) for name in names}


def compiled_data(compiled: Compiled) -> dict[str, Any]:
    """Return a compiled kernel without the texts of its stages, which are long."""
    return {
        **_selected_fields(compiled, "parameters", "options", "resources"),
        "effects": effects_data(compiled.effects),
        "stages": [*compiled.stages, *(["sass"] if compiled.target.backend == "cuda" else [])],
        **_selected_fields(compiled, "seconds", "stage_seconds", "from_cache", "digest"),
    }


def effects_data(effects: Effects) -> dict[str, Any]:
    """Return the effects of a kernel, each site with its place."""
    return {
        "arguments": list(effects.arguments),
        **_selected_fields(effects, "reads", "writes", "atomics", "mutated"),
        "aliases": [sorted(group) for group in effects.aliases],
        "sites": [
            {
                **_selected_fields(site, "argument", "kind", "operation"),
                **_selected_fields(site.location, "file", "line"),
                **_selected_fields(site, "masked", "conditional"),
            }
            for site in effects.sites
        ],
        "unknown": [
            {
                **_selected_fields(unknown, "kind", "operation"),
                **_selected_fields(unknown.location, "file", "line"),
                **_selected_fields(unknown, "reason", "arguments"),
            }
            for unknown in effects.unknown
        ],
    }


def run_data(run: Run, reference: str | None) -> dict[str, Any]:
    """Return a run; ``reference`` names what its outputs equal, None where nothing was compared."""
    fields = ("grid", "seconds", "where", "changed", "findings", "output", "notes")
    return {**_selected_fields(run, *fields), "equals": reference}


def traffic_data(traffic: Traffic) -> dict[str, Any]:
    """Return the traffic of a launch: a row per access as `Traffic.frame` has it, and one per argument."""
    return {
        "grid": list(traffic.grid),
        "rows": records(traffic.frame),
        "arguments": records(traffic.argument_frame),
        **_selected_fields(traffic, "unknown", "share", "wave_programs", "notes"),
    }


def explanation_data(explanation: Explanation) -> dict[str, Any]:
    """Return why a launch takes as long as it does: what limits it, and findings with their gains."""
    return _selected_fields(explanation, "bound", "summary", "share", "findings", "unknown")


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
        **_selected_fields(benchmark, "swept", "implementations", "reference"),
        "rows": records(benchmark.frame),
        "ceilings": None if benchmark.ceilings is None else plain(benchmark.ceilings.as_dict()),
        **_measurement_data(benchmark),
    }


def _measurement_data(result: Tuning | Benchmark, *names: str) -> dict[str, Any]:
    provenance = {name: plain(result.provenance.get(name)) for name in _PROVENANCE}
    return {**_selected_fields(result, *names, "seconds"), "provenance": provenance, "notes": list(result.notes)}


def listing_data(listing: Listing) -> dict[str, Any]:
    """Return the versions that match a search."""
    return _selected_fields(listing, "search", "rows")


def merged_data(merged: Merged) -> dict[str, Any]:
    """Return the rows of `Merged.frame`, and the conflicts as sentences with their kind."""
    from kernellab.views.cards.kernels import conflict_words

    conflicts = [
        {**_selected_fields(conflict, "kind", "by"), "text": conflict_words(conflict)} for conflict in merged.conflicts
    ]
    return {**_selected_fields(merged, "source", "versions", "new", "known", "rows"), "conflicts": conflicts}


def regressions_data(regressions: Regressions) -> dict[str, Any]:
    """Return the rows of `Regressions.frame`."""
    from kernellab.registry.regressions import row_fields  # loads numpy

    rows = plain([row_fields(row) for row in regressions.rows])
    return {**_selected_fields(regressions, "kernel", "since", "margin"), "summary": regressions.text, "rows": rows}


def exported_data(exported: Exported) -> dict[str, Any]:
    """Return path, kind and notes of an export."""
    return plain(exported)  # type: ignore[no-any-return]


_REMEDIES: dict[type[errors.KernellabError], str] = {
    errors.CannotRun: "Use smaller blocks, fewer stages or fewer warps; `compile` says what the kernel needs.",
    errors.OutOfBounds: "Mask the access, or launch a grid that fits the arguments.",
    errors.CheckFailed: "Look at the first elements that differ: which program writes them, and from what.",
    errors.WorkerTimeout: "Look for a loop that does not end; if there is none, give more time with --timeout.",
    errors.CompileError: "Change the line that `place` names; `detail` is the whole message of the compiler.",
    errors.SourceError: "Change the line that `place` names, or import what the file needs.",
    errors.LaunchError: "Compare what `arguments` returns with the parameters of the kernel.",
    errors.UnknownName: "`kernellab ls` lists what is kept.",
    errors.UsageError: "`kernellab COMMAND --help` lists what the command takes.",
    errors.StoreError: "Name another folder with --store; what the message names was left as it is.",
    errors.KernellabError: "`detail`, where there is one, says more.",
}
"""What to do about an error whose message has no advice of a rule: that of the first class which it is."""


def error_data(error: errors.KernellabError) -> dict[str, Any]:
    """Return an error: its type, its message, its place, what to do about it, and the whole foreign message."""
    place = error.place
    where = (
        None
        if place is None
        else {**_selected_fields(place, "file", "line", "column"), "text": place.source_line() or None}
    )
    remedy = next(remedy for kind, remedy in _REMEDIES.items() if isinstance(error, kind))
    return {
        "type": type(error).__name__,
        **_selected_fields(error, "message", "kernel"),
        "place": where,
        "advice": advice_in(error.message) or remedy,
        "detail": error.detail or None,
    }
