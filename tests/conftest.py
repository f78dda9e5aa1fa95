from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

import kernellab
from tests.labs import shared_lab

CHROMIUM = os.environ.get("CHROME") or shutil.which("chromium") or shutil.which("google-chrome")
CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="session")
def lab() -> Iterator[kernellab.Lab]:
    with shared_lab(store=":memory:") as opened:
        yield opened


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """One browser for all tests of a process, as Playwright starts once in a thread."""
    api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no Chromium on the PATH (and CHROME names none)")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGUMENTS)
        yield browser
        browser.close()
