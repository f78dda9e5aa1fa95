"""Records how long each config of many kernels takes on this GPU: the truth that a model of time is held against.

    python -m benchmarks.truth_record --to build/h200.json [--budget 400] [NAME ...]

Each kernel and size is tuned by itself, from an empty store, so that a row has what any tuning measures: median, low
and high of the time, status, registers, shared memory. What the budget cuts off is missing from the file.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
import triton

import kernellab
from benchmarks.truth_recipes import RECIPES, Recipe, Sizes
from kernellab.errors import KernellabError
from kernellab.tune.result import Row, Tuning


def main() -> None:
    """Record the kernels that are named, or all, until the budget is spent."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=500.0, help="seconds")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    triton.set_allocator(lambda size, align, stream: torch.empty(size, device=options.device, dtype=torch.int8))
    options.to.parent.mkdir(parents=True, exist_ok=True)
    begin_s = time.perf_counter()
    record: dict[str, Any] = {"cases": []}
    with kernellab.Lab(store=":memory:") as lab:
        lab.start(wait=True)
        for name, sizes in _in_turns(options.names or list(RECIPES)):
            if time.perf_counter() - begin_s > options.budget:
                print(f"budget spent before {name} {sizes}", flush=True)
                break
            case, facts = _recorded_case(lab, name, RECIPES[name], sizes, options.device)
            record = {**record, **facts, "cases": [*record["cases"], case]}
            options.to.write_text(_as_json(record))
            print(f"{time.perf_counter() - begin_s:6.1f} s  {_summary(case)}", flush=True)


def _in_turns(names: list[str]) -> list[tuple[str, Sizes]]:
    """Return first sizes of all kernels, then second ones, so that a budget cuts sizes and no kernel."""
    most = max(len(RECIPES[name].sizes) for name in names)
    return [(name, RECIPES[name].sizes[i]) for i in range(most) for name in names if i < len(RECIPES[name].sizes)]


def _recorded_case(
    lab: kernellab.Lab, name: str, recipe: Recipe, sizes: Sizes, device: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    torch.manual_seed(0)
    case: dict[str, Any] = {"kernel": name, "sizes": dict(sizes), "rows": []}
    try:
        tuning: Tuning = lab.tune(recipe.kernel, recipe.grid, configs=recipe.configs, **recipe.inputs(device, **sizes))
    except KernellabError as exc:  # one case does not cost the others
        return {**case, "error": exc.message}, {}
    facts = {key: tuning.provenance.get(key) for key in ("device", "driver", "triton", "torch")}
    return {**case, "rows": [_row(row) for row in tuning.rows]}, facts


def _row(row: Row) -> dict[str, Any]:
    times = {name: getattr(row, name) for name in ("time_ms", "low_ms", "high_ms", "cold_ms", "warm_ms")}
    return {
        "config": {name: value for name, value in row.config.values.items() if value is not None},
        "status": str(row.status),
        **{name: value and float(f"{value:.5g}") for name, value in times.items()},
        "registers": row.registers,
        "shared_bytes": row.shared_bytes,
        "spill_bytes": row.spill_bytes,
    }


def _as_json(record: dict[str, Any]) -> str:
    """Write each case on a line of its own, so that another recording differs by lines."""
    cases = ",\n".join(json.dumps(case, separators=(",", ":")) for case in record["cases"])
    facts = {name: value for name, value in record.items() if name != "cases"}
    return json.dumps(facts)[:-1] + ', "cases": [\n' + cases + "\n]}\n"


def _summary(case: dict[str, Any]) -> str:
    times = sorted(row["time_ms"] for row in case["rows"] if row["time_ms"] is not None)
    figures = f"{times[0]:.4f} to {times[-1]:.4f} ms" if times else case.get("error", "nothing timed")
    return f"{case['kernel']} {case['sizes']}: {len(times)} of {len(case['rows'])} configs, {figures}"


if __name__ == "__main__":
    main()
