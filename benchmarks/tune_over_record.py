"""Records tables of all cases and configs on a GPU, for replays of tuning over sizes: see `tune_over_table`.

Each case is tuned by itself, from an empty store, so that rows are those of any tuning: what clearly loses was
launched twice, finalists many times.

    python -m benchmarks.tune_over_record --kernel softmax --to build/tables
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
import triton

import kernellab
from benchmarks import tune_over
from benchmarks.tune_over_table import MULTIPROCESSORS, table
from benchmarks.tune_products import attention, persistent, split_k
from benchmarks.tune_rows import norm_backward, softmax
from kernellab.target import limits_of, parse_target
from kernellab.timing.config import Config
from kernellab.tune.result import Row, Tuning

CASES, SEEN = 36, 24
_PAD = 1024
Sizes = dict[str, int]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a kernel is launched for some sizes, with the configs and the cases that are recorded."""

    kernel: Any
    grid: Callable[[Mapping[str, Any]], tuple[int, ...]]
    inputs: Callable[..., Mapping[str, Any]]
    configs: list[triton.Config]
    draw: Callable[[random.Random], Sizes]

    def cases(self) -> list[Sizes]:
        """Return the cases, each drawn once."""
        rng = random.Random(0)
        found: dict[tuple[int, ...], Sizes] = {}
        while len(found) < CASES:
            sizes = self.draw(rng)
            found.setdefault(tuple(sizes.values()), sizes)
        return list(found.values())


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: triton.language.constexpr):
    """Add two vectors."""
    places = triton.language.program_id(0).to(triton.language.int64) * BLOCK + triton.language.arange(0, BLOCK)
    mask = places < n
    total = triton.language.load(x_ptr + places, mask=mask) + triton.language.load(y_ptr + places, mask=mask)
    triton.language.store(out_ptr + places, total, mask=mask)


def _half(*extents: int) -> torch.Tensor:
    return torch.randn(*extents, dtype=torch.float16, device="cuda")


def _logarithmic(rng: random.Random, low: int, high: int, step: int = 1) -> int:
    """Return a multiple of a step between two bounds, uniform in its logarithm."""
    value = low * (high / low) ** rng.random()
    return max(step, step * round(value / step))


def _row_sizes(rng: random.Random) -> Sizes:
    while True:
        columns = rng.choice([64, 128, 256, 512, 1000, 1024, 1500, 2048, 3000, 4096])
        rows = rng.choice([1 << rng.randrange(0, 17), _logarithmic(rng, 1, 1 << 16)])
        if rows * columns <= 1 << 26:
            return {"rows": rows, "columns": columns}


def _softmax_inputs(rows: int, columns: int) -> Mapping[str, Any]:
    x = torch.randn(rows, columns, device="cuda")
    width = triton.next_power_of_2(columns)
    return {"x_ptr": x, "out_ptr": torch.empty_like(x), "rows": rows, "columns": columns, "WIDTH": width}


def _norm_inputs(rows: int, columns: int) -> Mapping[str, Any]:
    width = triton.next_power_of_2(columns)
    means = {name: torch.randn(rows, device="cuda").abs() for name in ("mean_ptr", "rstd_ptr")}
    sums = {name: torch.zeros(columns, device="cuda") for name in ("w_ptr", "dw_ptr", "db_ptr")}
    tensors = {name: _half(rows, columns) for name in ("dy_ptr", "x_ptr", "dx_ptr")}
    return {**tensors, **means, **sums, "rows": rows, "columns": columns, "WIDTH": width}


def _attention_sizes(rng: random.Random) -> Sizes:
    while True:
        heads, length = rng.choice([1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 128]), _logarithmic(rng, 128, 8192, 128)
        if heads * length * length <= 1 << 30:
            return {"heads": heads, "length": length}


def _attention_inputs(heads: int, length: int) -> Mapping[str, Any]:
    tensors = {name: _half(heads, length, 64) for name in ("q_ptr", "k_ptr", "v_ptr", "out_ptr")}
    return {**tensors, "length": length, "scale": 0.125, "WIDTH": 64}


def _product_sizes(rng: random.Random, steps: tuple[int, ...], most: int = 1 << 33) -> Sizes:
    while True:
        sizes = {name: _logarithmic(rng, 16, 8192, rng.choice(steps)) for name in "MNK"}
        if prod(sizes.values()) <= most:
            return sizes


def _split_inputs(M: int, N: int, K: int) -> Mapping[str, Any]:
    """Return two matrices and their product; as many rows follow as programs read that share a tile along k."""
    left, right = _half(M * K + _PAD)[: M * K].view(M, K), _half(K + _PAD, N)[:K]
    return {"a_ptr": left, "b_ptr": right, "c_ptr": torch.zeros(M, N, device="cuda"), "m": M, "n": N, "k": K}


def _add_inputs(n: int) -> Mapping[str, Any]:
    return {**{name: torch.randn(n, device="cuda") for name in ("x_ptr", "y_ptr", "out_ptr")}, "n": n}


def _add_sizes(rng: random.Random) -> Sizes:
    return {"n": _logarithmic(rng, 100, 1 << 27, rng.choice([1, 16, 1024]))}


def _rows(meta: Mapping[str, Any]) -> tuple[int, ...]:
    return (triton.cdiv(meta["rows"], meta["ROWS"]),)


def _persistent_grid(meta: Mapping[str, Any]) -> tuple[int, ...]:
    return (min(MULTIPROCESSORS, *tune_over.grid(meta)),)


def _split_grid(meta: Mapping[str, Any]) -> tuple[int, ...]:
    return (*tune_over.grid(meta), meta["SPLIT"])


def _attention_grid(meta: Mapping[str, Any]) -> tuple[int, ...]:
    return triton.cdiv(meta["length"], meta["BM"]), meta["q_ptr"].shape[0]


_ADD = [triton.Config({"BLOCK": 1 << power}, num_warps=warps) for power in range(7, 14) for warps in (1, 2, 4, 8)]
_SOFTMAX = [each for each in softmax.configs if each.num_warps in (4, 8, 16)]
_PRODUCTS = [config.to_triton() for config in table().configs]

RECIPES = {
    "softmax": lambda: Recipe(softmax.fn, _rows, _softmax_inputs, _SOFTMAX, _row_sizes),
    "attention": lambda: Recipe(attention.fn, _attention_grid, _attention_inputs, attention.configs, _attention_sizes),
    "odd": lambda: Recipe(
        tune_over.KERNEL, tune_over.grid, tune_over.inputs, _PRODUCTS, lambda rng: _product_sizes(rng, (1, 8, 16))
    ),
    "matmul": lambda: Recipe(
        tune_over.KERNEL, tune_over.grid, tune_over.inputs, _PRODUCTS, lambda rng: _product_sizes(rng, (16, 128))
    ),
    "add": lambda: Recipe(add, lambda m: (triton.cdiv(m["n"], m["BLOCK"]),), _add_inputs, _ADD, _add_sizes),
    "split-k": lambda: Recipe(
        split_k, _split_grid, _split_inputs, split_k.configs, lambda rng: _product_sizes(rng, (16, 64), 1 << 31)
    ),
    "persistent": lambda: Recipe(
        persistent, _persistent_grid, tune_over.inputs, persistent.configs, lambda rng: _product_sizes(rng, (16, 128))
    ),
    "norm-backward": lambda: Recipe(norm_backward, _rows, _norm_inputs, norm_backward.configs, _row_sizes),
}


def recorded(name: str, budget_s: float) -> dict[str, Any]:
    """Return the table of a kernel as JSON has it; after so many seconds, no further case is measured."""
    recipe = RECIPES[name]()
    begin_s = time.perf_counter()
    cases: list[dict[str, Any]] = []
    facts: Mapping[str, Any] = {}
    configs = [Config.from_triton(config) for config in recipe.configs]
    with kernellab.Lab(store=":memory:") as lab:
        lab.start(wait=True)
        for sizes in recipe.cases():
            if time.perf_counter() - begin_s > budget_s:
                break
            given = recipe.inputs(**sizes)
            tuning = lab.tune(recipe.kernel, recipe.grid, configs=recipe.configs, **given)
            facts = tuning.provenance
            group = "train" if len(cases) < SEEN else "unseen"
            cases.append({"group": group, "sizes": sizes, **_measured(tuning, recipe, given, configs)})
            best = min((time_ms for time_ms in cases[-1]["ms"] if time_ms is not None), default=None)
            print(f"{name} {sizes}: best {best} ms, {time.perf_counter() - begin_s:.1f} s", flush=True)
    own = {key: facts.get(key) for key in ("device", "triton", "torch")}
    return {**own, "kernel": name, "configs": [dict(config.values) for config in configs], "cases": cases}


def _measured(tuning: Tuning, recipe: Recipe, given: Mapping[str, Any], configs: list[Config]) -> dict[str, list[Any]]:
    rows = {row.config: row for row in tuning.rows}
    own = [rows.get(config) for config in configs]
    return {
        "ms": [None if row is None or row.time_ms is None else round(row.time_ms, 6) for row in own],
        "resident": [None if row is None else _resident(row, tuning.provenance["target"]) for row in own],
        "grid": [list(recipe.grid({**given, **config.values})) for config in configs],
    }


def _resident(row: Row, target: str) -> int | None:
    """Return how many programs fit on one multiprocessor."""
    limits = limits_of(parse_target(target))
    if row.occupancy is None or limits is None:
        return None
    warps = limits.threads_per_multiprocessor // limits.warp_threads
    return max(1, round(row.occupancy * warps / (row.config.num_warps or 4)))


def main() -> None:
    """Record the tables that are asked for, a file each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel", action="append", choices=sorted(RECIPES), help="Which; without it, all.")
    parser.add_argument("--to", type=Path, default=Path("build/tables"), help="The folder of the files.")
    parser.add_argument("--budget", type=float, default=55.0, help="Seconds a kernel after which no case is begun.")
    given = parser.parse_args()
    given.to.mkdir(parents=True, exist_ok=True)
    for name in given.kernel or RECIPES:
        path = given.to / f"{name}.json"
        path.write_text(json.dumps(recorded(name, given.budget)), encoding="utf-8")
        print(f"wrote {path}", flush=True)


if __name__ == "__main__":
    main()
