"""The pictures of README and site, made anew in light and dark: python -m docs.pictures (needs Chromium).

The tour is filmed in a JupyterLab; the explorer shows a matrix product of the tests.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from playwright.sync_api import sync_playwright

import kernellab
from docs.tour import film_tours
from kernellab.views.explorers import explorer_page
from tests.kernels.matmul import matmul_kernel

FOLDER = Path(__file__).parent / "images"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as scratch:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for path in (*film_tours(browser, Path(scratch), FOLDER), *photograph_explorer(browser, Path(scratch))):
            print(path)
        browser.close()


def photograph_explorer(browser: Any, scratch: Path) -> list[Path]:
    """Write the picture of the explorer with the line of the dot chosen, in light and dark."""
    page_file = scratch / "page.html"
    page_file.write_text(explorer(), encoding="utf-8")
    paths = [FOLDER / "explorer.png", FOLDER / "explorer-dark.png"]
    for path, scheme in zip(paths, ("light", "dark"), strict=True):
        page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme=scheme)
        page.goto(page_file.as_uri())
        page.locator(".kx").get_by_text("tl.dot(").first.click(force=True)  # a label of the line lies over its text
        page.wait_for_timeout(800)
        page.locator("body").screenshot(path=path)
        page.close()
    return paths


def explorer() -> str:
    """Return the explorer of a matrix product as a page."""
    half = torch.empty(512, 512, dtype=torch.float16)
    shape = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}
    with kernellab.Lab("cuda:90", ":memory:") as lab:
        compiled = lab.compile(matmul_kernel, half, half, half, 512, 512, 512, 512, 512, 512, **shape, num_warps=8)
        return explorer_page(compiled, opened="sass")


if __name__ == "__main__":
    main()
