"""Compiling in workers: speed-up over one process, the start of the pool, and a repeated compile.

    python -m benchmarks.compile [CONFIGS]
    python -m benchmarks.compile jobs [PAIRS]

48 configs of a matmul for cuda:90, each cold, first by one worker, then by as many as there are cores; then the same
kernel again from disk and from memory. With ``jobs``, whole compile jobs, with graph, effects and resources, in turns
with `triton.compile` of the same kernel into an empty cache, in one process.
"""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton

from benchmarks.effects import add, large_kernel
from benchmarks.tune_products import attention, matmul
from kernellab._triton.specialize import source_of, specialize
from kernellab._triton.targets import gpu_target
from kernellab.compile.cache import COMPILE_WORKER, Compiler
from kernellab.compile.entries import EFFECTS, GRAPH, SUMMARY
from kernellab.compile.types import Compiled, CompileJob, compile_job
from kernellab.compile.worker import BuildRequest, compile_kernel
from kernellab.target import parse_target
from kernellab.workers.worker import Pool
from tests.kernels.cases import all_cases

TARGET = parse_target("cuda:90")
REPEATS = 30
PAIRS = 15
LARGE = "1,512 operations"


def jobs(count: int) -> list[CompileJob]:
    """Return jobs of distinct configs."""
    case = all_cases()["matmul-float16"]
    arguments = case.fresh_arguments()
    space = itertools.product((32, 64, 128), (32, 64, 128), (32, 64), (2, 3, 4), (4, 8))
    configs = [dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_stages", "num_warps"), c, strict=True)) for c in space]
    step = max(1, len(configs) // count)
    chosen = configs[::step][:count]
    return [compile_job(case.kernel, TARGET, (), {**case.meta, **config, **arguments}) for config in chosen]


def started(workers: int, folder: Path) -> tuple[Compiler, float]:
    """Return a compiler on a running pool, and the seconds until every worker answered."""
    pool = Pool(COMPILE_WORKER, workers)
    begin = time.perf_counter()
    pool.start()
    pool.wait_ready(60)
    seconds = time.perf_counter() - begin
    return Compiler(pool, folder, 300), seconds


def cold(workers: int, work: Sequence[CompileJob]) -> tuple[float, float, int]:
    """Return seconds to start, seconds to compile everything, and how many did not compile."""
    with tempfile.TemporaryDirectory() as folder:
        compiler, start = started(workers, Path(folder))
        begin = time.perf_counter()
        failed = sum(not isinstance(result, Compiled) for _, result in compiler.stream(work))
        seconds = time.perf_counter() - begin
        compiler.pool.close()
    return start, seconds, failed


def repeated(job: CompileJob) -> tuple[float, float]:
    """Return median milliseconds of a compile that is on disk, and of one that is in memory."""
    with tempfile.TemporaryDirectory() as folder:
        compiler, _ = started(1, Path(folder))
        compiler.compile(job)
        disk, memory = [], []
        for _ in range(REPEATS):
            fresh = Compiler(compiler.pool, Path(folder), 300)
            disk.append(_milliseconds(fresh, job))
            memory.append(_milliseconds(fresh, job))
        compiler.pool.close()
    return statistics.median(disk), statistics.median(memory)


def large_job(folder: Path) -> CompileJob:
    """Return the job of a kernel whose TTIR has 1,512 operations."""
    x, y, out = (torch.zeros(4096) for _ in range(3))
    return compile_job(large_kernel(folder), TARGET, (x, y, out, 4095), {"BLOCK": 128})


def _milliseconds(compiler: Compiler, job: CompileJob) -> float:
    begin = time.perf_counter()
    compiler.compile(job)
    return (time.perf_counter() - begin) * 1e3


@dataclass(frozen=True)
class WholeJob:
    """A kernel with the arguments and constexprs that it is compiled for."""

    name: str
    kernel: Any
    arguments: tuple[Any, ...]
    meta: dict[str, Any]

    def compile_by_lab(self) -> None:
        """Compile the job into a folder, from the text of the kernel to its graph, effects and resources."""
        with tempfile.TemporaryDirectory() as folder:
            job = compile_job(self.kernel, TARGET, self.arguments, self.meta)
            compile_kernel(BuildRequest(job, Path(folder)), lambda _: None)
            assert {EFFECTS, GRAPH, SUMMARY} <= set(os.listdir(folder))

    def compile_by_triton(self) -> None:
        """Call `triton.compile` for the same specialization, into an empty cache."""
        with tempfile.TemporaryDirectory() as folder, triton.knobs.cache.scope():
            triton.knobs.cache.dir = folder
            special = specialize(self.kernel, TARGET, self.arguments, self.meta)
            triton.compile(source_of(self.kernel, special), gpu_target(TARGET), dict(special.options))


def whole_jobs(folder: Path) -> list[WholeJob]:
    """Return the jobs of the comparison with `triton.compile`."""
    x, y, out = (torch.zeros(4096) for _ in range(3))
    halves = tuple(torch.zeros(256, 256, dtype=torch.float16) for _ in range(4))
    tiles = {"BM": 128, "BN": 128, "BK": 64, "num_warps": 8, "num_stages": 3}
    rows = {"WIDTH": 64, "BM": 128, "BN": 64, "num_warps": 4, "num_stages": 3}
    return [
        WholeJob("vector add", add, (x, y, out, 4095), {"BLOCK": 1024}),
        WholeJob("matmul", matmul.fn, (*halves[:3], 256, 256, 256), tiles),
        WholeJob("flash attention", attention.fn, (*halves, 256, 0.125), rows),
        WholeJob(LARGE, large_kernel(folder), (x, y, out, 4095), {"BLOCK": 128}),
    ]


def _seconds_of(work: Callable[[], None]) -> tuple[float, float]:
    """Return the seconds of a call, and those of processor time, of the processes that it starts, too."""
    before, begin = os.times(), time.perf_counter()
    work()
    seconds, after = time.perf_counter() - begin, os.times()
    return seconds, sum(after[:4]) - sum(before[:4])


def compare_with_triton(pairs: int) -> None:
    """Print medians of both ways to compile each kernel, and the median of their ratios pair by pair."""
    print(f"whole compile jobs and triton.compile for {TARGET}, medians of pairs in one process, ", end="")
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}")
    print(f"triton {triton.__version__}, torch {torch.__version__}, Python {sys.version.split()[0]}")
    print(f"{'kernel':>18} {'pairs':>6} {'job ms':>8} {'triton ms':>10} {'ratio':>6} {'CPU ratio':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for job in whole_jobs(Path(folder)):
            ways = job.compile_by_lab, job.compile_by_triton
            count = max(1, pairs // 3) if job.name == LARGE else pairs
            rounds = []
            for number in range(-1, count):  # the first pair imports and caches
                order = (0, 1) if number % 2 else (1, 0)
                seconds = {way: _seconds_of(ways[way]) for way in order}
                rounds.append((seconds[0], seconds[1]))
            (ours, theirs), measured = zip(*rounds[1:], strict=True), rounds[1:]
            milliseconds = [1e3 * statistics.median(wall for wall, _ in way) for way in (ours, theirs)]
            ratios = [statistics.median(one[kind] / other[kind] for one, other in measured) for kind in (0, 1)]
            print(f"{job.name:>18} {count:6} {milliseconds[0]:8.1f} {milliseconds[1]:10.1f} ", end="")
            print(f"{ratios[0]:6.2f} {ratios[1]:10.2f}", flush=True)
    print(f"load {os.getloadavg()[0]:.1f} at the end; goal: a ratio of at most 1.1")


def main(arguments: Sequence[str]) -> None:
    if arguments and arguments[0] == "jobs":
        compare_with_triton(int(arguments[1]) if arguments[1:] else PAIRS)
        return
    cores = len(os.sched_getaffinity(0))
    work = jobs(int(arguments[0]) if arguments else 48)
    print(f"compile workers, matmul fp16 for {TARGET}, {cores} cores, load {os.getloadavg()[0]:.1f}")
    print(f"triton {triton.__version__}, torch {torch.__version__}, Python {sys.version.split()[0]}")
    rows: dict[int, Any] = {workers: cold(workers, work) for workers in (1, cores)}
    print(f"{'workers':>8} {'start s':>8} {'compile s':>10} {'failed':>7}")
    for workers, (start, seconds, failed) in rows.items():
        print(f"{workers:8} {start:8.2f} {seconds:10.2f} {failed:7}")
    speedup = rows[1][1] / rows[cores][1]
    print(f"speed-up {speedup:.2f} x, {speedup / cores:.2f} x cores; goal: 0.85 x cores on 2 cores; start < 0.3 s")
    disk, memory = repeated(work[0])
    print(f"again: from disk {disk:.2f} ms (goal < 2), from memory {memory:.3f} ms (goal < 0.1)")
    with tempfile.TemporaryDirectory() as folder:
        disk, memory = repeated(large_job(Path(folder)))
    print(f"again, of 1,512 operations: from disk {disk:.2f} ms (goal < 2), from memory {memory:.3f} ms (goal < 0.1)")


if __name__ == "__main__":
    main(sys.argv[1:])
