"""The outcome of a config or of another implementation, as a row of a table: its fields, and what they follow from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from kernellab.compile.types import Compiled
from kernellab.errors import CheckFailed, KernellabError, UsageError, WorkerTimeout
from kernellab.source import INTEGER_OPTIONS
from kernellab.store.columns import OUTCOME_COLUMNS, Status
from kernellab.timing.config import Config
from kernellab.timing.stopwatch import interval

if TYPE_CHECKING:
    import pandas

NO_GPU = "not measured: there is no GPU"


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """The outcome of a config, or of an implementation, for which ``config`` may be None.

    ``time_ms`` is the median of ``samples`` launches with a flushed L2, ``low_ms`` and ``high_ms`` bound it. Unknown
    fields are None.
    """

    config: Config | None
    status: Status
    reason: str = ""
    time_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    samples: int = 0
    compile_s: float | None = None
    registers: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None
    occupancy: float | None = None
    limiter: str | None = None
    gbps: float | None = None
    tflops: float | None = None


def record_of(row: OutcomeRow, config: Config, parameters: Sequence[str]) -> dict[str, Any]:
    """Return the frame row of a config's outcome, by column, without its rank."""
    values = dict(config.parameters)
    return {
        **{name: values.get(name) for name in parameters},
        **{name: getattr(config, name) for name in INTEGER_OPTIONS if name not in parameters},
        **{name: getattr(row, name) for name in OUTCOME_COLUMNS if name != "rank"},
        "status": str(row.status),
    }


def cell_value(value: Any) -> Any:
    """Return a cell of a frame as a Python value; None where it is missing."""
    if value is None or str(value) in {"<NA>", "nan", "NaT"}:
        return None
    return value.item() if hasattr(value, "item") else value


def fields_of_record(row: type[OutcomeRow], record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a type of row that are columns of an outcome, from a row of a frame.

    A frame that an earlier release saved lacks columns: their fields are None.
    """
    names = {field.name for field in fields(row)} & OUTCOME_COLUMNS.keys() - {"status", "reason", "samples"}
    return {
        **{name: cell_value(record.get(name)) for name in names},
        "status": Status(record["status"]),
        "reason": cell_value(record["reason"]) or "",
        "samples": cell_value(record.get("samples")) or 0,
    }


def require_frame_of(kind: str, frame: pandas.DataFrame, attributes: Iterable[str]) -> None:
    """Check that a frame has the columns and attributes of a result's frame.

    Raises:
        UsageError: it has not.
    """
    missing = [name for name in ("status", "reason", "time_ms") if name not in frame.columns]
    missing += [f'attrs["{name}"]' for name in attributes if name not in frame.attrs]
    if missing:
        raise UsageError(f"This is not a frame of a {kind}: it lacks {', '.join(missing)}.")


def with_types(
    frame: pandas.DataFrame, others: Collection[str], integers: Sequence[str] = (), numbers: Sequence[str] = ()
) -> pandas.DataFrame:
    """Set the dtypes of the columns of outcomes and of some more, except columns named in ``others``."""
    own = [name for name, column in OUTCOME_COLUMNS.items() if column.type.startswith("integer")]
    whole = [name for name in (*INTEGER_OPTIONS, *own, *integers) if name in frame and name not in others]
    floats = [name for name, column in OUTCOME_COLUMNS.items() if column.type.startswith("number")]
    return frame.astype({**dict.fromkeys(whole, "Int64"), **dict.fromkeys((*floats, *numbers), "float64")})


def status_of(exc: KernellabError) -> Status:
    """Return the status of a row from the error of its launch."""
    if isinstance(exc, WorkerTimeout):
        return Status.TIMEOUT
    if isinstance(exc, CheckFailed):
        return Status.WRONG
    return Status.CANNOT_RUN if isinstance(exc, UsageError) else Status.FAULT


def reason_of(exc: KernellabError) -> str:
    """Return an error's message with its source line, as one line of text."""
    text = " ".join(exc.message.split())
    return text if exc.place is None else f"{text} (line {exc.place.line})"


def time_columns(samples: Sequence[float], seed: int = 0) -> dict[str, Any]:
    """Return the columns of a row that samples in ms fill: their median and its interval."""
    times = interval(samples, seed)
    return {"time_ms": times.median, "low_ms": times.low, "high_ms": times.high}


def rate_columns(time_ms: float | None, moved: int | None, flops: int | None) -> dict[str, Any]:
    """Return the columns of the rates of a launch that moves bytes and computes flops; None where these are unknown."""
    return {
        "gbps": moved / time_ms / 1e6 if moved and time_ms else None,
        "tflops": flops / time_ms / 1e9 if flops and time_ms else None,
    }


def resource_columns(compiled: Compiled) -> dict[str, Any]:
    """Return the columns of a row that a compile fills: its seconds and the kernel's resources."""
    names = ("registers", "spill_bytes", "shared_bytes", "occupancy", "limiter")
    return {"compile_s": compiled.seconds, **{name: getattr(compiled.resources, name) for name in names}}
