"""A judge whose launches are made in two ways, which leave the same."""

from __future__ import annotations

from typing import Any

import pytest

from kernellab.judge import judging
from tests.judge.launched_both_ways import BothWays


@pytest.fixture
def launchers(monkeypatch: pytest.MonkeyPatch) -> list[BothWays]:
    """Have each kernel launched one by one and in batches; the list is of the launchers of the calls of `judge`."""
    made: list[BothWays] = []

    def launcher(timeout_s: float, **options: Any) -> BothWays:
        made.append(BothWays(timeout_s, **options))
        return made[-1]

    monkeypatch.setattr(judging, "CpuLauncher", launcher)
    return made
