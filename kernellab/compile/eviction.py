"""Keeping the folder of compiled kernels within a size. What is deleted there is compiled again when it is needed."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

_SPARED_S = 3600.0


def evict(
    folder: Path, limit_bytes: int, *, clock: Callable[[], float] = time.time, spared_s: float = _SPARED_S
) -> int:
    """Delete the compiled kernels used longest ago until those in ``folder`` take less; return the bytes freed.

    Those used within the last ``spared_s`` seconds stay, whatever they take: a session may hold them.
    """
    entries = sorted(_entries(folder), key=lambda entry: entry[1])
    total = sum(size for _, _, size in entries)
    freed, oldest_spared = 0, clock() - spared_s
    for path, used, size in entries:
        if total - freed <= limit_bytes or used > oldest_spared:
            break
        shutil.rmtree(path, ignore_errors=True)
        freed += size
    return freed


def mark_used(path: Path) -> None:
    """Count a compiled kernel as used now."""
    with contextlib.suppress(OSError):  # a folder that cannot be written is not evicted from either
        os.utime(path)


def _entries(folder: Path) -> list[tuple[Path, float, int]]:
    """Return (path, time of last use, bytes) of every compiled kernel: FOLDER/ab/abcd..., or a leftover of a build."""
    found = []
    for path in [*folder.glob("??/*"), *folder.glob(".*")]:
        with contextlib.suppress(OSError):  # another process may be evicting, or building, at the same time
            size = sum(file.stat().st_size for file in path.rglob("*"))
            found.append((path, path.stat().st_mtime, size))
    return found
