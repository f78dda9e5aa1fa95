"""The record of a harvest as plain data: cases, CUDA graphs and what was beyond its limits; merged, saved and read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from kernellab.errors import KernellabError, UsageError, first_line
from kernellab.registry.launches_from_store import options_of, tensors_among
from kernellab.source import MalformedData
from kernellab.store import RecordedLaunch
from kernellab.store.decoding import canonical_json, launch_digest, launch_from_jsonable, launch_to_jsonable

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
    def kind(self) -> frozenset[tuple[str, str, str]]:
        """The kinds and dtypes of the arguments, and the values of constexprs other than integers, by name."""
        return frozenset(
            (a.name, a.kind, a.dtype if a.kind == "tensor" else repr(a.value) if a.constexpr else "")
            for a in self.launch.arguments
            if a.name not in self.sizes and a.name not in self.config_names
        )

    @property
    def shapes(self) -> dict[str, str]:
        """The shapes of the tensors as ``4096x128``, by name."""
        return {t.name: "x".join(map(str, t.shape)) for t in tensors_among(list(self.launch.arguments))}

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
    rest: dict[str, int] = {}
    for record in records:
        keys = [case.key for case in record.cases]
        for key, case in zip(keys, record.cases, strict=True):
            cases[key] = _sum(cases[key], case) if key in cases else case
        places = {key: place for place, key in enumerate(cases)}
        for graph in record.graphs:
            launches = tuple((places[keys[place]], count) for place, count in graph.launches)
            graphs.append(replace(graph, launches=launches))
        for name, count in record.rest.items():
            rest[name] = rest.get(name, 0) + count
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
    plain = {f.name: getattr(record, f.name) for f in fields(record)}
    graphs = [{f.name: getattr(graph, f.name) for f in fields(graph)} for graph in record.graphs]
    return {**plain, "format": FORMAT, "cases": list(map(_case_to_jsonable, record.cases)), "graphs": graphs}


def _case_to_jsonable(case: HarvestedCase) -> dict[str, Any]:
    plain = {f.name: getattr(case, f.name) for f in fields(case)}
    known = case.prediction
    prediction = None if known is None else {f.name: getattr(known, f.name) for f in fields(known)}
    return {**plain, "launch": launch_to_jsonable(case.launch), "prediction": prediction}


def read_record(path: Path) -> HarvestRecord:
    """Read a saved harvest.

    Raises:
        UsageError: the file cannot be read, or is none.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["result"] != "Harvest" or content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']!r}, and this release reads {FORMAT}")
        return _record_from_jsonable(content)
    except OSError as exc:
        raise UsageError(f"{str(path)!r} cannot be read: {exc.strerror or exc}.") from exc
    except (ValueError, KeyError, TypeError, AttributeError, MalformedData, KernellabError) as exc:
        raise UsageError(
            f"{str(path)!r} is not a saved harvest ({first_line(exc)}); pass a .json file that Harvest.save wrote."
        ) from exc


def _record_from_jsonable(content: Mapping[str, Any]) -> HarvestRecord:
    cases = tuple(map(_case_from_jsonable, content["cases"]))
    graphs = tuple(
        HarvestedGraph(
            replays=int(graph["replays"]),
            samples=int(graph["samples"]),
            sampled_ms=float(graph["sampled_ms"]),
            launches=tuple((_place(place, cases), int(count)) for place, count in graph["launches"]),
        )
        for graph in content["graphs"]
    )
    return HarvestRecord(
        cases=cases,
        graphs=graphs,
        rest={str(name): int(count) for name, count in content["rest"].items()},
        unknown_replays=int(content["unknown_replays"]),
        seconds=float(content["seconds"]),
        programs=int(content["programs"]),
    )


def _place(place: Any, cases: Sequence[HarvestedCase]) -> int:
    if not 0 <= int(place) < len(cases):
        raise ValueError(f"a graph launches case {place} of {len(cases)}")
    return int(place)


def _case_from_jsonable(value: Mapping[str, Any]) -> HarvestedCase:
    known = value["prediction"]
    numbers = {name: int(value[name]) for name in ("line", "launches", "trials", "captured", "replayed", "samples")}
    return HarvestedCase(
        **{name: str(value[name]) for name in ("kernel", "module", "file", "origin")},  # type: ignore[arg-type]
        **numbers,  # type: ignore[arg-type]
        launch=launch_from_jsonable(value["launch"]),
        config_names=tuple(map(str, value["config_names"])),
        sampled_ms=float(value["sampled_ms"]),
        prediction=None
        if known is None
        else CasePrediction(
            float(known["time_ms"]), float(known["bound_ms"]), str(known["bound"]), str(known["device"])
        ),
    )
