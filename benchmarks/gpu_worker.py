"""How long the GPU worker takes until it can try and time launches: from nothing, after a fault, after a timeout.

Run it on a machine with a GPU: ``python -m benchmarks.gpu_worker``. "First launch" is that of a kernel nobody has
compiled, from `Lab()` to its end on the device, with torch imported and a context before.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
import triton
import triton.language as tl

import kernellab
from kernellab.compile.cache import COMPILE_WORKER
from kernellab.gpu.trial import GpuTrials
from kernellab.workers.forks_and_interrupts import Stop
from kernellab.workers.worker import Pool

RESULT = Path(__file__).parent / "results" / "gpu_worker.txt"
REPEATS = 5


@triton.jit
def shifted(x_ptr, out_ptr, n, shift, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets + shift, mask=offsets < n), mask=offsets < n)


@triton.jit
def endless(x_ptr):
    while tl.load(x_ptr, volatile=True) == 0:
        pass


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def from_nothing(*, with_torch: bool) -> float:
    pool = Pool(COMPILE_WORKER, 4)
    trials = GpuTrials(10.0, preload="kernellab.timing.bench_worker", compilers=pool)
    try:
        return seconds(lambda: trials.wait_ready(0, with_torch=with_torch))
    finally:
        trials.close()
        pool.close()


def after_its_end(*, with_torch: bool) -> float:
    trials = GpuTrials(10.0, preload="kernellab.timing.bench_worker")
    worker = trials.worker(0, with_torch=with_torch)
    trials.wait_ready(0, with_torch=with_torch)
    server = trials._server(with_torch=with_torch)  # `start` starts it when the first worker is ready
    server.start()
    server.fork(10.0, "a fork", Stop()).stop()
    worker.close()
    try:
        return seconds(lambda: trials.wait_ready(0, with_torch=with_torch))
    finally:
        trials.close()


def launches() -> dict[str, float]:
    """Return the seconds of first launches in one lab: a good one, then one after a fault, one after a timeout."""
    x, out = torch.zeros(1 << 20, device="cuda"), torch.zeros(1 << 20, device="cuda")
    found = {}
    with tempfile.TemporaryDirectory() as store:
        start = time.perf_counter()
        with kernellab.Lab(store=store) as lab:
            kernel, hanging = lab.bind(shifted), lab.bind(endless)

            def launch(block: int, shift: int = 0) -> None:
                kernel[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), shift, BLOCK=block)

            launch(1024)
            torch.cuda.synchronize()
            found["first launch"] = time.perf_counter() - start
            found["next new kernel"] = seconds(lambda: launch(512))
            with contextlib.suppress(kernellab.KernellabError):
                launch(256, shift=1 << 30)
            found["first launch after a fault"] = seconds(lambda: launch(128))
            with contextlib.suppress(kernellab.KernellabError), lab.launches.recording(timeout_s=0.5):
                hanging[(1,)](torch.zeros(1, device="cuda"))
            found["first launch after a timeout"] = seconds(lambda: launch(64))
    return found


def main() -> None:
    torch.zeros(1, device="cuda")
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    say(f"{torch.cuda.get_device_name()}, triton {triton.__version__}, torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        cold = from_nothing(with_torch=False)
        say(f"{'worker from nothing, its kernels not compiled yet':<52} {cold:6.2f} s")
        for with_torch in (False, True):
            name = "worker with torch" if with_torch else "worker"
            for what, measured in (("from nothing", from_nothing), ("after it ended", after_its_end)):
                times = [measured(with_torch=with_torch) for _ in range(2 if with_torch else REPEATS)]
                say(f"{f'{name} {what}':<52} {median(times):6.2f} s  (up to {max(times):.2f})")
        found = [launches() for _ in range(REPEATS)]
        for what in found[0]:
            times = [each[what] for each in found]
            say(f"{what:<52} {median(times):6.2f} s  (up to {max(times):.2f})")
    RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
