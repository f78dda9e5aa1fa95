"""The judge's clock on a GPU: speedups beside those of `Lab.bench`, and candidates that are 3 % faster or equal.

``python -m benchmarks.judge_on_gpu [--pairs N]`` needs a GPU. Asked: ten pairs agree within 2 %; in nine of ten a
candidate that is 3 % faster is told from an equal one.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton

import kernellab
from kernellab.judge.judging import judge
from kernellab.target import device_name

HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n\n"
ROWS, COLUMNS, COUNT, SIDE = 8192, 4096, 1 << 25, 4096

ROW_KERNEL = """@triton.jit
def kernel(x, out, n, BLOCK: tl.constexpr):
    row, offs = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + offs, mask=offs < n, other={other}).to(tl.float32)
    {body}
    tl.store(out + row * n + offs, r, mask=offs < n)


def solve(x):
    out = torch.empty_like(x)
    kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), num_warps=8)
    return out
"""
FLAT_KERNEL = """@triton.jit
def kernel(x, out, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + offs, mask=offs < n)
    r = {body}
    tl.store(out + offs, r, mask=offs < n)


def solve(x):
    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out
"""
SUM_KERNEL = """@triton.jit
def kernel(x, out, n, BLOCK: tl.constexpr):
    row, offs = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + offs, mask=offs < n, other=0.0)
    tl.store(out + row, tl.sum(v, 0))


def solve(x):
    out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), num_warps=8)
    return out
"""
PRODUCT_KERNEL = """@triton.jit
def kernel(a, b, out, n, BLOCK: tl.constexpr, DEPTH: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    depth = tl.arange(0, DEPTH)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, n, DEPTH):
        near = k + depth < n
        left = tl.load(a + rows[:, None] * n + k + depth[None, :], mask=near[None, :] & (rows < n)[:, None], other=0.0)
        down = b + (k + depth)[:, None] * n + columns[None, :]
        right = tl.load(down, mask=near[:, None] & (columns < n)[None, :], other=0.0)
        acc = tl.dot(left, right, acc)
    inside = (rows < n)[:, None] & (columns < n)[None, :]
    tl.store(out + rows[:, None] * n + columns[None, :], acc.to(out.dtype.element_ty), mask=inside)


def solve(a, b):
    out = torch.empty_like(a)
    n = a.shape[0]
    kernel[(triton.cdiv(n, 128), triton.cdiv(n, 128))](a, b, out, n, BLOCK=128, DEPTH=64, num_warps=8, num_stages=3)
    return out
"""


@dataclass(frozen=True, slots=True)
class Pair:
    """A candidate's text, and the specification's reference, inputs and sizes."""

    name: str
    candidate: str
    reference: str
    kind: str = "rows"

    @property
    def specification(self) -> str:
        """The text of the specification."""
        if self.kind == "rows":
            inputs = "def inputs(generator, m, n):\n    return {'x': torch.randn(m, n, generator=generator)}\n"
            sizes = f"{{'shown': [{{'m': 5, 'n': 64}}], 'timed': [{{'m': {ROWS}, 'n': {COLUMNS}}}]}}"
        elif self.kind == "flat":
            inputs = "def inputs(generator, n):\n    return {'x': torch.randn(n, generator=generator)}\n"
            sizes = f"{{'shown': [{{'n': 2000}}], 'timed': [{{'n': {COUNT}}}]}}"
        else:
            draw = "torch.randn(n, n, generator=generator).half()"
            inputs = f"def inputs(generator, n):\n    return {{'a': {draw}, 'b': {draw}}}\n"
            sizes = f"{{'shown': [{{'n': 70}}], 'timed': [{{'n': {SIDE}}}]}}"
        return f"import torch\n\nsizes = {sizes}\n\n\n{inputs}\n\n{self.reference}\n\n\nbaseline = reference\n"


def rows(name: str, body: str, reference: str, other: str = "0.0") -> Pair:
    """Return a pair of a kernel over rows and its reference."""
    return Pair(name, HEAD + ROW_KERNEL.format(body=body, other=other), f"def reference(x):\n    return {reference}")


def flat(name: str, body: str, reference: str) -> Pair:
    """Return a pair of an elementwise kernel and its reference."""
    return Pair(name, HEAD + FLAT_KERNEL.format(body=body), f"def reference(x):\n    return {reference}", "flat")


PAIRS = [
    rows("softmax", "v = tl.exp(v - tl.max(v, 0))\n    r = v / tl.sum(v, 0)", "torch.softmax(x, 1)", '-float("inf")'),
    rows("rms norm", "r = v * tl.rsqrt(tl.sum(v * v, 0) / n + 1e-5)", "torch.rms_norm(x, x.shape[1:], eps=1e-5)"),
    rows(
        "layer norm",
        "c = tl.where(offs < n, v - tl.sum(v, 0) / n, 0.0)\n    r = c * tl.rsqrt(tl.sum(c * c, 0) / n + 1e-5)",
        "torch.layer_norm(x, x.shape[1:], eps=1e-5)",
    ),
    rows(
        "log softmax",
        "v = v - tl.max(v, 0)\n    r = v - tl.log(tl.sum(tl.exp(v), 0))",
        "torch.log_softmax(x, 1)",
        '-float("inf")',
    ),
    rows("row shift", "r = v - tl.sum(v, 0) / n", "x - x.mean(1, keepdim=True)"),
    flat("double", "v * 2.0", "x * 2.0"),
    flat("relu", "tl.maximum(v, 0.0)", "torch.relu(x)"),
    flat("silu", "v / (1.0 + tl.exp(-v))", "torch.nn.functional.silu(x)"),
    Pair("row sum", HEAD + SUM_KERNEL, "def reference(x):\n    return x.sum(1)"),
    Pair("product", HEAD + PRODUCT_KERNEL, "def reference(a, b):\n    return a @ b", "product"),
]

MORE_WORK = """

import kernel_file


def baseline(x):
    count = int(x.numel() * {share}) // 1024 * 1024
    more, out = (torch.empty(count, dtype=x.dtype, device=x.device) for _ in range(2))
    kernel_file.kernel[(count // 1024,)](more, out, count, BLOCK=1024)
    return out
"""


def module_of(text: str, folder: Path, name: str) -> ModuleType:
    """Write and import a file."""
    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def benched_speedup(lab: kernellab.Lab, pair: Pair, module: ModuleType, reference: Any) -> float:
    """Return the time of the reference over that of the kernel, by `Lab.bench`."""

    def grid(meta: dict[str, Any]) -> tuple[int, ...]:
        if pair.kind == "rows":
            return (ROWS,)
        if pair.kind == "flat":
            return (triton.cdiv(COUNT, 1024),)
        return (triton.cdiv(SIDE, 128), triton.cdiv(SIDE, 128))

    def inputs(n: int) -> dict[str, Any]:
        if pair.kind == "product":
            a, b = (torch.randn(n, n, device="cuda").half() for _ in range(2))
            return {"a": a, "b": b, "out": torch.empty_like(a), "n": n, "BLOCK": 128, "DEPTH": 64}
        shape = (ROWS, n) if pair.kind == "rows" else (n,)
        x = torch.randn(shape, device="cuda")
        out = torch.empty(ROWS, device="cuda") if pair.name == "row sum" else torch.empty_like(x)
        return {"x": x, "out": out, "n": n, "BLOCK": COLUMNS if pair.kind == "rows" else 1024}

    over = {"n": [{"rows": COLUMNS, "flat": COUNT, "product": SIDE}[pair.kind]]}
    warps = {} if pair.kind == "flat" else {"num_warps": 8}
    stages = {"num_stages": 3} if pair.kind == "product" else {}
    versus = {"torch": reference}
    frame = lab.bench(module.kernel, grid, over=over, inputs=inputs, versus=versus, rounds=100, **warps, **stages).frame
    times = dict(zip(frame["implementation"], frame["time_ms"], strict=True))
    return times["torch"] / next(time for name, time in times.items() if name != "torch")


def main() -> None:
    """Print a row per pair, then one per candidate of known speed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=len(PAIRS))
    parser.add_argument("--known", type=int, default=10)
    args = parser.parse_args()
    print(
        device_name(torch.cuda.current_device()), "triton", triton.__version__, "torch", torch.__version__, flush=True
    )
    with tempfile.TemporaryDirectory() as name, kernellab.Lab(store=":memory:") as lab:
        folder = Path(name)
        close = 0
        for number, pair in enumerate(PAIRS[: args.pairs]):
            module = module_of(pair.candidate, folder, f"candidate_{number}")
            spec = module_of(pair.specification, folder, f"spec_{number}")
            verdict = judge(folder / f"spec_{number}.py", folder / f"candidate_{number}.py", lab=lab)
            if verdict.speedup is None:
                print(f"{pair.name:12} {verdict.verdict}: {verdict.reasons}", flush=True)
                continue
            benched = benched_speedup(lab, pair, module, spec.reference)
            off = verdict.speedup / benched - 1
            close += abs(off) <= 0.02
            timing = verdict.timings[0]
            print(
                f"{pair.name:12} judge {speedup_text(verdict)}  "
                f"bench {benched:.4f}  apart {off:+.2%}  {timing.time_us:.1f} us, roof {timing.roofline_us:.1f} us  "
                f"{verdict.verdict} in {verdict.seconds:.1f} s",
                flush=True,
            )
        print(f"{close} of {args.pairs} pairs agree within 2 %", flush=True)
        known_speeds(lab, folder, args.known)


def speedup_text(verdict: Any) -> str:
    """Return a speedup with its interval."""
    return f"{verdict.speedup:.4f} ({verdict.speedup_low:.4f} to {verdict.speedup_high:.4f})"


def known_speeds(lab: kernellab.Lab, folder: Path, count: int) -> None:
    """Judge a kernel against itself, and against itself with 3 % more to do."""
    pair = flat("double", "v * 2.0", "x * 2.0")
    (folder / "kernel_file.py").write_text(pair.candidate)
    sys.path.insert(0, str(folder))
    told = 0
    for number in range(count):
        lows = {}
        size = COUNT // 2 + number * 1_048_576
        for share in (1.0, 1.03):
            text = pair.specification.replace(f"'n': {COUNT}", f"'n': {size}").replace("baseline = reference\n", "")
            spec = HEAD.rstrip() + "\n" + text + MORE_WORK.format(share=share)
            path = folder / f"known_{number}_{share:.3f}.py"
            path.write_text(spec)
            candidate = folder / f"known_candidate_{number}.py"
            candidate.write_text(pair.candidate)
            verdict = judge(path, candidate, lab=lab)
            lows[share] = verdict
        equal, faster = lows[1.0], lows[1.03]
        is_told = (faster.speedup_low or 0.0) > max(equal.speedup_high or 0.0, 1.0)
        told += is_told
        print(
            f"equal {speedup_text(equal)}  3 % faster {speedup_text(faster)}  {'told' if is_told else 'NOT TOLD'}",
            flush=True,
        )
    print(f"{told} of {count} told apart")


if __name__ == "__main__":
    main()
