"""Proposed spaces held against recorded tables: does the space that is proposed for a launch hold its best config?

    python -m benchmarks.proposed [--device h200] [--kernels NAME ...]

Each recorded case is launched with the config of median rank, and its space is proposed from that launch, without a
GPU. Of the configs that were recorded, some are in the space: the best of these is compared with the best of all.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import kernellab
from benchmarks.truth_recipes import RECIPES
from kernellab.timing.config import Config
from kernellab.timing.launches import Launches
from kernellab.tune.proposing import propose_space

RESULTS = Path(__file__).parent / "results"
_HOOKED = "host-descriptors"  # a launch sets its blocks by a hook, which a call alone does not have


def main() -> None:
    """Propose a space for each recorded case, and print what it holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="h200")
    parser.add_argument("--kernels", nargs="*", default=list(RECIPES))
    options = parser.parse_args()
    truth = json.loads((RESULTS / f"truth_{options.device}.json").read_text())
    print(f"{truth['device']}, recorded under Triton {truth['triton']}; times over that of the best recorded config")
    print("kernel, sizes; configs proposed, possible, recorded among the proposed; launched; best proposed, possible")
    begin_s, ratios = time.perf_counter(), list[tuple[float, float]]()
    with kernellab.Lab(target="cuda:90", store=":memory:") as lab:
        for case in truth["cases"]:
            timed = sorted((row for row in case["rows"] if row["time_ms"]), key=lambda row: row["time_ms"])
            if timed and case["kernel"] in options.kernels and case["kernel"] != _HOOKED:
                ratios.append(_report(lab, case, timed))
    launched, proposed = zip(*ratios, strict=True)
    print(f"\n{len(ratios)} cases: launched, median {median(launched):.2f}, at most {max(launched):.2f};")
    near = [sum(ratio <= limit for ratio in proposed) for limit in (1.02, 1.05)]
    print(f"best proposed within 1.02 in {near[0]}, within 1.05 in {near[1]}, at most {max(proposed):.2f}")
    print(f"in {time.perf_counter() - begin_s:.0f} s")


def _report(lab: kernellab.Lab, case: Mapping[str, Any], timed: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Print what the space of a case holds; return the times launched and proposed over the best."""
    recipe, launched, best_ms = RECIPES[case["kernel"]], timed[len(timed) // 2], timed[0]["time_ms"]
    given = {name: value for name, value in launched["config"].items() if name != "num_ctas"}
    arguments = {**recipe.inputs("meta", **case["sizes"]), **given}
    _, space = propose_space(lab.compiler, Launches(recipe.kernel, recipe.grid, (), arguments, lab.target))
    proposed, possible = (_times_ms(timed, given, configs) for configs in (space.configs, space.possible))
    ratios = [ms / best_ms for ms in (launched["time_ms"], min(proposed), min(possible))]
    sizes = ", ".join(f"{name} {value}" for name, value in case["sizes"].items())
    counts = f"{len(space.configs):3d} {len(space.possible):4d} {len(proposed):3d} of {len(timed):3d}"
    print(f"{case['kernel']:19s} {sizes:40s} {counts}  {' '.join(f'{ratio:5.2f}' for ratio in ratios)}", flush=True)
    return ratios[0], ratios[1]


def _times_ms(timed: Sequence[Mapping[str, Any]], given: Mapping[str, Any], configs: Sequence[Config]) -> list[float]:
    """Return the recorded times of the configs that are among some proposed ones."""
    values = [{**given, **config.values} for config in configs]
    return [row["time_ms"] for row in timed if {"num_ctas": 1, **row["config"]} in values]


if __name__ == "__main__":
    main()
