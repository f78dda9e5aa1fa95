"""Reports of real kernels for the tests of the views."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from kernellab.compile.types import Compiled
from kernellab.views.report import KernelReport
from tests.views.reports import compiled_of, report_of


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="session")
def compiled(folder: Path) -> Callable[[str], Compiled]:
    """Return a kernel compiled, by its name in `tests.views.reports.launches`."""
    return partial(compiled_of, folder=folder)


@pytest.fixture(scope="session")
def report(folder: Path) -> Callable[..., KernelReport]:
    """Return the report of a kernel's run, by its name in `tests.views.reports.launches`."""
    return partial(report_of, folder=folder)
