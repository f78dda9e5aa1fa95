"""The fixtures of the interpreter's tests, for those of runs."""

from __future__ import annotations

from tests.interpreter.conftest import interpreter, launch

__all__ = ["interpreter", "launch"]
