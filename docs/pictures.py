"""The pictures of README and site, drawn anew in light and dark: python -m docs.pictures (needs Chromium).

The tour is filmed in a JupyterLab. The card comes from the saved quickstart, the graph and the explorer from kernels of
the tests, and the figures of a tuning and of a benchmark from the rows that the notebook on tuning gave on an H200.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

import kernellab
from docs.pages import notebooks
from docs.tour import tours
from kernellab.views.explorers import explorer_page
from kernellab.views.figures.sweep import roofline_figure
from kernellab.views.figures.tuning import timings_figure
from kernellab.views.graph import svg
from tests.kernels.matmul import matmul_kernel
from tests.kernels.softmax import softmax_kernel

FOLDER = Path(__file__).parent / "images"
ROWS = Path(__file__).parents[1] / "notebooks" / "data"
_PAGE = """<!DOCTYPE html><meta charset="utf-8"><style>:root {{ color-scheme: light dark }}
body {{ margin: 0; padding: 12px; background: Canvas; color: CanvasText; width: fit-content }}</style>{body}"""


def main() -> None:
    from playwright.sync_api import sync_playwright

    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as scratch:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tours(browser, Path(scratch), lambda dark: FOLDER / file_name("tour", dark, "webp"))
        browser.close()
    with kernellab.Lab("cuda:90", ":memory:") as lab, tempfile.TemporaryDirectory() as scratch:
        pages = {"card": card_page(), "graph": graph_page(lab), "explorer": explorer(lab)}
        for name, page, dark in photographs(pages):
            print(shoot(page, Path(scratch), FOLDER / file_name(name, dark), dark=dark))
    for name, draw in figures().items():
        for dark in (False, True):
            path = FOLDER / file_name(name, dark)
            draw(dark=dark).savefig(path)
            print(path)


def figures() -> dict[str, Callable[..., Any]]:
    """Return what draws the figures of recorded measurements."""
    tuned, swept = (kernellab.read_frame(ROWS / f"{name}.json") for name in ("matmul_h200", "matmul_sweep_h200"))
    return {"tuning": partial(timings_figure, tuned), "roofline": partial(roofline_figure, swept)}


def photographs(pages: dict[str, str]) -> Iterator[tuple[str, str, bool]]:
    for name, page in pages.items():
        for dark in (False, True):
            yield name, page, dark


def file_name(name: str, dark: bool, suffix: str = "png") -> str:
    return f"{name}-dark.{suffix}" if dark else f"{name}.{suffix}"


def card_page() -> str:
    """Return the first card of the quickstart, as it was saved, as a page."""
    cell = next(cell for cell in notebooks.notebook("01_quickstart").cells if cell.id == "add")
    html = next(output.data["text/html"] for output in cell.outputs if "text/html" in output.get("data", {}))
    return _PAGE.format(body=f'<div style="width: 860px">{html}</div>')


def graph_page(lab: kernellab.Lab) -> str:
    """Return the dataflow graph of a softmax as a page."""
    x = torch.empty(128, 1000)
    launch = (softmax_kernel, x, torch.empty_like(x), 1000, 1000, 128, 1000)
    graph, effects = lab.graph(*launch, BLOCK=1024), lab.effects(*launch, BLOCK=1024)
    return _PAGE.format(body=svg(graph, effects, view="source"))


def explorer(lab: kernellab.Lab) -> str:
    """Return the explorer of a matrix product as a page."""
    half = torch.empty(512, 512, dtype=torch.float16)
    shape = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}
    compiled = lab.compile(matmul_kernel, half, half, half, 512, 512, 512, 512, 512, 512, **shape, num_warps=8)
    return explorer_page(compiled, opened="sass")


def shoot(page: str, scratch: Path, path: Path, *, dark: bool) -> Path:
    """Take a picture of what is on a page; in an explorer, with the line of the dot chosen."""
    from playwright.sync_api import sync_playwright

    (scratch / "page.html").write_text(page, encoding="utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        scheme = "dark" if dark else "light"
        opened = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme=scheme)
        opened.goto((scratch / "page.html").as_uri())
        dot = opened.locator(".kx").get_by_text("tl.dot(").first
        if dot.count():
            dot.click(force=True)  # a label of the line lies over its text
            opened.wait_for_timeout(800)
        opened.locator("body").screenshot(path=path)
        browser.close()
    return path


if __name__ == "__main__":
    main()
