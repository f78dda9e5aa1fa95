"""Twenty seconds in a JupyterLab, as an animated picture: a cell, its card, a tuning, and sliders."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import nbformat

from tests.browser.conftest import jupyterlab_server, put

SIZE = {"width": 1040, "height": 680}
BIGGEST_BYTES = 3_000_000
_START = """%load_ext kernellab
import torch
import kernellab
lab = kernellab.current_lab()
torch.manual_seed(0);"""
_CELL = """%%triton --check "torch.softmax(x, dim=1)"
import torch, triton
import triton.language as tl

@triton.jit
def softmax_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=-float("inf"))
    numerator = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * columns + offsets, numerator / tl.sum(numerator, axis=0), mask=mask)

x = torch.randn(128, 1000)
out = torch.empty_like(x)
grid = lambda meta: (128,)
softmax_kernel[grid](x, out, 1000, BLOCK=1024)"""
_TUNING = """from kernellab.tune import Space

space = Space(BLOCK=[1024, 2048], num_warps=[1, 2, 4, 8, 16])
%triton_tune --configs space --check "torch.softmax(x, dim=1)" softmax_kernel[grid](x, out, 1000)"""
_SLIDERS = """lab.explore(softmax_kernel, grid, x, out, 1000, check="torch.softmax(x_ptr, 1)",
            BLOCK=[1024, 2048, 4096], num_warps=[1, 2, 4, 8, 16])"""
_RUN_CELL = """async index => {
  const panel = jupyterapp.shell.currentWidget;
  await panel.context.ready;
  await panel.sessionContext.ready;
  panel.content.activeCellIndex = index;
  await jupyterapp.commands.execute('notebook:run-cell');
}"""
_RAN = """index => {
  const panel = jupyterapp.shell.currentWidget;
  return panel.sessionContext.session.kernel.status === 'idle' && panel.content.widgets[index].model.executionCount;
}"""
_SETTLED = """point => {
  const screen = document.querySelector('.kp-live');
  return screen && screen.dataset.state !== 'busy' && (!point || screen.dataset.point === point);
}"""
_TIDY = """() => {
  const style = document.createElement('style');
  style.textContent = '.jp-Notebook-footer, .jp-cell-toolbar, .jp-Toolbar { visibility: hidden }';
  document.head.append(style);
}"""
# Puts the top of what a selector finds a little below the top of the notebook, or as far down as it fits.
_SCROLL = """([selector, at, share]) => {
  const view = document.querySelector('.jp-WindowedPanel-outer');
  const cell = document.querySelectorAll('.jp-CodeCell')[at].querySelector(selector);
  const target = cell.getBoundingClientRect().top - view.getBoundingClientRect().top - 16;
  view.scrollTop += target * share;
}"""
_GLIDE = (0.25, 0.34, 0.5, 1.0)  # shares of what is left of the way


class Film:
    """Takes pictures of a page, each with the time that it stays."""

    def __init__(self, page: Any) -> None:
        self._page = page
        self.frames: list[bytes] = []
        self.lengths_ms: list[int] = []

    def hold(self, length_ms: int) -> None:
        """Show the page as it is."""
        picture = self._page.screenshot(animations="disabled", caret="hide")
        if self.frames and picture == self.frames[-1]:
            self.lengths_ms[-1] += length_ms
            return
        self.frames.append(picture)
        self.lengths_ms.append(length_ms)

    def glide(self, at: int, selector: str) -> None:
        """Scroll to a part of a cell."""
        for share in _GLIDE:
            self._page.evaluate(_SCROLL, [selector, at, share])
            self.hold(60)

    def save(self, path: Path) -> Path:
        """Write an animation that repeats."""
        from PIL import Image

        first, *rest = (Image.open(io.BytesIO(frame)).convert("RGB") for frame in self.frames)
        options = {"duration": self.lengths_ms, "loop": 0, "quality": 82, "method": 4, "minimize_size": False}
        first.save(path, save_all=True, append_images=rest, **options)
        if path.stat().st_size > BIGGEST_BYTES:
            raise ValueError(f"{path} has {path.stat().st_size:,} bytes; expected {BIGGEST_BYTES:,} at most.")
        return path


def film_tours(browser: Any, scratch: Path, folder: Path) -> list[Path]:
    """Write the tour in light and dark."""
    with jupyterlab_server(scratch) as address:
        films = {name: _filmed(browser, address, name) for name in ("tour", "tour-dark")}
    return [film.save(folder / f"{name}.webp") for name, film in films.items()]


def _filmed(browser: Any, address: str, name: str) -> Film:
    put(address, f"{name}.ipynb", _notebook())
    page = browser.new_page(viewport=SIZE)
    page.set_default_timeout(180_000)
    page.goto(f"{address}/doc/tree/{name}.ipynb?reset")
    page.wait_for_function("() => window.jupyterapp?.shell?.currentWidget?.context?.isReady")
    theme = "JupyterLab Dark" if name.endswith("dark") else "JupyterLab Light"
    page.emulate_media(color_scheme=theme.split()[1].lower())
    page.evaluate("theme => jupyterapp.commands.execute('apputils:change-theme', { theme })", theme)
    page.wait_for_function("theme => document.body.dataset.jpThemeName === theme", arg=theme)
    page.locator("#jupyterlab-splash").wait_for(state="detached")
    page.evaluate(_TIDY)
    film = _film_of(page)
    page.close()
    return film


def _notebook() -> Any:
    cells = [nbformat.v4.new_code_cell(source) for source in (_START, _CELL, _TUNING, _SLIDERS)]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return nbformat.v4.new_notebook(cells=cells, metadata=kernel)


def _film_of(page: Any) -> Film:
    film = Film(page)
    _run(page, 0)
    film.glide(1, ".jp-Cell-inputWrapper")
    film.hold(2500)
    _run(page, 1)
    film.hold(900)
    film.glide(1, ".jp-OutputArea-output:last-child")
    film.hold(4000)
    film.glide(2, ".jp-Cell-inputWrapper")
    film.hold(900)
    _run(page, 2)
    film.hold(4000)
    film.glide(3, ".jp-Cell-inputWrapper")
    film.hold(700)
    _run(page, 3)
    page.wait_for_function(_SETTLED, arg=None)
    film.glide(3, ".jp-Cell-inputWrapper")
    film.hold(1500)
    _move_sliders(page, film)
    return film


def _move_sliders(page: Any, film: Film) -> None:
    for name, keys in (("num_warps", ["ArrowRight", "ArrowRight", "ArrowLeft"]), ("BLOCK", ["ArrowRight"])):
        handle = page.get_by_role("slider", name=name, exact=True)
        for key in keys:
            jobs = int(page.locator(".kp-live").get_attribute("data-jobs") or 0)
            handle.focus()
            page.keyboard.press(key)
            page.wait_for_function("jobs => document.querySelector('.kp-live').dataset.jobs > jobs", arg=jobs)
            page.wait_for_function(_SETTLED, arg=None)
            film.hold(1000)
    film.hold(1500)


def _run(page: Any, index: int) -> None:
    page.evaluate(_RUN_CELL, index)
    page.wait_for_function(_RAN, arg=index)
