"""Tuning with weights on a GPU: the speedup of a program that is predicted, and the one that is measured.

Three programs launch a matrix product in fp16 at eight shapes each, so often as a language model does while it decodes,
while it reads a prompt, and at random. Each is tuned with its weights; then it runs with the configs before and after,
in turns, in one shuffled order of launches. The interval of the prediction should hold the measured ratio in two of
three programs at least.

    python -m benchmarks.tune_program
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import torch
import triton

import kernellab
from benchmarks.tune_over import KERNEL, grid, inputs, ready_lab
from benchmarks.tune_over_table import table
from kernellab.tune.dispatch.result import Dispatch

RESULT = Path(__file__).parent / "results" / "tune_program.txt"
BASELINE = triton.Config({"BM": 128, "BN": 128, "BK": 32}, num_warps=4, num_stages=3)
TURNS = 15
Shape = tuple[int, int, int]
_LAYERS: list[tuple[int, int]] = [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)]  # (N, K) of a layer of 8 B


def _random_mix() -> dict[Shape, int]:
    rng = random.Random(0)
    return {
        (rng.choice((16, 128, 512, 2048)), 2 ** rng.randint(6, 13), 2 ** rng.randint(6, 13)): rng.randint(1, 60)
        for _ in range(8)
    }


PROGRAMS: dict[str, dict[Shape, int]] = {
    "decode": {(m, n, k): count for m, count in ((16, 40), (64, 5)) for n, k in _LAYERS},
    "prompt": {(m, n, k): count for m, count in ((512, 12), (2048, 2)) for n, k in _LAYERS},
    "random": _random_mix(),
}


def program_ms(mix: Mapping[Shape, int], given: Mapping[Shape, dict[str, Any]], pick: Callable[[Shape], Any]) -> float:
    """Return the milliseconds of all launches of a program in one CUDA graph, the median of several replays."""
    order = [shape for shape, count in mix.items() for _ in range(count)]
    random.Random(1).shuffle(order)
    launches = [(given[shape], pick(shape)) for shape in order]

    def launch_all() -> None:
        for arguments, config in launches:
            KERNEL[grid](**arguments, **config.kwargs, num_warps=config.num_warps, num_stages=config.num_stages)

    launch_all()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch_all()
    times = []
    for _ in range(3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return median(times)


def tuned(lab: kernellab.Lab, mix: Mapping[Shape, int]) -> Dispatch:
    """Tune over the shapes of a program with its launches as weights."""
    over = [dict(zip("MNK", shape, strict=True)) for shape in mix]
    configs = [config.to_triton() for config in table().configs]
    return lab.tune_over(KERNEL, grid, over=over, inputs=inputs, configs=configs, weights=mix, baseline=BASELINE)


def lines_of(lab: kernellab.Lab, name: str, mix: Mapping[Shape, int]) -> tuple[list[str], bool]:
    """Return what a program gains, predicted and measured, and whether the interval holds the latter."""
    begin_s = time.perf_counter()
    dispatch = tuned(lab, mix)
    seconds, speedup = time.perf_counter() - begin_s, dispatch.speedup
    assert speedup is not None
    given = {shape: inputs(*shape) for shape in mix}
    ratios = []
    for _ in range(TURNS):
        before_ms = program_ms(mix, given, lambda _: BASELINE)
        after_ms = program_ms(mix, given, lambda shape: dispatch.choose(**dict(zip("MNK", shape, strict=True))))
        ratios.append(before_ms / after_ms)
    real = median(ratios)
    holds = speedup.low <= real <= speedup.high
    facts = f"{len(mix)} shapes, {sum(mix.values())} launches, tuned in {seconds:.2f} s"
    spent = f"{dispatch.provenance['measured']} configs measured, {len(dispatch.unmeasured)} shapes unmeasured"
    turns = f"({min(ratios):.3f} to {max(ratios):.3f} in {TURNS} turns), {before_ms:.3f} to {after_ms:.3f} ms"
    return [
        f"{name}: {facts}, {spent}",
        f"  predicted: {speedup}",
        f"  measured:  {real:.3f}x {turns}; {'within' if holds else 'outside'} the interval",
    ], holds


def main() -> None:
    """Print the report and write it to the results."""
    lines, held = [], []
    with ready_lab() as lab:
        for name, mix in PROGRAMS.items():
            own, holds = lines_of(lab, name, mix)
            print("\n".join(own), flush=True)
            lines += own
            held.append(holds)
    device = torch.cuda.get_device_name()
    last = f"{device}, triton {triton.__version__}, torch {torch.__version__}: held in {sum(held)} of {len(held)}"
    print(last)
    RESULT.write_text("\n".join([*lines, last]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
