"""Child processes, spawned or forked from a server with preloaded modules, and their messages.

A fork server makes workers cheap: its modules are imported once, and each worker is a fork of it, started within
milliseconds, which shares its memory. It must never hold a GPU context or threads, since neither survives a fork.

No process is identified by its pid alone. A spawned process is signalled through its pidfd. A fork belongs to the
server: each has a socket, its lifeline, over which the server reports pid and exit status. When this end is shut or
gone, for any reason, the server kills the fork. So answers to different requests cannot be confused, and an abandoned
request leaves no process behind.

A fork of the user's process closes its copies of all of this and starts its own processes.

Everything here waits up to a `Limit` and must run in threads that interrupts do not reach: see `run_uninterrupted`.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import socket
import struct
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.reduction import ForkingPickler
from typing import IO, Any

from kernellab.errors import WorkerDied, WorkerTimeout, timeout_text
from kernellab.workers.children import SpawnedProcess, spawn_process
from kernellab.workers.forks_and_interrupts import TICK_S, Stop, at_fork, close_in_child, hold_lock, lock, socketpair

FORK, READY = b"F", b"R"
_PART_BYTES = 1 << 20
_SIZE = struct.Struct("!Q")
_LOG_TAIL_CHARS = 4000
_LOG_ROOM_BYTES = 1 << 16
_END_S = 5.0
_LEAST_ANSWER_S = 1.0


class ChannelClosedError(Exception):
    """The other end of a connection is gone."""


class DeadlineError(Exception):
    """A time limit has passed."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A deadline on the monotonic clock, and the subject named in its error. Without ``stop``, nothing shortens it."""

    end_s: float
    stop: Stop | None
    subject: str

    def shorter(self, seconds: float) -> Limit:
        """Return the same limit, at most ``seconds`` from now."""
        return Limit(min(self.end_s, time.monotonic() + seconds), self.stop, self.subject)

    def wait(self, descriptor: int, events: int) -> None:
        """Wait until a descriptor is readable (``POLLIN``) or writable (``POLLOUT``).

        Raises:
            DeadlineError: the limit has passed.
            WorkerDied: a stop was requested.
        """
        poll = _poll(descriptor, events)
        while True:
            if self.stop is not None:
                self.stop.check(self.subject)
            left_s = self.end_s - time.monotonic()
            if poll.poll(1e3 * max(0.0, min(left_s, TICK_S))):
                return
            if left_s <= 0:
                raise DeadlineError


def limit_of(seconds: float, subject: str, stop: Stop | None = None) -> Limit:
    """Return a limit ``seconds`` from now."""
    return Limit(time.monotonic() + seconds, stop, subject)


class Channel:
    """Pickled messages over a socket. Without a limit, it waits as long as the other end lives."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self.socket = connected
        self._received = bytearray()

    def has_news(self) -> bool:
        """Whether a message has arrived or the other end is gone."""
        if self._received or self.socket.fileno() < 0:
            return True
        return bool(_poll(self.socket.fileno(), select.POLLIN).poll(0))

    def send(self, message: bytes, limit: Limit | None = None) -> None:
        """Send the result of `pack_message`.

        Raises:
            ChannelClosedError, DeadlineError, WorkerDied: it could not be sent (in time).
        """
        rest = memoryview(_SIZE.pack(len(message)) + message)
        while rest:
            self._wait(select.POLLOUT, limit)
            try:
                rest = rest[self.socket.send(rest[:_PART_BYTES]) :]
            except BlockingIOError:
                continue
            except OSError as exc:
                raise ChannelClosedError from exc

    def receive(self, limit: Limit | None = None) -> Any:
        """Return the next message.

        Raises:
            ChannelClosedError, DeadlineError, WorkerDied: none came (in time).
        """
        size = _SIZE.unpack(self._take(_SIZE.size, limit))[0]
        return pickle.loads(self._take(size, limit))

    def close(self) -> None:
        """Close this end."""
        self.socket.close()

    def _take(self, size: int, limit: Limit | None) -> bytes:
        while len(self._received) < size:
            self._wait(select.POLLIN, limit)
            try:
                part = self.socket.recv(_PART_BYTES)
            except BlockingIOError:
                continue
            except OSError as exc:
                raise ChannelClosedError from exc
            if not part:
                raise ChannelClosedError
            self._received += part
        message = bytes(self._received[:size])
        del self._received[:size]
        return message

    def _wait(self, events: int, limit: Limit | None) -> None:
        if self.socket.fileno() < 0:
            raise ChannelClosedError
        if limit is not None:
            limit.wait(self.socket.fileno(), events)
        else:
            _poll(self.socket.fileno(), events).poll()


def pack_message(message: object) -> bytes:
    """Pickle a message, with the reductions of multiprocessing and torch."""
    return bytes(ForkingPickler.dumps(message))


def _poll(descriptor: int, events: int) -> select.poll:
    poll = select.poll()
    poll.register(descriptor, events)
    return poll


@dataclass(slots=True)
class WorkerProcess:
    """A running worker: its process, the channel to it, and the file of its output."""

    child: SpawnedProcess | ForkedWorker
    channel: Channel
    log: IO[bytes]

    def printed_bytes(self) -> int:
        """Return the number of bytes that the process has printed."""
        return os.fstat(self.log.fileno()).st_size

    def tail(self, start: int) -> str:
        """Return the end of the output since byte ``start``."""
        return _tail(self.log, start)

    def stop(self) -> int:
        """Kill the process and return its exit status."""
        code = self.child.end()
        self.channel.close()
        self.log.close()
        return code


def spawn(modules: Sequence[str], environment: Mapping[str, str]) -> WorkerProcess:
    """Start a worker in a new interpreter that first imports ``modules``."""
    ours, theirs = socketpair()
    log = _log()
    with theirs:
        child = spawn_process("worker", modules, environment, theirs, log)
    return WorkerProcess(child, Channel(ours), log)


@dataclass(slots=True)
class ForkedWorker:
    """A fork of a server; only the server signals it and waits for it."""

    pid: int
    server: SpawnedProcess
    lifeline: Channel
    _code: int | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def exit_code(self, timeout_s: float) -> int | None:
        """Return the exit status of the fork, as its server reports it; None while it runs."""
        with self._lock:
            if self._code is None:
                try:
                    self._code = int(self.lifeline.receive(limit_of(timeout_s, "The end of a worker")))
                except ChannelClosedError:  # without a server, the fork is killed
                    self._code = -signal.SIGKILL
                except DeadlineError:
                    return None
            return self._code

    def end(self) -> int:
        """Let the server kill the fork and return its exit status."""
        with contextlib.suppress(OSError):
            self.lifeline.socket.shutdown(socket.SHUT_WR)
        code = self.exit_code(_END_S)
        if code is None:  # the server does not answer; its forks end with it
            self.server.end()
            code = self.exit_code(_END_S)
        self.lifeline.close()
        self._code = -signal.SIGKILL if code is None else code
        return self._code


@dataclass(slots=True)
class _Server:
    """A running fork server. Requests go through ``control``; each answer comes over the fork's lifeline."""

    child: SpawnedProcess
    control: socket.socket
    log: IO[bytes]
    is_ready: bool = False

    def fork(self, limit: Limit, answer_s: float) -> WorkerProcess:
        """Return a new worker.

        Raises:
            ChannelClosedError, DeadlineError: the server is gone, or does not answer.
            WorkerDied: it cannot fork, or a stop was requested.
        """
        if not self.is_ready:
            limit.wait(self.control.fileno(), select.POLLIN)
            if self.control.recv(len(READY)) != READY:
                raise ChannelClosedError
            self.is_ready = True
            self.child.control = weakref.ref(self.control)
        limit = limit.shorter(answer_s)
        with contextlib.ExitStack() as held_here:  # closing these on an error ends the fork
            ours, theirs = map(held_here.enter_context, socketpair())
            its_lifeline, its_end = map(held_here.enter_context, socketpair())
            log = held_here.enter_context(_log())
            limit.wait(self.control.fileno(), select.POLLOUT)
            socket.send_fds(self.control, [FORK], [theirs.fileno(), log.fileno(), its_end.fileno()])
            theirs.close()
            its_end.close()
            lifeline = Channel(its_lifeline)
            pid = lifeline.receive(limit)
            if pid <= 0:
                raise WorkerDied(f"{limit.subject} got no worker: {os.strerror(-pid)}.")
            held_here.pop_all()
        return WorkerProcess(ForkedWorker(pid, self.child, lifeline), Channel(ours), log)

    def end(self) -> str:
        """End the server and its forks; return the end of its output."""
        self.child.leave()
        self.control.close()
        with self.log:
            return _tail(self.log, 0)


@dataclass(slots=True, weakref_slot=True, eq=False)
class ForkServer:
    """A process that has imported ``modules`` and forks workers on demand. Started with the first worker.

    It has ``start_s`` seconds for its imports, or the job's time limit if that is longer. After its imports, it is
    replaced if it does not answer within ``answer_s`` seconds, or the job's time limit.
    """

    modules: tuple[str, ...]
    environment: Mapping[str, str]
    answer_s: float = 10.0
    start_s: float = 20.0  # on a machine that has much else to do
    _server: _Server | None = None
    _lock: threading.Lock = field(default_factory=lock)

    def __post_init__(self) -> None:
        at_fork(self, in_child=ForkServer._disown)

    def preload(self, modules: Sequence[str]) -> None:
        """Let a server that starts from now on import ``modules``, too."""
        with self._lock:
            self.modules = tuple(dict.fromkeys((*self.modules, *modules)))

    @property
    def is_started(self) -> bool:
        """Whether there is a server, which may still import its modules."""
        return self._server is not None

    def start(self) -> None:
        """Start the server, without waiting for its imports."""
        if self._lock.acquire(blocking=False):  # else a fork waits for the imports of a server that it started
            try:
                self._running()
            finally:
                self._lock.release()

    def fork(self, timeout_s: float, subject: str, stop: Stop) -> WorkerProcess:
        """Return a new worker for a job of ``timeout_s``; replace a server that died or does not answer.

        Raises:
            WorkerDied, WorkerTimeout: a second server failed as well, or took too long to start, or a stop was
                requested.
        """
        start_s, answer_s = max(self.start_s, timeout_s), min(self.answer_s, max(_LEAST_ANSWER_S, timeout_s))
        with hold_lock(self._lock, stop, subject):
            with contextlib.suppress(ChannelClosedError, DeadlineError, OSError):
                return self._running().fork(limit_of(start_s, subject, stop), answer_s)
            self._forget()
            try:
                return self._running().fork(limit_of(start_s, subject, stop), answer_s)
            except DeadlineError as exc:
                self._forget()
                raise WorkerTimeout(f"{timeout_text(subject, start_s, 'got no worker')}.") from exc
            except (ChannelClosedError, OSError) as exc:
                output = self._forget()
                last = next((line for line in reversed(output.splitlines()) if line.strip()), str(exc)).strip()
                reason = last.rstrip(".") or "the process that forks workers was ended from outside, twice"
                raise WorkerDied(f"{subject} got no worker: {reason}.", detail=output) from exc

    def close(self) -> None:
        """End the server and its forks."""
        with self._lock:
            self._forget()

    def _running(self) -> _Server:
        if self._server is not None and self._server.child.exit_code(0) is not None:
            self._forget()
        if self._server is None:
            ours, theirs = socketpair()
            ours.setblocking(False)
            log = _log()
            with theirs:
                child = spawn_process("forkserver", self.modules, self.environment, theirs, log)
            self._server = _Server(child, ours, log)
        return self._server

    def _disown(self) -> None:
        self._server = None

    def _forget(self) -> str:
        server, self._server = self._server, None
        return "" if server is None else server.end()


def _tail(log: IO[bytes], start: int) -> str:
    end = os.fstat(log.fileno()).st_size
    size = max(0, min(end - start, _LOG_TAIL_CHARS))
    return os.pread(log.fileno(), size, end - size).decode(errors="replace")


def _log() -> IO[bytes]:
    """Return a file for a worker's output, in memory if the disk has no room."""
    with contextlib.suppress(OSError):
        file = close_in_child(tempfile.TemporaryFile(prefix="kernellab-"))  # noqa: SIM115 - the worker's end closes it
        try:
            os.posix_fallocate(file.fileno(), 0, _LOG_ROOM_BYTES)
            os.ftruncate(file.fileno(), 0)
        except OSError:
            file.close()
            raise
        return file
    return close_in_child(os.fdopen(os.memfd_create("kernellab"), "w+b"))
