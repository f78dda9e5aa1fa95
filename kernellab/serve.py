"""The inside of a worker process: ``python -m kernellab.serve FD PARENT_PID MODULE...``.

It takes jobs from the inherited socket FD, one at a time, and answers each with a result or a failure. It ends with
the process that started it.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection

from kernellab.worker import Job, failure_of

_PARENT_POLL_S = 1.0


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


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_POLL_S)
    os._exit(0)


def main(arguments: list[str]) -> None:
    descriptor, parent, *modules = arguments
    threading.Thread(target=_end_with, args=(int(parent),), daemon=True).start()
    for module in modules:
        importlib.import_module(module)
    serve(Connection(int(descriptor)))


if __name__ == "__main__":
    main(sys.argv[1:])
