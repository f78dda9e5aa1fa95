"""The listing commands over kept kernels: list, search, define again, remove, tag."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from kernellab.display import Displayable
from kernellab.errors import UsageError, choice_message
from kernellab.registry.versions import key_of, moment_of
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
from kernellab.store import Measurement, Outline, Store, Use, Version
from kernellab.store.overview import UNUSED, LaunchOutline

if TYPE_CHECKING:
    from kernellab._triton.kernel import Kernel
    from kernellab.registry.kernels import Registry

_MOST_ROWS = 20


class VersionStatus(StrEnum):
    """Whether a version was launched, and if not, why.

    ``run``: `lab.run` ran it, nothing launched it. ``compiled``: it compiled, and was not launched. ``failed``: its
    last compile or launch failed. ``helper``: another kernel calls it. ``never launched``: it was only defined.
    """

    LAUNCHED = "launched"
    RUN = "run"
    COMPILED = "compiled"
    FAILED = "failed"
    HELPER = "helper"
    NEVER = "never launched"


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One version. Times are seconds since 1970; ``where`` is the device of ``best_ms``.

    ``config`` is the best config that was measured, else the one of the last launch, in words, which ``last_config``
    always is; ``launches`` counts all, and ``runs`` the trials by `Lab.run`, which are none. ``error`` is why the last
    compile or launch failed.
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
    notebook: str = ""
    status: VersionStatus = VersionStatus.NEVER
    last_config: str = ""
    error: str = ""

    @property
    def last_used(self) -> float:
        """When it was launched last, else when it was defined."""
        return self.created if self.last_launch is None else max(self.created, self.last_launch)


@dataclass(frozen=True, slots=True)
class Filter:
    """The versions that a listing is asked for; an empty field asks for any.

    ``text`` is a part of name, tags, notes or source, ``name`` a pattern such as ``softmax*``, ``notebook`` a part of
    the name of a notebook, ``since`` the moment from which a version was used, in seconds since 1970.
    """

    text: str = ""
    name: str = ""
    status: str = ""
    notebook: str = ""
    since: float | None = None

    @property
    def words(self) -> str:
        """The filter as words of a command line."""
        options = {"name": self.name, "status": self.status, "notebook": self.notebook}
        since = [] if self.since is None else ["--since"]
        return " ".join(
            filter(None, (self.text, *(f"--{key} {value}" for key, value in options.items() if value), *since))
        )

    def allows(self, row: VersionRow) -> bool:
        """Whether a row has the name, status, notebook and time that are asked for."""
        return (
            fnmatchcase(row.label.rpartition("@")[0], self.name or "*")
            and self.status in {"", row.status}
            and self.notebook.lower() in row.notebook.lower()
            and (self.since is None or row.last_used >= self.since)
        )


@dataclass(frozen=True, slots=True)
class Listing(Displayable):
    """Versions, the latest used first; with a text, those that are called so before others. ``now`` is its time.

    After a removal, ``removed`` are the labels of what is gone, and the rows what is left under the same names.
    ``more`` counts the older versions that are left out.
    """

    rows: tuple[VersionRow, ...]
    search: str = ""
    now: float = 0.0
    removed: tuple[str, ...] = ()
    more: int = 0


@dataclass(frozen=True, slots=True)
class LoadedVersion(Displayable):
    """A version loaded into a namespace: the names it got there, and the parts that are missing."""

    row: VersionRow
    source: str
    names: tuple[str, ...]
    missing: tuple[str, ...] = ()


_ANY = Filter()


def listing(
    store: Store, now: float, only: tuple[int, ...] | None = None, wanted: Filter = _ANY, most: int | None = None
) -> Listing:
    """The versions that a filter allows, at most ``most``; only those with ids in ``only``, if set.

    No source is read, and of the launches of those that are shown only the last ones and the fastest.
    """
    outlines, uses = store.overview.outlines(wanted.text, only), store.overview.uses(only)
    failures = store.failures(only)
    is_any_unlaunched = any(outline.id not in uses or uses[outline.id].is_compile_alone for outline in outlines)
    helpers = store.overview.helpers() if is_any_unlaunched else set()
    versions = (_summary(o, uses.get(o.id, UNUSED), failures.get(o.id), o.id in helpers) for o in outlines)
    allowed = sorted(filter(wanted.allows, versions), key=lambda row: (-row.last_used, -row.id))
    allowed.sort(key=lambda row: _distance(row.label.rpartition("@")[0].lower(), wanted.text.lower()))
    shown = allowed[:most]
    return Listing(tuple(_with_details(store, shown)), wanted.words, now, more=len(allowed) - len(shown))


def _distance(name: str, search: str) -> int:
    return [name == search, name.startswith(search), search in name, True].index(True)


def _summary(outline: Outline, use: Use, failure: tuple[str, float] | None, is_helper: bool) -> VersionRow:
    """The row of a version by what is known of all versions at once."""
    status = _status(use, failure, is_helper)
    return VersionRow(
        id=outline.id,
        label=outline.label,
        cell=outline.cell,
        created=outline.created,
        launches=use.launches,
        runs=use.runs,
        last_launch=use.last_launch,
        notebook=outline.notebook,
        status=status,
        error=failure[0] if failure and status is VersionStatus.FAILED else "",
    )


def _with_details(store: Store, rows: Sequence[VersionRow]) -> Iterator[VersionRow]:
    """The rows with what the store has to be asked for version by version: tags, notes, configs and times."""
    ids = [row.id for row in rows]
    measured = store.history.measured(ids)
    launches, tags, notes = store.overview.telling_launches(ids), store.tags(ids), store.notes_by_version(ids)
    for row in rows:
        more = _config_and_time(launches.get(row.id, []), store.history.best(row.id) if row.id in measured else None)
        yield replace(row, tags=tags.get(row.id, ()), notes=notes.get(row.id, ()), **more)


def _config_and_time(launches: Sequence[LaunchOutline], best: Measurement | None) -> dict[str, Any]:
    by_user = [launch for launch in launches if launch.is_launch]
    last = by_user[-1] if by_user else launches[-1] if launches else None
    last_config = (last.config or config_words(last.constants)) if last else ""  # the latter without configs
    if best is not None:
        words = config_words(best.config)
        return {"last_config": last_config, "config": words, "best_ms": best.time_ms, "where": best.device}
    timed = [launch for launch in by_user if launch.where == "gpu" and launch.seconds is not None]
    fastest = min(timed, key=lambda launch: launch.seconds or 0.0, default=None)
    shown = fastest or last
    return {
        "last_config": last_config,
        "config": shown.config if shown else "",
        "best_ms": None if fastest is None or fastest.seconds is None else fastest.seconds * 1e3,
        "where": fastest.device if fastest else shown.where if shown else "",
    }


def _status(use: Use, failure: tuple[str, float] | None, is_helper: bool) -> VersionStatus:
    if failure and failure[1] >= (use.last or 0.0):
        return VersionStatus.FAILED
    if not use.is_compile_alone:
        return VersionStatus.RUN if use.last_launch is None else VersionStatus.LAUNCHED
    if is_helper:
        return VersionStatus.HELPER
    return VersionStatus.NEVER if use.last is None else VersionStatus.COMPILED


def config_words(config: Mapping[str, Any]) -> str:
    """A config in words: ``BLOCK=128, num_warps=4``."""
    return ", ".join(f"{name}={value}" for name, value in config.items() if value is not None)


def search(
    store: Store,
    text: str = "",
    *,
    name: str | None = None,
    status: str | None = None,
    notebook: str | None = None,
    since: str | None = None,
    every: bool = False,
) -> Listing:
    """The stored versions that a `Filter` of these allows: the latest used, or ``every`` one.

    ``status`` may be cut short: ``never``.

    Raises:
        UsageError: there is no such status or moment.
    """
    meant = [known for known in VersionStatus if status and known.startswith(status)]
    if status and not meant:
        raise UsageError(choice_message("status", status, tuple(VersionStatus)))
    now = time.time()
    moment = None if since is None else moment_of(since, now)
    wanted = Filter(text, name or "", meant[0] if meant else "", notebook or "", moment)
    return listing(store, now, wanted=wanted, most=None if every else _MOST_ROWS)


def listing_of_version(kernels: Registry, key: str) -> Listing:
    """The listing of one version.

    Raises:
        UnknownName: there is none.
    """
    return listing(kernels.store, time.time(), only=(kernels.version(key_of(key)).id,))


def define(kernels: Registry, key: str, namespace: dict[str, Any], name: str | None = None) -> LoadedVersion:
    """Define a stored kernel in a namespace, with the helpers that have free names there.

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
    left = listing(kernels.store, time.time(), only=tuple(o.id for o in kernels.outlines() if o.name in names))
    return replace(left, removed=tuple(version.label for version in gone))


def _labels_of(kernels: Registry, key: str, *, all_versions: bool) -> list[str]:
    versions = [outline.label for outline in kernels.outlines() if outline.name == key]
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
