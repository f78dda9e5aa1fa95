"""A product over 24 shapes, tuned by one worker with a GPU and by two: how much faster two are.

Usage: python -m benchmarks.tune_machines [--budget SECONDS] [--how over|each] [--cpu]. Needs two CUDA GPUs and dask's
distributed: each worker sees one GPU alone. ``over`` is `Lab.tune_over`, ``each`` measures every config at every shape.
Workers are ready before a run begins: they have a context on their GPU and have tuned another kernel. First two workers
run that have compiled nothing, then one and two, in turns, with what that compiled. What the budget does not reach is
left out and said. ``--cpu`` tries the script with the interpreter, on few small shapes. Prints a table and writes
benchmarks/results/tune_machines.txt.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import triton
import triton.language as tl

import kernellab
from benchmarks.tune_products import matmul
from kernellab.dispatch.cases import CaseRequest, MeasuredCase
from kernellab.dispatch.cluster_cases import cluster_cases
from kernellab.tune.autotune import environment_of
from kernellab.tune.cluster_tuning import OpenEnvironment
from kernellab.tune.tuning import Environment, Options, tuned
from kernellab.workspace import measuring_here

RESULT = Path(__file__).parent / "results" / "tune_machines.txt"
OVER = {"m": [16, 128, 512, 1024, 4096, 8192], "n": [512, 4096], "k": [1024, 4096]}
SMALL = {"m": [16, 32], "n": [32, 64], "k": [32]}
ASKED = 1.8
HOST = "127.0.0.1"
ROUNDS = 2


@triton.jit
def touch(out_ptr, BLOCK: tl.constexpr):
    tl.store(out_ptr + tl.arange(0, BLOCK), 1.0)


def inputs(m: int, n: int, k: int) -> dict[str, Any]:
    """Return the arguments of a product on the GPU of this process."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    a, b = (torch.randn(shape, device=device).half() for shape in ((m, k), (k, n)))
    return {"a_ptr": a, "b_ptr": b, "c_ptr": torch.zeros(m, n, device=device).half(), "m": m, "n": n, "k": k}


def grid(meta: dict[str, Any]) -> tuple[int, ...]:
    """Return a program per tile."""
    return (triton.cdiv(meta["m"], meta["BM"]) * triton.cdiv(meta["n"], meta["BN"]),)


@dataclass
class Exhaustive:
    """Measures every config of a case."""

    environment: Environment
    kernel: Any
    configs: Sequence[triton.Config]
    requests: list[CaseRequest] = field(default_factory=list)
    lanes: int = 1

    def submit(self, request: CaseRequest, /) -> None:
        self.requests.append(request)

    def take(self) -> MeasuredCase:
        request, begin = self.requests.pop(), time.perf_counter()
        tuning = tuned(self.environment, self.kernel, grid, (), inputs(**request.sizes), Options(self.configs))
        seconds, facts = time.perf_counter() - begin, tuning.provenance
        return MeasuredCase(
            request.number, request.sizes, tuning.rows, key=facts["key"], provenance=facts, seconds=seconds
        )

    def close(self) -> None:
        """Hold nothing."""


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tune_machines")
    parser.add_argument("--budget", type=float, default=400.0, metavar="SECONDS")
    parser.add_argument("--how", choices=("over", "each"), default="over")
    parser.add_argument("--cpu", action="store_true")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        lines = list(shown(measured(given, Path(folder), time.monotonic() + given.budget), given))
    text = f"$ python -m benchmarks.tune_machines {' '.join(arguments)}".rstrip() + "\n" + "\n".join(lines) + "\n"
    if not given.cpu:
        RESULT.write_text(text, encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Run:
    """One tuning over all shapes: seconds, the rows that were timed, and cases that failed."""

    label: str
    workers: int
    seconds: float
    rows: int
    failures: tuple[str, ...]
    notes: tuple[str, ...]


def measured(given: argparse.Namespace, folder: Path, end: float) -> Iterator[Run]:
    """Yield the runs that the budget allows, each as it ends."""
    longest = 0.0
    turns = [("cold", 2), *[("warm", count) for _ in range(ROUNDS) for count in (1, 2)]]
    for label, count in turns:
        if time.monotonic() + 1.3 * longest > end:
            return
        begin = time.monotonic()
        with ready_workers(count, folder, cpu=given.cpu) as client:
            yield one_run(given, label, count, client)
        longest = max(longest, time.monotonic() - begin)


def one_run(given: argparse.Namespace, label: str, count: int, client: Any) -> Run:
    """Tune over all shapes on the workers of a client, with an empty store."""
    run = over_all if given.how == "over" and not given.cpu else each_alone
    with kernellab.Lab(store=":memory:") as lab:
        begin = time.perf_counter()
        cases, notes = run(lab, client, cpu=given.cpu)
        seconds = time.perf_counter() - begin
    rows = sum(len(case.times_ms) for case in cases)
    return Run(label, count, seconds, rows, tuple(case.failure for case in cases if case.failure), tuple(notes))


def over_all(lab: kernellab.Lab, client: Any, *, cpu: bool) -> tuple[Sequence[MeasuredCase], Sequence[str]]:
    """Tune by `Lab.tune_over`."""
    dispatch = lab.tune_over(matmul.fn, grid, over=OVER, inputs=inputs, configs=matmul.configs, executor=client)
    return dispatch.cases, dispatch.notes


def each_alone(lab: kernellab.Lab, client: Any, *, cpu: bool) -> tuple[Sequence[MeasuredCase], Sequence[str]]:
    """Measure every config at every shape; the largest shapes first."""
    over, configs = (SMALL, matmul.configs[:2]) if cpu else (OVER, matmul.configs)
    sizes = [dict(zip(over, values, strict=True)) for values in itertools.product(*over.values())]
    sizes.sort(key=lambda each: -each["m"] * each["n"] * each["k"])
    environment, measurer = environment_of(lab.launches, lab.kernels), partial(Exhaustive, configs=configs)
    cases = cluster_cases(environment, client, opening(cpu=cpu), lab.bind(matmul.fn), measurer)
    for number, each in enumerate(sizes):
        cases.submit(CaseRequest(number, each, ()))
    found = [cases.take() for _ in sizes]
    cases.close()
    return found, cases.notes


@contextmanager
def ready_workers(count: int, folder: Path, *, cpu: bool) -> Iterator[Any]:
    """Give a client of so many workers, each of which sees a GPU of its own and has tuned on it."""
    from distributed import Client, Nanny, Scheduler, SpecCluster

    def worker(number: int) -> dict[str, Any]:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        device = visible.split(",")[number] if visible else str(number)
        environment = {"CUDA_VISIBLE_DEVICES": device, "KERNELLAB_STORE": str(folder)}
        options = {"nthreads": 1, "env": environment, "local_directory": str(folder), "host": HOST}
        return {"cls": Nanny, "options": {**options, "silence_logs": logging.WARNING}}

    scheduler = {"cls": Scheduler, "options": {"dashboard": False, "dashboard_address": None, "host": HOST}}
    workers = {number: worker(number) for number in range(count)}
    cluster = SpecCluster(workers=workers, scheduler=scheduler, silence_logs=logging.WARNING)
    with cluster, Client(cluster) as client:
        client.wait_for_workers(count)
        client.run(get_ready, opening(cpu=cpu))
        yield client


def opening(*, cpu: bool) -> OpenEnvironment:
    """Return what a worker measures with."""
    if not cpu:
        return measuring_here
    from tests.cluster.cpu_device import cpu_environment

    return cpu_environment


def get_ready(opened: OpenEnvironment) -> None:
    """Tune another kernel in a worker: the GPU has a context, and what measures has been loaded."""
    environment = opened()
    assert environment is not None, "this worker sees no GPU"
    configs = [triton.Config({"BLOCK": block}) for block in (64, 128)]
    out = torch.zeros(128, device="cpu" if environment.device.index is None else "cuda")
    tuned(environment, touch, (1,), (out,), {}, Options(configs))


def shown(runs: Iterator[Run], given: argparse.Namespace) -> Iterator[str]:
    """Yield the lines of the table, each of which is printed as it is known."""

    def line(text: str) -> str:
        print(text, flush=True)
        return text

    shapes = SMALL if given.cpu else OVER
    total = len(list(itertools.product(*shapes.values())))
    yield line(f"{machine()}, {total} shapes, how: {'each' if given.cpu else given.how}")
    warm: dict[int, list[float]] = {1: [], 2: []}
    notes: dict[str, None] = {}
    for run in runs:
        yield line(f"{run.label}  workers: {run.workers}  {run.seconds:7.2f} s  {run.rows} rows")
        yield from (line(f"  FAILED {failure}") for failure in run.failures)
        notes |= dict.fromkeys(run.notes)
        if run.label == "warm":
            warm[run.workers].append(run.seconds)
    yield from (line(f"  {note}") for note in notes)
    if not warm[1] or not warm[2]:
        yield line("the budget did not reach one worker and two, so there is no ratio")
        return
    ratio = median(warm[1]) / median(warm[2])
    verdict = "" if ratio >= ASKED or given.cpu else ": MISSED"
    yield line(
        f"one worker {median(warm[1]):.2f} s, two {median(warm[2]):.2f} s: {ratio:.2f} x as fast "
        f"(asked: {ASKED}){verdict}; medians of {len(warm[1])} and {len(warm[2])} runs"
    )


def machine() -> str:
    """Return what it ran on."""
    from distributed import __version__ as distributed

    names = [torch.cuda.get_device_name(each) for each in range(torch.cuda.device_count())] or ["no GPU"]
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    versions = f"Python {python}, torch {torch.__version__}, Triton {triton.__version__}, distributed {distributed}"
    return f"{' and '.join(names)}, {len(os.sched_getaffinity(0))} cores, {versions}"


if __name__ == "__main__":
    from benchmarks.tune_machines import main as run  # what travels to workers has this name, and not __main__

    with suppress(KeyboardInterrupt):
        run(sys.argv[1:])
