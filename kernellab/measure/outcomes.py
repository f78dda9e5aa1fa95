"""What becomes of something that was to be measured, in the words that all tables share."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from kernellab.compile.types import Compiled
from kernellab.errors import CheckFailed, KernellabError, UsageError, WorkerTimeout


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
INTEGER_COLUMNS = (*OPTION_COLUMNS, "samples", "registers", "spill_bytes", "shared_bytes", "rank")
NUMBER_COLUMNS = ("time_ms", "low_ms", "high_ms", "cold_ms", "compile_s", "occupancy", "gbps", "tflops")


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
