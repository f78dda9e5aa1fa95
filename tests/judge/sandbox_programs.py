"""Programs for `tests.judge.test_sandbox`, run in a confined process: the request is their Python."""

from __future__ import annotations

from collections.abc import Callable


def main(request: bytes, send: Callable[[bytes], None]) -> None:
    """Run the request as Python, which may call ``send``, or ``answer`` with a text."""
    exec(request.decode(), {"send": send, "answer": lambda text: send(str(text).encode()), "__name__": "program"})
