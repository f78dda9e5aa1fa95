"""Tables of which each row is a case: some rows in every run, the others in CI's own (`make exhaustive`)."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def every(step: int, cases: Iterable[Any]) -> list[Any]:
    """Mark all cases but each ``step``-th as exhaustive; a tuple stands for several parameters."""
    return [
        case
        if index % step == 0
        else pytest.param(*(case if type(case) is tuple else (case,)), marks=pytest.mark.exhaustive)
        for index, case in enumerate(cases)
    ]


def named(names: Container[str], cases: Iterable[Any]) -> list[Any]:
    """Mark all cases as exhaustive but those of some names; a case is its name, or has one."""
    return [
        case if getattr(case, "name", case) in names else pytest.param(case, marks=pytest.mark.exhaustive)
        for case in cases
    ]
