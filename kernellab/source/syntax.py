"""Syntax trees, made by one thread at a time.

CPython 3.11 counts the depth of the tree that it builds per interpreter and not per thread; of two threads that parse
at once, one may get ``SystemError: AST constructor recursion depth mismatch``.
"""

from __future__ import annotations

import ast

from kernellab.forks import lock

_ONE_AT_A_TIME = lock(crossing=True)


def parsed(text: str) -> ast.Module:
    """Return the syntax tree of a piece of Python."""
    with _ONE_AT_A_TIME:
        return ast.parse(text)
