"""Versions of kept kernels by name, ``name@version`` or id, from the store alone, and the hash of one."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from difflib import get_close_matches
from typing import Any

from kernellab.errors import UnknownName, UsageError, value_message, value_text
from kernellab.source import Closure, jsonable
from kernellab.store import Outline, Store, Version

NAMED_AT_MOST = 12
_UNITS_S = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


def kept_version(store: Store, key: str | int) -> Version:
    """Return the version of a name (the newest), ``name@version`` or id.

    Raises:
        UnknownName: there is none.
    """
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise UnknownName(value_message("key", key, "a name, name@version or id", owner="lab.kernels"))
    if isinstance(key, int):
        version = store.by_id(key)
        if version is None:
            raise UnknownName(f"No kernel has the id {value_text(key)}; %triton_ls lists them.")
        return version
    name, at, number = key.rpartition("@")
    version = store.find(key) if not at else None
    if at and number.isdecimal() and len(number) < 20:
        version = store.find(name, int(number))
    if version is None:
        known = _known_names_message(name if at else key, store.overview.outlines())
        raise UnknownName(f"No kernel is called {value_text(key)}; {known}.")
    return version


def _known_names_message(name: str, versions: Sequence[Outline]) -> str:
    """Alternatives to an unknown kernel, for its error: versions of the name, similar names, or some names."""
    names = sorted({version.name for version in versions})
    known = [v.label for v in versions if v.name == name] or get_close_matches(name, names) or names
    shown = ", ".join(sorted(known)[:NAMED_AT_MOST])
    more = len(known) - NAMED_AT_MOST
    return f"known are {shown or 'none yet'}" + (f" and {more} more, which %triton_ls lists" if more > 0 else "")


def key_of(text: str) -> str | int:
    """A typed key as the registry takes it: digits are an id."""
    return int(text) if text.isdecimal() and len(text) < 20 else text


def version_digest(closure: Closure) -> str:
    """The hash of a version: its code, and its decorators with their configs."""
    wrappers = json.dumps(jsonable(closure.wrappers))
    return hashlib.sha256(f"{closure.digest}\n{closure.decorators}\n{wrappers}".encode()).hexdigest()


def moment_of(since: Any, now: float) -> float:
    """A moment in seconds since 1970, from a date, ISO 8601, or ``7d``, ``12h``, ``2w`` before ``now``.

    Raises:
        UsageError: it is none.
    """
    duration = re.fullmatch(r"\s*(\d{1,6})\s*([hdw])\s*", since) if isinstance(since, str) else None
    try:
        if duration:
            return now - int(duration[1]) * _UNITS_S[duration[2]]
        if isinstance(since, timedelta):
            return now - since.total_seconds()
        if isinstance(since, str):
            since = datetime.fromisoformat(since.strip())
        if isinstance(since, date) and not isinstance(since, datetime):
            since = datetime(since.year, since.month, since.day)
        if isinstance(since, datetime):
            return since.timestamp()
    except (ValueError, OverflowError, OSError):
        pass
    if isinstance(since, int | float) and not isinstance(since, bool) and 0 <= since < 1e11:
        return float(since)
    expected = "a date such as 2026-11-22, a datetime, or how long ago, such as 7d"
    raise UsageError(value_message("since", since, expected))
