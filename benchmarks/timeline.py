"""What time stamps cost and show: overhead, the second wave of a grid of 1.5 waves, and the sum of the parts.

python -m benchmarks.timeline
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import kernellab
from benchmarks.truth_recipes import RECIPES
from kernellab.inside.timeline import Timeline
from kernellab.target import device_name, multiprocessors

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
        places = timeline_of(lab, 64 * multiprocessors(), 20_000).places_per_sm
        timeline = timeline_of(lab, multiprocessors() * places * 3 // 2, 20_000)
        shares = ", ".join(f"{wave.share:.1%}" for wave in timeline.waves)
        print(f"1.5 waves of {places} programs per SM: {shares}; expected 66.7%, 33.3%")
        print(f"tail {timeline.tail_us:.1f} us of {timeline.span_us:.1f} us, idle {timeline.idle_share:.1%}")


if __name__ == "__main__":
    main()
