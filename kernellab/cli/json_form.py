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


def compiled_data(compiled: Compiled) -> dict[str, Any]:
    """Return a compiled kernel without the texts of its stages, which are long."""
    return {
        "parameters": plain(compiled.parameters),
        "options": plain(compiled.options),
        "resources": plain(compiled.resources),
        "effects": effects_data(compiled.effects),
        "stages": [*compiled.stages, *(["sass"] if compiled.target.backend == "cuda" else [])],
        "seconds": compiled.seconds,
        "stage_seconds": plain(compiled.stage_seconds),
        "from_cache": compiled.from_cache,
        "digest": compiled.digest,
    }


def effects_data(effects: Effects) -> dict[str, Any]:
    """Return the effects of a kernel, each site with its place."""
    return {
        "arguments": list(effects.arguments),
        **{name: plain(getattr(effects, name)) for name in ("reads", "writes", "atomics", "mutated")},
        "aliases": [sorted(group) for group in effects.aliases],
        "sites": [
            {
                **{name: plain(getattr(site, name)) for name in ("argument", "kind", "operation")},
                **_place_of(site.location),
                "masked": site.masked,
                "conditional": site.conditional,
            }
            for site in effects.sites
        ],
        "unknown": [
            {
                "kind": plain(each.kind),
                "operation": each.operation,
                **_place_of(each.location),
                "reason": each.reason,
                "arguments": plain(each.arguments),
            }
            for each in effects.unknown
        ],
    }


def _place_of(location: Any) -> dict[str, Any]:
    return {"file": location.file, "line": location.line}


def run_data(run: Run, reference: str | None) -> dict[str, Any]:
    """Return a run; ``reference`` names what its outputs equal, None where nothing was compared."""
    fields = ("grid", "seconds", "where", "changed", "findings", "output", "notes")
    return {**{name: plain(getattr(run, name)) for name in fields}, "equals": reference}


def traffic_data(traffic: Traffic) -> dict[str, Any]:
    """Return the traffic of a launch: a row per access as `Traffic.frame` has it, and one per argument."""
    return {
        "grid": list(traffic.grid),
        "rows": records(traffic.frame),
        "arguments": records(traffic.argument_frame),
        "unknown": plain(traffic.unknown),
        "share": traffic.share,
        "wave_programs": traffic.wave_programs,
        "notes": list(traffic.notes),
    }


def explanation_data(explanation: Explanation) -> dict[str, Any]:
    """Return why a launch takes as long as it does: what limits it, and findings with their gains."""
    return {
        "bound": plain(explanation.bound),
        "summary": explanation.summary,
        "share": plain(explanation.share),
        "findings": [{name: plain(getattr(each, name)) for name in _OF_FINDING} for each in explanation.findings],
        "unknown": plain(explanation.unknown),
    }


def tuning_data(tuning: Tuning) -> dict[str, Any]:
    """Return a tuning: the winner, what ties with it, and a row per config as `Tuning.frame` has it."""
    labels = [row.config.stored for row in tuning.rows]
    return {
        "best": None if tuning.winner is None else _config(labels[tuning.winner]),
        "winner": tuning.winner,
        "tied": list(tuning.ties),
        "rows": records(tuning.frame),
        "from_cache": tuning.from_cache,
        "seconds": tuning.seconds,
        "provenance": {name: plain(tuning.provenance.get(name)) for name in _PROVENANCE},
        "notes": list(tuning.notes),
    }


def _config(stored: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plain(value) for name, value in stored.items() if value is not None}


def benchmark_data(benchmark: Benchmark) -> dict[str, Any]:
    """Return a benchmark: a row per point and implementation as `Benchmark.frame` has it."""
    return {
        "swept": list(benchmark.swept),
        "implementations": list(benchmark.implementations),
        "reference": benchmark.reference,
        "rows": records(benchmark.frame),
        "ceilings": None if benchmark.ceilings is None else plain(benchmark.ceilings.as_dict()),
        "seconds": benchmark.seconds,
        "provenance": {name: plain(benchmark.provenance.get(name)) for name in _PROVENANCE},
        "notes": list(benchmark.notes),
    }


def listing_data(listing: Listing) -> dict[str, Any]:
    """Return the versions that a search found."""
    return {"search": listing.search, "rows": plain(listing.rows)}


def merged_data(merged: Merged) -> dict[str, Any]:
    """Return the rows of `Merged.frame`, and the conflicts as sentences with their kind."""
    from kernellab.views.cards.kernels import conflict_words

    return {
        "source": merged.source,
        "versions": list(merged.versions),
        "new": merged.new,
        "known": merged.known,
        "rows": plain(merged.rows),
        "conflicts": [
            {"kind": plain(each.kind), "by": each.by, "text": conflict_words(each)} for each in merged.conflicts
        ],
    }


def regressions_data(found: Regressions) -> dict[str, Any]:
    """Return the rows of `Regressions.frame`."""
    from kernellab.registry.regressions import row_fields  # loads numpy

    return {
        "kernel": found.kernel,
        "since": found.since,
        "margin": found.margin,
        "summary": found.text,
        "rows": plain([row_fields(row) for row in found.rows]),
    }


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
    data = None
    if place is not None:
        data = {"file": place.file, "line": place.line, "column": place.column, "text": place.source_line() or None}
    return {
        "type": type(error).__name__,
        "message": error.message,
        "kernel": error.kernel,
        "place": data,
        "advice": advice_in(error.message) or next(_REMEDIES[each] for each in _REMEDIES if isinstance(error, each)),
        "detail": error.detail or None,
    }
