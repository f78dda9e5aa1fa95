"""Runs a candidate's Python in a process kept apart from the judge, and takes one message of bytes from it.

The message comes through a pipe: its length, then JSON, never a pickle. Whatever runs in the process can write to the
pipe, the candidate included: it finds the descriptor as ``send`` does. That changes nothing but its own chances, since
the message is only ever read as a program that the judge checks and runs itself. What follows the first whole message
is not read, so that nothing that runs later replaces it.

`kernellab.judge.confined_process` has the processes, `kernellab.judge.confinement` the layers that keep them apart.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO

from kernellab.errors import JudgeFailed, KernellabError, stopped_text, timeout_text
from kernellab.judge.confined_process import LENGTH, MOST_BYTES, Setup
from kernellab.judge.confinement import ALL_LAYERS, Bounds, Layer
from kernellab.judge.starter import Starter
from kernellab.workers.forks_and_interrupts import Stop, close_in_child, lock, run_uninterrupted, socketpair
from kernellab.workers.scratch import has_room, temporary_folder

MOST_CANDIDATE_BYTES = 4 << 20
_FILE_BYTES = 32 << 20
_SCRATCH_BYTES = 1 << 30
_SCRATCH_ENTRIES = 20_000
_PRINTED_BYTES = 4096
_READ_BYTES = 1 << 20
_TICK_MS = 50
_END_S = 1.0
_SCANS_SHARE = 10  # a scan of the folder waits ten times as long as the last one took
_STARTER = Starter()
atexit.register(_STARTER.replace)
_STARTING = lock(crossing=True)  # a fork amid the start would keep pipes open
_OUT_OF_MEMORY = ("MemoryError", "std::bad_alloc", "can't allocate memory")


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """The outcome of a confined process.

    ``data`` is its message, `MOST_BYTES` at most, or None where it sent nothing whole; ``problem`` is then a sentence
    why, else "". ``printed`` is the end of its output, 4 KB at most. ``isolation`` has the layers in effect, as short
    phrases: "no network", "files of the judge unreadable", ...
    """

    data: bytes | None
    problem: str
    printed: str
    isolation: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a run: wall time, and memory beyond what the module takes when it is imported.

    The time of the module begins with its ``main``: a busy machine that starts processes slowly costs a candidate
    nothing. ``start_s`` bounds the start.
    """

    timeout_s: float = 30.0
    memory_bytes: int = 6 << 30
    start_s: float = 60.0


def bytes_of_candidate(file: Path) -> bytes:
    """Return the content of a candidate's file; of one that is too large, its start and one byte too many."""
    with file.open("rb") as opened:
        return opened.read(MOST_CANDIDATE_BYTES + 1)


def run_confined(
    module: str, request: bytes, files: Sequence[Path], limits: Limits, layers: frozenset[Layer] = ALL_LAYERS
) -> SandboxResult:
    """Run ``module``'s ``main(request: bytes, send: Callable[[bytes], None])`` in a process of its own.

    ``files`` are copied into its scratch folder, its working directory. The module is imported before the process is
    confined, so it must not run what it does not trust before ``main``. A test takes single layers away, to see what
    each of them holds.

    Raises:
        JudgeFailed: the process could not be started, or its module not be imported, within a minute.
    """
    stop = Stop()
    call = partial(_run, module, request, files, limits, layers, stop)
    return run_uninterrupted(call, stop, "The candidate's process")


def _run(
    module: str, request: bytes, files: Sequence[Path], limits: Limits, layers: frozenset[Layer], stop: Stop
) -> SandboxResult:
    start_s = time.monotonic()
    bounds = Bounds(limits.memory_bytes, math.ceil(limits.timeout_s) * (os.cpu_count() or 1) + 1, _FILE_BYTES)
    with _scratch_folder() as scratch, tempfile.TemporaryFile() as output:
        for file in files:
            shutil.copyfile(file, scratch / file.name)
        process = _start(Setup(module, str(scratch), bounds, layers), request, close_in_child(output))
        try:
            problem = _await_message(process, scratch, limits, stop)
        finally:
            process.end()
        printed = _tail(output)
        process.require_start(limits, printed)
        if process.message is None and not problem:
            problem = _ending(process.status, printed, limits)
        seconds = time.monotonic() - start_s
        return SandboxResult(process.message, problem, printed, tuple(process.isolation), seconds)


@dataclass(slots=True)
class _Process:
    """A supervisor with its pipes, and what came through them."""

    lifeline: socket.socket
    starter: subprocess.Popen[bytes]
    control: IO[bytes]
    status_pipe: IO[bytes]
    result_pipe: IO[bytes]
    isolation: list[str] = field(default_factory=list)
    is_ready: bool = False
    failure: str = ""
    status: int | None = None
    message: bytes | None = None
    _received: bytearray = field(default_factory=bytearray)
    _lines: bytearray = field(default_factory=bytearray)

    def read_status(self) -> bool:
        """Read what came of the lines about the process; return whether more may come."""
        part = _available(self.status_pipe)
        self._lines += part or b""
        while b"\n" in self._lines:
            text, _, self._lines = self._lines.partition(b"\n")
            line = json.loads(text)
            self.isolation += line.get("isolation", ())
            self.is_ready |= line.get("ready", False)
            self.failure = line.get("failed", self.failure)
            self.status = line.get("status", self.status)
        return part != b""

    def read_result(self) -> bool:
        """Read what came of the message; return whether more may come.

        Raises:
            ValueError: the message is too long.
        """
        part = _available(self.result_pipe)
        self._received += part or b""
        if len(self._received) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._received)
            if length > MOST_BYTES:
                raise ValueError(f"It handed over more than {_size_text(MOST_BYTES)}.")
            if len(self._received) >= LENGTH.size + length:
                self.message = bytes(self._received[LENGTH.size : LENGTH.size + length])
        return part != b"" and self.message is None

    def end(self) -> None:
        """End all processes, and wait for their end."""
        with contextlib.suppress(OSError):
            os.write(self.control.fileno(), b"E")
        try:
            self._await_end()
        finally:
            with contextlib.suppress(ValueError, OSError):
                self.read_status()
            for pipe in (self.control, self.status_pipe, self.result_pipe, self.lifeline):
                pipe.close()
            with _STARTING:
                _STARTER.release(self.starter)

    def _await_end(self) -> None:
        """Wait until the supervisor has ended, and kill it with its group where that takes too long."""
        pid = b""
        self.lifeline.settimeout(_END_S)
        for last in (False, True):
            with contextlib.suppress(TimeoutError):
                while part := self.lifeline.recv(_READ_BYTES):
                    pid += part
                return
            if pid and not last:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(int(pid), signal.SIGKILL)

    def require_start(self, limits: Limits, printed: str) -> None:
        """Check that the process came as far as ``main``.

        Raises:
            JudgeFailed: it did not.
        """
        if not self.is_ready:
            with _STARTING:
                if _STARTER.popen is self.starter:
                    _STARTER.replace()  # the next one gets a new one; what the old one has started goes on
            reason = self.failure or f"{timeout_text('it', limits.start_s, 'was not ready')}, or was ended from outside"
            raise JudgeFailed(f"The process for the candidate did not start: {reason}.", detail=printed)


def _await_message(process: _Process, scratch: Path, limits: Limits, stop: Stop) -> str:
    """Read the pipes until the message is whole or the process has ended; return why it had to be stopped, or ""."""
    readers = {process.status_pipe.fileno(): process.read_status, process.result_pipe.fileno(): process.read_result}
    poll = select.poll()
    for descriptor in readers:
        poll.register(descriptor, select.POLLIN)
    watch = _FolderWatch(scratch)
    deadline_s = time.monotonic() + limits.start_s
    was_ready = False
    try:
        while process.message is None and process.status_pipe.fileno() in readers:
            stop.check("The candidate's process")
            if process.is_ready and not was_ready:
                was_ready, deadline_s = True, time.monotonic() + limits.timeout_s
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return stopped_text("It", limits.timeout_s)
            for descriptor, _ in poll.poll(min(1e3 * left_s, _TICK_MS)):
                if not readers[descriptor]():
                    poll.unregister(descriptor)
                    del readers[descriptor]
            watch.check()
        while process.message is None and _has_data(process.result_pipe):
            if not process.read_result():
                break
    except ValueError as exc:
        return str(exc)
    return ""


def _start(setup: Setup, request: bytes, output: IO[bytes]) -> _Process:
    """Start a supervisor, with a file of the setup and the request as standard input.

    Raises:
        JudgeFailed: the system starts no process.
    """
    with tempfile.TemporaryFile() as request_file, _STARTING, contextlib.ExitStack() as inherited:
        request_file.write(setup.as_json().encode() + b"\n" + request)
        request_file.seek(0)
        (their_control, control), (status, their_status), (result, their_result) = os.pipe(), os.pipe(), os.pipe()
        lifeline, their_lifeline = socketpair()
        inherited.enter_context(their_lifeline)
        theirs = their_control, their_status, their_result
        for descriptor in theirs:
            inherited.callback(os.close, descriptor)
        ours: list[IO[bytes]] = [close_in_child(os.fdopen(control, "wb", buffering=0))]
        for descriptor in (status, result):
            os.set_blocking(descriptor, False)
            ours.append(close_in_child(os.fdopen(descriptor, "rb", buffering=0)))
        try:
            starter = _STARTER.request(
                setup.module, setup.scratch, [request_file.fileno(), output.fileno(), *theirs, their_lifeline.fileno()]
            )
        except OSError as exc:
            lifeline.close()
            for pipe in ours:
                pipe.close()
            raise JudgeFailed(f"The process for the candidate did not start: {exc}.") from exc
    return _Process(lifeline, starter, control=ours[0], status_pipe=ours[1], result_pipe=ours[2])


def _available(pipe: IO[bytes]) -> bytes | None:
    """The bytes that can be read now: None if there are none yet, b"" if all writers are gone."""
    try:
        return os.read(pipe.fileno(), _READ_BYTES)
    except BlockingIOError:
        return None


def _has_data(pipe: IO[bytes]) -> bool:
    poll = select.poll()
    poll.register(pipe.fileno(), select.POLLIN)
    return any(events & select.POLLIN for _, events in poll.poll(0))


def _ending(status: int | None, printed: str, limits: Limits) -> str:
    """Say how a process ended that handed over nothing; ``status`` is that of ``wait``, None where it is unknown."""
    lines = [line for line in printed.splitlines() if line.strip()]
    if lines and (lines[-1].startswith(_OUT_OF_MEMORY[0]) or any(text in lines[-1] for text in _OUT_OF_MEMORY[1:])):
        return f"It used more than {_size_text(limits.memory_bytes)} of memory."
    if status is None:
        return "It was ended from outside, as the system does where memory is short."
    if os.WIFEXITED(status):
        return f"It ended with exit status {os.WEXITSTATUS(status)} without handing over a program."
    number = os.WTERMSIG(status)
    with contextlib.suppress(ValueError):
        return f"It was ended by {signal.Signals(number).name}."
    return f"It was ended by signal {number}."


def _size_text(size_bytes: int) -> str:
    if size_bytes < 1 << 30:
        return f"{size_bytes / (1 << 20):g} MiB"
    return f"{size_bytes / (1 << 30):g} GiB"


def _tail(output: IO[bytes]) -> str:
    size = os.fstat(output.fileno()).st_size
    return os.pread(output.fileno(), _PRINTED_BYTES, max(0, size - _PRINTED_BYTES)).decode(errors="replace")


# ---- the scratch folder --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _scratch_folder() -> Iterator[Path]:
    parent = temporary_folder()
    if not has_room(parent):
        raise JudgeFailed(f"The folder {parent} has no room for a candidate's files. Set TMPDIR to another folder.")
    folder = Path(tempfile.mkdtemp(prefix="kernellab-candidate-", dir=parent)).resolve()
    try:
        yield folder
    finally:
        _delete(folder)


@dataclass(slots=True)
class _FolderWatch:
    """Looks at the size of a folder again and again, and spends a small share of the time on it."""

    folder: Path
    _next_s: float = 0.0

    def check(self) -> None:
        """Look, if it is time to.

        Raises:
            ValueError: more lies in the folder than a process may write.
        """
        start_s = time.monotonic()
        if start_s < self._next_s:
            return
        if _is_too_large(self.folder):
            raise ValueError(f"It wrote more than {_size_text(_SCRATCH_BYTES)}, or {_SCRATCH_ENTRIES:,} files.")
        self._next_s = start_s + max(1e-3 * _TICK_MS, _SCANS_SHARE * (time.monotonic() - start_s))


def _is_too_large(folder: Path) -> bool:
    """Whether more lies in a folder than a process may write. It may change meanwhile."""
    folders, size_bytes, entries = [str(folder)], 0, 0
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as listed:
            for entry in listed:
                entries += 1
                with contextlib.suppress(OSError):
                    size_bytes += 512 * entry.stat(follow_symlinks=False).st_blocks
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                if size_bytes > _SCRATCH_BYTES or entries > _SCRATCH_ENTRIES:
                    return True
    return False


def _delete(folder: Path) -> None:
    """Delete a folder of any depth: folders in it are moved to its top, until none holds another."""
    number = 0
    with contextlib.suppress(KernellabError, OSError):
        while entries := list(os.scandir(folder)):
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.path)
                    continue
                os.chmod(entry.path, 0o700)
                for inner in list(os.scandir(entry.path)):
                    if inner.is_dir(follow_symlinks=False):
                        os.chmod(inner.path, 0o700)  # its parent changes, which writes into it
                        number += 1
                        os.rename(inner.path, folder / f"moved {number} {os.urandom(8).hex()}")
                    else:
                        os.unlink(inner.path)
                os.rmdir(entry.path)
        os.rmdir(folder)
