"""The row of a config at each step of a tuning: compiled, failed, timed."""

from __future__ import annotations

from dataclasses import replace

from kernellab.compile.types import Compiled
from kernellab.errors import KernellabError
from kernellab.store.columns import Status
from kernellab.timing.bench_jobs import LaunchTimes
from kernellab.timing.config import Config
from kernellab.timing.launches import Implementation, Launches, arithmetic, moved_bytes
from kernellab.timing.outcome import reason_of, resource_columns, status_of
from kernellab.timing.stopwatch import interval
from kernellab.tune.result import Row

MOST_SPILLED_BYTES = 256
"""A generated config that spills more bytes per thread is not measured while others are left.

Inductor's limit is 16 registers, and does not apply to user kernels, of which some are fastest with spills
(torch/_inductor/runtime/triton_heuristics.py): so all configs of a user's list are measured.
"""


def unmeasured_row(config: Config, result: Compiled | KernellabError, *, may_spill: bool) -> Row:
    """Return the row of a config that is not measured yet."""
    if isinstance(result, KernellabError):
        return Row(config, Status.COMPILE_ERROR, reason_of(result))
    resources = result.resources
    row = Row(config, Status.NOT_TIMED, **resource_columns(result))
    if not resources.fits:
        return replace(row, status=Status.CANNOT_RUN, reason=resources.why_not or "it does not fit the target")
    if not may_spill and (resources.spill_bytes or 0) > MOST_SPILLED_BYTES:
        return replace(row, status=Status.PRUNED, reason=f"it spills {resources.spill_bytes} bytes per thread")
    return row


def failure_row(candidate: Implementation, error: KernellabError) -> Row:
    """Return the row of a config with a failed launch."""
    return Row(candidate.config, status_of(error), reason_of(error), **resource_columns(candidate.kernel))


def rated_row(row: Row, moved: int | None, flops: int | None) -> Row:
    """Return a row with its rates, from the bytes and operations of a launch; None where these are unknown."""
    return replace(
        row,
        gbps=moved / row.time_ms / 1e6 if moved and row.time_ms else None,
        tflops=flops / row.time_ms / 1e9 if flops and row.time_ms else None,
    )


def timed_row(launches: Launches, candidate: Implementation, measured: LaunchTimes) -> Row:
    """Return the row of a measured config: its median time with an interval and rates, or its difference as WRONG."""
    row = Row(candidate.config, Status.OK, **resource_columns(candidate.kernel))
    row = replace(row, checked=reference_identity(launches), outputs=joined_names(launches.outputs))
    if not measured.times_ms:
        return replace(row, status=Status.WRONG, reason=measured.difference)
    median = interval(measured.times_ms)
    samples = len(measured.times_ms)
    row = replace(row, time_ms=median.median, low_ms=median.low, high_ms=median.high, samples=samples)
    return row_with_rates(row, candidate)


def row_with_rates(row: Row, candidate: Implementation) -> Row:
    """Return a row with its rates, from the bytes and operations of its launch where these are known."""
    launch, compiled = candidate.kernel_launch, candidate.kernel
    return rated_row(row, moved_bytes(launch.arguments, compiled), arithmetic(launch, compiled).dot_flops)


def reference_identity(launches: Launches) -> str:
    """Return the identity of the reference and the compared outputs; "" without a reference."""
    if launches.reference is None:
        return ""
    return " ".join(filter(None, (launches.reference.identity, joined_names(launches.outputs))))


def joined_names(outputs: frozenset[str] | None) -> str:
    """Return names of outputs as rows store them: sorted, with commas; "" for none."""
    return ",".join(sorted(outputs or ()))
