"""Small kernels with random accesses, loops, reductions, products and atomics, and their launches, each from a seed."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import torch

from tests.explain.planted import KernelCall
from tests.ir.random_kernels import indented, loaded

ELEMENTS = 1 << 26
HEADER = """
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, out, index, n, stride, rounds, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    own = tl.arange(0, BLOCK)
    mask = offs < n
    total = tl.zeros((BLOCK,), tl.float32)
"""
ADDRESSES = (
    *("offs", "offs", "own", "offs * stride", "offs + stride", "offs // 64 + offs % 64 * 1024", "offs * 16 + 3"),
    "tl.load(index + offs, mask=mask, other=0)",
)
VALUES = (
    *("v", "v * v", "tl.exp(v)", "v / (v + 1.5)", "tl.sqrt(tl.abs(v))", "tl.where(mask, v, 0.0)", "v + offs % stride"),
    *("(v.to(tl.float64) * 1.5).to(tl.float32)", "v - tl.max(v, axis=0)", "tl.cumsum(v, axis=0)", "tl.sort(v)"),
)
LOOPS = (
    *("for i in range(rounds):", "for i in range(4):", "for i in tl.range(0, rounds, num_stages=STAGES):"),
    *("for i in tl.static_range(3):", "for i in range(tl.load(index + tl.program_id(0))):"),
)
STORES = (
    "tl.store(out + {address}, total, mask=mask)",
    "tl.store(out + {address}, total)",
    "tl.atomic_add(out + {address}, total, mask=mask)",
    "tl.atomic_add(out + offs % 8, total)",
    "tl.atomic_add(out, tl.sum(total, axis=0))",
    "tl.store(out + tl.program_id(0), tl.sum(total, axis=0))",
)
PRODUCT = """
    rows, columns = tl.arange(0, {m}), tl.arange(0, {n})
    inner = tl.arange(0, {k})
    sums = tl.zeros(({m}, {n}), tl.float32)
    for i in range(rounds):
        a = tl.load(x + (tl.program_id(0) * {m} + rows)[:, None] * stride + (i * {k} + inner)[None, :]){cast}
        b = tl.load(y + (i * {k} + inner)[:, None] * {n} + columns[None, :]){cast}
        sums = tl.dot(a, b, sums, input_precision={precision!r})
    tl.store(out + (tl.program_id(0) * {m} + rows)[:, None] * {n} + columns[None, :], sums)
"""


def random_launch(seed: int, folder: Path) -> tuple[KernelCall, dict[str, Any]]:
    """Return a launch of a drawn kernel, with its arguments; its tensors are memory that nobody touches."""
    draw = Random(seed)
    kernel = loaded(random_source(draw), folder, f"random_launch_{seed}")
    dtype = draw.choice([torch.float32, torch.float32, torch.float16, torch.int8])
    programs = draw.choice([1, 8, 100, 140, 1056, 20_000])
    block = draw.choice([32, 128, 1024, 1024, 4096])
    tensors = {name: torch.zeros(ELEMENTS, dtype=dtype) for name in ("x", "y")}
    sizes = {"n": programs * block - draw.choice([0, 0, 1, block // 2, programs * block * 3 // 4])}
    sizes |= {"stride": draw.choice([3, 16, 64, 1024]), "rounds": draw.choice([2, 17, 64])}
    meta = {"BLOCK": block, "STAGES": draw.choice([1, 2, 4]), "num_warps": draw.choice([1, 2, 4, 8])}
    meta["num_stages"] = draw.choice([1, 2, 3, 4])
    index = torch.randint(0, 1000, (programs * block,), generator=torch.Generator().manual_seed(seed))
    arguments = {**tensors, "out": torch.zeros(ELEMENTS), "index": index.to(torch.int32), **sizes}
    return KernelCall(kernel, lambda inputs: (programs,), meta), arguments


def random_source(draw: Random) -> str:
    """Return the source of a module with a function ``kernel``."""
    if draw.random() < 0.25:
        m, n, k = (draw.choice([16, 32, 64]) for _ in range(3))
        cast, precision = draw.choice(
            [(".to(tl.float32)", "ieee"), (".to(tl.float32)", "tf32"), (".to(tl.float16)", "tf32")]
        )
        return HEADER + PRODUCT.format(m=m, n=n, k=max(k, 32), cast=cast, precision=precision)
    lines = accesses(draw, "")
    if draw.random() < 0.7:
        lines += [draw.choice(LOOPS), *indented(accesses(draw, draw.choice([" + i * BLOCK", " + i", ""])))]
    lines.append(draw.choice(STORES).format(address=draw.choice(ADDRESSES)))
    return HEADER + "\n".join(indented(lines)) + "\n"


def accesses(draw: Random, step: str) -> list[str]:
    """Return statements that load and add, with addresses that move by ``step``."""
    lines = []
    for _ in range(draw.randint(1, 2)):
        mask = draw.choice(["", ", mask=mask, other=0"])
        address, name = draw.choice(ADDRESSES), draw.choice("xy")
        lines.append(f"v = tl.load({name} + {address}{step}{mask}).to(tl.float32)")
        lines.append(f"total += {draw.choice(VALUES)}")
    return lines
