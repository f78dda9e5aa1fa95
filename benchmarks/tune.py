"""Tuning: wall time to the first tuned result, and how good the pick is; the lab, triton.autotune, torch.compile.

Usage: python -m benchmarks.tune [WORKLOAD...] [--repeats N [--devices N]] [--imported]. Needs a CUDA GPU. Every tuner
runs in one process with empty caches ("cold"), and in another with those that the cold run left ("warm"). A time begins
when torch, Triton, kernellab and what `torch.compile` imports when it is called are imported, the tensors are on the
GPU and `Lab()` is done; cold, also when the lab's workers are ready, whose start is told beside it. It ends after the
first launch of the winner. The picks are then compared with the best of the whole list in one long interleaved
measurement.

With ``--repeats``, the lab tunes each workload N times anew, and the winners are compared; with ``--devices`` also on
so many GPUs, by turns, and the times are compared. With ``--imported``, the warm start of `torch.compile` is also timed
in a process that has imported all of Inductor.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.forked import ChildFailed, forked

NAMES = ("matmul", "softmax", "norm", "attention")
TUNERS = ("lab", "triton", "inductor")
COLD_GOALS = {"matmul": {"triton": 10.0, "inductor": 8.0}}
COLD_GOAL = 5.0
WARM_GOAL = 5.0
PICK_GOAL = 1.01
LONG_ROUNDS = 120


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tune")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(NAMES))
    parser.add_argument("--repeats", type=int, default=0)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--imported", action="store_true")
    given = parser.parse_args(arguments)
    if not set(given.workloads) <= set(NAMES):
        parser.error(f"the workloads are {', '.join(NAMES)}")
    _import_all()
    with tempfile.TemporaryDirectory(prefix="kernellab-bench-", ignore_cleanup_errors=True) as folder:
        print(forked(_machine, {})["text"], flush=True)
        names = given.workloads or NAMES
        if given.repeats:
            found = _child(partial(_repeat, names, given.repeats, given.devices), Path(folder))
            print("\n".join(_repeats_text(name, found[name]) for name in names))
            return
        for name in names:
            print(_text(name, *_measured(name, Path(folder) / name, given.imported)), flush=True)


def _import_all() -> None:
    import torch._dynamo
    import triton

    import kernellab

    assert not torch.cuda.is_initialized()
    assert triton
    assert kernellab


def _machine() -> dict[str, str]:
    import torch
    import triton

    versions = (
        f"Python {sys.version_info[0]}.{sys.version_info[1]}, torch {torch.__version__}, Triton {triton.__version__}"
    )
    return {"text": f"one {torch.cuda.get_device_name()}, {len(os.sched_getaffinity(0))} cores, {versions}"}


def _measured(name: str, folder: Path, imported: bool) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Return what each tuner took and picked, and the judgement over the picks."""
    found = {}
    for tuner in TUNERS:
        try:
            found[tuner] = _timed(name, tuner, folder / tuner)
        except ChildFailed:
            if tuner == "lab":
                raise
            print(f"\n{name}: {tuner} failed, see stderr", flush=True)
    if imported and "inductor" in found:
        ready = _child(partial(_tune, name, "inductor", imports=True), folder / "inductor")
        found["inductor"]["imported"] = ready["seconds"]
    picks = {tuner: each["pick"] for tuner, each in found.items()}
    return found, _child(partial(_judge, name, picks), folder / "lab")


def _timed(name: str, tuner: str, folder: Path) -> dict[str, Any]:
    """Return cold and warm seconds, and the config that was picked."""
    cold, warm = (_child(partial(_tune, name, tuner, is_cold=is_cold), folder) for is_cold in (True, False))
    return {
        "cold": cold["seconds"],
        "warm": warm["seconds"],
        "start": cold["start"],
        "pick": warm["pick"] or cold["pick"],
    }


def _text(name: str, found: dict[str, dict[str, Any]], judged: dict[str, Any]) -> str:
    lab = found["lab"]
    lines = [f"\n{name}: the best of {judged['count']} is {judged['best']}, {judged['best_ms']:.4f} ms"]
    for tuner, each in found.items():
        ratio = judged["picks"].get(tuner)
        quality = "pick unknown" if ratio is None else f"pick {ratio:.3f} x the best"
        faster = f"lab {each['cold'] / lab['cold']:.1f}x cold, {each['warm'] / lab['warm']:.1f}x warm"
        lines.append(f"  {tuner:9} cold {each['cold']:6.2f} s  warm {each['warm']:6.3f} s  {quality}  {faster}")
    lines.append(f"  the lab's workers took {lab['start']:.1f} s to start, before the cold time")
    if imported := found.get("inductor", {}).get("imported"):
        lines.append(f"  inductor, imported before: warm {imported:.3f} s, lab {imported / lab['warm']:.1f}x")
    return "\n".join([*lines, *_verdicts(name, found, judged)])


def _verdicts(name: str, found: dict[str, dict[str, Any]], judged: dict[str, Any]) -> list[str]:
    """Return a line per goal: met or missed. A rival that failed is not counted."""
    lab, rivals = found["lab"], {tuner: each for tuner, each in found.items() if tuner != "lab"}
    faster = {tuner: each["cold"] / lab["cold"] for tuner, each in rivals.items()}
    if name in COLD_GOALS:
        goals = [
            (f"cold {COLD_GOALS[name][tuner]:g}x {tuner}", faster[tuner] >= COLD_GOALS[name][tuner]) for tuner in rivals
        ]
    else:
        goals = [(f"cold {COLD_GOAL:g}x the better of {' and '.join(rivals)}", min(faster.values()) >= COLD_GOAL)]
    if "inductor" in rivals:
        goals.append((f"warm {WARM_GOAL:g}x inductor", rivals["inductor"]["warm"] / lab["warm"] >= WARM_GOAL))
    if "triton" in rivals:
        goals.append(("warm faster than triton", rivals["triton"]["warm"] > lab["warm"]))
    goals.append((f"pick within {PICK_GOAL - 1:.0%}", judged["picks"].get("lab", 9.0) <= PICK_GOAL))
    return [f"  goal {'met' if is_met else 'MISSED'}: {text}" for text, is_met in goals]


def _repeats_text(name: str, found: dict[str, Any]) -> str:
    winners, ties = found["winners"], [set(ties) for ties in found["ties"]]
    most, count = Counter(winners).most_common(1)[0]
    among = sum(most in {winner, *tied} for winner, tied in zip(winners, ties, strict=True))
    pairs = [a in {b, *tied} for a in winners for b, tied in zip(winners, ties, strict=True)]
    seconds = median(found["seconds"])
    return (
        f"\n{name}: {len(winners)} tunings anew, {seconds:.2f} s each (median)\n"
        f"{_shared_text(found, seconds)}"
        f"  {most} won {count} times, and won or tied {among} times\n"
        f"  a winner won or tied in {sum(pairs) / len(pairs):.0%} of the other tunings; "
        f"{len(set(winners))} winners, {sum(map(len, ties)) / len(ties):.1f} ties on average"
    )


def _shared_text(found: dict[str, Any], seconds: float) -> str:
    if not found["shared_seconds"]:
        return ""
    shared = median(found["shared_seconds"])
    notes = "".join(f"  {note}\n" for note in found["notes"])
    return f"  measured by devices {found['shared_by']}: {shared:.2f} s each, {seconds / shared:.2f}x as fast\n{notes}"


def _child(work: Any, folder: Path) -> dict[str, Any]:
    return forked(
        work,
        {
            "TRITON_CACHE_DIR": str(folder / "triton"),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            "KERNELLAB_STORE": str(folder / "lab"),
        },
    )


def _tune(name: str, tuner: str, *, is_cold: bool = False, imports: bool = False) -> dict[str, Any]:
    import torch

    from benchmarks.tune_kernels import workload

    if imports:
        import torch._inductor.compile_fx
    work = workload(name)
    torch.cuda.synchronize()
    if tuner == "lab":
        return _with_lab(work, is_cold)
    seconds, pick = {"triton": _with_triton, "inductor": _with_inductor}[tuner](work)
    return {"seconds": seconds, "pick": pick, "start": 0.0}


def _with_lab(work: Any, is_cold: bool) -> dict[str, Any]:
    import torch

    import kernellab

    with kernellab.Lab() as lab:
        begin = time.perf_counter()
        if is_cold:
            _await_workers(lab)
        start = time.perf_counter()
        tuning = lab.tune(work.kernel, work.grid, *work.arguments)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        assert tuning.from_cache is not is_cold
        return {"seconds": seconds, "pick": tuning.best.all_kwargs(), "start": start - begin}


def _await_workers(lab: Any) -> None:
    from kernellab.gpu.worker import warm_up
    from kernellab.workers.worker import Job

    lab.start(wait=True)
    lab.launches.trials.worker(0).run(Job(warm_up, 0, "the GPU worker"), 120)


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


def _repeat(names: Sequence[str], count: int, devices: int) -> dict[str, Any]:
    """Tune workloads again and again, measuring everything each time: on one GPU and, by turns, on several."""
    import kernellab
    from benchmarks.tune_kernels import workload

    answer = {}
    with kernellab.Lab() as lab:
        _await_workers(lab)
        for name in names:
            work = workload(name)
            lab.tune(work.kernel, work.grid, *work.arguments)
            tune = partial(lab.tune, work.kernel, work.grid, *work.arguments, fresh=True)
            found, shared = [], []
            for _ in range(count):
                found.append(tune())
                shared += [tune(devices=range(devices))] if devices > 1 else []
            answer[name] = {
                "winners": [each.rows[each.winner].config.text for each in found if each.winner is not None],
                "ties": [[each.rows[index].config.text for index in each.ties] for each in found],
                "seconds": [each.seconds for each in found],
                "shared_seconds": [each.seconds for each in shared],
                "shared_by": sorted({index for each in shared for index in each.frame.attrs["device_index"].values()}),
                "notes": sorted({note for each in shared for note in each.notes}),
            }
    return answer


def _judge(name: str, picks: dict[str, Any]) -> dict[str, Any]:
    """Time the whole list, then the fastest of it and the picks, interleaved for long."""
    import kernellab
    from benchmarks.tune_kernels import workload
    from kernellab.measure.config import Config
    from kernellab.measure.gpu_bench import LocalBench
    from kernellab.measure.implementations import BenchOptions, implementation_of
    from kernellab.measure.launches import Launches

    work = workload(name)
    with kernellab.Lab() as lab:
        launches = Launches(work.kernel, work.grid, work.arguments, {}, lab.target)
        configs = [Config.from_triton(config) for config in work.kernel.configs]
        jobs = [launches.of(config).job for config in configs]
        compiled = {index: each for index, each in lab.compiler.stream(jobs) if hasattr(each, "resources")}
        fitting = [
            implementation_of(launches, configs[index], each, index)
            for index, each in sorted(compiled.items())
            if each.resources.fits
        ]
        bench = LocalBench(BenchOptions(launches.name, 60.0, launches.manner))
        first = {each.index: min(bench.measure(each, 5, None).times_ms) for each in fitting}
        chosen = {tuner: _index(configs, pick) for tuner, pick in picks.items() if pick}
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
    main(sys.argv[1:])
