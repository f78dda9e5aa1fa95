from __future__ import annotations

from collections.abc import Iterator

import pytest

import kernellab
from tests.labs import shared_lab


@pytest.fixture(scope="session")
def lab() -> Iterator[kernellab.Lab]:
    with shared_lab(store=":memory:") as opened:
        yield opened
