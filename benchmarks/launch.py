"""Host time of one launch: the raw launcher, Triton's own paths, and the lab's, for 4, 8 and 16 arguments.

Usage: python -m benchmarks.launch. All figures come from one process, taken in turns, and are medians; the kernels
are so small that the GPU never falls behind. Needs a CUDA GPU.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

import kernellab

ROUNDS, LAUNCHES, WARM_S = 25, 300, 1.0
LIMITS = {"lab / jit": 0.6, "tuned lab / autotuner": 0.35}


@triton.jit
def four(x, y, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offsets, tl.load(x + offsets, mask=offsets < n), mask=offsets < n)


@triton.jit
def eight(x, y, out, n, stride, scale, BLOCK: tl.constexpr, MODE: tl.constexpr):
    offsets = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)) * stride
    value = tl.load(x + offsets, mask=offsets < n) + tl.load(y + offsets, mask=offsets < n)
    tl.store(out + offsets, value * scale, mask=offsets < n)


@triton.jit
def sixteen(
    a, b, c, bias, out, m, n, k, stride_a, stride_b, stride_c, stride_out, scale,
    BLOCK: tl.constexpr, MODE: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < m + n + k
    value = tl.load(a + offsets * stride_a, mask=mask) + tl.load(b + offsets * stride_b, mask=mask)
    value += tl.load(c + offsets * stride_c, mask=mask) + tl.load(bias + offsets, mask=mask)
    tl.store(out + offsets * stride_out, value * scale, mask=mask)


def cases() -> dict[int, tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """Return kernel, arguments and constants by the number of arguments."""
    x = [torch.zeros(4096, device="cuda") for _ in range(5)]
    return {
        4: (four, (*x[:2], 1000), {}),
        8: (eight, (*x[:3], 1000, 1, 2.0), {"MODE": "x"}),
        16: (sixteen, (*x, 320, 333, 347, 1, 1, 1, 1, 2.0), {"MODE": "x", "EVEN": False}),
    }


def contenders(
    lab: kernellab.Lab, kernel: Any, args: tuple[Any, ...], meta: dict[str, Any]
) -> dict[str, Callable[[], Any]]:
    grid = (1,)
    configs = [triton.Config({"BLOCK": block}) for block in (512, 1024)]
    autotuner = triton.autotune(configs=configs, key=["n"])(kernel)
    bound, bound_tuner = lab.bind(kernel), lab.bind(triton.autotune(configs=configs, key=["n"])(kernel))
    compiled = kernel[grid](*args, BLOCK=1024, **meta)
    stream, flat = torch.cuda.current_stream().cuda_stream, (*args, *({"BLOCK": 1024} | meta).values())
    run, function, packed = compiled.run, compiled.function, compiled.packed_metadata
    return {
        "raw": lambda: run(1, 1, 1, stream, function, packed, None, None, None, *flat),
        "jit": lambda: kernel[grid](*args, BLOCK=1024, **meta),
        "lab": lambda: bound[grid](*args, BLOCK=1024, **meta),
        "autotuner": lambda: autotuner[grid](*args, **meta),
        "tuned lab": lambda: bound_tuner[grid](*args, **meta),
    }


def microseconds(call: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(LAUNCHES):
        call()
    return (time.perf_counter() - begin) / LAUNCHES * 1e6


def measure(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    begin = time.perf_counter()
    while time.perf_counter() - begin < WARM_S:
        for call in calls.values():
            microseconds(call)
    rounds = [{name: microseconds(call) for name, call in calls.items()} for _ in range(ROUNDS)]
    return {name: statistics.median(found[name] for found in rounds) for name in calls}


def main(target: str | None = None) -> None:
    lines = [f"{torch.cuda.get_device_name()}, triton {triton.__version__}, torch {torch.__version__}: us per launch"]
    lines.append(
        f"{'arguments':>9} {'raw':>6} {'jit':>6} {'lab':>6} {'autotuner':>9} {'tuned lab':>9}  "
        "lab/jit  tuned lab/autotuner"
    )
    with kernellab.Lab(store=":memory:") as lab:
        for count, (kernel, args, meta) in cases().items():
            us = measure(contenders(lab, kernel, args, meta))
            cells = f"{us['raw']:6.2f} {us['jit']:6.2f} {us['lab']:6.2f} {us['autotuner']:9.2f} {us['tuned lab']:9.2f}"
            ratios = f"{us['lab'] / us['jit']:7.2f}  {us['tuned lab'] / us['autotuner']:19.2f}"
            lines.append(f"{count:9} {cells}  {ratios}")
    lines.append(f"asked: {', '.join(f'{name} at most {limit}' for name, limit in LIMITS.items())}")
    print("\n".join(lines))
    if target is not None:
        Path(target).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:2])
