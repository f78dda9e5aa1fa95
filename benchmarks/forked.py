"""Processes that begin where this one stands: its imports are done, and CUDA was never touched."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable, Mapping
from typing import Any


class ChildFailed(Exception):
    """A child ended without an answer; its traceback is on stderr."""


def forked(work: Callable[[], dict[str, Any]], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return what ``work`` returns in a fork of this process, with more variables in its environment.

    Raises:
        ChildFailed: it raised, or died.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.environ.update(environment)
            os.write(writer, json.dumps(work()).encode())
            code = 0
        except BaseException:  # noqa: BLE001 - told here, and by the status there
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if status or not answer:
        raise ChildFailed(f"a child ended with status {status}")
    found: dict[str, Any] = json.loads(answer)
    return found
