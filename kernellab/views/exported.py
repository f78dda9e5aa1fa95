"""What is said of a file that was written."""

from __future__ import annotations

from kernellab.export.write import Exported


def exported_text(exported: Exported) -> str:
    """Return where a kernel was written, and the remarks on it."""
    lines = [f"{exported.label} was written as {exported.path} ({exported.kind})."]
    return "\n".join([*lines, *(f"Note: {note}." for note in exported.notes)])
