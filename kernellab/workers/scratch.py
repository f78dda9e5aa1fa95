"""Temporary folders: their place on a full disk, and their deletion; files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import uuid
import weakref
from pathlib import Path

from kernellab.errors import refused_by_system

_IN_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 1 << 20  # as much as a large compiled kernel takes


class Scratch:
    """A temporary folder on a disk with room, deleted by the process that made it, not by its forks.

    Raises:
        StoreError: no disk has room for one.
    """

    def __init__(self) -> None:
        folder = temporary_folder()
        if not has_room(folder) and has_room(_IN_MEMORY):
            folder = _IN_MEMORY
        with refused_by_system("A temporary folder cannot be made"):
            self.path = Path(tempfile.mkdtemp(prefix="kernellab-", dir=folder))
        self._delete = weakref.finalize(self, _delete, self.path, os.getpid())

    def close(self) -> None:
        """Delete the folder with its contents."""
        self._delete()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *exc: object) -> None:
        self.close()


def _delete(folder: Path, maker: int) -> None:
    if os.getpid() == maker:
        shutil.rmtree(folder, ignore_errors=True)


def temporary_folder() -> Path:
    """Return the folder for temporary files, or one in memory if this machine has no writable one."""
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:
        return _IN_MEMORY


def write_whole(path: Path, content: bytes) -> None:
    """Write a file in a folder that exists, whole or not at all.

    Raises:
        OSError: it cannot be written; a file of that name then is as it was.
    """
    scratch = path.with_name(f".{uuid.uuid4().hex}")
    try:
        scratch.write_bytes(content)
        os.replace(scratch, path)
    except OSError:
        with contextlib.suppress(OSError):
            scratch.unlink()
        raise


def has_room(folder: Path) -> bool:
    """Whether a large file can be written to a folder, which is created."""
    return why_no_room(folder) is None


def why_no_room(folder: Path) -> OSError | None:
    """Return the error of writing a large file to a folder, which is created; None if it succeeds."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, _ROOM_BYTES)
    except OSError as exc:
        return exc
    return None
