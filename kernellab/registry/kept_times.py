"""Times in the store, each with its kernel, its launch and the conditions of the measurement."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernellab.source import parse_json, require
from kernellab.store import Store, Version
from kernellab.store.columns import STATUSES, UNMEASURED, Status
from kernellab.store.decoding import require_config
from kernellab.timing.config import Config
from kernellab.timing.stopwatch import Interval

MARGIN = 0.03
"""By how much medians of two sessions may differ, as a share: two GPUs of one model do, and one on two days."""

FEW_SAMPLES = 4
"""Of fewer samples, the range says too little of their median: two pairs lie apart by chance in one case of three."""

_UNMEASURED = frozenset(map(str, UNMEASURED))
FAILED = frozenset({Status.COMPILE_ERROR, Status.CANNOT_RUN, Status.FAULT, Status.TIMEOUT, Status.WRONG})


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of a measurement: the text of the kernel (a hash), Triton, and the driver of the GPU."""

    kernel: str
    triton: str
    driver: str


@dataclass(frozen=True, slots=True)
class LaunchKind:
    """The key of a launch, without the conditions of its measurement.

    ``sizes`` are texts: the values of an autotuner's ``key``, else numbers and shapes. ``types`` are parameters with
    their types, ``aligned`` the positions of those that are divisible by 16. ``manner`` has all else: constants,
    options, CUDA graphs, the implementation of a benchmark.
    """

    kernel: str
    device: str
    target: str
    sizes: tuple[tuple[str, str], ...]
    types: tuple[tuple[str, str], ...] = ()
    aligned: tuple[int, ...] = ()
    manner: str = ""


@dataclass(frozen=True, slots=True)
class KeptTime:
    """The stored outcome of one config, with its launch and conditions.

    ``id`` is that of the row, ``version`` the label of the version it was entered under. ``config`` is a text that
    equal configs share, ``words`` the config for people, ``parameters`` the names of what it sets.
    """

    id: int
    version: str
    launch: LaunchKind
    conditions: Conditions
    config: str
    words: str
    parameters: frozenset[str]
    status: Status
    reason: str
    time_ms: float | None
    low_ms: float | None
    high_ms: float | None
    samples: int
    created: float

    @property
    def interval(self) -> Interval | None:
        """The median with its bounds, in milliseconds; None where it did not run well, or was timed too few times."""
        if self.status is not Status.OK or self.samples < FEW_SAMPLES:
            return None
        if not self.time_ms or not self.low_ms or not self.high_ms:
            return None
        return Interval(self.time_ms, self.low_ms, self.high_ms)


def kept_times(store: Store, kernel: str | None = None) -> list[KeptTime]:
    """The GPU measurements of all kernels of a store, or of all versions of one name, the latest last.

    Peers of benchmarks are left out: the store has no version of torch for them.
    """
    wanted = None if kernel is None else [o.id for o in store.overview.outlines() if o.name == kernel]
    versions = {version.id: version for version in store.versions(wanted)}
    reader = _TimesReader(versions, {version.label: version for version in versions.values()})
    return [kept for kept in store.history.outcomes(tuple(versions), reader.kept_time) if kept is not None]


_Subject = tuple[str, LaunchKind, Conditions]
"""What a key stands for: the label of a version, its launch, and the conditions."""


@dataclass(frozen=True, slots=True)
class _TimesReader:
    """Reads times from rows; shared keys and configs are parsed once."""

    versions: Mapping[int, Version]
    labels: Mapping[str, Version]
    subjects: dict[tuple[int, str], _Subject | None] = field(default_factory=dict)
    configs: dict[str, tuple[str, str, frozenset[str]]] = field(default_factory=dict)

    def kept_time(
        self,
        number: int,
        owner: int,
        key: str,
        config: str,
        device: str,
        status: str,
        time_ms: float | None,
        created: float,
        *details: Any,
    ) -> KeptTime | None:
        """The time of a row; None if it was not measured, or is a peer's.

        Raises:
            MalformedData: not written by a lab.
        """
        if not device or status in _UNMEASURED:
            return None
        if (owner, key) not in self.subjects:
            self.subjects[owner, key] = _subject(self.versions[owner], key, device, self.labels)
        if (subject := self.subjects[owner, key]) is None:
            return None
        if config not in self.configs:
            self.configs[config] = _config(config)
        is_json, reason, low_ms, high_ms, samples = details
        require(bool(is_json), "the details", "no JSON", "an object")
        for value in (time_ms, low_ms, high_ms, created):
            require(value is None or type(value) in (int, float), "a number of the measurement", value, "a number")
        require(type(samples or 0) is int, "samples", samples, "an integer")
        require(status in STATUSES, "the status", status, "a known one")
        label, launch, conditions = subject
        known, bounds = (number, label, launch, conditions, *self.configs[config]), (low_ms, high_ms, samples or 0)
        return KeptTime(*known, STATUSES[status], str(reason or ""), time_ms, *bounds, created)


def _config(text: str) -> tuple[str, str, frozenset[str]]:
    """A stored config: its key, its words, and the names of its parameters."""
    stored = parse_json(text)
    require_config(stored)
    config = Config.from_stored(stored)
    return config.key, config.text, frozenset(stored)


def _subject(version: Version, key: str, device: str, labels: Mapping[str, Version]) -> _Subject | None:
    """The subject of a measurement; None for a peer of a benchmark, and for a foreign key."""
    fields = fields_of_key(key)
    if "bench" in fields:
        name = str(fields["bench"])
        if name != version.name and name not in labels:
            return None
        version = labels.get(name, version)
    if not {"triton", "driver", "target"} <= fields.keys():
        return None
    closure = str(fields.get("closure") or version.closure.digest)
    conditions = Conditions(closure, str(fields["triton"]), str(fields["driver"]))
    return version.label, _launch_kind(version, device, fields), conditions


def _launch_kind(version: Version, device: str, fields: Mapping[str, Any]) -> LaunchKind:
    values = fields.get("point" if "bench" in fields else "values")
    named = values if isinstance(values, Mapping) else {}
    manner = {name: fields[name] for name in ("constants", "options", "timed") if fields.get(name)}
    manner |= {"bench": True} if "bench" in fields else {}
    sizes = tuple(sorted((name, str(value)) for name, value in named.items() if name != "version"))
    types = tuple((str(name), str(kind)) for name, kind in _pairs(fields.get("signature")))
    aligned = tuple(sorted(_aligned_positions(fields.get("attributes"))))
    target = str(fields["target"])
    return LaunchKind(version.name, device, target, sizes, types, aligned, json.dumps(manner, sort_keys=True))


def _pairs(tagged: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the pairs of a tuple of pairs, as the store tags them: ``["tuple", ["tuple", "x_ptr", "*fp32"]]``."""
    for entry in tagged[1:] if isinstance(tagged, list) else ():
        if isinstance(entry, list) and len(entry) == 3:
            yield entry[1], entry[2]


def _aligned_positions(attributes: Any) -> Iterator[int]:
    """The positions of parameters divisible by 16; other assumptions differ between versions of Triton."""
    for path, assumed in _pairs(attributes):
        if "tt.divisibility" in json.dumps(assumed) and isinstance(path, list):
            yield from (place for place in path[1:2] if type(place) is int)


def fields_of_key(key: str) -> Mapping[str, Any]:
    """The fields in the key of a measurement, by name; empty for a foreign key."""
    try:
        fields = json.loads(key)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def launch_words(launches: Collection[LaunchKind]) -> dict[LaunchKind, str]:
    """Launches in words: the sizes by which the launches of one kernel differ."""
    kernels: dict[str, list[LaunchKind]] = {}
    for launch in launches:
        kernels.setdefault(launch.kernel, []).append(launch)
    return {launch: _words(launch, kernels[launch.kernel]) for launch in launches}


def _words(launch: LaunchKind, others: Collection[LaunchKind]) -> str:
    varying = {name for name, value in launch.sizes if any(dict(other.sizes).get(name) != value for other in others)}
    shown = [(name, value) for name, value in launch.sizes if name in varying] or list(launch.sizes)
    numbers = [(name, value) for name, value in shown if not value.startswith("(")]
    words = [f"{name}={value}" for name, value in numbers or shown]
    if any(other.types != launch.types for other in others):
        words += [kind.lstrip("*") for kind in dict.fromkeys(kind for _, kind in launch.types if kind[:1] == "*")]
    return ", ".join(words)


@dataclass(frozen=True, slots=True)
class ConditionChange:
    """One difference of two conditions: ``what`` is ``kernel``, ``Triton`` or ``driver``."""

    what: str
    before: str
    after: str

    @property
    def text(self) -> str:
        """The change in words: ``Triton 3.6.0 to 3.9.0``."""
        return f"{self.what} {self.before} to {self.after}"


def changes_between(before: KeptTime, after: KeptTime) -> tuple[ConditionChange, ...]:
    """The differences of the conditions of two measurements; kernels appear as the labels of their versions."""
    old, new = before.conditions, after.conditions
    pairs = (
        ("kernel", before.version, after.version, old.kernel != new.kernel),
        ("Triton", old.triton, new.triton, old.triton != new.triton),
        ("driver", old.driver, new.driver, old.driver != new.driver),
    )
    return tuple(ConditionChange(what, was, now) for what, was, now, differs in pairs if differs)


def fastest(times: Collection[KeptTime]) -> KeptTime | None:
    """The fastest successful measurement, or None."""
    good = [time for time in times if time.status is Status.OK and time.time_ms]
    return min(good, key=lambda time: time.time_ms or 0.0, default=None)


def latest(times: Collection[KeptTime]) -> dict[str, KeptTime]:
    """The latest measurement of each config, by the key of the config."""
    return {time.config: time for time in sorted(times, key=lambda time: (time.created, time.id))}


def ratio_of(before: KeptTime, after: KeptTime) -> Interval | None:
    """The ratio of the later median to the earlier, with bounds from both; None where one has no bounds."""
    old, new = before.interval, after.interval
    if old is None or new is None:
        return None
    return Interval(new.median / old.median, new.low / old.high, new.high / old.low)


def is_within(ratio: Interval, margin: float) -> bool:
    """Whether two medians differ by at most a share, in either direction."""
    return 1 / (1 + margin) <= ratio.median <= 1 + margin


def is_apart(ratio: Interval, margin: float) -> bool:
    """Whether two intervals are disjoint, and their medians differ by more than a share."""
    return not ratio.low <= 1 <= ratio.high and not is_within(ratio, margin)
