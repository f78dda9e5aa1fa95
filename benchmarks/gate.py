"""The gate on a GPU: alarms of a kernel against itself, and planted slowdowns of 2 % and 5 % that it finds.

    .venv/bin/python -m benchmarks.gate              # on a GPU: 200, 10 and 10 runs, in about three minutes
    .venv/bin/python -m benchmarks.gate --simulated  # without: the same rule on simulated noise

Each revision is a file of its own, and so a kernel that is compiled and loaded by itself, also where it is the same.
A slowdown is planted as work: of a chain of multiplications that bounds the time, the later file has 2 % or 5 % more.
Launches have a fixed part, so the real slowdown is a little less. Half of the
runs of a kernel against itself are of that chain, half of a copy that the bandwidth bounds.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

GATE = 0.01
STEPS = 10_000  # of the chain of multiplications
PLANTED = {0.02: 10, 0.05: 10}
SELF_RUNS = 200
BUDGET_S = 10.0
N = 1 << 18
BLOCK = 1024
COPIED = 1 << 24

CHAIN = """\
import triton
import triton.language as tl


@triton.jit
def chain(x_ptr, out_ptr, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    for _ in range(STEPS):
        x = x * 0.9999 + 0.0001
    tl.store(out_ptr + offsets, x)


@triton.jit
def copy(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets))
"""


def revision(folder: Path, number: int) -> ModuleType:
    """Import the kernels as a file of their own, each with other line numbers and so another binary."""
    path = folder / f"revision_{number}.py"
    path.write_text("# a line\n" * number + CHAIN)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def print_counts(what: str, verdicts: Counter[str], seconds: list[float], ratios: list[float]) -> None:
    """Print the verdicts so far, with the median and the largest time of a run and the median ratio."""
    counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
    times = f"median {median(seconds):.2f} s, at most {max(seconds):.2f} s"
    print(f"{what}: {counts}; {times}; ratio {median(ratios):.4f}", flush=True)


def gate_runs(lab: Any, folder: Path, kernel: str, slowdown: float, runs: int) -> Counter[str]:
    """Run the gate on two revisions for a number of times; print partial and total counts."""
    import torch

    earlier, later = (getattr(revision(folder, number), kernel) for number in (0, 1))
    x = torch.rand(N if kernel == "chain" else COPIED, device="cuda")
    meta = {"STEPS": STEPS} if kernel == "chain" else {}
    more = {"STEPS": round(STEPS * (1 + slowdown))} if kernel == "chain" else {}
    verdicts, seconds, ratios = Counter[str](), list[float](), list[float]()
    what = f"{kernel} against itself" if not slowdown else f"{kernel}, {slowdown:.0%} slower"
    for number in range(runs):
        start = time.monotonic()
        call = {"BLOCK": BLOCK, **meta, **more}
        against = (earlier, None, meta)
        grid = (x.numel() // BLOCK,)
        result = lab.gate(later, grid, x, torch.empty_like(x), against=against, margin=GATE, budget_s=BUDGET_S, **call)
        seconds.append(time.monotonic() - start)
        verdicts[str(result.verdict)] += 1
        ratios.append(result.timing.ratio.median)
        if (number + 1) % 20 == 0 or number + 1 == runs:
            print_counts(f"{what}, {number + 1} of {runs} runs", verdicts, seconds, ratios)
    return verdicts


def on_gpu(self_runs: int) -> None:
    """Print the figures of this machine's GPU, by one lab and its worker."""
    import torch
    import triton

    import kernellab

    name = torch.cuda.get_device_name()
    print(f"{name}, Triton {triton.__version__}, torch {torch.__version__}; gate {GATE:.0%}, budget {BUDGET_S:g} s")
    with tempfile.TemporaryDirectory() as folder, kernellab.Lab(store=":memory:") as lab:
        for slowdown, runs in PLANTED.items():
            found = gate_runs(lab, Path(folder), "chain", slowdown, runs)
            print(f"planted {slowdown:.0%}: found in {found['slower']} of {runs}", flush=True)
        alarms = Counter[str]()
        for kernel in ("chain", "copy"):
            alarms += gate_runs(lab, Path(folder), kernel, 0.0, self_runs // 2)
        print(f"alarms: {alarms['slower']} of {alarms.total()} runs of a kernel against itself", flush=True)


def simulated(runs: int) -> Iterator[str]:
    """The counts of verdicts under each simulated disturbance."""
    from tests.timing.gate_noise import DISTURBANCES, verdict_counts

    yield f"simulated, gate {GATE:.0%}: verdicts against itself ({runs} runs), 2 % and 5 % slower (40 runs)"
    for name, disturbance in DISTURBANCES.items():
        cases = ((0.0, runs), *((slowdown, 40) for slowdown in PLANTED))
        counts = [verdict_counts(disturbance, slowdown, GATE, count) for slowdown, count in cases]
        cells = ["+".join(f"{count} {verdict}" for verdict, count in found.items()) for found in counts]
        yield f"{name:<16}" + "".join(f"{cell:>24}" for cell in cells)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--simulated", action="store_true", help="simulate the times; needs no GPU")
    options.add_argument("--runs", type=int, default=SELF_RUNS, help=f"runs of a kernel against itself ({SELF_RUNS})")
    chosen = options.parse_args()
    if chosen.simulated:
        for line in simulated(chosen.runs):
            print(line, flush=True)
    else:
        on_gpu(chosen.runs)
