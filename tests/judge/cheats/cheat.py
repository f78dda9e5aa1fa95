"""A candidate that none may accept, and how such texts are written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

FOLDER = Path(__file__).parent
HEAD = "import torch\nimport triton\nimport triton.language as tl\n"
MARK = "# here"
"""Stands on the line of a candidate that a reason names."""

WRONG = frozenset({"wrong"})
REFUSED = frozenset({"refused"})
UNSAFE = frozenset({"unsafe"})
WRONG_OR_REFUSED = WRONG | REFUSED
WRONG_OR_UNSAFE = WRONG | UNSAFE


@dataclass(frozen=True, slots=True)
class Cheat:
    """A candidate that is not right, and the specification that it attacks.

    ``verdicts`` are those that are right, ``rules`` the rules of which the first reason names one. ``kind`` is the way
    of cheating that it stands for, ``timeout_s`` how long its process and each of its launches may take: what never
    ends needs no more than a start takes.
    """

    name: str
    specification: str
    kind: str
    verdicts: frozenset[str]
    rules: frozenset[str]
    text: str
    timeout_s: float = 20.0

    @property
    def file(self) -> Path:
        """The file of the specification."""
        return FOLDER / f"spec_{self.specification}.py"

    @property
    def line(self) -> int | None:
        """The line that a reason must name, from 1; None where no line is to blame."""
        lines = (number for number, line in enumerate(self.text.splitlines(), 1) if line.endswith(MARK))
        return next(lines, None)


def cheat(name: str, specification: str, kind: str, verdicts: frozenset[str], rules: str, text: str) -> Cheat:
    """Return a cheat; ``rules`` are separated by spaces."""
    return Cheat(name, specification, kind, verdicts, frozenset(rules.split()), text)


def endless(never_ends: Cheat, timeout_s: float = 5.0) -> Cheat:
    """Return a cheat that is stopped soon."""
    return replace(never_ends, timeout_s=timeout_s)


def changed(text: str, *changes: tuple[str, str]) -> str:
    """Return a text with parts replaced, each of which it must have.

    Raises:
        ValueError: it lacks a part.
    """
    for old, new in changes:
        if old not in text:
            raise ValueError(f"The text lacks {old!r}.")
        text = text.replace(old, new)
    return text
