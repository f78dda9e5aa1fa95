"""The outcome of a config: its statuses, and the columns of it that the store keeps and tables show."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import NoneType
from typing import Literal


class Status(StrEnum):
    """The outcome of a config, or of an implementation at a point.

    ``ok``: timed, and not refuted. ``pruned``: skipped by a pruning function, or since it spills. ``cannot_run``: it
    exceeds a limit of the GPU, such as shared memory. ``compile_error``: the compiler refused it. ``fault``: a launch
    failed, such as by an illegal access. ``timeout``: a launch took longer than the limit. ``wrong``: its outputs
    differ from a reference. ``differs``: its outputs differ from those of most configs, which need not be right.
    ``not_timed``: not measured for lack of a GPU or of time.
    """

    OK = "ok"
    PRUNED = "pruned"
    CANNOT_RUN = "cannot_run"
    COMPILE_ERROR = "compile_error"
    FAULT = "fault"
    TIMEOUT = "timeout"
    WRONG = "wrong"
    DIFFERS = "differs"
    NOT_TIMED = "not_timed"


STATUSES = {str(status): status for status in Status}
UNMEASURED = frozenset({Status.PRUNED, Status.NOT_TIMED})

ColumnType = Literal["string", "string or null", "integer", "integer or null", "number or null"]
_STORED_TYPES: dict[ColumnType, tuple[type, ...]] = {
    "string": (str,),
    "string or null": (str, NoneType),
    "integer": (int,),
    "integer or null": (int, NoneType),
    "number or null": (int, float, NoneType),
}


@dataclass(frozen=True, slots=True)
class Column:
    """The type of a column in JSON, and its meaning."""

    type: ColumnType
    meaning: str


OUTCOME_COLUMNS = {
    "status": Column(
        "string", " or ".join(f"`{status}`" for status in STATUSES).replace(" or ", ", ", len(STATUSES) - 2)
    ),
    "reason": Column("string", "why it is not `ok`"),
    "time_ms": Column("number or null", "the median, with a flushed L2; null where it was not timed"),
    "low_ms": Column("number or null", "the lower bound of the median, with 99 % confidence"),
    "high_ms": Column("number or null", "the upper bound"),
    "samples": Column("integer", "how often it was timed"),
    "cold_ms": Column("number or null", "the median with a flushed L2, of a finalist"),
    "compile_s": Column("number or null", "seconds of its compile"),
    "registers": Column("integer or null", "of a thread"),
    "spill_bytes": Column("integer or null", "of a thread"),
    "shared_bytes": Column("integer or null", "of a block"),
    "occupancy": Column("number or null", "the theoretical share of resident warps, 0 to 1"),
    "limiter": Column("string or null", "what bounds the occupancy"),
    "gbps": Column("number or null", "GB/s, if each byte that the kernel needs moves once"),
    "tflops": Column("number or null", "TFLOP/s of its dots"),
    "rank": Column("integer or null", "from 1; null where it does not count"),
}
"""The columns of an outcome by name, in the order of the tables."""

PREDICTED_COLUMNS = {
    "predicted_ms": Column("number or null", "the predicted time; null where the config was measured"),
    "predicted_low_ms": Column("number or null", "the lower bound, which four of five recorded times respect"),
    "predicted_high_ms": Column("number or null", "the upper bound"),
}
"""The columns of a tuning that nothing measured, which the store does not keep."""

BITS_COLUMNS = {
    "bits": Column("string or null", "the class of configs with equal bits in all outputs, from A; null without it")
}
"""The columns of a tuning by equal bits, which the store does not keep."""

# A measurement has two of the columns as fields of its own, and a rank follows from the other rows.
_NO_DETAILS = {"status", "time_ms", "rank"}
ROW_DETAILS: dict[str, tuple[type, ...]] = {
    **{name: _STORED_TYPES[column.type] for name, column in OUTCOME_COLUMNS.items() if name not in _NO_DETAILS},
    **dict.fromkeys(("standing", "tuning", "checked", "group", "outputs", "apart"), _STORED_TYPES["string"]),
    "warm_ms": _STORED_TYPES["number or null"],
    "device_index": _STORED_TYPES["integer or null"],
}
"""The types of the details of a row of a tuning: its columns, and what later tunings need of it."""
