"""The record of a harvest as plain data: cases, CUDA graphs and what was beyond its limits; merged, saved and read.

The time of a case is sampled, shared out from the replays of its graph, or predicted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernellab.errors import UsageError, first_line
from kernellab.registry.launches_from_store import options_of, tensors_among
from kernellab.source import MalformedData, Readers, reading, record_of_json, require
from kernellab.store import Argument, RecordedLaunch
from kernellab.store.decoding import canonical_json, launch_digest, launch_from_jsonable, launch_to_jsonable

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FORMAT = 1


@dataclass(frozen=True, slots=True)
class CasePrediction:
    """The predicted milliseconds of one launch, its roofline bound, and what limits it, on a device."""

    time_ms: float
    bound_ms: float
    bound: str
    device: str


@dataclass(frozen=True, slots=True)
class HarvestedCase:
    """The launches of one kernel with the same specialization, config, grid, shapes, strides and integers.

    ``launches`` ran when they were made, ``trials`` of them to time the configs of an autotuner; ``captured`` went into
    CUDA graphs, whose replays made ``replayed`` more. ``sampled_ms`` is the sum of ``samples`` device times.
    ``no_roofline`` says why it cannot be predicted.
    """

    kernel: str
    module: str
    file: str
    line: int
    origin: str
    launch: RecordedLaunch
    config_names: tuple[str, ...] = ()
    launches: int = 0
    trials: int = 0
    captured: int = 0
    replayed: int = 0
    samples: int = 0
    sampled_ms: float = 0.0
    prediction: CasePrediction | None = None
    no_roofline: str = ""

    @property
    def count(self) -> int:
        """The launches of the program itself that ran, with those of replayed graphs."""
        return self.launches - self.trials + self.replayed

    @property
    def config(self) -> dict[str, Any]:
        """The constexprs that an autotuner sets, and the options."""
        chosen = {a.name: a.value for a in self.launch.arguments if a.name in self.config_names}
        return {**chosen, **options_of(self.launch)}

    @property
    def sizes(self) -> dict[str, int]:
        """The integers among the arguments, and those among the constexprs that no autotuner sets."""
        return {
            argument.name: argument.value
            for argument in self.launch.arguments
            if argument.kind == "scalar" and type(argument.value) is int and argument.name not in self.config_names
        }

    @property
    def types(self) -> dict[str, str]:
        """Triton's types of the arguments, and values of constexprs, by name, without `sizes` and the config."""
        types = dict(self.launch.signature)
        return {
            a.name: repr(a.value) if a.constexpr else types.get(a.name, a.kind)
            for a in self.launch.arguments
            if a.name not in self.sizes and a.name not in self.config_names
        }

    @property
    def traits(self) -> dict[str, str]:
        """The attributes of a launch as text: types, layouts of tensors, grid, module."""
        layouts = {f"{t.name}.{of}": str(getattr(t, of)) for t in self.tensors for of in ("shape", "stride")}
        return {**self.types, **layouts, "grid": str(self.launch.grid), "module": self.module}

    @property
    def tensors(self) -> list[Argument]:
        """The tensors among the arguments, with those of descriptors and tuples."""
        return tensors_among(self.launch.arguments)

    @property
    def shapes(self) -> dict[str, str]:
        """The shapes of the tensors as ``4096x128``, by name."""
        return {t.name: "x".join(map(str, t.shape)) for t in self.tensors}

    @property
    def key(self) -> str:
        """A text that equal cases share."""
        place = [self.module, self.kernel, self.origin, self.config_names]
        return canonical_json([*place, launch_digest(replace(self.launch, result=""))])


@dataclass(frozen=True, slots=True)
class HarvestedGraph:
    """A CUDA graph: its replays, the sampled milliseconds of some, and its launches by place among the cases."""

    replays: int
    samples: int
    sampled_ms: float
    launches: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class HarvestRecord:
    """All cases and graphs of one program, or of several that were merged.

    ``rest`` counts, by the name of the kernel, the launches of cases beyond the limit; ``unknown_replays`` the replays
    of graphs whose launches are not known.
    """

    cases: tuple[HarvestedCase, ...]
    graphs: tuple[HarvestedGraph, ...] = ()
    rest: Mapping[str, int] = field(default_factory=dict)
    unknown_replays: int = 0
    seconds: float = 0.0
    programs: int = 1


def merged_record(records: Sequence[HarvestRecord]) -> HarvestRecord:
    """One record of several: equal cases become one, counts and sampled times are added."""
    cases: dict[str, HarvestedCase] = {}
    graphs: list[HarvestedGraph] = []
    rest = Counter[str]()
    for record in records:
        keys = [case.key for case in record.cases]
        for key, case in zip(keys, record.cases, strict=True):
            cases[key] = _sum(cases[key], case) if key in cases else case
        places = {key: place for place, key in enumerate(cases)}
        for graph in record.graphs:
            launches = tuple((places[keys[place]], count) for place, count in graph.launches)
            graphs.append(replace(graph, launches=launches))
        rest.update(record.rest)
    return HarvestRecord(
        cases=tuple(cases.values()),
        graphs=tuple(graphs),
        rest=rest,
        unknown_replays=sum(record.unknown_replays for record in records),
        seconds=sum(record.seconds for record in records),
        programs=sum(record.programs for record in records),
    )


_SUMMED = ("launches", "trials", "captured", "replayed", "samples", "sampled_ms")


def _sum(left: HarvestedCase, right: HarvestedCase) -> HarvestedCase:
    sums: dict[str, Any] = {name: getattr(left, name) + getattr(right, name) for name in _SUMMED}
    return replace(left, **sums, prediction=left.prediction or right.prediction)


def record_to_jsonable(record: HarvestRecord) -> dict[str, Any]:
    """A record as JSON."""
    cases = [
        {
            **_fields_of(case),
            "launch": launch_to_jsonable(case.launch),
            "prediction": None if case.prediction is None else _fields_of(case.prediction),
        }
        for case in record.cases
    ]
    return {**_fields_of(record), "format": FORMAT, "cases": cases, "graphs": list(map(_fields_of, record.graphs))}


def _fields_of(value: DataclassInstance) -> dict[str, Any]:
    return {f.name: getattr(value, f.name) for f in fields(value)}


_READERS: Readers = frozenset({(RecordedLaunch, launch_from_jsonable), (str, str), (int, int), (float, float)})


def read_record(path: Path) -> HarvestRecord:
    """Read a saved harvest.

    Raises:
        UsageError: the file cannot be read, or is none.
    """
    try:
        with reading("it"):
            content = json.loads(path.read_text(encoding="utf-8"))
            form = content["result"], content["format"]
            require(form == ("Harvest", FORMAT), "its format", form, f"Harvest, {FORMAT}")
            record = record_of_json(HarvestRecord, content, _READERS)
            for place, _ in (launch for graph in record.graphs for launch in graph.launches):
                require(0 <= place < len(record.cases), "the case of a graph", place, f"one of {len(record.cases)}")
            return record
    except OSError as exc:
        raise UsageError(f"{str(path)!r} cannot be read: {exc.strerror or exc}.") from exc
    except MalformedData as exc:
        raise UsageError(
            f"{str(path)!r} is not a saved harvest ({first_line(exc)}); pass a .json file that Harvest.save wrote."
        ) from exc


class Basis(StrEnum):
    """How the time of a case is known: ``graph`` is predicted, at most what the replays of its graph leave for it."""

    SAMPLED = "sampled"
    GRAPH = "graph"
    PREDICTED = "predicted"
    UNKNOWN = ""


@dataclass(frozen=True, slots=True)
class CaseTime:
    """The milliseconds of one launch of a case, or None, and those of all its launches."""

    ms: float | None
    total_ms: float | None
    share: float | None
    basis: Basis


def case_times(record: HarvestRecord) -> list[CaseTime]:
    """The times of all cases, with their shares of the sum."""
    known = [_case_ms(record, place) for place in range(len(record.cases))]
    totals = [None if ms is None else ms * c.count for (ms, _), c in zip(known, record.cases, strict=True)]
    whole = sum(total for total in totals if total is not None)
    return [
        CaseTime(ms, total, None if total is None or not whole else total / whole, basis)
        for (ms, basis), total in zip(known, totals, strict=True)
    ]


def _case_ms(record: HarvestRecord, place: int) -> tuple[float | None, Basis]:
    case = record.cases[place]
    if case.samples:
        return case.sampled_ms / case.samples, Basis.SAMPLED
    if case.prediction is None:
        return None, Basis.UNKNOWN
    graphs = [graph for graph in record.graphs if graph.samples and any(at == place for at, _ in graph.launches)]
    if not graphs:
        return case.prediction.time_ms, Basis.PREDICTED
    most_replayed = max(graphs, key=lambda graph: graph.replays)
    return case.prediction.time_ms * _scale(record, most_replayed), Basis.GRAPH


def _scale(record: HarvestRecord, graph: HarvestedGraph) -> float:
    """The factor of predicted times in a graph: less than 1 where they exceed what its sampled cases leave."""
    left, predicted = graph.sampled_ms / graph.samples, 0.0
    for place, count in graph.launches:
        case = record.cases[place]
        if case.samples:
            left -= count * case.sampled_ms / case.samples
        elif case.prediction is not None:
            predicted += count * case.prediction.time_ms
    return min(1.0, max(left, 0.0) / predicted) if predicted else 1.0
