"""Compiling in workers: speed-up over one process, the start of the pool, and a repeated compile.

    python -m benchmarks.compile [CONFIGS]

48 configs of a matmul for cuda:90, each cold, first by one worker, then by as many as there are cores; then the same
kernel again from disk and from memory.
"""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import triton

from benchmarks.effects import large_kernel
from kernellab.compile.cache import COMPILE_WORKER, Compiler
from kernellab.compile.types import Compiled, CompileJob, compile_job
from kernellab.target import parse_target
from kernellab.workers.worker import Pool
from tests.kernels.cases import all_cases

TARGET = parse_target("cuda:90")
REPEATS = 30


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


def main(arguments: Sequence[str]) -> None:
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
