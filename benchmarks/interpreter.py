"""The checked interpreter against Triton's own, on the same launches.

Both run in processes of their own, turn by turn. Triton's time is a launch; ours is the launch in the worker (with all
checks), its programs one by one and in batches, and a whole `Interpreter.run` in batches as a cell sees it: arguments
copied there and back, changes counted.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import triton
import triton.language as tl

from kernellab.interpreter.runner import INTERPRET_WORKER, Interpreter
from kernellab.settings import child_environment
from kernellab.workers.worker import Worker

RESULT = Path(__file__).parent / "results" / "interpreter.txt"
REPETITIONS = 5
GOAL = 2.0


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(out + offs, tl.load(x + offs, mask=mask) + tl.load(y + offs, mask=mask), mask=mask)


@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    mask = offs < columns
    row = tl.program_id(0) * columns
    values = tl.load(x + row + offs, mask=mask, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(out + row + offs, powers / tl.sum(powers, 0), mask=mask)


@triton.jit
def matmul_kernel(a, b, c, M, N, K, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, K, BLOCK_K):
        inner = k + tl.arange(0, BLOCK_K)
        left = tl.load(
            a + rows[:, None] * K + inner[None, :], mask=(rows[:, None] < M) & (inner[None, :] < K), other=0.0
        )
        right = tl.load(
            b + inner[:, None] * N + columns[None, :], mask=(inner[:, None] < K) & (columns[None, :] < N), other=0.0
        )
        total += tl.dot(left, right)
    tl.store(c + rows[:, None] * N + columns[None, :], total, mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def histogram_kernel(x, counts, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(counts + tl.load(x + offs, mask=offs < n, other=0), 1, mask=offs < n)


def launches() -> dict[str, tuple[object, tuple[int, ...], dict[str, object]]]:
    """Return kernel, grid and arguments of each launch."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(1024 * 256, generator=generator) for _ in range(2))
    rows = torch.randn(256, 1000, generator=generator)
    keys = torch.randint(0, 256, (64 * 1024,), generator=generator, dtype=torch.int32)
    counts = torch.zeros(256, dtype=torch.int32)
    return {
        "vector add, 1024 programs": (
            add_kernel,
            (1024,),
            {"x": x, "y": y, "out": torch.zeros_like(x), "n": x.numel(), "BLOCK": 256},
        ),
        "softmax, 256 rows of 1000": (
            softmax_kernel,
            (256,),
            {"x": rows, "out": torch.zeros_like(rows), "columns": 1000, "BLOCK": 1024},
        ),
        "matmul 256^3, blocks of 64": matmul(256, 64, 64),
        "matmul 256^3, blocks of 32": matmul(256, 32, 32),
        "matmul 512^3, 64 x 64 x 32": matmul(512, 64, 32),
        "matmul 512^3, blocks of 32": matmul(512, 32, 32),
        "histogram, 64 programs": (
            histogram_kernel,
            (64,),
            {"x": keys, "counts": counts, "n": keys.numel(), "BLOCK": 1024},
        ),
    }


def matmul(size: int, block: int, block_k: int) -> tuple[object, tuple[int, ...], dict[str, object]]:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(size, size, generator=generator) for _ in range(2))
    sizes = {"M": size, "N": size, "K": size, "BLOCK": block, "BLOCK_K": block_k}
    return matmul_kernel, (size // block,) * 2, {"a": a, "b": b, "c": torch.zeros(size, size), **sizes}


def serve_triton() -> None:
    """Run launches by Triton's own interpreter: a name in, seconds out, line by line."""
    known = launches()
    for line in sys.stdin:
        kernel, grid, arguments = known[line.strip()]
        start = time.perf_counter()
        kernel[grid](**arguments)  # type: ignore[index]
        print(json.dumps(time.perf_counter() - start), flush=True)


def main() -> None:
    worker = Worker(INTERPRET_WORKER)
    interpreters = Interpreter(worker, 120, in_batches=False), Interpreter(worker, 120)
    command = [sys.executable, __file__, "serve"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=child_environment(TRITON_INTERPRET="1")
    ) as own:
        rows = [measured(name, interpreters, lambda name: asked(own, name)) for name in launches()]
        assert own.stdin is not None
        own.stdin.close()
    worker.close()
    text = "\n".join([*heading(), *rows, ""])
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


def asked(own: subprocess.Popen[str], name: str) -> float:
    assert own.stdin is not None
    assert own.stdout is not None
    own.stdin.write(f"{name}\n")
    own.stdin.flush()
    return float(json.loads(own.stdout.readline()))


def measured(name: str, interpreters: tuple[Interpreter, Interpreter], triton_seconds: Callable[[str], float]) -> str:
    kernel, grid, arguments = launches()[name]
    theirs, one_by_one, batches, whole = [], [], [], []
    for _ in range(REPETITIONS + 1):
        theirs.append(triton_seconds(name))
        for interpreter, seconds in zip(interpreters, (one_by_one, batches), strict=True):
            start = time.perf_counter()
            run = interpreter.run(kernel, arguments, (*grid, 1, 1)[:3])  # type: ignore[arg-type]
            cell = time.perf_counter() - start
            seconds.append(run.seconds)
            assert not run.findings
        whole.append(cell)
    own, single, checked, cell = (statistics.median(v[1:]) * 1e3 for v in (theirs, one_by_one, batches, whole))
    return f"{name:<28}{own:9.1f}{single:9.1f}{checked:9.1f}{cell:9.1f}{single / own:9.2f}{checked / own:9.3f}"


def heading() -> list[str]:
    return [
        f"triton {triton.__version__}, torch {torch.__version__}, numpy {np.__version__}",
        f"medians of {REPETITIONS} launches, ms; goal: checked / Triton's < {GOAL:g}",
        "checked, programs one by one and in batches; whole: a launch in batches as a cell sees it",
        f"{'':<28}{'Triton':>9}{'single':>9}{'batches':>9}{'whole':>9}{'single':>9}{'batches':>9}",
        f"{'':<28}{'ms':>9}{'ms':>9}{'ms':>9}{'ms':>9}{'/Triton':>9}{'/Triton':>9}",
    ]


if __name__ == "__main__":
    serve_triton() if sys.argv[1:] == ["serve"] else main()
