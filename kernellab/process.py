"""Child processes of two kinds: started anew, or forked from a server that has imported everything once.

A fork server makes a pool cheap: its modules are imported once, and each worker is a fork of it, there within
milliseconds. It must never hold a GPU context or threads, neither of which survives a fork.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import IO, Protocol

from kernellab.settings import child_environment

_LOG_TAIL_CHARS = 4000
PID = struct.Struct("!i")
STATUS = struct.Struct("!ii")
FORK, WAIT = b"F", b"W"


class Child(Protocol):
    """A child process, whoever started it."""

    @property
    def pid(self) -> int: ...

    def kill(self) -> None: ...

    def exit_code(self, timeout_s: float) -> int | None:
        """Return the exit status, or minus the signal that ended it; None while it runs."""


@dataclass(slots=True)
class WorkerProcess:
    """A running worker: its process, the connection to it, and the file that holds what it printed."""

    child: Child
    connection: Connection
    log: IO[bytes]

    def printed_bytes(self) -> int:
        return os.fstat(self.log.fileno()).st_size

    def tail(self, start: int) -> str:
        """Return the end of what was printed since byte ``start``."""
        end = self.printed_bytes()
        size = max(0, min(end - start, _LOG_TAIL_CHARS))
        return os.pread(self.log.fileno(), size, end - size).decode(errors="replace")

    def stop(self) -> int:
        """End the process, whatever it does; return how it ended."""
        self.child.kill()
        code = self.child.exit_code(timeout_s=10.0)
        self.connection.close()
        self.log.close()
        return -signal.SIGKILL if code is None else code


@dataclass(slots=True)
class Spawned:
    """A process of its own interpreter."""

    popen: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.popen.pid

    def kill(self) -> None:
        self.popen.kill()

    def exit_code(self, timeout_s: float) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.popen.wait(timeout_s)
        return None


@dataclass(slots=True)
class Forked:
    """A fork of a server, which alone can wait for it."""

    pid: int
    server: ForkServer

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def exit_code(self, timeout_s: float) -> int | None:
        return self.server.wait(self.pid, timeout_s)


def spawn(modules: Sequence[str], environment: dict[str, str]) -> WorkerProcess:
    """Start a worker in an interpreter of its own, which first imports ``modules``."""
    ours, theirs = socket.socketpair()
    log = tempfile.TemporaryFile(prefix="kernellab-")  # noqa: SIM115 - lives as long as the process
    with theirs:
        popen = _popen(["worker", str(theirs.fileno()), *modules], environment, theirs, log)
    return WorkerProcess(Spawned(popen), Connection(ours.detach()), log)


@dataclass(slots=True)
class ForkServer:
    """A process that has imported ``modules`` and forks workers on demand. Started when the first one is wanted."""

    modules: tuple[str, ...]
    environment: dict[str, str]
    _popen: subprocess.Popen[bytes] | None = None
    _control: socket.socket | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        """Start the server, without waiting until it has imported everything."""
        with self._lock:
            self._running()

    def fork(self) -> WorkerProcess:
        """Return a new worker; a server that has died is replaced first."""
        ours, theirs = socket.socketpair()
        log = tempfile.TemporaryFile(prefix="kernellab-")  # noqa: SIM115 - lives as long as the process
        with theirs, self._lock:
            for last_try in (False, True):
                control = self._running()
                try:
                    socket.send_fds(control, [FORK], [theirs.fileno(), log.fileno()])
                    (pid,) = PID.unpack(received(control, PID.size))
                    return WorkerProcess(Forked(pid, self), Connection(ours.detach()), log)
                except (ConnectionError, EOFError):
                    self._forget()
                    if last_try:
                        raise
        raise AssertionError("unreachable")

    def wait(self, pid: int, timeout_s: float) -> int | None:
        """Return how the fork ``pid`` ended, waiting for it up to ``timeout_s`` seconds; None if it still runs."""
        with self._lock:
            if self._control is None:
                return -signal.SIGKILL
            try:
                self._control.sendall(WAIT + STATUS.pack(pid, int(timeout_s * 1000)))
                ended, code = STATUS.unpack(received(self._control, STATUS.size))
            except (ConnectionError, EOFError):
                return -signal.SIGKILL
            return code if ended else None

    def close(self) -> None:
        """End the server; its forks end by themselves."""
        with self._lock:
            self._forget()

    def _running(self) -> socket.socket:
        if self._popen is not None and self._popen.poll() is not None:
            self._forget()
        if self._control is None:
            ours, theirs = socket.socketpair()
            with theirs:
                self._popen = _popen(
                    ["forkserver", str(theirs.fileno()), *self.modules], self.environment, theirs, None
                )
            self._control = ours
        return self._control

    def _forget(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._popen is not None:
            self._popen.kill()
            self._popen.wait()
        self._control = self._popen = None


def received(control: socket.socket, size: int) -> bytes:
    """Return exactly ``size`` bytes.

    Raises:
        EOFError: the other end was closed.
    """
    data = b""
    while len(data) < size:
        part = control.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def _popen(
    arguments: list[str], environment: dict[str, str], inherited: socket.socket, log: IO[bytes] | None
) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(p or os.getcwd() for p in sys.path)
    output = subprocess.DEVNULL if log is None else log
    return subprocess.Popen(
        [sys.executable, "-m", "kernellab.serve", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=[inherited.fileno()],
        env=child_environment(**{"PYTHONPATH": path, **environment}),
        start_new_session=True,
    )
