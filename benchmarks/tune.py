"""Tuning: wall time to the first tuned launch, and how good the pick is: the lab, triton.autotune, torch.compile.

Usage: python -m benchmarks.tune [WORKLOAD...] [--out FILE] [--anew] [--budget SECONDS] | --table FILE | --compile
Needs a CUDA GPU, but for the last two. Each figure comes from a process of its own, whose imports are done and whose
CUDA context is there before the clock starts; it ends after the first launch of the winner. Cold means no store and no
cache of Triton. The lab is timed from ``Lab()``, from where its workers are ready, and warm: in a new process, with
the store of the first. Every pick is then compared with the best of the whole list, all configs of which are timed in
turns, and the best of these in turns for long.

Each figure is a line of JSON in FILE (benchmarks/results/tune.jsonl) as soon as it is there, and what FILE has is not
measured again; with ``--budget``, nothing more is begun when that time is nearly over. ``--table`` prints what a file
has, ``--compile`` compiles all configs for an H100, on any machine.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.forked import ChildFailed, forked
from benchmarks.tune_table import table

RESULTS = Path(__file__).parent / "results"
TIMEOUT_S = 180
NEARLY_S = 45.0
COLD = {"lab": "lab warm", "triton": "triton warm", "inductor": "inductor warm"}  # a warm one needs its files
ROUNDS, LONG_ROUNDS, LONGEST = 8, 120, 10

Line = dict[str, Any]


def main(arguments: list[str]) -> None:
    from benchmarks.tune_kernels import WORKLOADS

    parser = argparse.ArgumentParser(prog="python -m benchmarks.tune")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(WORKLOADS))
    parser.add_argument("--out", type=Path, default=RESULTS / "tune.jsonl")
    parser.add_argument("--anew", action="store_true")
    parser.add_argument("--budget", type=float, default=float("inf"))
    parser.add_argument("--table", type=Path)
    parser.add_argument("--compile", action="store_true")
    given = parser.parse_args(arguments)
    if not set(given.workloads) <= WORKLOADS.keys():
        parser.error(f"the workloads are {', '.join(WORKLOADS)}")
    names = given.workloads or list(WORKLOADS)
    if given.compile:
        for name in names:
            print(f"{name}: {compiled_statuses(name)}", flush=True)
        return
    if given.table is None:
        lines = [] if given.anew else _lines(given.out)
        if given.anew:
            given.out.unlink(missing_ok=True)
        _import_all()
        begin = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="kernellab-bench-", ignore_cleanup_errors=True) as folder:
            works = partial(_works, Path(folder), lines)
            measure_all(names, works, lines, given.out, lambda: given.budget - time.monotonic() + begin)
    text = table(_lines(given.table or given.out))
    print(text)
    if given.table is None:
        given.out.with_suffix(".txt").write_text(text + "\n", encoding="utf-8")


def _import_all() -> None:
    import torch._dynamo
    import triton

    import kernellab.lab
    import kernellab.tune.verbs

    assert not torch.cuda.is_initialized()
    assert triton
    assert kernellab.tune.verbs


def _lines(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def measure_all(
    names: Iterable[str],
    works: Callable[[str], Iterable[tuple[str, Callable[[], Line]]]],
    lines: list[Line],
    out: Path,
    left_s: Callable[[], float],
) -> None:
    """Measure what the lines lack, and append it to the file; nothing is begun when little time is left."""
    names, known = list(names), {(line["workload"], line["what"]) for line in lines}
    known -= {(name, cold) for name in names for cold, warm in COLD.items() if (name, warm) not in known}
    for name in names:
        for what, work in works(name):
            if (name, what) in known:
                continue
            if left_s() < NEARLY_S:
                print(f"left out for want of time: {name} {what} and what follows", flush=True)
                return
            begin = time.monotonic()
            try:
                found = work()
            except ChildFailed as exc:
                found = {"failed": str(exc)}
            line = {"workload": name, "what": what, **found, "took": round(time.monotonic() - begin, 1)}
            lines.append(line)
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            shown = {key: value for key, value in line.items() if key not in {"workload", "what", "machine"}}
            print(name, what, json.dumps(shown), flush=True)


def _works(root: Path, lines: list[Line], name: str) -> Iterator[tuple[str, Callable[[], Line]]]:
    """Yield what is measured of a workload: its name, and what measures it."""
    folder = root / name
    for what, own in (("lab", "lab"), ("lab ready", "ready"), ("lab warm", "lab")):
        yield what, partial(_child, partial(_with_lab, name, what), folder / own)
    for tuner, tune in (("triton", _with_triton), ("inductor", _with_inductor)):
        yield tuner, partial(_child, partial(tune, name), folder / tuner)
        yield f"{tuner} warm", partial(_child, partial(tune, name), folder / tuner)
    picks = {line["what"]: line["pick"] for line in lines if line["workload"] == name and line.get("pick")}
    yield "judged", partial(_child, partial(_judge, name, picks), folder / "lab")


def _child(work: Any, folder: Path) -> Line:
    def timed() -> Line:
        signal.alarm(TIMEOUT_S)
        return dict(work())

    return forked(
        timed,
        {
            "TRITON_CACHE_DIR": str(folder / "triton"),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            "KERNELLAB_STORE": str(folder / "lab"),
        },
    )


def _work(name: str) -> Any:
    """Return a workload on the GPU, with a context, and nothing under way."""
    import torch

    from benchmarks.tune_kernels import workload

    torch.manual_seed(0)
    work = workload(name)
    torch.cuda.synchronize()
    return work


def _seconds_since(begin: float) -> float:
    import torch

    torch.cuda.synchronize()
    return time.perf_counter() - begin


def _with_lab(name: str, what: str) -> Line:
    import kernellab

    work = _work(name)
    begin = time.perf_counter()
    with kernellab.Lab() as lab:
        if what == "lab ready":
            await_workers(lab)
        started = begin if what == "lab" else time.perf_counter()
        tuning = lab.tune(work.kernel, work.grid, *work.arguments)
        seconds = _seconds_since(started)
        return {
            "seconds": seconds,
            "start": started - begin,
            "pick": tuning.best.all_kwargs(),
            "error": work.error(),
            "from_cache": tuning.from_cache,
            "notes": list(tuning.notes),
            "statuses": {str(status): int(count) for status, count in tuning.frame.status.value_counts().items()},
            "machine": machine(),
        }


def await_workers(lab: Any) -> None:
    lab.start(wait=True)
    lab.launches.trials.wait_ready(0)


def machine() -> str:
    import torch
    import triton

    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    versions = f"Python {python}, torch {torch.__version__}, Triton {triton.__version__}"
    return f"one {torch.cuda.get_device_name()}, {len(os.sched_getaffinity(0))} cores, {versions}"


def _with_triton(name: str) -> Line:
    work = _work(name)
    work.kernel.cache_results = True
    begin = time.perf_counter()
    work.kernel[work.grid](*work.arguments)
    seconds = _seconds_since(begin)
    return {"seconds": seconds, "pick": work.kernel.best_config.all_kwargs(), "error": work.error()}


def _with_inductor(name: str) -> Line:
    import torch

    work = _work(name)

    def call(*arguments: Any) -> None:
        work.kernel[work.grid](*arguments)

    def pick() -> Mapping[str, Any] | None:
        files = sorted(Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).rglob("*.best_config"))
        kept = json.loads(files[-1].read_text()) if files else None
        known = {"num_warps", "num_stages", *work.kernel.configs[0].kwargs}
        return None if kept is None else {key: value for key, value in kept.items() if key in known}

    launch = torch.compile(call)
    begin = time.perf_counter()
    launch(*work.arguments)
    seconds = _seconds_since(begin)
    return {"seconds": seconds, "pick": pick(), "error": work.error()}


def _judge(name: str, picks: Mapping[str, Any]) -> Line:
    """Time the whole list in turns, then the fastest of it and the picks, in turns for long."""
    import kernellab
    from kernellab._triton.kernel import autotune_settings
    from kernellab.errors import KernellabError
    from kernellab.timing.bench import BenchOptions
    from kernellab.timing.config import Config
    from kernellab.timing.gpu_bench import gpu_bench
    from kernellab.timing.launches import Launches, implementation_of

    work = _work(name)
    with kernellab.Lab() as lab:
        originals = {Config.from_triton(config): config for config in work.kernel.configs}
        launches = Launches(work.kernel, work.grid, work.arguments, {}, lab.target, originals=originals)
        configs = list(originals)
        fitting = []
        for index, each in lab.compiler.stream([launches.of(config).job for config in configs]):
            if not isinstance(each, KernellabError) and each.resources.fits:
                fitting.append(implementation_of(launches, configs[index], each, index))
        reset = frozenset(autotune_settings(work.kernel).reset_to_zero)
        bench = gpu_bench(BenchOptions(launches.name, 60.0, launches.manner, reset=reset), None)
        first: dict[int, float] = {}
        for each in fitting:
            with suppress(KernellabError):  # a config that the driver refuses has no time
                first[each.index] = min(bench.measure(each, 2, None).times_ms)
        near = [each for each in fitting if first.get(each.index, float("inf")) <= 4 * min(first.values())]
        turns = {each.index: _median(times) for each, times in _timed(bench, near, ROUNDS)}
        chosen = {what: _index(configs, pick) for what, pick in picks.items()}
        top = {*sorted(turns, key=lambda index: turns[index])[:LONGEST], *(i for i in chosen.values() if i in first)}
        finalists = [each for each in fitting if each.index in top]
        times = {each.index: _median(found) for each, found in _timed(bench, finalists, LONG_ROUNDS)}
    best = min(times, key=lambda index: times[index])
    ratios = {what: times[index] / times[best] for what, index in chosen.items() if index in times}
    return {"count": len(configs), "best": configs[best].text, "best_ms": times[best], "picks": ratios}


def _timed(bench: Any, implementations: list[Any], rounds: int) -> Iterator[tuple[Any, Any]]:
    return zip(implementations, bench.interleave(implementations, rounds), strict=True)


def _median(times: Any) -> float:
    return float(sorted(times)[len(times) // 2])


def _index(configs: list[Any], pick: Mapping[str, Any]) -> int | None:
    matches = [
        i for i, c in enumerate(configs) if all(c.values.get(name, value) == value for name, value in pick.items())
    ]
    return matches[0] if matches else None


def compiled_statuses(name: str) -> dict[str, int]:
    """Compile all configs of a small workload for an H100, without a GPU; return how many have which status."""
    import kernellab
    from benchmarks.tune_kernels import workload

    work = workload(name, "cpu", is_small=True)
    with kernellab.Lab(target="cuda:90", store=":memory:") as lab:
        rows = lab.tune(work.kernel, work.grid, *work.arguments).rows
    return {str(status): sum(row.status is status for row in rows) for status in {row.status for row in rows}}


if __name__ == "__main__":
    main(sys.argv[1:])
