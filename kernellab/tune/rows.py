"""The row of a config at each step of a tuning: compiled, failed, timed, or predicted where nothing times it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from kernellab.compile.cache import Compiler
from kernellab.compile.types import Compiled
from kernellab.errors import KernellabError, UsageError
from kernellab.explain.facts import MAY_MISS_LONGEST
from kernellab.store.columns import Status
from kernellab.timing.bench_jobs import LaunchTimes
from kernellab.timing.config import Config
from kernellab.timing.launches import Implementation, Launches, arithmetic, implementation_of, moved_bytes
from kernellab.timing.outcome import rate_columns, reason_of, resource_columns, status_of, time_columns
from kernellab.tune.finals import Final
from kernellab.tune.predicted_search import PredictRows
from kernellab.tune.result import Row, Tuning

if TYPE_CHECKING:
    from kernellab.explain.prediction import Prediction

PredictAll = Callable[[Sequence[Implementation]], "list[Prediction | KernellabError]"]
"""Predicts the times of compiled launches, side by side; an error takes the place of a time."""
MOST_SPILLED_BYTES = 256
"""A generated config that spills more bytes per thread is not measured while others are left.

Inductor's limit is 16 registers, and does not apply to user kernels, of which some are fastest with spills
(torch/_inductor/runtime/triton_heuristics.py): so all configs of a user's list are measured.
"""


@dataclass(slots=True)
class Predictor:
    """Predicts the times of compiled configs on a ``device``; ``notes`` say why some have none or are uncertain."""

    predict: PredictAll
    notes: list[str] = field(default_factory=list)
    device: str = ""
    _known: dict[Config, Prediction] = field(default_factory=dict)
    _is_refused: bool = False

    def predicted_rows(self, rows: Sequence[Row], candidates: Sequence[Implementation]) -> list[Row]:
        """Return rows with their predicted times, or as they are where none can be predicted.

        After a target whose times cannot be predicted, no more are tried.
        """
        waiting = {c.config: c for c in candidates if c.config not in self._known and not self._is_refused}
        for config, outcome in zip(waiting, self.predict([*waiting.values()]) if waiting else (), strict=True):
            if isinstance(outcome, KernellabError):
                self._is_refused |= isinstance(outcome, UsageError)
                self.notes += [outcome.message] if outcome.message not in self.notes else []
            else:
                self.device, self._known[config] = outcome.device, outcome
                self.notes += [note for note in outcome.unknown if note == MAY_MISS_LONGEST and note not in self.notes]
        known = ((row, self._known.get(row.config)) for row in rows)
        return [row if prediction is None else with_prediction(row, prediction) for row, prediction in known]


def with_prediction(row: Row, prediction: Prediction) -> Row:
    """Return a row with a predicted time and its interval."""
    return replace(
        row, predicted_ms=prediction.time_ms, predicted_low_ms=prediction.low_ms, predicted_high_ms=prediction.high_ms
    )


def row_predictor(launches: Launches, compiler: Compiler, predictor: Predictor, *, may_spill: bool) -> PredictRows:
    """Return a function that compiles configs side by side, and predicts the time of each that fits."""

    def predict_rows(configs: Sequence[Config]) -> dict[Config, Row]:
        rows: dict[Config, Row] = {}
        fitting: list[Implementation] = []
        for index, result in compiler.stream([partial(launches.job, config) for config in configs]):
            config = configs[index]
            rows[config] = row = unmeasured_row(config, result, may_spill=may_spill)
            if isinstance(result, Compiled) and not row.reason:
                fitting.append(implementation_of(launches, config, result, index))
        predicted = predictor.predicted_rows([rows[candidate.config] for candidate in fitting], fitting)
        return rows | {row.config: row for row in predicted}

    return predict_rows


def with_left_rows(tuning: Tuning, left: Mapping[Config, Row], launches: Launches) -> Tuning:
    """Return a tuning with the rows that were compiled and not measured, after those that were."""
    asked = {row.config for row in tuning.rows}
    added = {config: row for config, row in left.items() if config not in asked}
    configs = (*tuning.configs, *map(launches.original, added))
    return replace(tuning, rows=(*tuning.rows, *added.values()), configs=configs)


def predicted_final(rows: Mapping[Config, Row]) -> Final:
    """Return the decision between configs that fit and were not timed: the least predicted time, else the first.

    Those that agree with a reference come first. Configs tie whose intervals overlap that of the winner.
    """
    checked = {config: row for config, row in rows.items() if row.checked} or rows
    predicted = {config: row for config, row in checked.items() if row.predicted_ms is not None}
    if not predicted:
        return Final(next(iter(checked), None), ())
    winner = min(predicted, key=lambda config: (predicted[config].predicted_ms or 0.0, predicted[config].resources))
    high_ms = predicted[winner].predicted_high_ms or 0.0
    ties = [c for c, row in predicted.items() if c != winner and (row.predicted_low_ms or 0.0) <= high_ms]
    return Final(winner, tuple(ties))


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


def timed_row(launches: Launches, candidate: Implementation, measured: LaunchTimes) -> Row:
    """Return the row of a measured config: its median time with an interval and rates, or its difference as WRONG."""
    row = Row(candidate.config, Status.OK, **resource_columns(candidate.kernel))
    row = replace(row, checked=reference_identity(launches), outputs=joined_names(launches.outputs))
    if not measured.times_ms:
        return replace(row, status=Status.WRONG, reason=measured.difference)
    row = replace(row, samples=len(measured.times_ms), **time_columns(measured.times_ms))
    return row_with_rates(row, candidate)


def row_with_rates(row: Row, candidate: Implementation) -> Row:
    """Return a row with its rates, from the bytes and operations of its launch where these are known."""
    launch, compiled = candidate.kernel_launch, candidate.kernel
    moved, flops = moved_bytes(launch.arguments, compiled), arithmetic(launch, compiled).dot_flops
    return replace(row, **rate_columns(row.time_ms, moved, flops))


def reference_identity(launches: Launches) -> str:
    """Return the identity of the reference and the compared outputs; "" without a reference."""
    if launches.reference is None:
        return ""
    return " ".join(filter(None, (launches.reference.identity, joined_names(launches.outputs))))


def joined_names(outputs: frozenset[str] | None) -> str:
    """Return names of outputs as rows store them: sorted, with commas; "" for none."""
    return ",".join(sorted(outputs or ()))
