"""Host time of one launch: the raw launcher, Triton's own paths, and the lab's, for 4, 8 and 16 arguments.

The columns named grid launch on a grid function that calls `triton.cdiv`; the others on a tuple.

Usage: python -m benchmarks.launch [FILE] [--stand-in]. All figures come from one process, taken in turns in alternating
order: medians of microseconds, and of the ratios within a round. The kernels are so small that the GPU never falls
behind. With --stand-in it needs no GPU: a CUDA driver whose functions return at once takes the launches, so that the
figures are the host's part alone, and the ratio to the raw launcher is larger than on a GPU.
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

ROUNDS, LAUNCHES = 120, 100
CONTENDERS = ("raw", "jit", "lab", "lab grid", "autotuner", "tuned lab", "tuned grid")
LIMITS = {
    "lab / raw": 1.12,
    "lab grid / raw": 1.2,
    "tuned lab / raw": 1.12,
    "tuned grid / raw": 1.2,
    "lab / jit": 0.6,
    "tuned lab / autotuner": 0.35,
}


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


def cases(device: str) -> dict[int, tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """Return kernel, arguments and constants by the number of arguments."""
    x = [torch.zeros(4096, device=device) for _ in range(5)]
    return {
        4: (four, (*x[:2], 1000), {}),
        8: (eight, (*x[:3], 1000, 1, 2.0), {"MODE": "x"}),
        16: (sixteen, (*x, 320, 333, 347, 1, 1, 1, 1, 2.0), {"MODE": "x", "EVEN": False}),
    }


def contenders(
    bind: Callable[[Any], Any], kernel: Any, args: tuple[Any, ...], meta: dict[str, Any], stream: int
) -> dict[str, Callable[[], Any]]:
    """Return what is timed, each with its arguments written out, as in a program."""
    configs = [triton.Config({"BLOCK": block}) for block in (512, 1024)]
    autotuner = triton.autotune(configs=configs, key=["n"])(kernel)
    bound, bound_tuner = bind(kernel), bind(triton.autotune(configs=configs, key=["n"])(kernel))
    compiled = kernel[(1,)](*args, BLOCK=1024, **meta)
    given = dict(zip(kernel.arg_names, args, strict=False))
    scope = dict(kernel=kernel, bound=bound, autotuner=autotuner, bound_tuner=bound_tuner, stream=stream, **given)
    scope |= {"run": compiled.run, "function": compiled.function, "packed": compiled.packed_metadata}
    scope |= {"grid": lambda meta: (triton.cdiv(meta["BLOCK"], 1024),)}
    arguments = ", ".join(given)
    constants = "".join(f", {name}={value!r}" for name, value in meta.items())
    flat = "".join(f", {value!r}" for value in meta.values())
    calls = (
        f"run(1, 1, 1, stream, function, packed, None, None, None, {arguments}, 1024{flat})",
        f"kernel[(1,)]({arguments}, BLOCK=1024{constants})",
        f"bound[(1,)]({arguments}, BLOCK=1024{constants})",
        f"bound[grid]({arguments}, BLOCK=1024{constants})",
        f"autotuner[(1,)]({arguments}{constants})",
        f"bound_tuner[(1,)]({arguments}{constants})",
        f"bound_tuner[grid]({arguments}{constants})",
    )
    return {name: eval(f"lambda: {call}", scope) for name, call in zip(CONTENDERS, calls, strict=True)}


def microseconds(call: Callable[[], Any]) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(LAUNCHES):
        call()
    return (time.perf_counter() - begin) / LAUNCHES * 1e6


def measure(calls: dict[str, Callable[[], Any]]) -> list[dict[str, float]]:
    """Return the microseconds of each call, round by round, after a fifth more rounds to warm up."""
    rounds = []
    for i in range(ROUNDS + ROUNDS // 5):
        order = list(calls) if i % 2 else list(calls)[::-1]
        rounds.append({name: microseconds(calls[name]) for name in order})
    return rounds[ROUNDS // 5 :]


def rows(bind: Callable[[Any], Any], device: str, stream: int) -> list[str]:
    """Return a row of figures for each number of arguments."""
    found = []
    for count, (kernel, args, meta) in cases(device).items():
        rounds = measure(contenders(bind, kernel, args, meta, stream))
        us = [statistics.median(each[name] for each in rounds) for name in CONTENDERS]
        pairs = [limit.split(" / ") for limit in LIMITS]
        ratios = [statistics.median(each[one] / each[other] for each in rounds) for one, other in pairs]
        cells = "  ".join(f"{value:{len(name)}.2f}" for name, value in zip(LIMITS, ratios, strict=True))
        found.append(f"{count:9} {''.join(f'{value:11.2f}' for value in us)}  {cells}")
    return found


def main(*args: str) -> None:
    target = next((arg for arg in args if not arg.startswith("-")), None)
    versions = f"triton {triton.__version__}, torch {torch.__version__}, Python {sys.version.split()[0]}"
    header = f"arguments {''.join(f'{name:>11}' for name in CONTENDERS)}  {'  '.join(LIMITS)}"
    if "--stand-in" in args:
        from benchmarks.cuda_stand_in import Binding, use_stand_in

        use_stand_in()
        lines = [f"a stand-in for the CUDA driver, {versions}: us per launch", header]
        lines += rows(Binding().bind, "cpu", 0)
    else:
        lines = [f"{torch.cuda.get_device_name()}, {versions}: us per launch", header]
        with kernellab.Lab(store=":memory:") as lab:
            lines += rows(lab.bind, "cuda", torch.cuda.current_stream().cuda_stream)
        lines.append(f"asked: {', '.join(f'{name} at most {limit}' for name, limit in LIMITS.items())}")
    print("\n".join(lines))
    if target is not None:
        Path(target).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
