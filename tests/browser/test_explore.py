"""The panel of `lab.explore` in JupyterLab: moved by keys and by the mouse, dragged fast, onto points that fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import ALL_RAN, RUN_ALL, notebooks_run, put

nbformat = pytest.importorskip("nbformat")

pytestmark = pytest.mark.browser

SETUP = """%load_ext kernellab
import torch
import kernellab
lab = kernellab.current_lab()
x, out = torch.randn(4096), torch.zeros(4096)"""
KERNEL = """%%triton
@triton.jit
def halved(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, 0.5 * tl.load(x_ptr + offsets, mask=mask), mask=mask)
"""
GRID = "lambda meta: (triton.cdiv(4096, meta['BLOCK']),)"
PANEL = f"""panel = lab.explore(halved, {GRID}, x, out, 4096, check=lambda x_ptr: x_ptr / 2,
                    BLOCK=[64, 96, 128, 256, 512, 1024, 2048, 4096, 8192, 16384], num_warps=[1, 2, 4, 8])
panel"""
SETTLED = """jobs => {
  const screen = document.querySelector('.kp-live');
  return screen && screen.dataset.state !== 'busy' && Number(screen.dataset.jobs) >= jobs;
}"""


@pytest.fixture(scope="module")
def opened(jupyterlab: str, chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return a page that shows a panel at its first point; a notebook and its kernel take seconds to start."""
    cells = [nbformat.v4.new_code_cell(text) for text in (SETUP, KERNEL, PANEL)]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    put(jupyterlab, "explore.ipynb", nbformat.v4.new_notebook(cells=cells, metadata=kernel))
    with notebooks_run(jupyterlab, chromium, tmp_path_factory.mktemp("explore")) as run:
        page = run("explore.ipynb")
        page.wait_for_function(SETTLED, arg=1)
        page.locator(".kl-explore").scroll_into_view_if_needed()
        yield page


@pytest.fixture
def panel(opened: Any) -> Any:
    """Return the page, with its panel back at the first point."""
    for name in ("BLOCK", "num_warps"):
        handle(opened, name).focus()
        opened.keyboard.press("Home")
    settle(opened, "BLOCK=64, num_warps=1")
    return opened


def handle(page: Any, name: str) -> Any:
    return page.get_by_role("slider", name=name, exact=True)


def jobs(page: Any) -> int:
    return int(page.locator(".kp-live").get_attribute("data-jobs"))


def settle(page: Any, text: str) -> None:
    """Wait until the figures are those of a point."""
    page.wait_for_function(
        """text => { const screen = document.querySelector('.kp-live');
          return screen.dataset.state !== 'busy' && screen.dataset.point === text; }""",
        arg=text,
        timeout=20_000,
    )


def fact(page: Any, name: str) -> str:
    return str(page.locator(f".kp-live [data-fact='{name}'] dd").inner_text())


def drag(page: Any, slider: Any, share: float, steps: int) -> None:
    """Drag the handle of a slider to a share of its length."""
    box, track = slider.bounding_box(), slider.locator("xpath=../..").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(track["x"] + share * track["width"], box["y"] + box["height"] / 2, steps=steps)
    page.mouse.up()


def test_keys_and_mouse_move_the_figures(panel: Any) -> None:
    warps = handle(panel, "num_warps")
    before = fact(panel, "threads")
    warps.focus()
    panel.keyboard.press("ArrowRight")
    settle(panel, "BLOCK=64, num_warps=2")
    assert before.startswith("32")
    assert fact(panel, "threads").startswith("64")
    assert warps.get_attribute("aria-valuetext") == "2"
    assert warps.evaluate("handle => handle === document.activeElement")  # the update took no focus
    drag(panel, warps, 1.0, steps=3)
    settle(panel, "BLOCK=64, num_warps=8")
    assert fact(panel, "threads").startswith("256")
    assert "BLOCK=64, num_warps=8" in panel.locator(".kp-live [role=status]").inner_text()


def test_dragging_fast_works_on_few_points_and_ends_on_the_last(panel: Any) -> None:
    begun = jobs(panel)
    drag(panel, handle(panel, "BLOCK"), 1.0, steps=30)
    settle(panel, "BLOCK=16384, num_warps=1")
    assert 1 <= jobs(panel) - begun < 9, "of the nine sizes passed some are skipped"
    handle(panel, "BLOCK").focus()
    begun = jobs(panel)
    for _ in range(9):
        panel.keyboard.press("ArrowLeft")
    settle(panel, "BLOCK=64, num_warps=1")
    assert jobs(panel) - begun < 9


def test_a_point_that_does_not_compile_says_why_and_leaves_the_figures(panel: Any) -> None:
    registers = fact(panel, "registers")
    handle(panel, "BLOCK").focus()
    panel.keyboard.press("ArrowRight")
    settle(panel, "BLOCK=96, num_warps=1")
    assert "power of 2" in panel.locator(".kp-live .kp-alert").inner_text()
    assert panel.locator(".kp-live .kp-stale").inner_text().startswith("Figures of the last good point, BLOCK=64")
    assert fact(panel, "registers") == registers
    panel.keyboard.press("ArrowRight")
    settle(panel, "BLOCK=128, num_warps=1")
    assert panel.locator(".kp-live .kp-alert").count() == 0
    assert panel.locator(".kp-live .kp-stale").count() == 0


def test_the_source_keeps_its_stage_and_line(panel: Any) -> None:
    panel.locator(".kp-live summary").click()
    panel.locator(".kp-live .kx-tabs label", has_text="TTGIR").click()
    panel.locator(".kp-live .kx-source .s", has_text="tl.store").click()
    chosen = "document.querySelector('.kp-live .kx-panes input:checked').closest('.s').querySelector('i').innerText"
    line = panel.evaluate(chosen)
    handle(panel, "num_warps").focus()
    panel.keyboard.press("End")
    settle(panel, "BLOCK=64, num_warps=8")
    panel.wait_for_function(
        """document.querySelector('.kp-live .kx-p1 pre').textContent.includes('"ttg.num-warps" = 8')""", timeout=20_000
    )
    assert panel.locator(".kp-live .kx-p1").is_visible()
    assert panel.evaluate(chosen) == line
    assert handle(panel, "num_warps").evaluate("handle => handle === document.activeElement")


def test_after_a_restart_the_sliders_say_that_they_are_asleep(
    jupyterlab: str, opened: Any, chromium: Any, tmp_path: Path
) -> None:
    asleep = opened.locator(".kp-live .kp-asleep")
    assert not asleep.is_visible()
    opened.evaluate("jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    asleep.wait_for(state="visible", timeout=20_000)
    assert "run the cells again that load kernellab and define halved" in " ".join(asleep.inner_text().split())
    opened.locator(".kl-explore").screenshot(path=str(tmp_path / "asleep.png"))
    opened.evaluate(RUN_ALL)
    opened.wait_for_function(ALL_RAN)
    opened.wait_for_function(SETTLED, arg=1)
    assert not opened.locator(".kp-live .kp-asleep").is_visible()


def test_a_notebook_without_its_kernel_shows_the_picture(panel: Any, jupyterlab: str, tmp_path: Path) -> None:
    assert not panel.locator(".kp-static").is_visible()
    handle(panel, "num_warps").focus()
    panel.keyboard.press("End")
    settle(panel, "BLOCK=64, num_warps=8")
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        panel.evaluate("theme => jupyterapp.commands.execute('apputils:change-theme', { theme })", theme)
        panel.wait_for_function("theme => document.body.dataset.jpThemeName === theme", arg=theme)
        panel.locator("#jupyterlab-splash").wait_for(state="detached")
        panel.screenshot(path=str(tmp_path / f"{theme.split()[-1].lower()}.png"))
    panel.set_viewport_size({"width": 420, "height": 900})
    panel.screenshot(path=str(tmp_path / "narrow.png"))
    overflow = "document.querySelector('.kl-explore').scrollWidth - document.querySelector('.kl-explore').clientWidth"
    assert panel.evaluate(overflow) <= 1
    panel.set_viewport_size({"width": 1100, "height": 900})
    panel.evaluate("jupyterapp.commands.execute('docmanager:save')")
    panel.wait_for_function("!jupyterapp.shell.currentWidget.context.model.dirty")
    panel.evaluate("jupyterapp.serviceManager.sessions.shutdownAll()")
    panel.goto(f"{jupyterlab}/doc/tree/explore.ipynb?reset")
    picture = panel.locator(".kp-static")
    picture.wait_for(timeout=20_000)
    assert "256" in picture.locator("[data-fact=threads]").inner_text()
    panel.wait_for_function("!document.body.innerText.includes('Loading widget')", timeout=20_000)
    assert "Error displaying widget" not in panel.locator("body").inner_text()
    panel.wait_for_function(  # a server stops sooner when its kernels have started
        "jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status === 'idle'", timeout=20_000
    )
    panel.screenshot(path=str(tmp_path / "reopened.png"))
