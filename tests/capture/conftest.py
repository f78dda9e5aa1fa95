from __future__ import annotations

from collections.abc import Iterator

import pytest

import kernellab


@pytest.fixture(scope="module")
def lab() -> Iterator[kernellab.Lab]:
    with kernellab.Lab(store=":memory:") as opened:
        yield opened
