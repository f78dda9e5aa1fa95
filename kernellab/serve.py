"""The inside of a worker process: ``python -m kernellab.serve worker FD MODULE...``.

It takes jobs from the inherited socket FD, one at a time, and answers each with a result or a failure. It ends with
the process that started it. Called with ``forkserver`` in the place of ``worker``, it imports the modules and forks a
worker for each request on FD.
"""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import signal
import socket
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection

from kernellab.process import FORK, PID, STATUS, received
from kernellab.worker import Job, failure_of

_PARENT_POLL_S = 1.0
_CHILD_POLL_S = 0.002


def serve(connection: Connection) -> None:
    """Answer jobs until the other end is closed."""
    while True:
        try:
            job: Job = connection.recv()
        except (EOFError, OSError):
            return
        _send(connection, _answer(job, connection))


def _send(connection: Connection, answer: tuple[str, object]) -> None:
    try:
        connection.send(answer)
    except (pickle.PicklingError, AttributeError, TypeError) as exc:
        connection.send(("failure", failure_of(exc, detail=traceback.format_exc())))


def ready(payload: object, progress: object) -> None:
    """Answer at once: the process has imported what it needs."""


def _answer(job: Job, connection: Connection) -> tuple[str, object]:
    try:
        module, _, name = job.handler.partition(":")
        handler = getattr(importlib.import_module(module), name)
        return "result", handler(job.payload, lambda value: connection.send(("progress", value)))
    except Exception as exc:  # noqa: BLE001 - the one place where any failure becomes data
        return "failure", failure_of(exc, detail=traceback.format_exc())


def fork_workers(control: socket.socket) -> None:
    """Fork a worker for each request, and tell how one ended, until the other end is closed."""
    gc.freeze()  # else a collection in a fork would write to every page that it shares with this process
    while True:
        request, descriptors, _, _ = socket.recv_fds(control, 1, 2)
        if not request:
            return
        if request == FORK:
            pid = os.fork()
            if pid == 0:
                control.close()
                _become_worker(*descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            control.sendall(PID.pack(pid))
        else:
            pid, timeout_ms = STATUS.unpack(received(control, STATUS.size))
            control.sendall(STATUS.pack(*_ended(pid, timeout_ms / 1000)))


def _become_worker(connection: int, log: int) -> None:
    """Turn this fork into a worker; does not return."""
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    _end_with_parent()
    serve(Connection(connection))
    os._exit(0)


def _ended(pid: int, timeout_s: float) -> tuple[int, int]:
    """Return (1, exit code) of a child once it has ended, or (0, 0) after the timeout."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            found, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return 1, -signal.SIGKILL  # asked before
        if found:
            return 1, os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline:
            return 0, 0
        time.sleep(_CHILD_POLL_S)


def _end_with_parent() -> None:
    """End this process soon after the one that started it."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_POLL_S)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def main(arguments: list[str]) -> None:
    mode, descriptor, *modules = arguments
    if mode == "worker":
        _end_with_parent()
    for module in modules:
        importlib.import_module(module)
    if mode == "worker":
        serve(Connection(int(descriptor)))
    else:
        fork_workers(socket.socket(fileno=int(descriptor)))


if __name__ == "__main__":
    main(sys.argv[1:])
