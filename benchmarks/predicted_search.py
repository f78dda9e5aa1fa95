"""What ``search="predicted"`` finds in spaces of about 2,000 configs, against all of them measured. It needs a GPU.

    python -m benchmarks.predicted_search [--kernels column-sum row-sum ...] [--budget-s 250] [--out FILE.json]

The search comes first, with a store of its own; then every config is compiled and measured, up to a budget of seconds.
The two winners are compared by the medians of one final, with a flushed L2.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import triton

import kernellab
from benchmarks.truth_recipes import RECIPES
from kernellab.timing.config import Space

_TILES = {"BM": [16, 32, 64, 128, 256], "BN": [16, 32, 64, 128, 256], "num_warps": [2, 4, 8, 16]}
_IN_REGISTERS = "ROWS * BLOCK <= 128 * 32 * num_warps"  # elements of a thread; more take minutes to compile
SPACES: dict[str, tuple[dict[str, int], Space]] = {
    "column-sum": (
        {"rows": 8192, "columns": 4096},
        Space(
            ROWS=[1, 2, 4, 8, 16, 32, 64, 128],
            BLOCK=[16, 32, 64, 128, 256, 512, 1024, 2048],
            num_warps=[1, 2, 4, 8, 16, 32],
            num_stages=[1, 2, 3, 4, 5, 6, 7],
            where=_IN_REGISTERS,
        ),
    ),
    "row-sum": (
        {"rows": 16384, "columns": 1024},
        Space(
            ROWS=[1, 2, 4, 8, 16, 32, 64, 128],
            BLOCK=[16, 32, 64, 128, 256, 512, 1024, 2048],
            num_warps=[1, 2, 4, 8, 16, 32],
            num_stages=[1, 2, 3, 4, 5, 6, 7],
            where=_IN_REGISTERS,
        ),
    ),
    "matmul": (
        {"m": 4096, "n": 4096, "k": 1024},
        Space(**_TILES, BK=[16, 32, 64, 128], num_stages=[1, 2, 3, 4, 5], where="BM * BN <= 128 * 32 * num_warps"),
    ),
    "split-k": (
        {"m": 512, "n": 1024, "k": 16384},
        Space(
            **_TILES,
            BK=[16, 32, 64, 128],
            SPLIT=[1, 2, 4, 8, 16],
            num_stages=[2, 3, 4],
            where="BM * BN <= 64 * 32 * num_warps",
        ),
    ),
}


def searched(name: str, budget_s: float) -> dict[str, Any]:
    """Search a space by prediction, then measure as much of it as the budget allows; return the figures."""
    sizes, space = SPACES[name]
    recipe = RECIPES[name]
    inputs = recipe.inputs("cuda", **sizes)
    with kernellab.Lab(store=":memory:") as lab:
        begin_s = time.perf_counter()
        quick = lab.tune(recipe.kernel, recipe.grid, configs=space, search="predicted", timeout_s=5.0, **inputs)
        quick_s = time.perf_counter() - begin_s
        print(f"{name}: {quick!r} in {quick_s:.0f} s", flush=True)
        whole = lab.tune(recipe.kernel, recipe.grid, configs=space, budget_s=budget_s, timeout_s=5.0, **inputs)
        whole_s = time.perf_counter() - begin_s - quick_s
        both = [quick.best, whole.best]
        final = lab.tune(recipe.kernel, recipe.grid, configs=both, fresh=True, **inputs)
    times = {row.config.text: row.time_ms for row in final.rows}
    found, best = (times[_text(each)] for each in (quick, whole))
    compiled = sum(row.compile_s is not None for row in quick.rows)
    return {
        "kernel": name,
        "sizes": sizes,
        "space": len(list(space)),
        "compiled": compiled,
        "measured": sum(row.time_ms is not None for row in quick.rows),
        "found": _text(quick),
        "found_ms": found,
        "search_s": quick_s,
        "best": _text(whole),
        "best_ms": best,
        "all_measured": sum(row.time_ms is not None for row in whole.rows),
        "all_compiled": sum(row.compile_s is not None for row in whole.rows),
        "all_s": whole_s,
        "loss": (found or 0.0) / min(found or 0.0, best or 0.0),
    }


def _text(tuning: kernellab.Tuning) -> str:
    return tuning.rows[tuning.winner or 0].config.text


def row_text(row: dict[str, Any]) -> str:
    """Return a line of figures."""
    return (
        f"{row['kernel']:<12}{row['compiled']:4} of {row['space']:,} compiled, {row['measured']} measured in "
        f"{row['search_s']:.0f} s: {row['loss']:.3f}x the best; all: {row['all_compiled']:,} compiled, "
        f"{row['all_measured']:,} measured in {row['all_s']:.0f} s\n"
        f"            found {row['found']} at {row['found_ms']:.4g} ms; best {row['best']} at {row['best_ms']:.4g} ms"
    )


def main() -> None:
    """Search the spaces and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", nargs="*", default=list(SPACES))
    parser.add_argument("--budget-s", type=float, default=250.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    import torch

    print(f"{torch.cuda.get_device_name()}, Triton {triton.__version__}, torch {torch.__version__}", flush=True)
    rows = []
    for name in options.kernels:
        rows.append(searched(name, options.budget_s))
        print(row_text(rows[-1]), flush=True)
        if options.out is not None:
            options.out.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
