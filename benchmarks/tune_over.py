"""One decision for all sizes: what tuning over 24 shapes costs beside 24 tunings, and what its rule loses.

A matrix product in fp16 with 48 configs, from ready workers. First it is tuned over the 24 shapes; then, in a store of
its own, each shape is tuned by itself, which also tells what is best there; then twelve shapes that nobody saw are, and
the rule is judged on these. With a ``--budget`` in seconds, the twelve come before what is left of the 24, of which as
many as fit are tuned, and the cost of all is extrapolated from these.

``--replay`` works without a GPU, on a table that was measured once; see `tune_over_table`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

import torch
import triton

import kernellab
from benchmarks.tune_over_replay import in_words, report
from benchmarks.tune_over_table import Shape, table
from benchmarks.tune_products import matmul
from kernellab.timing.config import Config
from kernellab.tune.dispatch.result import Dispatch
from kernellab.tune.result import Tuning

RESULT = Path(__file__).parent / "results" / "tune_over.txt"
REPLAYED = RESULT.with_name("tune_over_replay.txt")
KERNEL = matmul.fn  # without its own configs
MOST_SHARE, MEASURED, WITHIN = 0.25, 1.02, 1.05
MEDIAN, WORST, MANY = 1.01, 1.12, 10
_PAD = 128


def grid(meta: Mapping[str, Any]) -> tuple[int]:
    """Return a program per tile."""
    return (triton.cdiv(meta["m"], meta["BM"]) * triton.cdiv(meta["n"], meta["BN"]),)


def inputs(M: int, N: int, K: int) -> dict[str, Any]:
    """Return two matrices and room for their product; zeros follow, since the kernel reads whole blocks along k."""
    left = torch.zeros(M * K + _PAD, dtype=torch.float16, device="cuda")[: M * K].view(M, K).normal_()
    right = torch.zeros((K + _PAD) * N, dtype=torch.float16, device="cuda")[: K * N].view(K, N).normal_()
    product = torch.empty(M, N, dtype=torch.float16, device="cuda")
    return {"a_ptr": left, "b_ptr": right, "c_ptr": product, "m": M, "n": N, "k": K}


@dataclass
class Run:
    """What was measured live: the dispatch, the tunings of single shapes, and their seconds."""

    configs: Sequence[Config]
    budget_s: float
    clock_s: float = field(default_factory=time.perf_counter)
    dispatch: Dispatch | None = None
    over_s: float = 0.0
    alone: dict[tuple[int, ...], Tuning] = field(default_factory=dict)
    seconds: dict[tuple[int, ...], float] = field(default_factory=dict)

    @property
    def has_time(self) -> bool:
        """Whether the budget is not spent."""
        return time.perf_counter() - self.clock_s < self.budget_s


def ready_lab() -> kernellab.Lab:
    """Return a lab with an empty store, whose workers wait."""
    lab = kernellab.Lab(store=":memory:")
    lab.start(wait=True)
    warm = torch.ones(1 << 10, device="cuda")
    (warm + 1).sum().item()
    return lab


def measured(run: Run, seen: Sequence[Shape], unseen: Sequence[Shape]) -> None:
    """Tune over the shapes, then each of them by itself."""
    triton_configs = [config.to_triton() for config in run.configs]
    with ready_lab() as lab:
        begin_s = time.perf_counter()
        run.dispatch = lab.tune_over(
            KERNEL, grid, over=[shape.sizes for shape in seen], inputs=inputs, configs=triton_configs, max_configs=8
        )
        run.over_s = time.perf_counter() - begin_s
    print(f"over {len(seen)} shapes: {run.over_s:.2f} s", flush=True)
    with ready_lab() as lab:
        few, rest = seen[::4], [shape for shape in seen if shape not in seen[::4]]
        for shape in (*few, *unseen, *rest):  # under a budget, what is left out is some of the 24
            if run.has_time:
                _tune_alone(run, lab, shape, triton_configs)


def _tune_alone(run: Run, lab: kernellab.Lab, shape: Shape, configs: Sequence[Any]) -> None:
    given = inputs(**shape.sizes)
    torch.cuda.synchronize()
    key = tuple(shape.sizes.values())
    begin_s = time.perf_counter()
    run.alone[key] = lab.tune(KERNEL, grid, configs=configs, **given)
    run.seconds[key] = time.perf_counter() - begin_s
    print(f"{key} alone: {run.seconds[key]:.2f} s", flush=True)


def regret(run: Run, shape: Shape) -> float | None:
    """Return what the rule loses on a shape beside what its own tuning found; None where it was not tuned."""
    found = run.alone.get(tuple(shape.sizes.values()))
    if found is None or run.dispatch is None:
        return None
    times = {row.config: row.time_ms for row in found.rows if row.time_ms is not None and row.status == "ok"}
    picked = run.dispatch.rule.configs[run.dispatch.rule.place(**shape.sizes)]
    return times[picked] / min(times.values()) if picked in times else float("inf")


def lines_of(run: Run, seen: Sequence[Shape], unseen: Sequence[Shape]) -> list[str]:
    """Return the lines of the report, with what was asked and missed."""
    assert run.dispatch is not None
    facts, found = run.dispatch.provenance, run.dispatch
    own = [run.seconds[key] for shape in seen if (key := tuple(shape.sizes.values())) in run.seconds]
    whole_s = _extrapolated(own, len(seen))
    at_all = "" if len(own) == len(seen) else f" (from {len(own)} of them)"
    known = [value for shape in seen if (value := regret(run, shape)) is not None]
    others = [value for shape in unseen if (value := regret(run, shape)) is not None]
    asked = (
        (f"cost at most {MOST_SHARE:.0%}", run.over_s / whole_s <= MOST_SHARE),
        ("measured shapes within 2 %", all(value <= MEASURED for value in known)),
        ("median of unseen at most 1.01", median(others or [inf]) <= MEDIAN),
        ("ten of twelve within 5 %", sum(value <= WITHIN for value in others) >= MANY * len(others) / 12),
        ("none beyond 1.12", max(others, default=9.0) <= WORST),
    )
    return [
        f"{facts.get('device')}, triton {facts.get('triton')}, torch {facts.get('torch')}, from ready workers:",
        f"matmul fp16, {len(seen)} shapes, {len(run.configs)} configs",
        f"  over sizes: {run.over_s:6.2f} s, {facts['measured']} configs measured, a rule of {len(found.rule.costs)}",
        f"  one by one: {whole_s:6.2f} s{at_all}; share {run.over_s / whole_s:.1%}",
        f"  measured shapes: {in_words(known)}  within 2 %: {sum(value <= MEASURED for value in known)}",
        f"  unseen shapes:   {in_words(others)}  beyond 12 %: {sum(value > WORST for value in others)}",
        *(f"  config: {config.text}" for config in found.rule.configs),
        *_per_shape(run, seen, unseen),
        *(f"note: {note}" for note in found.notes),
        *(f"MISSED {what}" for what, is_met in asked if not is_met),
    ]


def _per_shape(run: Run, seen: Sequence[Shape], unseen: Sequence[Shape]) -> list[str]:
    assert run.dispatch is not None
    cases = {tuple(case.sizes.values()): case for case in run.dispatch.cases}
    lines = ["  shape                  over s  configs  alone s   x best"]
    for shape in (*seen, *unseen):
        key = tuple(shape.sizes.values())
        case, value = cases.get(key), regret(run, shape)
        own = f"{case.seconds:6.2f}  {len(case.rows):7}" if case else f"{'':6}  {'':7}"
        alone = f"{run.seconds[key]:7.2f}" if key in run.seconds else f"{'':7}"
        lines.append(f"  {key!s:<20} {own}  {alone}  {'' if value is None else f'{value:7.3f}'}")
    return lines


def _extrapolated(seconds: Sequence[float], count: int) -> float:
    """Return the seconds of all from those of some; the first, which compiles, counts once."""
    rest = seconds[1:]
    return seconds[0] + sum(rest) * (count - 1) / len(rest) if rest else seconds[0] * count


def main() -> None:
    """Print the report, and keep that of a GPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replay", action="store_true", help="Work on the kept table, without a GPU.")
    parser.add_argument("--budget", type=float, default=480.0, help="Seconds after which no further shape is tuned.")
    given = parser.parse_args()
    if given.replay:
        text = "\n".join(report())
        print(text)
        REPLAYED.write_text(text + "\n", encoding="utf-8")
        return
    kept = table()
    seen, unseen = kept.group("train"), kept.group("unseen")
    run = Run(kept.configs, given.budget)
    measured(run, seen, unseen)
    text = "\n".join(lines_of(run, seen, unseen))
    print(text)
    RESULT.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
