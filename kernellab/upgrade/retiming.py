"""On a GPU: suspect winners and a sample of the others timed again with their neighbours, by the verbs that tune.

The kept times decide what is noise, as in `lab.regressions`. Where another config wins, the tuning stores its launch,
so that exports and later tunings take it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from kernellab._triton.kernel import jit_function
from kernellab.errors import KernellabError
from kernellab.explain.snapshot import NOT_KEPT, keeps_integers
from kernellab.registry import Session, grid_text, recorded_version, regenerated_inputs, values_of
from kernellab.registry.kept_times import MARGIN, kept_times
from kernellab.registry.regressions import FASTEST, TimeChange, changed_times
from kernellab.source import CONFIG_OPTIONS
from kernellab.timing.config import Config
from kernellab.timing.launches import Launches
from kernellab.tune.options import Options
from kernellab.tune.verbs import tune_and_launch
from kernellab.upgrade.result import RepeatedTiming, UpgradeOutcome, UpgradeRow
from kernellab.upgrade.winners import Winner

SAMPLE_STEP = 10
"""Of the winners without a reason, each tenth is timed as well."""


def rows_to_time(rows: Sequence[UpgradeRow]) -> set[int]:
    """The indices of winners to time: all suspects, and of the others the first and each tenth after it."""
    suspects = {i for i, row in enumerate(rows) if row.is_winner and row.outcome is UpgradeOutcome.SUSPECT}
    others = [i for i, row in enumerate(rows) if row.is_winner and row.outcome is UpgradeOutcome.SAME]
    return suspects | set(others[::SAMPLE_STEP])


def retimed_row(session: Session, winner: Winner, row: UpgradeRow) -> UpgradeRow:
    """A row with the times of its winner on this machine's GPU; without kept times, with the reason."""
    if winner.measured is None:
        return replace(row, retimed=RepeatedTiming(TimeChange.INCOMPARABLE, None, reason="no time of it was kept"))
    if not keeps_integers(winner.launch):  # others are drawn instead, such as bounds of segments: other work
        return replace(row, retimed=RepeatedTiming(TimeChange.INCOMPARABLE, None, reason=NOT_KEPT))
    try:
        return replace(row, retimed=_time_again(session, winner, winner.measured))
    except KernellabError as error:
        return replace(row, retimed=RepeatedTiming(TimeChange.INCOMPARABLE, None, reason=error.message))


def _time_again(session: Session, winner: Winner, measured: Mapping[str, Any]) -> RepeatedTiming:
    since = time.time()
    kernel = session.bind(jit_function(session.kernels[winner.version.id]))
    arguments = regenerated_inputs(winner.launch, "cuda")
    constants = {n: v for n, v in values_of(winner.launch).items() if n not in {*measured, *CONFIG_OPTIONS}}
    formula = grid_text(recorded_version(session.kernels.store, winner.version).launches)
    grid = winner.launch.grid if formula is None else partial(_grid, formula.grid_for)
    configs = [Config.from_stored(values).to_triton() for values in _configs(winner, measured)]
    launches = Launches(kernel, grid, (), {**arguments, **constants}, session.target)
    tuning = tune_and_launch(session, launches, Options(configs=configs, fresh=True))
    best = "" if tuning.winner is None else tuning.rows[tuning.winner].config.text
    own = Config.from_stored(measured).text
    changes = changed_times(kept_times(session.kernels.store, winner.version.name), since, MARGIN)
    change = next((change for change in changes if change.config == own and change.after is not None), None)
    change = change or next((change for change in changes if change.config == FASTEST), None)
    became = TimeChange.INCOMPARABLE if change is None else change.became
    ratio, reason = (None, "") if change is None else (change.ratio, change.reason)
    return RepeatedTiming(became, ratio, "" if best == own else best, reason)


def _grid(grid_for: Any, arguments: Mapping[str, Any]) -> Any:
    return grid_for(arguments)


def _configs(winner: Winner, measured: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The winner's config and those of its neighbours that set the same parameters."""
    names = set(measured) - set(CONFIG_OPTIONS)
    options = set(CONFIG_OPTIONS)
    near = (n.config for n in winner.neighbours if names <= set(n.config))
    return [measured, *({name: v for name, v in config.items() if name in names | options} for config in near)]
