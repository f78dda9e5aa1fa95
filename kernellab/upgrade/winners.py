"""The stored winners of a store: of each launch the config that was launched last, with its neighbours, and what of
its compile was kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernellab._triton import version_order
from kernellab.errors import UsageError
from kernellab.registry import config_words
from kernellab.registry.kept_times import fields_of_key
from kernellab.registry.launches_from_store import options_of, tensors_among
from kernellab.source import CONFIG_OPTIONS, MalformedData
from kernellab.store import (
    Argument,
    Measurement,
    RecordedLaunch,
    Result,
    Snapshot,
    Store,
    Version,
    snapshot_from_jsonable,
)
from kernellab.store.columns import Status
from kernellab.store.decoding import canonical_json, launch_digest

MOST_NEIGHBOURS = 3
"""Of the configs that were measured near a winner, so many of the fastest are compiled as well."""

_KEPT_RESOURCES = ("registers", "spill_bytes", "shared_bytes", "occupancy", "limiter")


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another stored config of the launch of a winner: its values, and what was kept of its compile."""

    config: Mapping[str, Any]
    before: Snapshot | None


@dataclass(frozen=True, slots=True)
class Winner:
    """A recorded launch with the config that it was launched with last, under an earlier version of Triton.

    ``digest`` is that of the launch, ``before`` what was kept of its compile. ``measured`` is the measured config that
    it was launched with; None where no time of it is kept.
    """

    version: Version
    launch: RecordedLaunch
    digest: str
    triton: str
    before: Snapshot | None
    neighbours: tuple[Neighbour, ...] = ()
    measured: Mapping[str, Any] | None = None

    @property
    def sizes(self) -> str:
        """The numbers of the launch in words; without any, the shapes of its tensors."""
        arguments = [argument for argument in self.launch.arguments if not argument.constexpr]
        numbers = {a.name: a.value for a in arguments if a.kind == "scalar" and type(a.value) in (int, float)}
        shapes = {a.name: "x".join(map(str, a.shape)) for a in tensors_among(arguments)}
        return config_words(numbers or shapes)

    @property
    def config(self) -> str:
        """The constexprs and options of the launch in words."""
        return config_words(config_values(self.launch))


def config_values(launch: RecordedLaunch) -> dict[str, Any]:
    """The plain constexprs and the options of a launch."""
    constants = {a.name: a.value for a in launch.arguments if a.constexpr and a.kind == "scalar"}
    options = options_of(launch)
    return {**constants, **{name: options[name] for name in CONFIG_OPTIONS if name in options}}


def stored_winners(store: Store, installed: str, from_version: str | None) -> list[Winner]:
    """The winners of all kernels that were compiled under ``from_version``; None takes all others than the installed.

    Raises:
        UsageError: the store has none of that version.
    """
    rows = [winner for version in store.versions() for winner in _winners_of(store, version)]
    if from_version is None:
        return [winner for winner in rows if winner.triton != installed]
    chosen = [winner for winner in rows if winner.triton == from_version]
    if not chosen:
        known = ", ".join(sorted({winner.triton for winner in rows}, key=version_order)) or "none"
        raise UsageError(f"No launch of this store was compiled under Triton {from_version}; it has {known}.")
    return chosen


def _winners_of(store: Store, version: Version) -> Iterator[Winner]:
    """The last launch of each set of arguments under each version of Triton, as `recorded_version` prefers them."""
    results = {result.digest: result for _, result in store.history.results(version.id)}
    resources = {digest: _resources(result) for digest, result in results.items()}
    snapshots = store.snapshots.of_version(version.id)
    by_launch = dict(snapshots.keys())  # triton by the digest of the launch
    groups: dict[tuple[str, str], list[tuple[RecordedLaunch, str, Snapshot | None]]] = {}
    for row in store.history.launches(version.id):
        launch, digest = row.launch, launch_digest(row.launch)
        result = results.get(launch.result)
        triton = result.triton if result is not None else by_launch.get(digest, "")
        if launch.grid is not None and not launch.has_stand_ins and triton:
            before = snapshots.get((digest, triton)) or resources.get(launch.result)
            groups.setdefault((_launch_key(launch), triton), []).append((launch, digest, before))
    measurements = [row.measurement for row in store.history.measurements(version.id)] if groups else []
    for (_, triton), launches in groups.items():
        *earlier, (launch, digest, before) = [entry for entry in launches if entry[0].is_launch] or launches
        own, config = [m for m in measurements if _is_measured_for(m, launch, triton)], config_values(launch)
        recorded = [Neighbour(config_values(other), kept) for other, _, kept in reversed(earlier)]
        others = [neighbour for neighbour in recorded if neighbour.config != config]
        measured = next((m.config for m in reversed(own) if has_values(launch, m.config)), None)
        neighbours = _neighbours(others, own, launch, triton)
        yield Winner(version, launch, digest, triton, before, neighbours, measured)


def _launch_key(launch: RecordedLaunch) -> str:
    """A text that launches on arguments of the same kind for the same target share, whatever their configs are."""
    arguments = [_argument_key(argument) for argument in launch.arguments if not argument.constexpr]
    types = [(name, kind) for name, kind in launch.signature if kind != "constexpr"]
    return canonical_json([arguments, types, launch.target])


def _argument_key(argument: Argument) -> list[Any]:
    value = argument.value if argument.kind == "scalar" else None
    members = [_argument_key(member) for member in argument.members]
    return [argument.name, argument.kind, value, argument.dtype, argument.shape, argument.stride, members]


def _resources(result: Result) -> Snapshot | None:
    """The snapshot of a compile by an earlier release, which kept its resources alone."""
    fits = result.resources.get("fits", True)
    failure = "" if fits else str(result.resources.get("why_not") or "it did not fit")
    return _partial(result.resources, triton=result.triton, target=result.target, failure=failure)


def _partial(values: Mapping[str, Any], **more: str) -> Snapshot | None:
    """A snapshot of resources alone; None where they are not numbers."""
    try:
        return snapshot_from_jsonable({**{name: values.get(name) for name in _KEPT_RESOURCES}, **more})
    except MalformedData:
        return None


def _neighbours(
    recorded: Sequence[Neighbour], measured: Sequence[Measurement], winner: RecordedLaunch, triton: str
) -> tuple[Neighbour, ...]:
    """The fastest measured configs besides the winner, then recorded ones, each config once."""
    timed = [m for m in measured if m.status == Status.OK and m.time_ms and not has_values(winner, m.config)]
    chosen: dict[str, Neighbour] = {}
    for m in sorted(timed, key=lambda m: m.time_ms or 0.0):
        neighbour = Neighbour(m.config, _partial(m.details, triton=triton))
        chosen.setdefault(canonical_json(dict(m.config)), neighbour)
    for neighbour in recorded:
        chosen.setdefault(canonical_json(dict(neighbour.config)), neighbour)
    plain = [n for n in chosen.values() if not any(isinstance(value, Mapping) for value in n.config.values())]
    return tuple(plain[:MOST_NEIGHBOURS])


def has_values(launch: RecordedLaunch, config: Mapping[str, Any]) -> bool:
    """Whether a launch had the values of a stored config; options that it does not set do not count."""
    own = {name: value for name, value in config_values(launch).items() if value is not None}
    values = {"num_ctas": 1, **own}
    return all(values.get(name) == value for name, value in config.items() if value is not None)


def _is_measured_for(measurement: Measurement, launch: RecordedLaunch, triton: str) -> bool:
    """Whether a measurement was taken under a version of Triton on arguments like those of a launch."""
    key = fields_of_key(measurement.key)
    if key.get("triton") != triton or key.get("target") != launch.target or "bench" in key:
        return False
    sizes = key.get("values")
    known = {a.name: str(a.value) for a in launch.arguments if a.kind == "scalar"}
    known |= {a.name: str(tuple(a.shape)) for a in tensors_among(launch.arguments)}
    return all(known.get(name, text) == text for name, text in (sizes if isinstance(sizes, Mapping) else {}).items())
