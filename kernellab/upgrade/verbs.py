"""The gate: the stored winners of a lab compiled, compared, and on a GPU timed again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from kernellab._triton import VERSION
from kernellab.errors import UsageError, plural
from kernellab.registry import Session, config_words
from kernellab.registry.calls import has_gpu
from kernellab.store import Snapshot
from kernellab.upgrade.other_python import LaunchKey, compile_elsewhere
from kernellab.upgrade.recompiling import LaunchToCompile, OpenSession, RecompiledLaunch, recompile_all
from kernellab.upgrade.result import Upgrade, UpgradeRow, compared_row, in_order
from kernellab.upgrade.stages import first_parting
from kernellab.upgrade.winners import Winner, stored_winners


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
    elsewhere = _compile_elsewhere(store.path, python, winners)
    compiled = iter(recompile_all(open_session, [launch for winner in winners for launch in _launches_of(winner)]))
    rows, indices = list[UpgradeRow](), list[tuple[int, Winner]]()
    for winner in winners:
        indices.append((len(rows), winner))
        rows += _rows_of(winner, compiled, elsewhere.get((winner.version.id, winner.digest)))
    if times and has_gpu(session):
        rows = _with_times(session, rows, indices)
    before = tuple(sorted({row.before.triton for row in rows if row.before is not None}))
    notes = tuple(_notes(rows))
    return Upgrade(in_order(rows), before, VERSION, str(store.path or ""), notes)


def _compile_elsewhere(
    path: Path | None, python: str | Path | None, winners: Sequence[Winner]
) -> dict[LaunchKey, RecompiledLaunch]:
    if python is None or not winners:
        return {}
    if path is None:
        raise UsageError("python compiles a store in a folder, and this one is in memory; name its folder.")
    return compile_elsewhere(python, path.parent, winners)


def _launches_of(winner: Winner) -> list[LaunchToCompile]:
    """The launch of a winner, and those of its neighbours."""
    configs = [{}, *(neighbour.config for neighbour in winner.neighbours)]
    return [LaunchToCompile(winner.version, winner.launch, config) for config in configs]


def _rows_of(winner: Winner, compiled: Iterator[RecompiledLaunch], other: RecompiledLaunch | None) -> list[UpgradeRow]:
    """The row of a winner, and of each neighbour; ``compiled`` goes on with `_launches_of` the winner."""
    now = next(compiled)
    parting = None if other is None or not other.stages or not now.stages else first_parting(other.stages, now.stages)
    label, sizes = winner.version.label, winner.sizes
    rows = [compared_row(label, sizes, winner.config, _before(winner.before, other), now.snapshot, parting)]
    for neighbour, after in zip(winner.neighbours, compiled, strict=False):
        words = config_words(neighbour.config)
        rows.append(compared_row(label, sizes, words, neighbour.before, after.snapshot, is_winner=False))
    return rows


def _before(kept: Snapshot | None, other: RecompiledLaunch | None) -> Snapshot | None:
    """The kept snapshot of a compile, or that of the other Python where the kept one has no code."""
    if other is None or (kept is not None and kept.has_code):
        return kept
    return other.snapshot


def _with_times(session: Session, rows: list[UpgradeRow], winners: Sequence[tuple[int, Winner]]) -> list[UpgradeRow]:
    from kernellab.upgrade.retiming import retimed_row, rows_to_time  # without a GPU, nothing of it is needed

    chosen, by_index = rows_to_time(rows), dict(winners)
    return [retimed_row(session, by_index[i], row) if i in chosen else row for i, row in enumerate(rows)]


def _notes(rows: Sequence[UpgradeRow]) -> list[str]:
    winners = [row for row in rows if row.is_winner]
    resources = sum(row.basis == "resources" for row in winners)
    notes = []
    if resources:
        words = f"Of {plural(resources, 'winner')}, resources alone were kept"
        notes.append(f"{words}; --python with the Python of that Triton compares instructions, traffic and time, too.")
    assumed = sum(any("assumed" in sentence for sentence in row.after.unknown) for row in winners)
    if assumed:
        notes.append(f"Of {plural(assumed, 'winner')}, trip counts are assumed; their predicted times are rough.")
    return notes
