"""Versions as listings need them: by columns and aggregates, without source and without most of their launches."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from kernellab.source import parse_json, require, require_type
from kernellab.store.database import Database
from kernellab.store.decoding import LATEST, require_moment, require_seconds

Ids = Collection[int] | None
"""The versions that a query is for; None for all."""

_MOST_LAUNCHES = 2**53
_LAUNCH = "CASE WHEN json_valid(launch) THEN launch END"
_IS_LAUNCH = "kind IN ('gpu', 'launch')"
_CONSTEXPRS = (  # the arguments as JSON: SQLite would round large numbers
    f"(SELECT json_group_array(json(value)) FROM json_each({_LAUNCH}, '$.arguments') "
    "WHERE CASE type WHEN 'object' THEN json_extract(value, '$.constexpr') END)"
)
_CLOSURE = "CASE WHEN json_valid(closure) THEN closure END"


@dataclass(frozen=True, slots=True)
class Outline:
    """A version without its source; see `Version`. ``notebook`` is "" where the cell names none."""

    id: int
    name: str
    version: int
    notebook: str
    cell: str
    created: float

    @property
    def label(self) -> str:
        """The name and the number: ``softmax@2``."""
        return f"{self.name}@{self.version}"


@dataclass(frozen=True, slots=True)
class Use:
    """The launches of a version in numbers.

    ``last`` is when it was launched, run or compiled last, ``last_launch`` when the user launched it last; ``launches``
    and ``runs`` count launches, and trials by `Lab.run`. ``was_run`` also holds where no run was counted.
    """

    last: float | None = None
    last_launch: float | None = None
    launches: int = 0
    runs: int = 0
    was_run: bool = False

    @property
    def is_compile_alone(self) -> bool:
        """Whether nothing was launched or run."""
        return self.last_launch is None and not self.was_run


UNUSED = Use()


@dataclass(frozen=True, slots=True)
class LaunchOutline:
    """A launch without its signature and arguments; see `LaunchRow` and `RecordedLaunch`.

    ``constants`` are its integer constexprs and ``num_warps``, by name.
    """

    version_id: int
    is_launch: bool
    config: str
    where: str
    device: str
    constants: Mapping[str, int | None]
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Overview:
    """Reads what is listed of versions. A query for all of them reads no source, and decodes no launch."""

    database: Database

    def outlines(self, search: str = "", ids: Ids = None) -> list[Outline]:
        """Return versions by name and number, with ``search`` in name, tags, notes or source."""
        condition, values = among("id", ids)
        if search:
            condition += (
                r" AND (name LIKE ? ESCAPE '\' OR closure LIKE ? ESCAPE '\' "
                r"OR id IN (SELECT version_id FROM tags WHERE tag LIKE ? ESCAPE '\') "
                r"OR id IN (SELECT version_id FROM notes WHERE note LIKE ? ESCAPE '\'))"
            )
            part, in_json = _pattern(search), _pattern(json.dumps(search)[1:-1])
            values += (part, in_json, part, part)
        query = f"SELECT id, name, version, cell, created FROM versions WHERE {condition} ORDER BY name, version"
        rows = self.database.rows(query, values)
        return self.database.read_rows("versions", rows, _outline)

    def numbers(self, prefix: str = "", most: int = _MOST_LAUNCHES) -> dict[str, list[int]]:
        """Return the newest ``most`` versions of each name whose labels begin with ``prefix``: numbers by name."""
        rows = self.database.rows(
            "SELECT name, version FROM (SELECT name, version, ROW_NUMBER() OVER (PARTITION BY name "
            "ORDER BY version DESC) AS late FROM versions WHERE substr(name || '@' || version, 1, length(?)) = ?) "
            "WHERE late <= ? ORDER BY name, version",
            (prefix, prefix, most),
        )
        by_name: dict[str, list[int]] = {}
        for name, number in rows:
            if isinstance(name, str) and isinstance(number, int):
                by_name.setdefault(name, []).append(number)
        return by_name

    def helpers(self) -> set[int]:
        """Return the versions whose kernel, name and text, is a helper of another one."""
        functions = f"json_each({_CLOSURE}, '$.closure[1]')"  # the tag of a tuple, the kernel, and its helpers
        rows = self.database.rows(
            f"SELECT id FROM versions WHERE (json_extract({_CLOSURE}, '$.closure[1][1][1]'), "
            f"json_extract({_CLOSURE}, '$.closure[1][1][3]')) IN (SELECT json_extract(value, '$[1]'), "
            f"json_extract(value, '$[3]') FROM versions, {functions} WHERE key > 1)"
        )
        return {number for (number,) in rows if isinstance(number, int)}

    def uses(self, ids: Ids = None) -> dict[int, Use]:
        """Return the use of each version that was ever launched, run or compiled, by its id."""
        condition, values = among("version_id", ids)
        rows: list[Any] = self.database.rows(
            f"SELECT version_id, MAX(last), MAX(CASE WHEN {_IS_LAUNCH} THEN last END), "
            f"SUM(CASE WHEN {_IS_LAUNCH} THEN count ELSE 0 END), SUM(CASE WHEN kind = 'run' THEN count ELSE 0 END), "
            f"MAX(kind = 'run') FROM launches WHERE {condition} AND last BETWEEN 0 AND ? AND count BETWEEN 0 AND ? "
            "GROUP BY version_id",
            (*values, LATEST, _MOST_LAUNCHES),
        )
        return {
            owner: Use(last, late, launches, runs, was_run == 1) for owner, last, late, launches, runs, was_run in rows
        }

    def telling_launches(self, ids: Collection[int]) -> dict[int, list[LaunchOutline]]:
        """Return the launches of some versions that a listing shows, by version, the latest last.

        They are the user's last one and fastest one on a GPU, and the last trial, or what never ran.
        """
        condition, values = among("versions.id", ids)
        orders = (
            f"{_IS_LAUNCH} ORDER BY last DESC, id DESC",
            f"NOT {_IS_LAUNCH} ORDER BY count > 0 DESC, last DESC, id DESC",
            "kind = 'gpu' AND seconds IS NOT NULL ORDER BY seconds, id",
        )
        shown = " UNION ALL ".join(
            f"SELECT (SELECT id FROM launches WHERE version_id = versions.id AND {order} LIMIT 1) "
            f"FROM versions WHERE {condition}"
            for order in orders
        )
        texts = ", ".join(f"json_extract({_LAUNCH}, '$.{name}')" for name in ("config", "where", "device"))
        rows: list[Any] = self.database.rows(
            f"SELECT id, version_id, json_valid(launch), {_IS_LAUNCH}, {texts}, {_CONSTEXPRS}, "
            f"json_extract({_LAUNCH}, '$.options.num_warps'), seconds FROM launches WHERE id IN ({shown}) "
            "ORDER BY last, id",
            values * len(orders),
        )
        by_version: dict[int, list[LaunchOutline]] = {}
        for row in self.database.read_rows("launches", rows, _launch_outline):
            by_version.setdefault(row.version_id, []).append(row)
        return by_version


def among(column: str, ids: Ids) -> tuple[str, tuple[str, ...]]:
    """Return a condition on a column with its values; as JSON, since a query takes a limited number of variables."""
    return ("1", ()) if ids is None else (f"{column} IN (SELECT value FROM json_each(?))", (json.dumps(list(ids)),))


def _pattern(text: str) -> str:
    escaped = text.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    return f"%{escaped}%"


def _outline(number: int, name: str, version: int, cell: str, created: float) -> Outline:
    require_type(cell, str, "its cell")
    notebook, _, cell = cell.rpartition(", ") if ".ipynb, " in cell else ("", "", cell)
    require_outline(name, version, created)
    return Outline(number, name, version, notebook, cell, created)


def _launch_outline(
    _: int,
    owner: int,
    is_json: int,
    is_launch: int,
    config: str | None,
    where: str,
    device: str | None,
    constexprs: str,
    num_warps: int | None,
    seconds: float | None,
) -> LaunchOutline:
    require(is_json == 1, "the launch", "no JSON", "a launch as JSON")
    config, device = ("" if text is None else text for text in (config, device))  # earlier releases wrote none
    for name, text in (("config", config), ("where", where), ("device", device)):
        require_type(text, str, name)
    require_type(num_warps, int | None, "num_warps")
    require_seconds(seconds, "seconds")
    sizes = {argument["name"]: argument["value"] for argument in parse_json(constexprs)}
    integers = {name: value for name, value in sizes.items() if type(name) is str and type(value) is int}
    return LaunchOutline(owner, is_launch == 1, config, where, device, {**integers, "num_warps": num_warps}, seconds)


def require_outline(name: str, version: int, created: float) -> None:
    """Raise `MalformedData` for a name, number or time that no version has."""
    require_type(name, str, "its name")
    require_type(version, int, "its number")
    require_moment(created, "created")
    require(version > 0, "its number", version, "a number from 1 on")
    require(0 < len(name) <= 200 and name.isprintable(), "its name", name, "a short text")
