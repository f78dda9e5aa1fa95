"""The figures of a row: work, times, how close they come to the ceilings; and the row as a measurement to keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from numbers import Real
from typing import Any, Protocol

from kernellab.benchmark.result import BenchmarkRow, Bound
from kernellab.benchmark.spec import BenchmarkSpec, Formula
from kernellab.compile.types import Compiled
from kernellab.errors import UsageError
from kernellab.ir.arithmetic import Arithmetic
from kernellab.measure.ceilings import Ceilings
from kernellab.measure.config import Status
from kernellab.measure.launches import KernelLaunch, arithmetic, moved_bytes
from kernellab.measure.provenance import key_of
from kernellab.measure.reference import called
from kernellab.measure.statistics import interval, ratio_interval
from kernellab.store import Measurement


class Prepared(Protocol):
    """A row with the launch that it stands for; None of both for a function."""

    row: BenchmarkRow
    launch: KernelLaunch | None
    compiled: Compiled | None


def with_work(
    spec: BenchmarkSpec, case: Mapping[str, Any], arguments: Mapping[str, Any], states: Sequence[Prepared]
) -> list[str]:
    """Enter what each row moves and computes: by formula, else as its kernel tells; a function as the first kernel.

    Returned is, in words, what is not known of a kernel, and why.
    """
    notes = []
    available = {**arguments, **case}
    flops = _of_formula(spec.flops, available, "flops") if arguments else None
    moved = _of_formula(spec.bytes, available, "bytes") if arguments else None
    first: BenchmarkRow | None = None
    for state in sorted(states, key=lambda state: state.launch is None):
        if state.launch is not None and state.compiled is not None:
            counted = arithmetic(state.launch, state.compiled)
            own = moved_bytes(state.launch.arguments, state.compiled) if moved is None else moved
            state.row = _of_kernel(state.row, counted, own, flops)
            notes += _unknowns(state.row, counted)
            first = first or state.row
        elif state.launch is None:
            given = first or replace(state.row, flops=flops, bytes=moved)
            state.row = replace(
                state.row,
                flops=given.flops,
                bytes=given.bytes,
                fp_ops=given.fp_ops,
                intensity=given.intensity,
                dot_dtype=given.dot_dtype,
            )
    return notes


def rows_of_times(
    rows: Sequence[BenchmarkRow], times: Sequence[Sequence[float]], *, has_reference: bool
) -> list[BenchmarkRow]:
    """Return rows with their times and ranks, from 1; where it is the reference, speedups relate to the first."""
    medians = [interval(samples) if samples else None for samples in times]
    known = [i for i, each in enumerate(medians) if each is not None and rows[i].status is Status.OK]
    order = sorted(known, key=lambda i: medians[i].median)  # type: ignore[union-attr]
    found = list(rows)
    for place, index in enumerate(order, start=1):
        timed, ratio = medians[index], ratio_interval(times[0], times[index]) if has_reference else None
        assert timed is not None, "only those with times have a rank"
        found[index] = replace(
            rows[index],
            time_ms=timed.median,
            low_ms=timed.low,
            high_ms=timed.high,
            samples=len(times[index]),
            rank=place,
            speedup=None if ratio is None else ratio.median,
            speedup_low=None if ratio is None else ratio.low,
            speedup_high=None if ratio is None else ratio.high,
        )
    return found


def rated(rows: Sequence[BenchmarkRow], ceilings: Ceilings | None) -> list[BenchmarkRow]:
    """Return rows with their rates, and the share of the nearer ceiling."""
    return [_rated(row, ceilings) for row in rows]


def _rated(row: BenchmarkRow, ceilings: Ceilings | None) -> BenchmarkRow:
    if row.time_ms is None:
        return row
    gbps = row.bytes / row.time_ms / 1e6 if row.bytes else None
    tflops = row.flops / row.time_ms / 1e9 if row.flops else None
    shares: dict[Bound, float] = {}
    if ceilings is not None and gbps is not None:
        shares["memory"] = gbps / ceilings.memory_gbps
    roof = None if ceilings is None or row.dot_dtype is None else ceilings.tflops.get(row.dot_dtype)
    if roof and tflops is not None:
        shares["compute"] = tflops / roof
    if not shares:
        return replace(row, gbps=gbps, tflops=tflops)
    bound = max(shares, key=lambda name: shares[name])
    return replace(row, gbps=gbps, tflops=tflops, share=shares[bound], bound=bound)


def _of_kernel(row: BenchmarkRow, counted: Arithmetic, moved: int | None, flops: int | None) -> BenchmarkRow:
    flops = counted.dot_flops if flops is None else flops
    return replace(
        row,
        flops=flops,
        bytes=moved,
        fp_ops=counted.elementwise,
        intensity=flops / moved if flops is not None and moved else None,
        dot_dtype=counted.main_dot,
    )


def _unknowns(row: BenchmarkRow, counted: Arithmetic) -> list[str]:
    notes = []
    if row.flops is None:
        notes.append(f"What {row.implementation} computes is not known: {counted.why_unknown}; flops= tells it.")
    if row.bytes is None:
        notes.append(f"What {row.implementation} moves is not known, since an effect of it is not; bytes= tells it.")
    return notes


def _of_formula(formula: Formula, available: Mapping[str, Any], name: str) -> int | None:
    if formula is None:
        return None
    value: Any = called(formula, available, name) if callable(formula) else formula
    is_number = isinstance(value, Real)  # of numpy too
    if not is_number or not 0 <= value < float("inf"):
        raise UsageError(f"{name} gives {value!r}; expected a number that is not negative.")
    return int(value)


_LEFT_OUT = {"point", "config", "options", "status", "time_ms"}


def measurements_of(
    rows: Sequence[BenchmarkRow], peers: Sequence[str], provenance: Mapping[str, Any]
) -> list[Measurement]:
    """Return what the history keeps of the rows of a case; what was not measured is left out.

    Those of the kernel itself come last, since the listing of kernels shows the latest.
    """
    return [
        Measurement(
            key=_key(row, provenance),
            config=_config(row),
            device=str(provenance.get("device") or ""),
            status=str(row.status),
            time_ms=row.time_ms,
            details=_details(row),
        )
        for row in sorted(rows, key=lambda row: row.implementation not in peers)
        if row.status is not Status.NOT_TIMED
    ]


def _key(row: BenchmarkRow, provenance: Mapping[str, Any]) -> str:
    named = {"bench": row.implementation, "point": dict(row.point)}
    return key_of({**named, **{name: provenance.get(name) for name in ("device", "driver", "target", "triton")}})


def _config(row: BenchmarkRow) -> dict[str, Any]:
    parameters = {} if row.config is None else dict(row.config.parameters)
    return {**parameters, **{name: value for name, value in row.options.items() if value is not None}}


def _details(row: BenchmarkRow) -> dict[str, Any]:
    found = {f.name: getattr(row, f.name) for f in fields(row) if f.name not in _LEFT_OUT}
    return {**found, **{f"over.{name}": value for name, value in row.point}}
