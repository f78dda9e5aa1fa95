"""What it costs to look inside: one program of a large product, from the call to the widget, and a click in Chromium.

python -m benchmarks.inside
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
import triton
import triton.language as tl

import kernellab
from kernellab.inside.values import Values
from kernellab.views.widgets import ValuesView

RESULT = Path(__file__).parent / "results" / "inside.txt"
_SIZE, _ROUNDS = 4096, 5


@triton.jit
def product(a, b, c, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K)
        x = tl.load(a + rows[:, None] * K + inner[None, :])
        y = tl.load(b + inner[:, None] * N + columns[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + rows[:, None] * N + columns[None, :], acc.to(tl.float16))


def record(lab: kernellab.Lab) -> Values:
    a = torch.randn(_SIZE, _SIZE, generator=torch.Generator().manual_seed(0)).half()
    out = torch.zeros_like(a)
    blocks = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}
    return lab.values(product, (_SIZE // 128, _SIZE // 128), a, a, out, _SIZE, _SIZE, **blocks)


def seconds_of(act: Any) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def click_ms(view: ValuesView) -> tuple[float, float]:
    """The time from a click on a line to its drawn tile, and that of the drawing alone, in ms: medians."""
    from playwright.sync_api import sync_playwright

    from tests.browser.bridge import Bridge

    clicks, drawings = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        bridge = Bridge(view, browser.new_page(viewport={"width": 1200, "height": 900}))
        for name in ("x 128x64", "y 64x128", "acc 128x128") * _ROUNDS:
            chip = bridge.page.locator(".kv-source button", has_text=name).last
            wait = f"() => document.querySelector('.kv-facts').innerText.startsWith('{name.split()[0]} in line')"
            begun = time.perf_counter()
            chip.click()
            bridge.page.wait_for_function(wait, polling=5)
            clicks.append((time.perf_counter() - begun) * 1e3)
            drawings.append(float(bridge.page.evaluate("() => document.querySelector('#el').dataset.drawnMs")))
        browser.close()
    return median(clicks), median(drawings)


def main() -> None:
    with kernellab.Lab(target="cuda:90", store=":memory:") as lab:
        record(lab)  # the worker starts
        values = record(lab)
        recorded_s = median(seconds_of(lambda: record(lab)) for _ in range(_ROUNDS))
        viewed_s = median(seconds_of(lambda: ValuesView(values)) for _ in range(_ROUNDS))
        both_s = median(seconds_of(lambda: ValuesView(record(lab))) for _ in range(_ROUNDS))
        clicked_ms, drawn_ms = click_ms(ValuesView(values))
        with tempfile.TemporaryDirectory() as folder:
            size = values.save(Path(folder) / "values.html").stat().st_size
    medians = f"recorded in {recorded_s:.2f} s, widget made in {viewed_s:.2f} s, both {both_s:.2f} s"
    lines = [
        f"One program of a product of {_SIZE} with 64 rounds on the CPU, {len(values.values)} values:",
        f"{medians} (medians of {_ROUNDS})",
        f"click on a line to its drawn tile: {clicked_ms:.0f} ms, the drawing {drawn_ms:.1f} ms",
        f"saved page: {size / 1e6:.2f} MB",
    ]
    text = "\n".join(lines)
    print(text)
    RESULT.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
