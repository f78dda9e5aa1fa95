"""Which line of the user's source is being interpreted."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from types import FrameType, TracebackType

import numpy as np
import triton

from kernellab.errors import Place

_FOREIGN = tuple(str(path) for path in (Path(__file__).parent, Path(triton.__file__).parent, Path(np.__file__).parent))
_FOREIGN_NAMES = frozenset({"<string>", "<frozen runpy>"})


def is_foreign(file: str) -> bool:
    """Tell whether code of this file is the interpreter's, Triton's or numpy's, not the user's."""
    return file.startswith(_FOREIGN) or file in _FOREIGN_NAMES


def current_line() -> tuple[str, int] | None:
    """Return file and line of the innermost frame of user code, or None outside a kernel."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not is_foreign(frame.f_code.co_filename):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return None


def line_of_traceback(traceback: TracebackType | None) -> tuple[str, int] | None:
    """Return file and line of the innermost frame of user code below ``execute``."""
    found = None
    inside = False
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        inside = inside or is_foreign(file)
        if inside and not is_foreign(file):
            found = file, traceback.tb_lineno
        traceback = traceback.tb_next
    return found


def place_of(line: tuple[str, int] | None) -> Place | None:
    """Return a place with its source text."""
    if line is None:
        return None
    return Place(line[0], line[1], text=linecache.getline(*line).rstrip("\n") or None)
