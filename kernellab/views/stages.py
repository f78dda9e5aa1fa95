"""The stages of a compile as text."""

from __future__ import annotations

from kernellab.compile.types import Compiled
from kernellab.errors import UsageError

STAGE_NAMES = ("ttir", "ttgir", "llir", "ptx", "amdgcn", "sass")


def stage_text(compiled: Compiled, name: str) -> str:
    """Return the text of a stage, or the sentence that says why there is none."""
    try:
        text: str = getattr(compiled, name)
    except UsageError as error:
        return error.message
    return text.rstrip("\n")
