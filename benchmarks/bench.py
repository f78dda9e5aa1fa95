"""Kernels of the tests beside torch, over sizes, with the shares of the device's ceilings; the frames go to a folder.

``python -m benchmarks.bench [FOLDER]`` needs a GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import triton

import kernellab
from kernellab.benchmark.result import Benchmark
from kernellab.export.frames import save_frame
from kernellab.views.cards.benchmark import benchmark_card, ceilings_text
from tests.kernels.matmul import matmul_kernel
from tests.kernels.softmax import softmax_kernel
from tests.samples import add_kernel

PRODUCTS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 64, "GROUP_M": 8}, num_warps=8, num_stages=stages)
    for m, n in ((128, 128), (128, 256))
    for stages in (3, 4)
]


def addition(lab: kernellab.Lab) -> Benchmark:
    def inputs(n: int) -> dict[str, Any]:
        x = torch.randn(n, device="cuda")
        return {"x_ptr": x, "y_ptr": torch.randn_like(x), "out_ptr": torch.empty_like(x), "n": n}

    over = {"n": [2**i for i in range(12, 29, 2)]}
    versus = {"torch": lambda x_ptr, y_ptr: x_ptr + y_ptr}
    return lab.bench(add_kernel, _blocks("n"), BLOCK=1024, over=over, inputs=inputs, versus=versus)


def softmax(lab: kernellab.Lab) -> Benchmark:
    compiled = torch.compile(lambda x: torch.softmax(x, -1), dynamic=True)

    def inputs(columns: int) -> dict[str, Any]:
        x = torch.randn(2**26 // columns, columns, device="cuda", dtype=torch.float16)
        sizes = {"x_stride": columns, "out_stride": columns, "rows": len(x), "columns": columns}
        return {"x_ptr": x, "out_ptr": torch.empty_like(x), "BLOCK": triton.next_power_of_2(columns), **sizes}

    def inductor(x_ptr: torch.Tensor) -> torch.Tensor:
        return compiled(x_ptr)

    versus = {"torch": lambda x_ptr: torch.softmax(x_ptr, -1), "torch.compile": inductor}
    over = {"columns": [512, 1024, 4096, 16384], "num_warps": [4, 16]}
    return lab.bench(softmax_kernel, lambda meta: (meta["rows"],), over=over, inputs=inputs, versus=versus)


def product(lab: kernellab.Lab) -> Benchmark:
    def inputs(size: int) -> dict[str, Any]:
        a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
        sides = dict.fromkeys(("m", "n", "k", "a_stride", "b_stride", "c_stride"), size)
        return {"a_ptr": a, "b_ptr": b, "c_ptr": torch.empty_like(a), **sides}

    def grid(meta: Any) -> tuple[int, ...]:
        return (triton.cdiv(meta["m"], meta["BLOCK_M"]) * triton.cdiv(meta["n"], meta["BLOCK_N"]),)

    over = {"size": [512, 1024, 2048, 4096, 8192], "config": PRODUCTS}
    return lab.bench(
        matmul_kernel, grid, over=over, inputs=inputs, versus={"torch": lambda a_ptr, b_ptr: a_ptr @ b_ptr}
    )


def report(lab: kernellab.Lab, folder: Path | None) -> Iterator[str]:
    """Yield the text of each benchmark; their frames go to the folder."""
    yield f"torch {torch.__version__}, triton {triton.__version__}\n{ceilings_text(lab.ceilings())}"
    runs: tuple[Callable[[kernellab.Lab], Benchmark], ...] = (addition, product, softmax)
    for run in runs:
        found = run(lab)
        if folder is not None:
            save_frame(found.frame, folder / f"{run.__name__}.json")
        yield benchmark_card(found).text()


def _blocks(size: str) -> Callable[[Any], tuple[int, ...]]:
    return lambda meta: (triton.cdiv(meta[size], meta["BLOCK"]),)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    with kernellab.Lab(store=":memory:") as opened:
        for text in report(opened, target):
            print(text, flush=True)
            print(flush=True)
