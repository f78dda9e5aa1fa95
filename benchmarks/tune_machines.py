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
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
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
from benchmarks.tune_over import KERNEL, grid
from benchmarks.tune_over import inputs as inputs_on_gpu
from benchmarks.tune_over_table import table
from kernellab.lab.workspace import local_environment
from kernellab.timing.launches import Launches
from kernellab.tune.cluster_tuning import OpenEnvironment, cluster_cases
from kernellab.tune.dispatch.result import CaseRequest, MeasuredCase
from kernellab.tune.options import Options
from kernellab.tune.run_tuning import Environment, tune_launches
from kernellab.tune.verbs import environment_of

RESULT = Path(__file__).parent / "results" / "tune_machines.txt"
SMALL = [{"M": m, "N": n, "K": 32} for m in (16, 32) for n in (32, 64)]
ASKED = 1.8
HOST = "127.0.0.1"
ROUNDS = 2


@triton.jit
def touch(out_ptr, BLOCK: tl.constexpr):
    tl.store(out_ptr + tl.arange(0, BLOCK), 1.0)


def inputs_on_cpu(M: int, N: int, K: int) -> dict[str, Any]:
    """Return the arguments of a small product; the kernel reads whole blocks along k."""
    left, right = torch.zeros((M + 64) * K), torch.zeros((K + 64) * N)
    return {"a_ptr": left.half(), "b_ptr": right.half(), "c_ptr": torch.zeros(M, N).half(), "m": M, "n": N, "k": K}


@dataclass
class Exhaustive:
    """Measures every config of a case."""

    environment: Environment
    kernel: Any
    configs: Sequence[triton.Config]
    inputs: Callable[..., dict[str, Any]]
    requests: list[CaseRequest] = field(default_factory=list)
    lanes: int = 1

    def submit(self, request: CaseRequest, /) -> None:
        self.requests.append(request)

    def take(self) -> MeasuredCase:
        request, begin = self.requests.pop(), time.perf_counter()
        tuning = tune_launches(
            self.environment,
            Launches(self.kernel, grid, (), self.inputs(**request.sizes), self.environment.device.target),
            Options(self.configs),
        )
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
    """One tuning over all shapes: seconds, those that workers measured, rows that were timed, cases that failed."""

    label: str
    workers: int
    seconds: float
    busy_s: float
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
    rows, busy_s = sum(len(case.times_ms) for case in cases), sum(case.seconds for case in cases)
    failures = tuple(case.failure for case in cases if case.failure)
    return Run(label, count, seconds, busy_s, rows, failures, tuple(notes))


def over_all(lab: kernellab.Lab, client: Any, *, cpu: bool) -> tuple[Sequence[MeasuredCase], Sequence[str]]:
    """Tune by `Lab.tune_over`."""
    configs = [config.to_triton() for config in table().configs]
    dispatch = lab.tune_over(KERNEL, grid, over=shapes(), inputs=inputs_on_gpu, configs=configs, executor=client)
    return dispatch.cases, dispatch.notes


def each_alone(lab: kernellab.Lab, client: Any, *, cpu: bool) -> tuple[Sequence[MeasuredCase], Sequence[str]]:
    """Measure every config at every shape; the largest shapes first."""
    configs = [config.to_triton() for config in table().configs[: 2 if cpu else None]]
    sizes = sorted(shapes(cpu=cpu), key=lambda each: -each["M"] * each["N"] * each["K"])
    measurer = partial(Exhaustive, configs=configs, inputs=inputs_on_cpu if cpu else inputs_on_gpu)
    environment = environment_of(lab.session())
    cases = cluster_cases(environment, client, opening(cpu=cpu), lab.bind(KERNEL), measurer)
    for number, each in enumerate(sizes):
        cases.submit(CaseRequest(number, each, ()))
    found = [cases.take() for _ in sizes]
    cases.close()
    return found, cases.notes


def shapes(*, cpu: bool = False) -> list[dict[str, int]]:
    """Return the 24 shapes, or few small ones."""
    return SMALL if cpu else [dict(shape.sizes) for shape in table().group("train")]


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
    specs = {number: worker(number) for number in range(count)}
    cluster = SpecCluster(workers=specs, scheduler=scheduler, silence_logs=logging.WARNING)
    with cluster, Client(cluster) as client:
        client.wait_for_workers(count)
        workers = list(client.nthreads())
        client.gather([client.submit(get_ready, opening(cpu=cpu), workers=[each], pure=False) for each in workers])
        yield client


def opening(*, cpu: bool) -> OpenEnvironment:
    """Return what a worker measures with."""
    if not cpu:
        return local_environment
    from tests.tune.cluster.cpu_device import cpu_environment

    return cpu_environment


def get_ready(opened: OpenEnvironment) -> None:
    """Tune another kernel in a worker: the GPU has a context, and what measures has been loaded."""
    environment = opened()
    assert environment is not None, "this worker sees no GPU"
    configs = [triton.Config({"BLOCK": block}) for block in (64, 128)]
    out = torch.zeros(128, device="cpu" if environment.device.index is None else "cuda")
    tune_launches(environment, Launches(touch, (1,), (out,), {}, environment.device.target), Options(configs))


def shown(runs: Iterator[Run], given: argparse.Namespace) -> Iterator[str]:
    """Yield the lines of the table, each of which is printed as it is known."""

    def line(text: str) -> str:
        print(text, flush=True)
        return text

    yield line(f"{machine()}, {len(shapes(cpu=given.cpu))} shapes, how: {'each' if given.cpu else given.how}")
    warm: dict[int, list[float]] = {1: [], 2: []}
    notes: dict[str, None] = {}
    for run in runs:
        share = run.busy_s / run.seconds / run.workers
        text = f"{run.label}  workers: {run.workers}  {run.seconds:7.2f} s  {run.rows} rows  at work {share:.0%}"
        yield line(text)
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
