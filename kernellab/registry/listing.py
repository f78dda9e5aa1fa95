"""What the store knows of each version, in one row; and a version that was brought back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernellab.store import LaunchRow, Store, Version


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One version. Times are seconds since 1970, but ``best_ms``; ``where`` tells what that was measured on.

    ``config`` is the best config that was measured, else the one of the last launch, in words; ``launches`` counts all,
    and ``runs`` the trials by `Lab.run`, which are none.
    """

    id: int
    label: str
    cell: str
    created: float
    launches: int = 0
    runs: int = 0
    last_launch: float | None = None
    config: str = ""
    best_ms: float | None = None
    where: str = ""
    tags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Listing:
    """The versions that a search found: by how well their names match, then by name and number. ``now`` is when.

    After a removal, ``removed`` are the labels of what is gone, and the rows what is left under the same names.
    """

    rows: tuple[VersionRow, ...]
    search: str = ""
    now: float = 0.0
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Loaded:
    """A version that was brought back: the names it was given in the namespace, and what of it could not be."""

    row: VersionRow
    source: str
    names: tuple[str, ...]
    missing: tuple[str, ...] = ()


def listing(store: Store, now: float, search: str = "", only: tuple[int, ...] | None = None) -> Listing:
    """Return the versions whose name, tags, notes or source contain ``search``; of these, the ids of ``only``.

    Those that are called so come first, then those whose name begins so, then those whose name contains it.
    """
    found = [version for version in store.versions(search) if only is None or version.id in only]
    found.sort(key=lambda version: _distance(version.name.lower(), search.lower()))
    tags = store.tags()
    launches: dict[int, list[LaunchRow]] = {}
    for row in store.history.launches():
        launches.setdefault(row.version_id, []).append(row)
    rows = (_row(store, version, launches.get(version.id, []), tags.get(version.id, ())) for version in found)
    return Listing(tuple(rows), search, now)


def _distance(name: str, search: str) -> int:
    return [name == search, name.startswith(search), search in name, True].index(True)


def _row(store: Store, version: Version, launches: list[LaunchRow], tags: tuple[str, ...]) -> VersionRow:
    by_user = [row for row in launches if row.launch.by == "launch"]
    last = by_user[-1] if by_user else None
    best = store.history.best(version.id)
    if best is not None:
        config, best_ms, where = config_words(best.config), best.time_ms, best.device
    else:
        timed = [row for row in by_user if row.launch.where == "gpu" and row.seconds is not None]
        fastest = min(timed, key=lambda row: row.seconds or 0.0, default=None)
        shown = fastest or last or (launches[-1] if launches else None)
        config = shown.launch.config if shown else ""
        best_ms = None if fastest is None or fastest.seconds is None else fastest.seconds * 1e3
        where = fastest.launch.device if fastest else shown.launch.where if shown else ""
    return VersionRow(
        id=version.id,
        label=version.label,
        cell=version.cell,
        created=version.created,
        launches=sum(row.count for row in by_user),
        runs=sum(row.count for row in launches if row.launch.by == "run"),
        last_launch=last.last if last else None,
        config=config,
        best_ms=best_ms,
        where=where,
        tags=tags,
        notes=tuple(store.notes(version.id)),
    )


def config_words(config: Mapping[str, Any]) -> str:
    """Return a config in words: ``BLOCK=128, num_warps=4``."""
    return ", ".join(f"{name}={value}" for name, value in config.items() if value is not None)
