"""What predictions cost: CPU seconds of a config beyond its compile, and a tuning of 48 configs without a GPU.

CUDA_VISIBLE_DEVICES= taskset -c 0,1 python -m benchmarks.predict_speed
"""

from __future__ import annotations

import os
import time
from statistics import median

import torch
from triton import Config

import kernellab
from benchmarks.truth_recipes import RECIPES
from kernellab.explain.predicting import predict_implementation
from kernellab.explain.verbs import device_of
from kernellab.launch.calls import UserCall
from kernellab.registry.calls import compile_call

CASES = {
    "matmul": {"m": 4096, "n": 4096, "k": 4096},
    "softmax": {"rows": 8192, "columns": 2048},
    "attention": {"heads": 8, "length": 4096, "width": 64},
}
CONFIGS = [
    Config({"BM": bm, "BN": bn, "BK": bk}, num_warps=warps, num_stages=stages)
    for bm, bn in ((64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128))
    for bk in (32, 64)
    for warps in (4, 8)
    for stages in (3, 4)
]


def config_seconds(lab: kernellab.Lab, name: str) -> list[float]:
    """Return the CPU seconds of this process for the prediction of each config, after its compile."""
    recipe, session = RECIPES[name], lab.session()
    inputs, kernel = recipe.inputs("cpu", **CASES[name]), lab.bind(recipe.kernel)
    seconds = []
    for config in recipe.configs:
        meta = {**inputs, **config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
        implementation = compile_call(session, UserCall(kernel, recipe.grid, (), meta), takes_best=False)
        begin_s = time.process_time()
        predict_implementation(implementation, device_of(session))
        seconds.append(time.process_time() - begin_s)
    return seconds


def main() -> None:
    """Print the seconds per config, and those of a whole tuning from a standing start."""
    torch.set_num_threads(1)
    print(f"{len(os.sched_getaffinity(0))} cores, CPU seconds of a prediction beyond its compile: median, highest")
    with kernellab.Lab("h200", store=":memory:") as lab:
        for name in CASES:
            seconds = config_seconds(lab, name)
            print(f"{name:<10}{len(seconds):3} configs  {median(seconds):.2f}  {max(seconds):.2f}", flush=True)
    recipe = RECIPES["matmul"]
    inputs = recipe.inputs("cpu", **CASES["matmul"])
    begin_s = time.perf_counter()
    with kernellab.Lab("h200", store=":memory:") as lab:
        tuning = lab.tune(recipe.kernel, recipe.grid, configs=CONFIGS, **inputs)
    predicted = sum(row.predicted_ms is not None for row in tuning.rows)
    seconds = time.perf_counter() - begin_s
    print(f"tuning of {len(CONFIGS)} configs of a product of 4096: {seconds:.1f} s, {predicted} predicted")


if __name__ == "__main__":
    main()
