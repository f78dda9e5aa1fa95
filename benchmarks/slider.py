"""How long it takes from the move of a slider to the updated figures.

Run as ``python -m benchmarks.slider``. The panel lives in an asyncio loop, as in a Jupyter kernel: a move sets the
trait of the slider, as the message of a browser does; its handler hands the point to the panel's thread, and the clock
stops when the loop has set the trait that holds the figures. What the browser takes to draw them is not part of it.
Moves are half a second apart, so that each starts at once; the last one of a drag waits for the hand to rest as well.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton

import kernellab
from kernellab.explore.schedule import REST_S
from kernellab.views.panels import Panel
from tests.kernels.elementwise import add_kernel
from tests.kernels.matmul import matmul_kernel

RESULT = Path(__file__).parent / "results" / "slider.txt"
APART_S = 0.5
COLUMNS = f"{'moves':>5} {'first':>7} {'all':>7} {'worst':>7} | {'moves':>5} {'compile':>8} {'first':>7} {'all':>7}"


@dataclass(frozen=True, slots=True)
class Moved:
    """One move: seconds until the first new figures, until the last ones, and of the compile where there was one."""

    first_s: float
    all_s: float
    compile_s: float


@dataclass(frozen=True, slots=True)
class Subject:
    """A panel, moves of one slider to what is compiled before, and, from ``turn`` on, moves that compile."""

    name: str
    panel: Panel
    cached: Sequence[Mapping[str, Any]]
    turn: Mapping[str, Any]
    fresh: Sequence[Mapping[str, Any]]
    rounds: int = 3


def main() -> None:
    with kernellab.Lab(store=":memory:") as lab:
        lab.start(wait=True)
        lines = asyncio.run(measured(lab))
    text = "\n".join(lines) + "\n"
    RESULT.parent.mkdir(exist_ok=True)
    suffix = "-gpu" if torch.cuda.is_available() else ""
    RESULT.with_stem(f"slider{suffix}").write_text(text, encoding="utf-8")
    sys.stdout.write(text)


async def measured(lab: kernellab.Lab) -> list[str]:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    lines = [
        f"Python {sys.version.split()[0]}, Triton {triton.__version__}, torch {torch.__version__}; {device}",
        "medians, ms; goals: 150 where the kernel is compiled already, else the compile plus 150",
        f"the last move of a drag adds {REST_S * 1000:.0f} ms, in which the hand may go on",
        "first: registers, spills, shared memory, occupancy; all: also times, or what the interpreter ran, and outputs",
        "",
        f"{'':<34} {'compiled already':^29} | {'compiled by the move, compile taken off':^44}",
        f"{'':<34} {COLUMNS}",
    ]
    for subject in subjects(lab):
        for values in subject.cached if subject.rounds > 1 else ():
            subject.panel.set(**values).wait()
        warm = [await moved(subject.panel, values) for _ in range(subject.rounds) for values in subject.cached]
        subject.panel.set(**subject.turn).wait()
        cold = [await moved(subject.panel, values) for values in subject.fresh]
        lines.append(row(subject.name, warm, cold))
        subject.panel.close()
    return lines


async def moved(panel: Panel, values: Mapping[str, Any]) -> Moved:
    """Move the sliders, and return when the figures of the point show."""
    await asyncio.sleep(APART_S)
    times: list[float] = []
    settled = asyncio.Event()

    def changed(change: Any) -> None:
        if change["name"] == "state" and change["new"] == "busy":
            return
        times.append(time.perf_counter())
        if change["name"] == "state":
            settled.set()

    panel._screen.observe(changed, ["figures", "state"])
    begin = time.perf_counter()
    for name, value in values.items():
        panel._sliders[name].value = value
    await settled.wait()
    panel._screen.unobserve(changed, ["figures", "state"])
    evaluation = panel.point
    assert evaluation is not None
    compiled = evaluation.compiled
    compile_s = 0.0 if compiled is None or compiled.from_cache else compiled.seconds
    return Moved(times[0] - begin, times[-1] - begin, compile_s)


def subjects(lab: kernellab.Lab) -> list[Subject]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    count = 1 << (24 if device == "cuda" else 13)
    tensors = [torch.randn(count, device=device) for _ in range(3)]
    blocks = [{"BLOCK": block} for block in (256, 512, 1024, 2048)]

    found = []
    panel = lab.explore(add_kernel, line_grid, *tensors, count, BLOCK=[256, ..., 2048], num_warps=[4, 2])
    found.append(Subject(f"add, {count:,} elements", panel, blocks, {"num_warps": 2}, blocks[:-1]))
    if device == "cpu":
        sizes = [count - 16 * i for i in range(13)]
        panel = lab.explore(add_kernel, line_grid, *tensors, BLOCK=256, n=sizes)
        found.append(Subject("add, interpreted anew each time", panel, [{"n": n} for n in sizes[1:]], {}, (), rounds=1))
    side = 2048 if device == "cuda" else 128
    halves = [torch.randn(side, side, device=device).half() for _ in range(3)]
    shape = {"m": side, "n": side, "k": side, "a_stride": side, "b_stride": side, "c_stride": side}
    tiles = {"BLOCK_M": [16, 32, 64, 128], "num_warps": [4, 8], "BLOCK_N": 64}
    panel = lab.explore(matmul_kernel, tile_grid, *halves, **shape, **tiles, BLOCK_K=32, GROUP_M=4)
    rows = [{"BLOCK_M": block} for block in (16, 32, 64, 128)]
    found.append(Subject(f"matmul, {side} x {side}, fp16", panel, rows, {"num_warps": 8}, rows[:-1]))
    return found


def line_grid(meta: Mapping[str, Any]) -> tuple[int]:
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def tile_grid(meta: Mapping[str, Any]) -> tuple[int]:
    return (triton.cdiv(meta["m"], meta["BLOCK_M"]) * triton.cdiv(meta["n"], meta["BLOCK_N"]),)


def row(name: str, warm: Sequence[Moved], cold: Sequence[Moved]) -> str:
    def median_ms(values: Sequence[float]) -> float:
        return 1000 * statistics.median(values)

    alls = [each.all_s for each in warm]
    text = f"{name:<34} {len(warm):>5} {median_ms([m.first_s for m in warm]):>7.0f} {median_ms(alls):>7.0f}"
    text += f" {1000 * max(alls):>7.0f} |"
    if not cold:
        return text
    first = median_ms([m.first_s - m.compile_s for m in cold])
    rest = median_ms([m.all_s - m.compile_s for m in cold])
    return f"{text} {len(cold):>5} {median_ms([m.compile_s for m in cold]):>8.0f} {first:>7.0f} {rest:>7.0f}"


if __name__ == "__main__":
    main()
