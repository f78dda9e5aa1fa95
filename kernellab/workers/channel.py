"""Messages between processes, and until when to wait for them."""

from __future__ import annotations

import pickle
import select
import socket
import struct
import time
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any

from kernellab.workers.uninterrupted import TICK_S, Stop

_PART_BYTES = 1 << 20
_SIZE = struct.Struct("!Q")


class Closed(Exception):
    """The other end of a connection is gone."""


class Expired(Exception):
    """The time of a limit is over."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Until when to wait, in seconds of the monotonic clock, and for whom."""

    end_s: float
    stop: Stop
    subject: str

    def shorter(self, seconds: float) -> Limit:
        """Return the same limit, but ``seconds`` from now at most."""
        return Limit(min(self.end_s, time.monotonic() + seconds), self.stop, self.subject)

    def wait(self, descriptor: int, events: int) -> None:
        """Return as soon as a descriptor can be read from (``POLLIN``) or written to (``POLLOUT``).

        Raises:
            Expired: it is too late.
            WorkerDied: somebody asked to stop.
        """
        poll = _poll(descriptor, events)
        while True:
            self.stop.check(self.subject)
            left_s = self.end_s - time.monotonic()
            if poll.poll(1e3 * max(0.0, min(left_s, TICK_S))):
                return
            if left_s <= 0:
                raise Expired


def limit_of(seconds: float, subject: str, stop: Stop | None = None) -> Limit:
    """Return the limit of something that may take so long from now on."""
    return Limit(time.monotonic() + seconds, stop or Stop(), subject)


class Channel:
    """Pickled messages over a socket. Without a limit, it waits as long as the other end lives."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._received = bytearray()

    def has_news(self) -> bool:
        """Tell whether something was sent, or the other end is gone."""
        if self._received or self._socket.fileno() < 0:
            return True
        return bool(_poll(self._socket.fileno(), select.POLLIN).poll(0))

    def send(self, packed: bytes, limit: Limit | None = None) -> None:
        """Send what `packed` returned.

        Raises:
            Closed, Expired, WorkerDied: it could not be sent (in time).
        """
        rest = memoryview(_SIZE.pack(len(packed)) + packed)
        while rest:
            self._wait(select.POLLOUT, limit)
            try:
                rest = rest[self._socket.send(rest[:_PART_BYTES]) :]
            except BlockingIOError:
                continue
            except OSError as exc:
                raise Closed from exc

    def receive(self, limit: Limit | None = None) -> Any:
        """Return the next message.

        Raises:
            Closed, Expired, WorkerDied: none came (in time).
        """
        size = _SIZE.unpack(self._taken(_SIZE.size, limit))[0]
        return pickle.loads(self._taken(size, limit))

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def _taken(self, size: int, limit: Limit | None) -> bytes:
        while len(self._received) < size:
            self._wait(select.POLLIN, limit)
            try:
                part = self._socket.recv(_PART_BYTES)
            except BlockingIOError:
                continue
            except OSError as exc:
                raise Closed from exc
            if not part:
                raise Closed
            self._received += part
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken

    def _wait(self, events: int, limit: Limit | None) -> None:
        if self._socket.fileno() < 0:
            raise Closed
        if limit is not None:
            limit.wait(self._socket.fileno(), events)
        else:
            _poll(self._socket.fileno(), events).poll()


def packed(message: object) -> bytes:
    """Return a message as bytes, with the reductions that multiprocessing and torch know."""
    return bytes(ForkingPickler.dumps(message))


def _poll(descriptor: int, events: int) -> select.poll:
    poll = select.poll()
    poll.register(descriptor, events)
    return poll
