"""The result of a benchmark: a row per point and implementation, as a tidy table; and its progress.

Each row has work, times, and its share of the ceilings, and is stored as a measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

from kernellab.benchmark.spec import BenchmarkSpec, Formula, ImplementationSpec, table_value
from kernellab.checking.reference import call_by_name
from kernellab.compile.types import Compiled
from kernellab.display import Drawable
from kernellab.errors import KernellabError, UsageError, plural, value_text
from kernellab.source import INTEGER_OPTIONS
from kernellab.store import Measurement
from kernellab.store.columns import OUTCOME_COLUMNS, Status
from kernellab.timing.config import Config
from kernellab.timing.launches import Implementation, KernelLaunch, arithmetic, moved_bytes
from kernellab.timing.outcome import (
    OutcomeRow,
    cell_value,
    fields_of_record,
    rate_columns,
    reason_of,
    require_frame_of,
    status_of,
    time_columns,
    with_types,
)
from kernellab.timing.provenance import Ceilings, key_of
from kernellab.timing.stopwatch import ratio_interval
from kernellab.timing.timer import Clocks
from kernellab.workers.forks_and_interrupts import cached_property, import_uninterrupted

if TYPE_CHECKING:
    import pandas

Bound = Literal["memory", "compute"]
MORE_COLUMNS = (
    "speedup",
    "speedup_low",
    "speedup_high",
    "bytes",
    "flops",
    "fp_ops",
    "intensity",
    "share",
    "bound",
    "dot_dtype",
    "clock_mhz",
    "temperature_c",
)
PROVENANCE_COLUMNS = ("device", "driver", "target", "triton", "torch", "created")
_INTEGERS = ("bytes", "flops", "fp_ops", "clock_mhz", "temperature_c")
_WORK = ("flops", "bytes", "fp_ops", "intensity", "dot_dtype")
_ATTRIBUTES = ("kernel", "swept", "implementations", "reference", "seconds", "notes", "ceilings")
_NUMBERS = ("speedup", "speedup_low", "speedup_high", "intensity", "share")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkRow(OutcomeRow):
    """One implementation at one point.

    ``bytes`` are moved by a launch, ``flops`` computed by its dots: by formula, or from the kernel; a function takes
    those of the kernel. ``fp_ops`` counts other floating-point operations. ``intensity`` is in flops per byte.
    ``speedup`` is the reference's time over this one, by pairs of the same round. ``share`` is the reached share of
    the nearer ceiling of the device, ``bound`` which ceiling that is. ``clock_mhz`` and ``temperature_c`` are those of
    the device while it was timed.
    """

    point: tuple[tuple[str, Any], ...]
    implementation: str
    options: Mapping[str, int | None] = field(default_factory=dict)
    rank: int | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    bytes: int | None = None
    flops: int | None = None
    fp_ops: int | None = None
    intensity: float | None = None
    share: float | None = None
    bound: Bound | None = None
    dot_dtype: str | None = None
    clock_mhz: int | None = None
    temperature_c: int | None = None
    created: float = 0.0

    @property
    def cold_ms(self) -> float | None:
        """The time again: all times are with a flushed L2."""
        return self.time_ms


@dataclass(frozen=True, repr=False)
class Benchmark(Drawable):
    """The result of a benchmark.

    ``swept`` are the names of the columns that were swept, ``implementations`` the names of what was measured, the
    kernel itself first. ``reference`` is what outputs were compared with and what ``speedup`` relates to, "" where
    there was but one implementation. ``ceilings`` are those of the device, None where there is no GPU. ``clocks``
    relate times of functions to those of kernels, at each point where both were timed.
    """

    kernel: str
    swept: tuple[str, ...]
    implementations: tuple[str, ...]
    reference: str
    rows: tuple[BenchmarkRow, ...]
    seconds: float
    ceilings: Ceilings | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    clocks: tuple[Clocks, ...] = ()

    def __repr__(self) -> str:
        """One line; the rows are in `frame`."""
        timed = sum(row.time_ms is not None for row in self.rows)
        over, names = ", ".join(self.swept), ", ".join(self.implementations)
        return f"<Benchmark of {self.kernel} over {over}: {timed} of {plural(len(self.rows), 'row')} timed ({names})>"

    @cached_property
    def frame(self) -> pandas.DataFrame:
        """One row per point and implementation: what was swept, then the columns of `Tuning.frame`, then shares.

        ``attrs`` has the kernel, the names of what was swept, the reference, the ceilings, the provenance, and the
        ``clocks``: point, entry, ratio, low, high and rounds of each reference entry.
        """
        pd = import_uninterrupted("pandas")

        parameters = dict.fromkeys(name for row in self.rows if row.config for name, _ in row.config.parameters)
        own = [name for name in (*parameters, *INTEGER_OPTIONS) if name not in self.swept]
        columns = [*self.swept, "implementation", *own, *OUTCOME_COLUMNS, *MORE_COLUMNS, *PROVENANCE_COLUMNS]
        frame = pd.DataFrame([_record(self, row, own) for row in self.rows], columns=columns)
        frame = with_types(frame, self.swept, _INTEGERS, _NUMBERS)
        frame = frame.astype({name: "Int64" for name in (*self.swept, *parameters) if _holds_integers(frame[name])})
        frame["created"] = pd.to_datetime(frame["created"].astype(float), unit="s", utc=True)
        frame.attrs.update(
            {
                "kernel": self.kernel,
                "swept": list(self.swept),
                "implementations": list(self.implementations),
                "reference": self.reference,
                "seconds": self.seconds,
                "notes": list(self.notes),
                "clocks": [{**asdict(clocks), "point": dict(clocks.point)} for clocks in self.clocks],
                **self.provenance,
                "ceilings": None if self.ceilings is None else self.ceilings.as_dict(),
            }
        )
        return frame

    @classmethod
    def from_frame(cls, frame: pandas.DataFrame) -> Benchmark:
        """Return the benchmark that a `frame` is of: to draw or save one that `kernellab.read_frame` has read.

        Raises:
            UsageError: it is not a frame of a benchmark.
        """
        require_frame_of("benchmark", frame, _ATTRIBUTES)
        attrs, columns = frame.attrs, list(frame.columns)
        swept, own = attrs["swept"], columns[columns.index("implementation") + 1 : columns.index("status")]
        rows = []
        for record in frame.to_dict("records"):
            values = {name: cell_value(record[name]) for name in own if name not in INTEGER_OPTIONS}
            row = BenchmarkRow(
                config=Config(tuple(values.items())) if any(value is not None for value in values.values()) else None,
                **fields_of_record(BenchmarkRow, record),
                point=tuple((name, cell_value(record[name])) for name in swept),
                implementation=record["implementation"],
                options={name: cell_value(record[name]) for name in own if name in INTEGER_OPTIONS},
                **{name: cell_value(record.get(name)) for name in MORE_COLUMNS},
                created=record["created"].timestamp(),
            )
            rows.append(row)
        ceilings, clocks = attrs["ceilings"], attrs.get("clocks", ())
        return cls(
            kernel=attrs["kernel"],
            swept=tuple(swept),
            implementations=tuple(attrs["implementations"]),
            reference=attrs["reference"],
            rows=tuple(rows),
            seconds=attrs["seconds"],
            ceilings=None if ceilings is None else Ceilings(**ceilings),
            provenance={name: value for name, value in attrs.items() if name not in {*_ATTRIBUTES, "clocks"}},
            notes=tuple(attrs["notes"]),
            clocks=tuple(Clocks(**{**entry, "point": tuple(entry["point"].items())}) for entry in clocks),
        )


def join_benchmarks(benchmarks: Sequence[Benchmark]) -> Benchmark:
    """Join benchmarks of one kernel over different cases into one; there is at least one."""
    first = benchmarks[0]
    return replace(
        first,
        rows=tuple(row for benchmark in benchmarks for row in benchmark.rows),
        seconds=sum(benchmark.seconds for benchmark in benchmarks),
        notes=tuple(dict.fromkeys(note for benchmark in benchmarks for note in benchmark.notes)),
        clocks=tuple(clocks for benchmark in benchmarks for clocks in benchmark.clocks),
    )


def _holds_integers(column: pandas.Series[Any]) -> bool:
    """Whether all values of a column are integers, apart from missing ones."""
    values = column.dropna()
    return len(values) > 0 and all(not isinstance(value, bool | str) and int(value) == value for value in values)


def _record(benchmark: Benchmark, row: BenchmarkRow, own: list[str]) -> dict[str, Any]:
    config = {} if row.config is None else dict(row.config.parameters)
    measured = {f.name: getattr(row, f.name) for f in fields(row) if f.name not in {"point", "config", "options"}}
    origin = {name: benchmark.provenance.get(name) for name in PROVENANCE_COLUMNS if name != "created"}
    options = {name: row.options.get(name) for name in own if name in INTEGER_OPTIONS}
    parameters = {name: config.get(name) for name in own if name not in INTEGER_OPTIONS}
    measured |= {name: getattr(row, name) for name in OUTCOME_COLUMNS} | {"status": str(row.status)}
    return {**dict(row.point), **parameters, **options, **measured, **origin}


Stage = Literal["inputs", "compiling", "points", "done"]


@dataclass(frozen=True, slots=True)
class BenchmarkProgress:
    """The progress of a benchmark.

    First, inputs are made and ``compiled`` of ``kernels`` are compiled; then ``done`` of ``total`` points are measured.
    ``point`` is the current one, in words; ``latest`` has the times of the one before.
    """

    kernel: str
    stage: Stage
    total: int = 0
    done: int = 0
    compiled: int = 0
    kernels: int = 0
    point: str = ""
    latest: str = ""


Watch = Callable[[BenchmarkProgress], None]
Progress = Callable[[str], AbstractContextManager[Watch]]


def ignore_progress(progress: BenchmarkProgress) -> None:
    """Ignore the progress of a benchmark."""


def point_words(case: Mapping[str, Any]) -> str:
    """Return the values of a point: ``n=1024, dtype=float16``."""
    return ", ".join(f"{name}={table_value(value)}" for name, value in case.items())


def outcome_words(case: Mapping[str, Any], rows: Sequence[BenchmarkRow]) -> str:
    """Return the fastest time of each implementation at a point, the fastest first; "" where nothing was timed."""
    best: dict[str, float] = {}
    for row in rows:
        if row.time_ms is not None:
            best[row.implementation] = min(row.time_ms, best.get(row.implementation, row.time_ms))
    times = ", ".join(f"{name} {best[name]:.4g} ms" for name in sorted(best, key=best.__getitem__))
    return ": ".join(filter(None, [point_words(case), times])) if times else ""


@dataclass(slots=True)
class ImplementationState:
    """An implementation at a case while it is measured; it is out once its row has a status."""

    asked: ImplementationSpec
    row: BenchmarkRow
    launch: KernelLaunch | None = None
    compiled: Compiled | None = None
    implementation: Implementation | None = None

    @property
    def is_in(self) -> bool:
        """Whether it is still measured."""
        return self.row.status is Status.OK

    def drop(self, status: Status, reason: str) -> None:
        """Take it out, with the status and reason of its row."""
        self.row = replace(self.row, status=status, reason=reason)

    @contextmanager
    def dropped_on_errors(self) -> Iterator[None]:
        """Take it out where the body of a with statement raises one of the lab's errors."""
        try:
            yield
        except KernellabError as exc:
            self.drop(status_of(exc), reason_of(exc))


def enter_work(
    spec: BenchmarkSpec, case: Mapping[str, Any], arguments: Mapping[str, Any], states: Sequence[ImplementationState]
) -> list[str]:
    """Enter bytes and flops of each row: by formula, else by its kernel; a function takes those of the first kernel.

    Returns notes on unknown figures of kernels.
    """
    notes = []
    available = {**arguments, **case}
    flops = _formula_value(spec.flops, available, "flops") if arguments else None
    moved = _formula_value(spec.bytes, available, "bytes") if arguments else None
    first: BenchmarkRow | None = None
    for state in sorted(states, key=lambda state: state.launch is None):
        if state.launch is not None and state.compiled is not None:
            counted = arithmetic(state.launch, state.compiled)
            own = moved_bytes(state.launch.arguments, state.compiled) if moved is None else moved
            computed = counted.dot_flops if flops is None else flops
            state.row = replace(
                state.row,
                flops=computed,
                bytes=own,
                fp_ops=counted.elementwise,
                intensity=computed / own if computed is not None and own else None,
                dot_dtype=counted.main_dot,
            )
            name = state.row.implementation
            if computed is None:
                notes.append(f"The flops of {name} are not known: {counted.why_unknown}; pass flops=.")
            if own is None:
                notes.append(f"The bytes of {name} are not known, since one of its effects is not; pass bytes=.")
            first = first or state.row
        elif state.launch is None:
            source = first or replace(state.row, flops=flops, bytes=moved)
            state.row = replace(state.row, **{name: getattr(source, name) for name in _WORK})
    return notes


def with_times(
    rows: Sequence[BenchmarkRow], times: Sequence[Sequence[float]], *, has_reference: bool
) -> list[BenchmarkRow]:
    """Return rows with their times and ranks, from 1; with a reference, speedups relate to the first row."""
    timed = [i for i, samples in enumerate(times) if samples and rows[i].status is Status.OK]
    columns = {index: time_columns(times[index]) for index in timed}
    timed_rows = list(rows)
    for rank, index in enumerate(sorted(timed, key=lambda i: columns[i]["time_ms"]), start=1):
        ratio = ratio_interval(times[0], times[index]) if has_reference else None
        timed_rows[index] = replace(
            rows[index],
            **columns[index],
            samples=len(times[index]),
            rank=rank,
            speedup=None if ratio is None else ratio.median,
            speedup_low=None if ratio is None else ratio.low,
            speedup_high=None if ratio is None else ratio.high,
        )
    return timed_rows


def with_rates(row: BenchmarkRow, ceilings: Ceilings | None) -> BenchmarkRow:
    """Return a row with its rates and the share of the nearer roofline ceiling."""
    if row.time_ms is None:
        return row
    row = replace(row, **rate_columns(row.time_ms, row.bytes, row.flops))
    shares: dict[Bound, float] = {}
    if ceilings is not None and row.gbps is not None:
        shares["memory"] = row.gbps / ceilings.memory_gbps
    roof = None if ceilings is None or row.dot_dtype is None else ceilings.tflops.get(row.dot_dtype)
    if roof and row.tflops is not None:
        shares["compute"] = row.tflops / roof
    bound = max(shares, key=shares.__getitem__, default=None)
    return row if bound is None else replace(row, share=shares[bound], bound=bound)


def _formula_value(formula: Formula, available: Mapping[str, Any], name: str) -> int | None:
    if formula is None:
        return None
    value: Any = call_by_name(formula, available, name) if callable(formula) else formula
    is_number = isinstance(value, Real)  # of numpy too
    if not is_number or not 0 <= value < float("inf"):
        raise UsageError(f"{name} gives {value_text(value)}; expected a number that is not negative.")
    return int(value)


_FIELDS_OUTSIDE_DETAILS = {"point", "config", "options", "status", "time_ms"}


def measurements_of(
    rows: Sequence[BenchmarkRow], peers: Sequence[str], provenance: Mapping[str, Any]
) -> list[Measurement]:
    """Return the rows of a case as measurements for the history, without those that were not measured.

    The kernel's own rows come last, since the listing of kernels shows the latest.
    """
    return [
        Measurement(
            key=key_of(
                {
                    "bench": row.implementation,
                    "point": dict(row.point),
                    **{name: provenance.get(name) for name in ("device", "driver", "target", "triton")},
                }
            ),
            config={
                **(dict(row.config.parameters) if row.config is not None else {}),
                **{name: value for name, value in row.options.items() if value is not None},
            },
            device=str(provenance.get("device") or ""),
            status=str(row.status),
            time_ms=row.time_ms,
            details={
                **{f.name: getattr(row, f.name) for f in fields(row) if f.name not in _FIELDS_OUTSIDE_DETAILS},
                **{f"over.{name}": value for name, value in row.point},
            },
        )
        for row in sorted(rows, key=lambda row: row.implementation not in peers)
        if row.status is not Status.NOT_TIMED
    ]
