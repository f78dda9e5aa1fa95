"""Tuning: wall time to the first tuned result, and how good the pick is; the lab, triton.autotune, torch.compile.

Usage: python -m benchmarks.tune [WORKLOAD...]. Needs a CUDA GPU. Each tuner runs in processes of its own, with empty
caches ("cold") and with those that the cold run left ("warm"); a time begins when imports, tensors and, for the lab,
its workers are there. The picks are then compared with each other and with the best of the whole list in one long
interleaved measurement.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.tune_kernels import NAMES, workload

TUNERS = ("lab", "triton", "inductor")
GOALS = {"matmul": {"triton": 10.0, "inductor": 8.0}}
LONG_ROUNDS = 120


def main(names: list[str]) -> None:
    for name in names or NAMES:
        with tempfile.TemporaryDirectory(prefix="kernellab-bench-") as folder:
            _report(name, {tuner: _timed(name, tuner, Path(folder) / tuner) for tuner in TUNERS})


def _timed(name: str, tuner: str, folder: Path) -> dict[str, Any]:
    """Return cold and warm seconds, and the config that was picked."""
    cold, warm = (_child("tune", name, tuner, folder) for _ in range(2))
    return {"cold": cold["seconds"], "warm": warm["seconds"], "pick": warm["pick"] or cold["pick"]}


def _report(name: str, found: dict[str, dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory(prefix="kernellab-bench-") as folder:
        picks = json.dumps({tuner: each["pick"] for tuner, each in found.items()})
        judged = _child("judge", name, picks, Path(folder))
    lab = found["lab"]
    for tuner, each in found.items():
        ratio = judged["picks"].get(tuner)
        quality = "pick unknown" if ratio is None else f"pick {ratio:.3f} x the best"
        faster = f"lab {each['cold'] / lab['cold']:.1f}x cold, {each['warm'] / lab['warm']:.1f}x warm"
        print(f"{name:10} {tuner:9} cold {each['cold']:7.2f} s  warm {each['warm']:6.3f} s  {quality}  {faster}")
    print(f"{name:10} the best of {judged['count']}: {judged['best']}, {judged['best_ms']:.4f} ms", flush=True)


def _child(*arguments: Any) -> dict[str, Any]:
    *words, folder = arguments
    environment = {
        **os.environ,
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "KERNELLAB_STORE": str(folder / "lab"),
    }
    command = [sys.executable, "-m", "benchmarks.tune", "--child", *map(str, words)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{words}: {done.stderr[-3000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _tune(name: str, tuner: str) -> dict[str, Any]:
    import torch

    work = workload(name)
    torch.cuda.synchronize()
    seconds, pick = {"lab": _with_lab, "triton": _with_triton, "inductor": _with_inductor}[tuner](work)
    return {"seconds": seconds, "pick": pick}


def _with_lab(work: Any) -> tuple[float, Any]:
    import torch

    import kernellab

    with kernellab.Lab() as lab:
        _await_workers(lab)
        start = time.perf_counter()
        tuning = lab.tune(work.kernel, work.grid, *work.arguments)
        torch.cuda.synchronize()
        return time.perf_counter() - start, tuning.best.all_kwargs()


def _await_workers(lab: Any) -> None:
    from kernellab.worker import Job

    lab.start(wait=True)
    lab.launches.flights.worker(0).run(Job("kernellab.gpu.worker:warm", 0, "the GPU worker"), 120)


def _with_triton(work: Any) -> tuple[float, Any]:
    import torch

    work.kernel.cache_results = True
    start = time.perf_counter()
    work.kernel[work.grid](*work.arguments)
    torch.cuda.synchronize()
    return time.perf_counter() - start, work.kernel.best_config.all_kwargs()


def _with_inductor(work: Any) -> tuple[float, Any]:
    import torch

    def call(*arguments: Any) -> None:
        work.kernel[work.grid](*arguments)

    launch = torch.compile(call)
    start = time.perf_counter()
    launch(*work.arguments)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    files = sorted(Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).rglob("*.best_config"))
    kept = json.loads(files[-1].read_text()) if files else None
    known = {"num_warps", "num_stages", *work.kernel.configs[0].kwargs}
    return seconds, None if kept is None else {key: value for key, value in kept.items() if key in known}


def _judge(name: str, picks: str) -> dict[str, Any]:
    """Time the whole list, then the fastest of it and the picks, interleaved for long."""
    import kernellab
    from kernellab.tune.bench import Candidate
    from kernellab.tune.config import Config
    from kernellab.tune.launches import Launches
    from kernellab.tune.local_bench import LocalBench

    work = workload(name)
    with kernellab.Lab() as lab:
        launches = Launches(work.kernel, work.grid, work.arguments, {}, lab.target)
        configs = [Config.from_triton(config) for config in work.kernel.configs]
        jobs = [launches.of(config).job for config in configs]
        compiled = {index: each for index, each in lab.compiler.stream(jobs) if hasattr(each, "resources")}
        fitting = [Candidate(i, configs[i], each) for i, each in sorted(compiled.items()) if each.resources.fits]
        bench = LocalBench(launches, frozenset())
        first = {each.index: min(bench.measure(each, 5, None).times_ms) for each in fitting}
        chosen = {tuner: _index(configs, pick) for tuner, pick in json.loads(picks).items() if pick}
        top = {*sorted(first, key=lambda index: first[index])[:8], *(i for i in chosen.values() if i in first)}
        finalists = [each for each in fitting if each.index in top]
        times = {
            each.index: sorted(found)[len(found) // 2]
            for each, found in zip(finalists, bench.interleave(finalists, LONG_ROUNDS), strict=True)
        }
    best = min(times, key=lambda index: times[index])
    return {
        "count": len(configs),
        "best": configs[best].text,
        "best_ms": times[best],
        "picks": {tuner: times[index] / times[best] for tuner, index in chosen.items() if index in times},
    }


def _index(configs: list[Any], pick: dict[str, Any]) -> int | None:
    matches = [
        i for i, c in enumerate(configs) if all(c.values.get(name, value) == value for name, value in pick.items())
    ]
    return matches[0] if matches else None


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        what, *given = sys.argv[2:]
        print(json.dumps({"tune": _tune, "judge": _judge}[what](*given)))
    else:
        main(sys.argv[1:])
