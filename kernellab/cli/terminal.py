"""What stands on a terminal: text in its width and in colour, and nothing but the answer on standard output."""

from __future__ import annotations

import os
import re
import sys
import textwrap
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO

from kernellab.settings import wants_colour

_BOLD, _RED, _YELLOW, _GREEN = "1", "31", "33", "32"
_STYLES = (
    (re.compile(r"^\s*(?:error|wrong|fault|timeout|cannot run|compile_error|cannot_run|\w+Error):"), _RED),
    (re.compile(r"^\s*(?:OutOfBounds|CheckFailed|CannotRun|Unknown\w+|Worker\w+):"), _RED),
    (re.compile(r"^\s*(?:warning|unknown|differs):"), _YELLOW),
    (re.compile(r"^\s*(?:[\w, .]+ )?match(?:es)? "), _GREEN),
)
_LEAST_WIDTH = 40


def style_for(text: str, stream: TextIO) -> str:
    """Return a text as a stream shows it: as it is, or on a terminal in its width, and in colour where wanted."""
    if not stream.isatty():
        return text
    import shutil  # loads bz2 and lzma

    lines = wrap_lines(text, shutil.get_terminal_size().columns).splitlines()
    if wants_colour():
        lines = [_style_line(line, is_first=not at) for at, line in enumerate(lines)]
    return "\n".join(lines)


def wrap_lines(text: str, width: int) -> str:
    """Wrap the lines of a text at ``width`` characters, between words."""
    wrap = textwrap.TextWrapper(max(width, _LEAST_WIDTH), break_long_words=False, break_on_hyphens=False)
    wrap.replace_whitespace = False
    lines: list[str] = []
    for line in text.splitlines():
        wrap.subsequent_indent = line[: len(line) - len(line.lstrip())] + "    "
        lines += [line] if len(line) <= wrap.width else wrap.wrap(line)
    return "\n".join(lines)


def _style_line(line: str, *, is_first: bool) -> str:
    style = next((style for pattern, style in _STYLES if pattern.match(line)), _BOLD if is_first else "")
    return f"\x1b[{style}m{line}\x1b[0m" if style and line.strip() else line


@contextmanager
def answers_alone() -> Iterator[None]:
    """Send to standard error what is printed inside a with statement, by the user's file or by a kernel.

    Where standard output is the process's own, its file descriptor is exchanged: CUDA prints past Python.
    """
    with redirect_stdout(sys.stderr), _descriptor_exchanged():
        yield


@contextmanager
def warned_in_a_line() -> Iterator[None]:
    """Print each warning inside a with statement as one line on standard error, without the code that it is of."""

    def shown_so(message: Warning | str, *where: Any, **more: Any) -> None:
        print(style_for(f"warning: {message}", sys.stderr), file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = shown_so
        yield


@contextmanager
def _descriptor_exchanged() -> Iterator[None]:
    if not _is_own(sys.__stdout__, 1) or not _is_own(sys.__stderr__, 2):
        yield
        return
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _is_own(stream: TextIO | None, descriptor: int) -> bool:
    try:
        return stream is not None and stream.fileno() == descriptor
    except (OSError, ValueError):
        return False
