"""How long it takes to write the explorer of a compiled kernel and to compare two, and how large the HTML is.

Run as ``python -m benchmarks.explorer``. Every figure is a median; the disassembler, a program of its own, runs before.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton

import kernellab
from benchmarks.views import milliseconds
from kernellab.compile.types import Compiled
from kernellab.views.cards.diff import diff_html
from kernellab.views.explorers import explorer_html
from kernellab.views.explorers.exploration import explore
from tests.kernels.elementwise import add_case
from tests.kernels.matmul import matmul_kernel
from tests.views.kernels import attention_forward

RESULT = Path(__file__).parent / "results" / "explorer.txt"
TARGETS = ("cuda:80", "cuda:90", "hip:gfx942")
REPETITIONS = 7
GOAL = "goals: a matrix product in 100 ms and 600 kB"
HEAD = f"{'kernel':<22} {'target':<10} {'all stages':>10} {'explorer':>9} {'HTML':>7} | {'diff of the assembly':>21}"


def main() -> None:
    lines = [
        f"medians of {REPETITIONS}, Python {sys.version.split()[0]}, Triton {triton.__version__}; {GOAL}",
        "the diff is with the same kernel at half the warps",
        "",
        HEAD,
    ]
    with kernellab.Lab(store=":memory:") as lab:
        for name, (kernel, arguments, meta) in kernels().items():
            for target in TARGETS:
                compiled = lab.compile(kernel, target=target, **arguments, **meta)
                other = lab.compile(kernel, target=target, **arguments, **{**meta, "num_warps": meta["num_warps"] // 2})
                lines.append(row(name, compiled, other))
    text = "\n".join(lines) + "\n"
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


def kernels() -> Mapping[str, tuple[Any, Mapping[str, Any], Mapping[str, int]]]:
    half, single, add = torch.zeros(4096, dtype=torch.float16), torch.zeros(4096), add_case(torch.float32)
    sizes = {"m": 512, "n": 512, "k": 512, "a_stride": 512, "b_stride": 512, "c_stride": 512}
    blocks = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8, "num_warps": 8}
    heads = {"scale": 0.125, "stride_h": 65536, "stride_m": 64, "L": 1024}
    attention = {"D": 64, "BLOCK_M": 128, "BLOCK_N": 64, "CAUSAL": True, "num_warps": 8}
    names = ("q_ptr", "k_ptr", "v_ptr", "out_ptr")
    return {
        "add": (add.kernel, add.arguments, {**add.meta, "num_warps": 4}),
        "matmul, fp16": (matmul_kernel, {"a_ptr": half, "b_ptr": half, "c_ptr": half, **sizes}, blocks),
        "matmul, fp32": (matmul_kernel, {"a_ptr": single, "b_ptr": single, "c_ptr": single, **sizes}, blocks),
        "attention": (attention_forward, {**dict.fromkeys(names, half), "lse_ptr": single, **heads}, attention),
    }


def row(name: str, compiled: Compiled, other: Compiled) -> str:
    size = sum(stage.bytes for stage in explore(compiled).stages)
    html = explorer_html(compiled)
    taken = milliseconds(partial(explorer_html, compiled), REPETITIONS)
    assembly = "ptx" if "ptx" in compiled.stages else "amdgcn"
    compared = milliseconds(partial(diff_html, compiled, other, assembly), REPETITIONS)
    difference = len(diff_html(compiled, other, assembly))
    return (
        f"{name:<22} {compiled.target!s:<10} {size / 1000:>7.0f} kB {taken:>6.0f} ms {len(html) / 1000:>4.0f} kB | "
        f"{compared:>8.0f} ms {difference / 1000:>6.0f} kB"
    )


if __name__ == "__main__":
    main()
