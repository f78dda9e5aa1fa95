"""The gate for upgrades: the stored winners of a lab compiled, compared, and on a GPU timed again.

What is timed are suspect winners and a sample of the others, with their neighbours, by the verbs that tune. The kept
times decide what is noise, as in `lab.regressions`. Where another config wins, the tuning stores its launch, so that
exports and later tunings take it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernellab._triton import VERSION, version_order
from kernellab._triton.kernel import jit_function
from kernellab.errors import KernellabError, UsageError, plural
from kernellab.explain.snapshot import NOT_KEPT, keeps_integers
from kernellab.registry import Session, config_words, recorded_grid, regenerated_inputs, values_of
from kernellab.registry.calls import has_gpu
from kernellab.registry.kept_times import MARGIN, kept_times
from kernellab.registry.regressions import FASTEST, TimeChange, changed_times
from kernellab.source import CONFIG_OPTIONS
from kernellab.timing.config import Config
from kernellab.timing.launches import Launches
from kernellab.tune.options import Options
from kernellab.tune.verbs import tune_and_launch
from kernellab.upgrade.comparison import first_parting
from kernellab.upgrade.recompiling import (
    LaunchKey,
    LaunchToCompile,
    OpenSession,
    RecompiledLaunch,
    compile_elsewhere,
    recompile_all,
)
from kernellab.upgrade.result import RepeatedTiming, Upgrade, UpgradeOutcome, UpgradeRow, compared_row, in_order
from kernellab.upgrade.winners import Winner, stored_winners

SAMPLE_STEP = 10
"""Of the winners without a reason, each tenth is timed as well."""


def upgrade_of(
    open_session: OpenSession, from_version: str | None, python: str | Path | None, *, times: bool = True
) -> Upgrade:
    """Compile the stored winners of a lab under the installed Triton, and compare them with what was kept.

    Raises:
        UsageError: the store has no launch of ``from_version``, or the other Python cannot compile them.
    """
    session = open_session(None)
    store = session.kernels.store
    winners = stored_winners(store, VERSION, from_version)
    elsewhere: dict[LaunchKey, RecompiledLaunch] = {}
    if python is not None and winners:
        if store.path is None:
            raise UsageError("python compiles a store in a folder, and this one is in memory; name its folder.")
        elsewhere = compile_elsewhere(python, store.path.parent, winners)
    compiled = iter(recompile_all(open_session, [launch for winner in winners for launch in _launches_of(winner)]))
    rows, indices = list[UpgradeRow](), list[tuple[int, Winner]]()
    for winner in winners:
        indices.append((len(rows), winner))
        rows += _rows_of(winner, compiled, elsewhere.get((winner.version.id, winner.digest)))
    if times and has_gpu(session):
        chosen, by_index = rows_to_time(rows), dict(indices)
        rows = [retimed_row(session, by_index[i], row) if i in chosen else row for i, row in enumerate(rows)]
    before = tuple(sorted({row.before.triton for row in rows if row.before is not None}, key=version_order))
    return Upgrade(in_order(rows), before, VERSION, str(store.path or ""), tuple(_notes(rows)))


def _launches_of(winner: Winner) -> list[LaunchToCompile]:
    """The launch of a winner, and those of its neighbours."""
    configs = [{}, *(neighbour.config for neighbour in winner.neighbours)]
    return [LaunchToCompile(winner.version, winner.launch, config) for config in configs]


def _rows_of(winner: Winner, compiled: Iterator[RecompiledLaunch], other: RecompiledLaunch | None) -> list[UpgradeRow]:
    """The row of a winner, and of each neighbour; ``compiled`` goes on with `_launches_of` the winner."""
    now = next(compiled)
    parting = None if other is None or not other.stages or not now.stages else first_parting(other.stages, now.stages)
    before, label, sizes = winner.before, winner.version.label, winner.sizes
    if other is not None and (before is None or not before.has_code):
        before = other.snapshot
    rows = [compared_row(label, sizes, winner.config, before, now.snapshot, parting)]
    for neighbour, after in zip(winner.neighbours, compiled, strict=False):
        words = config_words(neighbour.config)
        rows.append(compared_row(label, sizes, words, neighbour.before, after.snapshot, is_winner=False))
    return rows


def _notes(rows: Sequence[UpgradeRow]) -> Iterator[str]:
    winners = [row for row in rows if row.is_winner]
    if resources := sum(row.basis == "resources" for row in winners):
        words = f"Of {plural(resources, 'winner')}, resources alone were kept"
        yield f"{words}; --python with the Python of that Triton compares instructions, traffic and time, too."
    if assumed := sum(any("assumed" in sentence for sentence in row.after.unknown) for row in winners):
        yield f"Of {plural(assumed, 'winner')}, trip counts are assumed; their predicted times are rough."


def rows_to_time(rows: Sequence[UpgradeRow]) -> set[int]:
    """The indices of winners to time: all suspects, and of the others the first and each tenth after it."""
    outcomes = {i: row.outcome for i, row in enumerate(rows) if row.is_winner}
    others = [i for i, outcome in outcomes.items() if outcome is UpgradeOutcome.SAME]
    return {i for i, outcome in outcomes.items() if outcome is UpgradeOutcome.SUSPECT} | set(others[::SAMPLE_STEP])


def retimed_row(session: Session, winner: Winner, row: UpgradeRow) -> UpgradeRow:
    """A row with the times of its winner on this machine's GPU; without kept times, with the reason."""
    if winner.measured is None:
        reason = "no time of it was kept"
    elif not keeps_integers(winner.launch):  # others are drawn instead, such as bounds of segments: other work
        reason = NOT_KEPT
    else:
        try:
            return replace(row, retimed=_time_again(session, winner, winner.measured))
        except KernellabError as error:
            reason = error.message
    return replace(row, retimed=RepeatedTiming(TimeChange.INCOMPARABLE, None, reason=reason))


def _time_again(session: Session, winner: Winner, measured: Mapping[str, Any]) -> RepeatedTiming:
    since = time.time()
    kernel = session.bind(jit_function(session.kernels[winner.version.id]))
    arguments = regenerated_inputs(winner.launch, "cuda")
    constants = {n: v for n, v in values_of(winner.launch).items() if n not in {*measured, *CONFIG_OPTIONS}}
    formula = recorded_grid(session.kernels.store, winner.version)
    grid = winner.launch.grid if formula is None else formula.grid_for
    configs = [Config.from_stored(values).to_triton() for values in _configs(winner, measured)]
    launches = Launches(kernel, grid, (), {**arguments, **constants}, session.target)
    tuning = tune_and_launch(session, launches, Options(configs=configs, fresh=True))
    best = "" if tuning.winner is None else tuning.rows[tuning.winner].config.text
    own = Config.from_stored(measured).text
    changes = changed_times(kept_times(session.kernels.store, winner.version.name), since, MARGIN)
    best = "" if best == own else best
    change = next((change for change in changes if change.config == own and change.after is not None), None)
    change = change or next((change for change in changes if change.config == FASTEST), None)
    if change is None:
        return RepeatedTiming(TimeChange.INCOMPARABLE, None, best)
    return RepeatedTiming(change.became, change.ratio, best, change.reason)


def _configs(winner: Winner, measured: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The winner's config and those of its neighbours that set the same parameters."""
    names = set(measured).difference(CONFIG_OPTIONS)
    near = (n.config for n in winner.neighbours if names <= n.config.keys())
    return [measured, *({n: v for n, v in config.items() if n in {*names, *CONFIG_OPTIONS}} for config in near)]
