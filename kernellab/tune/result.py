"""What a tuning leaves: one row per config, also as a measurement in the store; the winner, and what ties with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from kernellab.compile.types import Compiled
from kernellab.display import Shown
from kernellab.errors import CannotRun, KernellabError, plural
from kernellab.measure.comparison import OutputDifference
from kernellab.measure.config import Config
from kernellab.measure.outcomes import (
    OPTION_COLUMNS,
    OUTCOME_COLUMNS,
    OutcomeRow,
    Status,
    reason_of,
    record_of,
    resources_of,
    with_types,
)
from kernellab.store import History, Measurement
from kernellab.workers.forks import cached_property
from kernellab.workers.uninterrupted import imported_whole

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True)
class Row(OutcomeRow):
    """The outcome of one config; its ``time_ms`` is what configs are ranked by.

    ``cold_ms`` is the median with a flushed L2 of a finalist, ``warm_ms`` the one without. ``standing`` is
    ``winner``, ``tied``, ``lost`` (in the finals) or "", and ``tuning`` names the tuning that decided it.
    ``checked`` identifies the reference that the outputs were compared with, or is ""; ``device_index`` is the GPU
    that timed it.

    Rows of one ``group`` left equal outputs, in whatever tuning; ``apart`` tells how those of other groups differ, as
    JSON. ``outputs`` are the arguments that were compared, with commas, or "" for all: see `kernellab.tune.agreement`.
    """

    config: Config
    cold_ms: float | None = None
    warm_ms: float | None = None
    standing: str = ""
    tuning: str = ""
    checked: str = ""
    device_index: int | None = None
    group: str = ""
    outputs: str = ""
    apart: str = ""

    @property
    def resources(self) -> tuple[float, ...]:
        """What ties are broken by: spilled bytes, then registers of a block, then its shared memory."""
        warps = self.config.num_warps or 4
        return (self.spill_bytes or 0, (self.registers or 0) * warps, self.shared_bytes or 0)


@dataclass(frozen=True, slots=True)
class Agreement:
    """Which configs that ran left equal outputs, where no reference says which are right.

    ``groups`` are configs that agree, the largest group first; it holds more than half of those that ran where it
    ``has_majority``. It ``disagrees`` where two groups are known to differ; not all need have met. ``differences`` are
    those of the outputs of two of the largest groups, by their places. ``not_compared`` configs are in no group: two of
    their launches differ, or nothing could be kept.
    """

    groups: tuple[tuple[Config, ...], ...]
    has_majority: bool
    disagrees: bool
    differences: Mapping[tuple[int, int], tuple[OutputDifference, ...]] = field(default_factory=dict)
    not_compared: tuple[Config, ...] = ()

    @property
    def arguments(self) -> tuple[OutputDifference, ...]:
        """The arguments in which any two groups differ, each with the most elements and the largest difference."""
        found: dict[str, OutputDifference] = {}
        for each in (each for differing in self.differences.values() for each in differing):
            before = found.get(each.argument, each)
            unbounded = before.largest is None or each.largest is None
            largest = None if unbounded else max(before.largest or 0.0, each.largest or 0.0)
            found[each.argument] = replace(each, differing=max(before.differing, each.differing), largest=largest)
        return tuple(found.values())


@dataclass(frozen=True, repr=False)
class Tuning(Shown):
    """The result of tuning one kernel for one set of arguments.

    ``rows`` are in the order of the list; ``winner`` and ``ties`` are indices into it. ``seconds`` is the wall time,
    ``from_cache`` tells that every outcome was known before. ``provenance`` says where the numbers come from: device,
    target, versions, key. ``configs`` are the `triton.Config`s of the rows, hooks included. ``agreement`` tells whose
    outputs are equal, None where a reference decided, or nothing ran. ``is_interrupted`` tells that the user ended it.
    """

    kernel: str
    rows: tuple[Row, ...]
    configs: tuple[Any, ...]
    winner: int | None
    ties: tuple[int, ...]
    seconds: float
    from_cache: bool
    provenance: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    agreement: Agreement | None = None
    is_interrupted: bool = False

    def __repr__(self) -> str:
        """One line; the rows are in `frame`."""
        if self.winner is None:
            return f"<Tuning of {self.kernel}: none of {plural(len(self.rows), 'config')} works>"
        row = self.rows[self.winner]
        time = "not timed" if row.time_ms is None else f"{row.time_ms:.4g} ms"
        faster = self.outvoted
        more = "" if faster is None else f"; {faster.config.text} is faster and differs"
        return f"<Tuning of {self.kernel}: {plural(len(self.rows), 'config')}, best {row.config.text} ({time}){more}>"

    @property
    def outvoted(self) -> Row | None:
        """The fastest config of all, if only its outputs keep it from winning: they differ from those of most."""
        ran = [row for row in self.rows if row.status in {Status.OK, Status.DIFFERS} and row.time_ms is not None]
        fastest = min(ran, key=lambda row: row.time_ms or 0.0, default=None)
        return fastest if fastest is not None and fastest.status is Status.DIFFERS else None

    @property
    def best(self) -> Any:
        """The winning `triton.Config`; without a GPU, the first that fits the target.

        Raises:
            CannotRun: no config of the list works.
        """
        if self.winner is None:
            raise CannotRun(_nothing_works(self), kernel=self.kernel)
        return self.configs[self.winner]

    @property
    def tied(self) -> tuple[Any, ...]:
        """The configs that cannot be told from the best."""
        return tuple(self.configs[index] for index in self.ties)

    @cached_property
    def frame(self) -> pandas.DataFrame:
        """One row per config: its parameters and options, then `OUTCOME_COLUMNS`; provenance in ``attrs``.

        ``attrs["winner"]`` and ``attrs["tied"]`` are labels of the index, ``attrs["warm_ms"]`` the medians of the
        finalists without a flush of the L2, and ``attrs["device_index"]`` the GPU that timed each row, by label.
        ``attrs["agreement"]`` has the `Agreement` as plain data, its groups as labels.
        """
        return frame_of(self)


def frame_of(tuning: Tuning) -> pandas.DataFrame:
    """Return the frame of a tuning."""
    imported_whole("pandas")
    import pandas as pd  # keeps this module light

    names = list(dict.fromkeys(name for row in tuning.rows for name, _ in row.config.parameters))
    ranks = _ranks(tuning)
    records = [{**record_of(row, row.config, names), "rank": ranks.get(index)} for index, row in enumerate(tuning.rows)]
    columns = [*names, *(name for name in OPTION_COLUMNS if name not in names), *OUTCOME_COLUMNS]
    frame = with_types(pd.DataFrame(records, columns=columns), names)
    frame.attrs.update(
        {
            "kernel": tuning.kernel,
            "winner": tuning.winner,
            "tied": list(tuning.ties),
            "seconds": tuning.seconds,
            "from_cache": tuning.from_cache,
            "parameters": names,
            "warm_ms": {i: row.warm_ms for i, row in enumerate(tuning.rows) if row.warm_ms is not None},
            "device_index": {i: row.device_index for i, row in enumerate(tuning.rows) if row.device_index is not None},
            "notes": list(tuning.notes),
            "agreement": _plain(tuning),
            **tuning.provenance,
        }
    )
    return frame


def _plain(tuning: Tuning) -> dict[str, Any] | None:
    """Return the agreement of a tuning with labels of the index in place of configs."""
    found = tuning.agreement
    if found is None:
        return None
    labels = {row.config: index for index, row in enumerate(tuning.rows)}
    pairs = [
        {"groups": list(pair), "differences": [asdict(each) for each in differing]}
        for pair, differing in found.differences.items()
    ]
    return {
        "groups": [[labels[config] for config in group] for group in found.groups],
        "disagrees": found.disagrees,
        "majority": 0 if found.has_majority else None,
        "not_compared": [labels[config] for config in found.not_compared],
        "outputs": tuning.provenance.get("outputs"),
        "pairs": pairs,
    }


def with_resources(config: Config, compiled: Compiled, status: Status, reason: str = "") -> Row:
    """Return the row of a config that was compiled and not measured."""
    return Row(config, status, reason, **resources_of(compiled))


def _ranks(tuning: Tuning) -> dict[int, int]:
    """Return the rank of every config that ran well, from 1: the winner, those tied with it, the rest by time."""
    good = [index for index, row in enumerate(tuning.rows) if row.status is Status.OK and row.time_ms is not None]

    def place(index: int) -> tuple[int, float]:
        group = 0 if index == tuning.winner else 1 if index in tuning.ties else 2
        return group, tuning.rows[index].time_ms or 0.0

    return {index: rank for rank, index in enumerate(sorted(good, key=place), start=1)}


def _nothing_works(tuning: Tuning) -> str:
    wrong = [row for row in tuning.rows if row.status is Status.WRONG]
    if wrong and all(row.checked for row in wrong):
        return f"No config of {tuning.kernel} agrees with the reference. The first: {wrong[0].reason}"
    seen = ", ".join(sorted({str(row.status) for row in tuning.rows})) or "none given"
    first = next((row.reason for row in tuning.rows if row.reason), "")
    return f"No config of {tuning.kernel} works ({seen}). The first says: {first}"


def row_before(config: Config, result: Compiled | KernellabError, max_spill_bytes: int | None) -> Row:
    """Return the row of a config before it is measured. One that can run is not timed for no reason so far."""
    if isinstance(result, KernellabError):
        return Row(config, Status.COMPILE_ERROR, reason_of(result))
    resources = result.resources
    if not resources.fits:
        return with_resources(config, result, Status.CANNOT_RUN, resources.why_not or "it does not fit the target")
    if max_spill_bytes is not None and (resources.spill_bytes or 0) > max_spill_bytes:
        reason = f"it spills {resources.spill_bytes} bytes per thread"
        return with_resources(config, result, Status.PRUNED, reason)
    return with_resources(config, result, Status.NOT_TIMED)


_OWN = {"config", "status", "time_ms"}


@dataclass(frozen=True, slots=True)
class Records:
    """The measurements of one kernel for one kind of launch on one kind of device.

    ``version_id`` is the version they are entered under. They are found again by their key alone, so that a new
    version of the decorators (another list of configs) still finds them.
    """

    history: History
    version_id: int
    key: str
    device: str

    def add(self, rows: Sequence[Row]) -> None:
        """Append rows; committed when this returns. Those that were not measured for want of time or a GPU are not."""
        kept = [measurement_of(row, self.key, self.device) for row in rows if row.status is not Status.NOT_TIMED]
        if kept:
            self.history.add_measurements(self.version_id, kept)

    def known(self) -> dict[Config, Row]:
        """Return the latest row of every config that was measured under this key, with what is known of its outputs."""
        found: dict[str, Row] = {}
        for entry in self.history.measurements(key=self.key):
            row = row_of(entry.measurement)
            if row is not None:
                found[row.config.key] = _with_group(row, found.get(row.config.key))
        return {row.config: row for row in found.values()}


def _with_group(row: Row, before: Row | None) -> Row:
    """Return a row with the group of outputs of an earlier one, if it was made where nobody compared these."""
    if row.group or before is None:
        return row
    return replace(row, group=before.group, apart=before.apart, outputs=row.outputs or before.outputs)


def measurement_of(row: Row, key: str, device: str) -> Measurement:
    """Return a row as a measurement under a key, taken on a model of device."""
    details = {f.name: getattr(row, f.name) for f in fields(row) if f.name not in _OWN}
    return Measurement(key, row.config.stored, device, str(row.status), row.time_ms, details)


def row_of(measurement: Measurement) -> Row | None:
    """Return the row of a measurement; None for one that something else than a tuning made."""
    names = {f.name for f in fields(Row)} - _OWN
    if "standing" not in measurement.details:
        return None
    details = {name: value for name, value in measurement.details.items() if name in names}
    config = Config.from_stored({"num_warps": None, "num_stages": None, "num_ctas": None, **measurement.config})
    return Row(config, Status(measurement.status), time_ms=measurement.time_ms, **details)


_LEAST_RATIO = 1.03
_LEAST_CHANGE = 1.15


def why_it_wins(winner: Row, others: Sequence[Row]) -> str:
    """Return a sentence on why a config is faster than others: what decides, and how these differ; "" if nothing does.

    For each parameter, the best config with another value of it is compared with the winner; the parameter whose best
    other value is slowest decides.
    """
    values, known = winner.config.values, [(each.config.values, each) for each in others]
    rivals = {name: rival for name in values if (rival := _rival(values[name], known, name)) is not None}
    if not rivals:
        return ""
    name = max(rivals, key=lambda each: _timed_ms(rivals[each]))
    rival = rivals[name]
    ratio = _timed_ms(rival) / _timed_ms(winner)
    if ratio < _LEAST_RATIO:
        return "No parameter decides: for each, another value comes within 3 % of the winner."
    value, other = values[name], rival.config.values[name]
    differences = ", ".join(_differences(winner, rival))
    reason = f": it {differences}" if differences else "; registers, spills and occupancy are about the same"
    return f"{name}={value} decides: with {other} it is at best {ratio:.2f} times slower{reason}."


def _timed_ms(row: Row) -> float:
    return row.time_ms or 0.0


def _rival(own: Any, known: Sequence[tuple[Mapping[str, Any], Row]], name: str) -> Row | None:
    """Return the fastest config with another value of a parameter than the winner's ``own``."""
    return min((row for values, row in known if values.get(name, own) != own), key=_timed_ms, default=None)


def _differences(winner: Row, rival: Row) -> list[str]:
    """Return what is worse about a rival, in words."""
    found = []
    if (rival.spill_bytes or 0) > (winner.spill_bytes or 0):
        found.append(f"spills {rival.spill_bytes:,} bytes per thread (the winner {winner.spill_bytes or 0:,})")
    if rival.occupancy and winner.occupancy and winner.occupancy > _LEAST_CHANGE * rival.occupancy:
        found.append(f"keeps {rival.occupancy:.0%} of the warps resident (the winner {winner.occupancy:.0%})")
    if rival.shared_bytes and winner.shared_bytes and winner.shared_bytes > _LEAST_CHANGE * rival.shared_bytes:
        found.append(f"keeps {rival.shared_bytes:,} bytes in shared memory (the winner {winner.shared_bytes:,})")
    if rival.registers and winner.registers and rival.registers > _LEAST_CHANGE * winner.registers:
        found.append(f"takes {rival.registers} registers per thread (the winner {winner.registers})")
    return [each.replace("%", " %") for each in found]
