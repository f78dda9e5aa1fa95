"""The results of a tuning: a row per config (also as a measurement in the store), the winner, ties and progress."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from kernellab.checking.comparison import OutputDifference
from kernellab.display import Drawable
from kernellab.errors import CannotRun, plural, three_digits
from kernellab.source import INTEGER_OPTIONS
from kernellab.store import History, Measurement
from kernellab.store.columns import BITS_COLUMNS, OUTCOME_COLUMNS, PREDICTED_COLUMNS, Status
from kernellab.timing.config import Config
from kernellab.timing.outcome import OutcomeRow, cell_value, fields_of_record, record_of, require_frame_of, with_types
from kernellab.workers.forks_and_interrupts import cached_property, import_uninterrupted

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True)
class Row(OutcomeRow):
    """The outcome of one config; configs are ranked by ``time_ms``.

    ``cold_ms`` is the median with a flushed L2 of a finalist, ``warm_ms`` the one without. ``standing`` is
    ``winner``, ``tied``, ``lost`` (in the finals) or "", and ``tuning`` names the tuning that decided it.
    ``checked`` identifies the reference that the outputs were compared with, or is ""; ``device_index`` is the GPU
    that timed it.

    Rows of one ``group`` have equal outputs, also across tunings; ``apart`` has the differences from other groups as
    JSON. ``outputs`` are the compared arguments, with commas, or "" for all: see `kernellab.tune.agreement`.
    ``predicted_ms`` is the time that the model of `explain` predicts, between ``predicted_low_ms`` and
    ``predicted_high_ms``; the store keeps none of the three. ``bits`` is the class of equal bits, where one was asked
    for, as `kernellab.tune.config_runs` names it.
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
    predicted_ms: float | None = None
    predicted_low_ms: float | None = None
    predicted_high_ms: float | None = None
    bits: str | None = None

    @property
    def ranking_ms(self) -> float | None:
        """The time that ranks the config: the median if it ran well, the predicted time if nothing timed it."""
        if self.status is Status.NOT_TIMED:
            return self.predicted_ms
        return self.time_ms if self.status is Status.OK else None

    @property
    def resources(self) -> tuple[float, ...]:
        """The tie-breakers: spilled bytes, then registers of a block, then its shared memory."""
        warps = self.config.num_warps or 4
        return (self.spill_bytes or 0, (self.registers or 0) * warps, self.shared_bytes or 0)


PREDICTED = tuple(PREDICTED_COLUMNS)
_NOT_STORED = (*PREDICTED, *BITS_COLUMNS)
_ATTRIBUTES = ("kernel", "winner", "tied", "seconds", "from_cache", "parameters", "notes")
_OPTIONAL = ("warm_ms", "device_index", "agreement")  # earlier releases wrote some of them not at all


def times_of(rows: Iterable[Row]) -> dict[Config, float]:
    """Return the medians of the configs that ran well, in milliseconds."""
    return {row.config: row.time_ms for row in rows if row.status is Status.OK and row.time_ms is not None}


@dataclass(frozen=True, slots=True)
class Agreement:
    """Groups of configs with equal outputs, for a tuning without a reference.

    ``groups`` are sorted by size, the largest first; ``has_majority`` if it holds more than half of the configs that
    ran. ``disagrees`` if two groups are known to differ (not all pairs are compared). ``differences`` are those between
    two of the largest groups, by their places. ``not_compared`` configs have no group: two of their launches differ, or
    no copy could be kept.
    """

    groups: tuple[tuple[Config, ...], ...]
    has_majority: bool
    disagrees: bool
    differences: Mapping[tuple[int, int], tuple[OutputDifference, ...]] = field(default_factory=dict)
    not_compared: tuple[Config, ...] = ()

    @property
    def arguments(self) -> tuple[OutputDifference, ...]:
        """The arguments with different values between groups, each with its largest differences."""
        by_argument: dict[str, OutputDifference] = {}
        for difference in (difference for differing in self.differences.values() for difference in differing):
            before = by_argument.get(difference.argument, difference)
            unbounded = before.largest is None or difference.largest is None
            largest = None if unbounded else max(before.largest or 0.0, difference.largest or 0.0)
            by_argument[difference.argument] = replace(
                difference, differing=max(before.differing, difference.differing), largest=largest
            )
        return tuple(by_argument.values())


WITHOUT_GPU = "Not timed: no GPU."


@dataclass(frozen=True, repr=False)
class Tuning(Drawable):
    """The result of tuning one kernel for one set of arguments.

    ``rows`` are in the order of the list; ``winner`` and ``ties`` are indices into it. ``seconds`` is the wall time;
    ``from_cache`` if all outcomes were stored before. ``provenance`` has device, target, versions and key. ``configs``
    are the `triton.Config`s of the rows, hooks included. ``agreement`` groups the configs by outputs; it is None with a
    reference, or if nothing ran. ``is_interrupted`` if the user interrupted it.
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
        if self.is_predicted:
            time = f"predicted {three_digits(row.predicted_ms or 0.0)} ms"
        faster = self.outvoted
        more = "" if faster is None else f"; {faster.config.text} is faster and differs"
        return f"<Tuning of {self.kernel}: {plural(len(self.rows), 'config')}, best {row.config.text} ({time}){more}>"

    @property
    def is_predicted(self) -> bool:
        """Whether the winner was chosen by its predicted time, since nothing was timed."""
        row = None if self.winner is None else self.rows[self.winner]
        return row is not None and row.time_ms is None and row.predicted_ms is not None

    @property
    def outvoted(self) -> Row | None:
        """The fastest config, if it cannot win because its outputs differ from the majority's; else None."""
        ran = [row for row in self.rows if row.status in {Status.OK, Status.DIFFERS} and row.time_ms is not None]
        fastest = min(ran, key=lambda row: row.time_ms or 0.0, default=None)
        return fastest if fastest is not None and fastest.status is Status.DIFFERS else None

    @property
    def best(self) -> Any:
        """The winning `triton.Config`; without a GPU, the one with the least predicted time, else the first that fits.

        Raises:
            CannotRun: no config of the list works.
        """
        if self.winner is None:
            raise CannotRun(_failure_text(self), kernel=self.kernel)
        return self.configs[self.winner]

    @property
    def tied(self) -> tuple[Any, ...]:
        """The configs that tie with the best."""
        return tuple(self.configs[index] for index in self.ties)

    @cached_property
    def frame(self) -> pandas.DataFrame:
        """One row per config: its parameters and options, outcome, prediction; provenance in ``attrs``.

        ``attrs["winner"]`` and ``attrs["tied"]`` are labels of the index, ``attrs["warm_ms"]`` the medians of the
        finalists without a flush of the L2, and ``attrs["device_index"]`` the GPU that timed each row, by label.
        ``attrs["agreement"]`` has the `Agreement` as plain data, its groups as labels.
        """
        pd = import_uninterrupted("pandas")

        names = list(dict.fromkeys(name for row in self.rows for name, _ in row.config.parameters))
        ranks = _ranks(self)
        rows = dict(enumerate(self.rows))
        records = [
            {
                **record_of(row, row.config, names),
                "rank": ranks.get(index),
                **{name: getattr(row, name) for name in _NOT_STORED},
            }
            for index, row in rows.items()
        ]
        columns = [*names, *(name for name in INTEGER_OPTIONS if name not in names), *OUTCOME_COLUMNS, *_NOT_STORED]
        frame = with_types(pd.DataFrame(records, columns=columns), names, numbers=PREDICTED)
        frame.attrs.update(
            {
                "kernel": self.kernel,
                "winner": self.winner,
                "tied": list(self.ties),
                "seconds": self.seconds,
                "from_cache": self.from_cache,
                "parameters": names,
                "warm_ms": {i: row.warm_ms for i, row in rows.items() if row.warm_ms is not None},
                "device_index": {i: row.device_index for i, row in rows.items() if row.device_index is not None},
                "notes": list(self.notes),
                "agreement": _agreement_data(self),
                **self.provenance,
            }
        )
        return frame

    @classmethod
    def from_frame(cls, frame: pandas.DataFrame) -> Tuning:
        """Return the tuning that a `frame` is of: to draw or save one that `kernellab.read_frame` has read.

        Raises:
            UsageError: it is not a frame of a tuning.
        """
        require_frame_of("tuning", frame, _ATTRIBUTES)
        attrs, labels, records = frame.attrs, list(frame.index), frame.to_dict("records")
        names = [*attrs["parameters"], *(name for name in INTEGER_OPTIONS if name not in attrs["parameters"])]
        configs = [Config.of({name: cell_value(record[name]) for name in names}) for record in records]
        rows = tuple(
            Row(
                config,
                **fields_of_record(Row, record),
                warm_ms=attrs.get("warm_ms", {}).get(label),
                device_index=attrs.get("device_index", {}).get(label),
                **{name: cell_value(record[name]) for name in _NOT_STORED if name in record},
            )
            for config, label, record in zip(configs, labels, records, strict=True)
        )
        return cls(
            kernel=attrs["kernel"],
            rows=rows,
            configs=tuple(config.to_triton() for config in configs),
            winner=None if attrs["winner"] is None else labels.index(attrs["winner"]),
            ties=tuple(map(labels.index, attrs["tied"])),
            seconds=attrs["seconds"],
            from_cache=attrs["from_cache"],
            provenance={name: value for name, value in attrs.items() if name not in {*_ATTRIBUTES, *_OPTIONAL}},
            notes=tuple(attrs["notes"]),
            agreement=_agreement_of(attrs.get("agreement"), dict(zip(labels, configs, strict=True))),
        )


def _agreement_of(data: Mapping[str, Any] | None, configs: Mapping[Any, Config]) -> Agreement | None:
    """Return the agreement that `_agreement_data` wrote; ``configs`` go by label."""
    if data is None:
        return None
    return Agreement(
        groups=tuple(tuple(configs[label] for label in group) for group in data["groups"]),
        has_majority=data["majority"] is not None,
        disagrees=data["disagrees"],
        differences={
            tuple(pair["groups"]): tuple(OutputDifference(**values) for values in pair["differences"])
            for pair in data["pairs"]
        },
        not_compared=tuple(configs[label] for label in data["not_compared"]),
    )


def _agreement_data(tuning: Tuning) -> dict[str, Any] | None:
    """Return the agreement of a tuning as plain data, with labels of the index for configs."""
    agreement = tuning.agreement
    if agreement is None:
        return None
    labels = {row.config: index for index, row in enumerate(tuning.rows)}
    pairs = [
        {"groups": list(pair), "differences": [asdict(difference) for difference in differing]}
        for pair, differing in agreement.differences.items()
    ]
    return {
        "groups": [[labels[config] for config in group] for group in agreement.groups],
        "disagrees": agreement.disagrees,
        "majority": 0 if agreement.has_majority else None,
        "not_compared": [labels[config] for config in agreement.not_compared],
        "outputs": tuning.provenance.get("outputs"),
        "pairs": pairs,
    }


def _ranks(tuning: Tuning) -> dict[int, int]:
    """Return the ranks from 1 of the configs that ran well, or could run: the winner, its ties, the others by time.

    Without any measured time, predicted ones rank.
    """
    times = {index: row.time_ms for index, row in enumerate(tuning.rows) if row.status is Status.OK}
    if tuning.is_predicted:
        times = {index: row.predicted_ms for index, row in enumerate(tuning.rows) if row.status is Status.NOT_TIMED}
    good = [index for index, time_ms in times.items() if time_ms is not None]

    def place(index: int) -> tuple[int, float]:
        group = 0 if index == tuning.winner else 1 if index in tuning.ties and not tuning.is_predicted else 2
        return group, times[index] or 0.0

    return {index: rank for rank, index in enumerate(sorted(good, key=place), start=1)}


def _failure_text(tuning: Tuning) -> str:
    wrong = [row for row in tuning.rows if row.status is Status.WRONG]
    if wrong and all(row.checked for row in wrong):
        return f"No config of {tuning.kernel} agrees with the reference. The first: {wrong[0].reason}"
    seen = ", ".join(sorted({str(row.status) for row in tuning.rows})) or "none given"
    first = next((row.reason for row in tuning.rows if row.reason), "")
    return f"No config of {tuning.kernel} works ({seen}). The first says: {first}"


_COLUMNS = {"config", "status", "time_ms", *_NOT_STORED}


@dataclass(frozen=True, slots=True)
class Records:
    """The stored measurements of a kernel for one kind of launch on one kind of device.

    New rows get ``version_id``. Reads go by ``key`` alone, so that a new version of the decorators (another list of
    configs) still finds them.
    """

    history: History
    version_id: int
    key: str
    device: str

    def add(self, rows: Sequence[Row]) -> None:
        """Append rows and commit them; rows without a measurement (NOT_TIMED) are skipped."""
        kept = [measurement_of(row, self.key, self.device) for row in rows if row.status is not Status.NOT_TIMED]
        if kept:
            self.history.add_measurements(self.version_id, kept)

    def latest_rows(self) -> dict[Config, Row]:
        """Return the latest row of each config that was measured under this key, with its output group."""
        latest: dict[str, Row] = {}
        for entry in self.history.measurements(key=self.key):
            row = row_of(entry.measurement)
            if row is None:
                continue
            before = latest.get(row.config.key)
            if before is not None and not row.group:  # equal outputs stay known
                row = replace(row, group=before.group, apart=before.apart, outputs=row.outputs or before.outputs)
            latest[row.config.key] = row
        return {row.config: row for row in latest.values()}


def measurement_of(row: Row, key: str, device: str) -> Measurement:
    """Return a row as a measurement under a key, taken on a model of device."""
    details = {f.name: getattr(row, f.name) for f in fields(row) if f.name not in _COLUMNS}
    return Measurement(key, row.config.stored, device, str(row.status), row.time_ms, details)


def row_of(measurement: Measurement) -> Row | None:
    """Return the row of a measurement; None if it is not from a tuning."""
    names = {f.name for f in fields(Row)} - _COLUMNS
    if "standing" not in measurement.details:
        return None
    details = {name: value for name, value in measurement.details.items() if name in names}
    config = Config.from_stored(measurement.config)
    return Row(config, Status(measurement.status), time_ms=measurement.time_ms, **details)
