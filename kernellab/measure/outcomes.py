"""What becomes of something that was to be measured, in the words and columns that all tables share."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from kernellab.compile.types import Compiled
from kernellab.errors import CheckFailed, KernellabError, UsageError, WorkerTimeout
from kernellab.measure.config import Config

if TYPE_CHECKING:
    import pandas


class Status(StrEnum):
    """What became of a config, or of an implementation at a point.

    ``pruned`` is one that was left out for the reason given: by a pruning function, or since it spills. ``not_timed``
    is one that was not measured for want of a GPU or of time. ``wrong`` is one whose outputs differ from a reference;
    ``differs`` one that ran well, and whose outputs are not those of most configs, which need not be the right ones.
    """

    OK = "ok"
    PRUNED = "pruned"
    NOT_TIMED = "not_timed"
    CANNOT_RUN = "cannot_run"
    COMPILE_ERROR = "compile_error"
    FAULT = "fault"
    TIMEOUT = "timeout"
    WRONG = "wrong"
    DIFFERS = "differs"


UNMEASURED = frozenset({Status.PRUNED, Status.NOT_TIMED})
NO_GPU = "not measured: there is no GPU"
OPTION_COLUMNS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
OUTCOME_COLUMNS = (
    "status",
    "reason",
    "time_ms",
    "low_ms",
    "high_ms",
    "samples",
    "cold_ms",
    "compile_s",
    "registers",
    "spill_bytes",
    "shared_bytes",
    "occupancy",
    "limiter",
    "gbps",
    "tflops",
    "rank",
)
_INTEGERS = (*OPTION_COLUMNS, "samples", "registers", "spill_bytes", "shared_bytes", "rank")
_NUMBERS = ("time_ms", "low_ms", "high_ms", "cold_ms", "compile_s", "occupancy", "gbps", "tflops")


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """What became of a config, or of an implementation, which need not have one.

    ``time_ms`` is the median of ``samples`` launches with a flushed L2, ``low_ms`` and ``high_ms`` bound it. What is
    not known is None.
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
    """Return what a frame says of the outcome of a config, by column, but for its rank."""
    values = dict(config.parameters)
    return {
        **{name: values.get(name) for name in parameters},
        **{name: getattr(config, name) for name in OPTION_COLUMNS if name not in parameters},
        **{name: getattr(row, name) for name in OUTCOME_COLUMNS if name != "rank"},
        "status": str(row.status),
    }


def with_types(
    frame: pandas.DataFrame, others: Collection[str], integers: Sequence[str] = (), numbers: Sequence[str] = ()
) -> pandas.DataFrame:
    """Return a frame whose columns of outcomes, and some more, have their types; ``others`` are called like options."""
    whole = {name: "Int64" for name in (*_INTEGERS, *integers) if name in frame and name not in others}
    return frame.astype({**whole, **dict.fromkeys((*_NUMBERS, *numbers), "float64")})


def status_of(exc: KernellabError) -> Status:
    """Return what an error of a launch in a bench makes of its row."""
    if isinstance(exc, WorkerTimeout):
        return Status.TIMEOUT
    if isinstance(exc, CheckFailed):
        return Status.WRONG
    return Status.CANNOT_RUN if isinstance(exc, UsageError) else Status.FAULT


def reason_of(exc: KernellabError) -> str:
    """Return a message with its source line, in one line of text."""
    text = " ".join(exc.message.split())
    return text if exc.place is None else f"{text} (line {exc.place.line})"


def resources_of(compiled: Compiled) -> dict[str, Any]:
    """Return what a compile tells of a row: its seconds, and the resources of the kernel, by the names of columns."""
    resources = compiled.resources
    return {
        "compile_s": compiled.seconds,
        "registers": resources.registers,
        "spill_bytes": resources.spill_bytes,
        "shared_bytes": resources.shared_bytes,
        "occupancy": resources.occupancy,
        "limiter": resources.limiter,
    }
