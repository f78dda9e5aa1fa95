"""Records samples of a GPU as files for the tests: what Proton writes of three kernels, with their machine code.

Usage: python -m benchmarks.record_samples [FOLDER]. Needs a CUDA GPU whose counters this user may read. It writes
NAME.hatchet and NAME.sass into FOLDER (tests/explain/recorded), the samples by source line, and
NAME.numbered.hatchet, those of the binary that numbers its instructions. It prints how many samples a session of so
many launches brought and how long it took, for the first session of a process and for the ones after it; then what a
profile says.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

FOLDER = Path(__file__).parent.parent / "tests" / "explain" / "recorded"
_ROOT = str(Path(__file__).parent.parent.resolve())
_SESSIONS = (1, 20, 200)


@triton.jit
def strided_copy(x_ptr, out_ptr, n, stride, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets * stride, mask=mask)
    tl.store(out_ptr + offsets, x + 1, mask=mask)


@triton.jit
def normalized(x, axis: tl.constexpr):
    shifted = x - tl.max(x, axis)
    exponentials = tl.exp(shifted)
    return exponentials / tl.sum(exponentials, axis)


@triton.jit
def softmax(x_ptr, out_ptr, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + offsets, mask=offsets < columns, other=-float("inf"))
    tl.store(out_ptr + row * stride + offsets, normalized(x, 0), mask=offsets < columns)


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    accumulator = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, k, K):
        a = tl.load(a_ptr + rows[:, None] * k + start + inner[None, :])
        b = tl.load(b_ptr + (start + inner[:, None]) * n + columns[None, :])
        accumulator = tl.dot(a, b, accumulator)
    tl.store(c_ptr + rows[:, None] * n + columns[None, :], accumulator.to(tl.float16))


def launches() -> dict[str, tuple[Any, tuple[int, ...], tuple[Any, ...], dict[str, int]]]:
    """Return the kernel, the grid, the arguments and the meta-parameters of each launch."""
    x, out = torch.rand(1 << 27, device="cuda"), torch.empty(1 << 22, device="cuda")
    rows = torch.rand(8192, 4096, device="cuda")
    a, b, c = (torch.rand(4096, 4096, device="cuda").half() for _ in range(3))
    sides = (4096, 4096, 4096)
    options = {"num_warps": 8}
    return {
        "strided_copy": (strided_copy, (1 << 12,), (x, out, 1 << 22, 32), {"BLOCK": 1024}),
        "softmax": (softmax, (8192,), (rows, torch.empty_like(rows), 4096, 4096), {"BLOCK": 4096, **options}),
        "matmul": (matmul, (32, 32), (a, b, c, *sides), {"M": 128, "N": 128, "K": 64, "num_stages": 3, **options}),
    }


def record(name: str, folder: Path) -> None:
    """Sample one kernel in this process; it is loaded in the first session, which is when Proton takes its lines."""
    import triton.profiler as proton

    kernel, grid, arguments, meta = launches()[name]
    for count in _SESSIONS:
        path = folder / name
        start = time.perf_counter()
        session = proton.start(str(path), hook="triton", backend="cupti", mode="pcsampling")
        for _ in range(count):
            kernel[grid](*arguments, **meta)
        torch.cuda.synchronize()
        proton.finalize(session)
        seconds = time.perf_counter() - start
        text = _relative(path.with_suffix(".hatchet").read_text(encoding="utf-8"))
        path.with_suffix(".hatchet").write_text(text, encoding="utf-8")
        found = _samples(text)
        lines = sum(samples for frame, samples in found if "@" in frame)
        words = f"{sum(samples for _, samples in found):>10,} samples, {lines:>10,} of them with a line"
        print(f"{name:<14} {count:>4} launches {words} {seconds:6.2f} s", flush=True)


def profile(name: str, folder: Path) -> None:
    """Profile one kernel as the lab does, and keep what the first session of the numbered binary brings."""
    import kernellab
    from kernellab.explain.profilers import Sampler, numbered_binary
    from kernellab.launch.calls import UserCall
    from kernellab.registry.calls import compile_call
    from kernellab.views.cards.explanation import profile_card

    kernel, grid, arguments, meta = launches()[name]
    with kernellab.Lab(store=":memory:") as lab:
        implementation = compile_call(lab.session(), UserCall(lab.bind(kernel), grid, arguments, meta))
        (folder / f"{name}.sass").write_text(_relative(implementation.kernel.sass), encoding="utf-8")
        with numbered_binary(implementation.kernel) as (binary, is_numbered):
            print(f"numbered: {is_numbered}", flush=True)
            once = dataclasses.replace(implementation, compiled=binary)
            with Sampler(0, 60.0, lab.launches.trials).session_of(once, name) as sample:
                text = _relative(sample(5))
        (folder / f"{name}.numbered.hatchet").write_text(text, encoding="utf-8")
        found = lab.profile(kernel, grid, *arguments, **meta, counters=True)
        print(
            profile_card(found).text(),
            f"{found.sessions} sessions",
            found.frame.head(40).to_string(),
            sep="\n",
            flush=True,
        )


def _samples(text: str) -> list[tuple[str, int]]:
    """Return the frames of a file with their samples."""
    found: list[tuple[str, int]] = []
    nodes = [node for node in json.loads(text) if "frame" in node]
    while nodes:
        node = nodes.pop()
        found.append((node["frame"]["name"], int(node["metrics"].get("num_samples", 0))))
        nodes += node["children"]
    return found


def _relative(text: str) -> str:
    """Return a text without the folder of this checkout."""
    return text.replace(f"{_ROOT}/", "")


def main() -> None:
    if len(sys.argv) > 2:
        {"record": record, "profile": profile}[sys.argv[3]](sys.argv[1], Path(sys.argv[2]))
        return
    folder = Path(sys.argv[1]) if len(sys.argv) == 2 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{torch.cuda.get_device_name()}, triton {triton.__version__}, torch {torch.__version__}", flush=True)
    for name in ("strided_copy", "softmax", "matmul"):
        for step in ("record", "profile"):
            command = [sys.executable, "-m", "benchmarks.record_samples", name, str(folder), step]
            subprocess.run(command, check=False)


if __name__ == "__main__":
    main()
