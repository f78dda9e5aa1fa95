from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

import kernellab
from tests.labs import shared_lab


@pytest.fixture(scope="session")
def lab() -> Iterator[kernellab.Lab]:
    with shared_lab(store=":memory:") as opened:
        yield opened


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Seed torch's generator, whose numbers otherwise depend on the tests that ran before in this process."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
