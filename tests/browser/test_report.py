"""The page that `kernellab demo` writes opens from disk, without a network and without scripts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "01_quickstart.ipynb"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the page, and what the command printed."""
    page = tmp_path_factory.mktemp("report") / "quickstart.html"
    done = subprocess.run(
        [sys.executable, "-m", "kernellab", "demo", str(NOTEBOOK), "--page", str(page)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return page, done.stdout


def test_the_summary_names_every_kernel_and_the_page(report: tuple[Path, str]) -> None:
    page, printed = report
    for kernel in (
        "add",
        "softmax",
        "matmul",
        "layer_norm",
        "layer_norm_backward",
        "dropout",
        "attention",
        "histogram",
    ):
        assert f"{kernel}_kernel@1" in printed
    assert printed.count("matches torch") == 9
    assert "DIFFERS" not in printed
    assert str(page) in printed


def test_the_page_asks_for_nothing_but_itself(report: tuple[Path, str], chromium: Any, tmp_path: Path) -> None:
    page_file, _ = report
    context = chromium.new_context(offline=True, java_script_enabled=False, viewport={"width": 1100, "height": 900})
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(page_file.as_uri())
    assert [address for address in asked if not address.startswith("data:")] == [page_file.as_uri()]
    assert page.locator("svg").count() >= 10
    assert page.locator("svg").first.is_visible()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.screenshot(path=str(tmp_path / f"{scheme}.png"), full_page=True)
    context.close()
