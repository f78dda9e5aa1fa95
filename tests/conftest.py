from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator

import pytest

import kernellab
from tests.labs import COMPILED_FOLDER, shared_lab

_KEPT = pytest.StashKey[tempfile.TemporaryDirectory[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Make the folder of what the run compiles, before its test processes start."""
    if COMPILED_FOLDER not in os.environ:
        config.stash[_KEPT] = tempfile.TemporaryDirectory(prefix="kernellab-compiled-")
        os.environ[COMPILED_FOLDER] = config.stash[_KEPT].name


def pytest_unconfigure(config: pytest.Config) -> None:
    if _KEPT in config.stash:
        del os.environ[COMPILED_FOLDER]
        config.stash[_KEPT].cleanup()


@pytest.fixture(scope="session")
def lab() -> Iterator[kernellab.Lab]:
    with shared_lab(store=":memory:") as opened:
        yield opened


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Seed torch's generator, whose numbers otherwise depend on the tests that ran before in this process."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
