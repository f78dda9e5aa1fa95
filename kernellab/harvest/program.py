"""A script or module run in this process as Python would run it, for a harvest of its launches."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kernellab.errors import UsageError


def run_program(program: str, arguments: Sequence[str], *, is_module: bool = False) -> int:
    """Run a script, or a module by name, as ``__main__``; return its exit status.

    An exception of the program is printed, and its status is 1.

    Raises:
        UsageError: there is no such script.
    """
    if not is_module and not Path(program).exists():
        raise UsageError(f"There is no script {program!r}; expected a file of Python, or -m and the name of a module.")
    with _command_line(program, arguments, os.getcwd() if is_module else str(Path(program).resolve().parent)):
        try:
            if is_module:
                runpy.run_module(program, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(program, run_name="__main__")
        except SystemExit as exc:
            return _exit_status(exc.code)
        except Exception:  # noqa: BLE001 - the program's own; what it has launched is harvested
            traceback.print_exc()
            return 1
    return 0


def _exit_status(code: object) -> int:
    """The exit status that Python gives for ``sys.exit(code)``; a text is printed."""
    if code is None or isinstance(code, int):
        return code or 0
    print(code, file=sys.stderr)
    return 1


@contextmanager
def _command_line(program: str, arguments: Sequence[str], folder: str) -> Iterator[None]:
    before = sys.argv, sys.path[:]
    sys.argv = [program, *arguments]
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.argv, sys.path[:] = before
