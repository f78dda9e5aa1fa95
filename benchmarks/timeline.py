"""What time stamps cost and show: overhead, the second wave of a grid of 1.5 waves, and the sum of the parts.

python -m benchmarks.timeline

The expected waves follow from what the compiled kernel needs: registers, shared memory, threads and blocks per SM. The
kernel for them waits for a number of cycles, without memory and with few instructions, so that programs on one SM do
not slow each other down: a chain of dependent operations issues one in about four cycles, so more than four warps per
scheduler wait for each other, and a program that gets no turn shows no start.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
import triton
import triton.language as tl

import kernellab
from benchmarks.truth_recipes import RECIPES
from kernellab.compile.types import Compiled
from kernellab.inside.timeline import Timeline
from kernellab.target import device_name, limits_of, multiprocessors, occupancy
from kernellab.views.compile_facts import needs_of

ROUNDS = (0, 1_000, 5_000, 20_000)
BLOCK = 128
LAUNCHES = (
    ("matmul", {"m": 4096, "n": 4096, "k": 1024}, {"BM": 128, "BN": 128, "BK": 64, "num_warps": 8, "num_stages": 3}),
    ("row-sum", {"rows": 16384, "columns": 1024}, {"ROWS": 2, "BLOCK": 512, "num_warps": 8}),
    ("column-sum", {"rows": 8192, "columns": 4096}, {"ROWS": 64, "BLOCK": 32, "num_warps": 32}),
)


@triton.jit
def spinning(x, out, rounds, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets)
    for _ in range(rounds):
        value = value * 0.999 + 0.001
    tl.store(out + offsets, value)


@triton.jit
def waiting(out, cycles):
    start = tl.inline_asm_elementwise(
        "mov.u64 $0, %clock64;", "=l,~{memory}", [], dtype=tl.int64, is_pure=False, pack=1
    )
    now = start
    while now - start < cycles:
        now = tl.inline_asm_elementwise(
            "mov.u64 $0, %clock64;", "=l,~{memory}", [], dtype=tl.int64, is_pure=False, pack=1
        )
    tl.store(out + tl.program_id(0), now - start)


WAITED_CYCLES = 200_000
WARPS = (1, 2, 4, 8)


LINES = [spinning.starting_line_number + place for place in (3, 4, 6)]


def timeline_of(lab: kernellab.Lab, programs: int, rounds: int, lines: list[int] | None = None) -> Timeline:
    """Return the timeline of a launch of so many programs."""
    x = torch.randn(programs * BLOCK, device="cuda")
    return lab.timeline(spinning, (programs,), x, torch.empty_like(x), rounds, BLOCK=BLOCK, lines=lines)


def row_of(timeline: Timeline) -> str:
    """Return times, overhead, and the sum of gap and span over the plain launch's time."""
    parts = (timeline.gap_us + timeline.span_us) / timeline.plain_us
    return (
        f"plain {timeline.plain_us:8.2f} us  stamped {timeline.stamped_us:8.2f} us  overhead {timeline.overhead:6.1%}  "
        f"span {timeline.span_us:8.2f} us  gap {timeline.gap_us:6.2f} us  parts / plain {parts:.3f}  "
        f"clock {timeline.resolution_ns} ns"
    )


def places_by_resources(compiled: Compiled) -> tuple[int, str]:
    """Return how many programs of a kernel fit on an SM, and what limits them."""
    limits = limits_of(compiled.target)
    assert limits is not None, "the limits of this target are known"
    fit = occupancy(limits, needs_of(compiled.resources))
    return fit.blocks, " and ".join(fit.limiters)


def waves_row(lab: kernellab.Lab, warps: int) -> tuple[str, bool]:
    """Return the waves of a launch of 1.5 waves, expected by resources and seen; and whether they agree."""
    one = torch.zeros(1, dtype=torch.int64, device="cuda")
    places, limiter = places_by_resources(lab.compile(waiting, one, WAITED_CYCLES, num_warps=warps))
    programs = multiprocessors() * places * 3 // 2
    out = torch.zeros(programs, dtype=torch.int64, device="cuda")
    timeline = lab.timeline(waiting, (programs,), out, WAITED_CYCLES, num_warps=warps)
    expected = 1 - multiprocessors() * places / programs
    seen = sum(wave.share for wave in timeline.waves[1:])
    starts = np.sort(timeline.start_us[timeline.sm == timeline.sm[0]])
    first_end = float(timeline.end_us[timeline.sm == timeline.sm[0]].min())
    before = int((starts < first_end).sum())
    row = (
        f"{warps} warps: {places} places per SM by {limiter}, seen {timeline.places_per_sm}; second wave expected "
        f"{expected:.1%}, seen {seen:.1%}; on SM {timeline.sm[0]}, {before} starts until {starts[before - 1]:.1f} us, "
        f"before the first end at {first_end:.1f} us"
    )
    return row, timeline.places_per_sm == places and abs(seen - expected) < 0.05


def main() -> None:
    """Print a row per length of the kernel, without and with lines, then the waves of 1.5 waves."""
    print(device_name(torch.cuda.current_device()))
    with kernellab.Lab(store=":memory:") as lab:
        for rounds in ROUNDS:
            print(f"{rounds:6} rounds          {row_of(timeline_of(lab, multiprocessors(), rounds))}", flush=True)
            with_lines = timeline_of(lab, multiprocessors(), rounds, LINES)
            print(f"{rounds:6} rounds, 3 lines {row_of(with_lines)}", flush=True)
            print("  ", "  ".join(f"{name} {share:.1%}" for name, share in with_lines.shares.items()))
        for name, sizes, config in LAUNCHES:
            recipe = RECIPES[name]
            timeline = lab.timeline(recipe.kernel, recipe.grid, **recipe.inputs("cuda", **sizes), **config)
            print(f"{name:<20} {row_of(timeline)}", flush=True)
        rows = [waves_row(lab, warps) for warps in WARPS]
        print("\n".join(row for row, _ in rows))
        agreeing = sum(agrees for _, agrees in rows)
        print(f"{agreeing} of {len(rows)} launches of 1.5 waves have the waves of their resources")
        sys.exit(not all(agrees for _, agrees in rows))


if __name__ == "__main__":
    main()
