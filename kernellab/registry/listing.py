"""The listing commands over kept kernels (list, search, define again, remove, tag), and the history as DataFrames."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kernellab.display import Displayable
from kernellab.errors import UsageError, choice_message
from kernellab.registry.versions import key_of
from kernellab.source import (
    Autotune,
    Binding,
    Closure,
    Constant,
    Constexpr,
    Dtype,
    FunctionRef,
    Helper,
    Heuristics,
    Import,
    Members,
    Opaque,
    is_name,
)
from kernellab.store import Argument, LaunchRow, Store, Version
from kernellab.workers.forks_and_interrupts import import_uninterrupted

if TYPE_CHECKING:
    from kernellab._triton.kernel import Kernel
    from kernellab.registry.kernels import Registry


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One version. Times are seconds since 1970; ``where`` is the device of ``best_ms``.

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
class Listing(Displayable):
    """The results of a search, best match of the name first, then by name and number. ``now`` is its time.

    After a removal, ``removed`` are the labels of what is gone, and the rows what is left under the same names.
    """

    rows: tuple[VersionRow, ...]
    search: str = ""
    now: float = 0.0
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadedVersion(Displayable):
    """A version loaded into a namespace: the names it got there, and the parts that are missing."""

    row: VersionRow
    source: str
    names: tuple[str, ...]
    missing: tuple[str, ...] = ()


def listing(store: Store, now: float, search: str = "", only: tuple[int, ...] | None = None) -> Listing:
    """The versions with ``search`` in their name, tags, notes or source; only those with ids in ``only``, if set.

    Those that are called so come first, then those whose name begins so, then those whose name contains it.
    """
    versions = [version for version in store.versions(search) if only is None or version.id in only]
    versions.sort(key=lambda version: _distance(version.name.lower(), search.lower()))
    tags = store.tags()
    launches: dict[int, list[LaunchRow]] = {}
    for row in store.history.launches():
        launches.setdefault(row.version_id, []).append(row)
    rows = (_row(store, version, launches.get(version.id, []), tags.get(version.id, ())) for version in versions)
    return Listing(tuple(rows), search, now)


def _distance(name: str, search: str) -> int:
    return [name == search, name.startswith(search), search in name, True].index(True)


def _row(store: Store, version: Version, launches: list[LaunchRow], tags: tuple[str, ...]) -> VersionRow:
    by_user = [row for row in launches if row.launch.is_launch]
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
    """A config in words: ``BLOCK=128, num_warps=4``."""
    return ", ".join(f"{name}={value}" for name, value in config.items() if value is not None)


def search(store: Store, text: str) -> Listing:
    """The stored versions with ``text`` in their name, tags, notes or source."""
    return listing(store, time.time(), text)


def listing_of_version(kernels: Registry, key: str) -> Listing:
    """The listing of one version.

    Raises:
        UnknownName: there is none.
    """
    return listing(kernels.store, time.time(), only=(kernels.version(key_of(key)).id,))


def define(kernels: Registry, key: str, namespace: dict[str, Any], name: str | None = None) -> LoadedVersion:
    """Define a stored kernel in a namespace, with those of its helpers whose names are free there.

    Raises:
        UnknownName: there is none.
        UsageError: ``name`` is not an identifier.
    """
    version = kernels.version(key_of(key))
    if not is_name(name or version.identifier):
        raise UsageError(f"{name!r} cannot name a kernel; expected an identifier.")
    kernel = kernels[version.id]
    defined = [name or version.identifier]
    namespace[defined[0]] = kernel
    for helper, function in _helpers(kernel, version.closure).items():
        if helper not in namespace:
            namespace[helper] = function
            defined.append(helper)
    (row,) = listing(kernels.store, time.time(), only=(version.id,)).rows
    return LoadedVersion(row, source_text(version), tuple(defined), tuple(_missing_parts(version.closure)))


def remove(kernels: Registry, keys: Sequence[str], *, all_versions: bool = False) -> Listing:
    """Delete versions; return the remaining ones of the same names.

    A bare name stands for the only version that a kernel has, or for each of them with ``all_versions``.

    Raises:
        UnknownName: there is no such version.
        UsageError: a bare name of a kernel with several versions, which says not which of them is meant.
    """
    meant = [label for key in keys for label in _labels_of(kernels, key, all_versions=all_versions)]
    key_by_id = {kernels.version(key_of(label)).id: key_of(label) for label in meant}
    gone = [kernels.remove(key) for key in key_by_id.values()]
    names = {version.name for version in gone}
    left = listing(kernels.store, time.time(), only=tuple(v.id for v in kernels if v.name in names))
    return replace(left, removed=tuple(version.label for version in gone))


def _labels_of(kernels: Registry, key: str, *, all_versions: bool) -> list[str]:
    versions = [version.label for version in kernels if version.name == key]
    if key.isdecimal() or "@" in key or not versions:
        return [key]
    if len(versions) > 1 and not all_versions:
        raise UsageError(
            f"%triton_rm {key} does not say which version; name one of {', '.join(versions)}, or add --all."
        )
    return versions


def tag(kernels: Registry, key: str, tags: Sequence[str], note: str | None = None, *, off: bool = False) -> None:
    """Add tags to a version, or remove them; store a note with it.

    Raises:
        UnknownName: there is no such version.
    """
    number = kernels.version(key_of(key)).id
    if off:
        kernels.store.untag(number, tags)
    else:
        kernels.store.tag(number, tags)
    if note:
        kernels.store.note(number, note.strip("\"'"))


def source_text(version: Version) -> str:
    """The source of the kernel as written, with its decorators."""
    return version.closure.decorators + version.closure.functions[0].text


def texts_of(version: Version) -> list[str]:
    """The texts of a version: captured plain values, the kernel, its helpers."""
    _, *helpers = version.closure.functions
    values = {f"{name} = {text}": None for f in version.closure.functions for name, text in _captured_texts(f.bindings)}
    return list(filter(None, ["\n".join(values), source_text(version).rstrip(), *(f.text for f in helpers)]))


def _captured_texts(bindings: Iterable[tuple[str, Binding]]) -> Iterator[tuple[str, str]]:
    """Captured names with their values as text, those in members of uninstalled modules, too."""
    for name, binding in bindings:
        if isinstance(binding, Members):
            yield from ((f"{name}.{member}", text) for member, text in _captured_texts(binding.members))
        elif not isinstance(binding, FunctionRef | Helper | Import | Opaque):
            yield name, _value_text(binding)


def _value_text(binding: Binding) -> str:
    match binding:
        case Constexpr(inner):
            return f"tl.constexpr({_value_text(inner)})"
        case Constant(value):
            return repr(value)
        case Dtype(name):
            return f"tl.{name}"
        case _:
            return str(binding)


def _helpers(kernel: Kernel, closure: Closure) -> dict[str, Any]:
    """The helpers in the kernel's own code, by their names there."""
    from kernellab._triton.kernel import is_jit_function, jit_function  # what only lists loads no Triton

    scope = jit_function(kernel).fn.__globals__
    return {name: scope[name] for name, _ in closure.functions[0].bindings if is_jit_function(scope.get(name))}


def _missing_parts(closure: Closure) -> list[str]:
    """The parts of the decorators that could not be stored."""
    missing = []
    for wrapper in closure.wrappers:
        if isinstance(wrapper, Heuristics):
            missing += [f"the heuristic of {name}" for name, value in wrapper.values if isinstance(value, Opaque)]
        elif isinstance(wrapper, Autotune):
            arguments = [*wrapper.arguments, *wrapper.prune_configs_by]
            missing += [f"{name} of the autotuner" for name, value in arguments if isinstance(value, Opaque)]
            if any(isinstance(config.pre_hook, Opaque) for config in wrapper.configs):
                missing.append("pre_hook of a config")
    return missing


TABLES = ("kernels", "launches", "measurements")
SCHEMA = 1
Row = dict[str, Any]


def frame(store: Store, table: str) -> Any:
    """A table of the store as a DataFrame. Times are in UTC; nested values are JSON.

    Raises:
        UsageError: there is no such table.
    """
    pd = import_uninterrupted("pandas")

    if table not in TABLES:
        raise UsageError(choice_message("table", table, TABLES))
    rows = list(_ROWS[table](store))
    table_frame = pd.DataFrame(rows, columns=None if rows else _COLUMNS[table])
    for name in ("created", "last"):
        if name in table_frame:
            table_frame[name] = pd.to_datetime(table_frame[name].astype(float), unit="s", utc=True)
    table_frame.attrs = {"table": table, "schema": SCHEMA, "store": str(store.path or ":memory:")}
    return table_frame


def _kernels(store: Store) -> Iterator[Row]:
    for row in listing(store, 0.0).rows:
        name, _, version = row.label.rpartition("@")
        values = (row.id, name, int(version), row.cell, row.created, row.launches, row.last_launch, row.config)
        yield dict(zip(_COLUMNS["kernels"], (*values, row.best_ms, row.where, ", ".join(row.tags)), strict=True))


def _launches(store: Store) -> Iterator[Row]:
    labels = {version.id: version.label for version in store.versions()}
    for row in store.history.launches():
        launch = row.launch
        yield {
            "id": row.id,
            "kernel": labels.get(row.version_id),
            **{name: getattr(launch, name) for name in ("by", "where", "device", "target")},
            "grid": json.dumps(launch.grid),
            "arguments": json.dumps({a.name: _argument_data(a) for a in launch.arguments}, default=str),
            "options": json.dumps(dict(launch.options), sort_keys=True),
            "config": launch.config,
            **{name: getattr(row, name) for name in ("seconds", "count", "created", "last")},
        }


def _argument_data(argument: Argument) -> object:
    if argument.kind == "tensor":
        return {"dtype": argument.dtype, "shape": argument.shape, "stride": argument.stride}
    return [_argument_data(member) for member in argument.members] or argument.value


def _measurements(store: Store) -> Iterator[Row]:
    labels = {version.id: version.label for version in store.versions()}
    for row in store.history.measurements():
        measurement = row.measurement
        facts: Row = {"id": row.id, "kernel": labels.get(row.version_id)}
        facts |= {name: getattr(measurement, name) for name in ("key", "device", "status", "time_ms")}
        facts |= {"created": row.created}
        for name, value in {**measurement.config, **measurement.details, **measurement.config}.items():
            is_flat = value is None or isinstance(value, bool | int | float | str)
            column = f"config.{name}" if name in _COLUMNS["measurements"] else name
            facts[column] = value if is_flat else json.dumps(value)
        yield facts


_ROWS: dict[str, Callable[[Store], Iterator[Row]]] = {
    "kernels": _kernels,
    "launches": _launches,
    "measurements": _measurements,
}
_COLUMNS = {
    "kernels": ["id", "name", "version", "cell", "created", "launches", "last", "config", "best_ms", "device", "tags"],
    "launches": [
        *("id", "kernel", "by", "where", "device", "target", "grid", "arguments", "options", "config"),
        *("seconds", "count", "created", "last"),
    ],
    "measurements": ["id", "kernel", "key", "device", "status", "time_ms", "created"],
}
