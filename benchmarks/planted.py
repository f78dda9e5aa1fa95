"""What explanations find in planted bottlenecks, and what they promise for kernels that are well tuned.

Usage: python -m benchmarks.planted [--static] [NAME ...]. On a GPU, each pair is timed in turns, the slow kernel beside
its mend, and the gain is held against the interval of the first finding; on another machine, or with --static, causes
and lines alone are looked at, by traffic, resources and the target's data. Traffic is worked out in processes of their
own while the GPU measures. With names, only the pairs whose names contain one of them are looked at.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import torch
import triton

import kernellab
from kernellab.errors import KernellabError
from kernellab.explain.causes import Cause
from kernellab.explain.explanation import Explanation, explain_facts
from kernellab.explain.facts import Facts
from kernellab.explain.launch_facts import facts_of, traffic_of_launch
from kernellab.explain.verbs import device_of, launch_seconds
from kernellab.launch.calls import UserCall
from kernellab.registry.calls import compile_call
from kernellab.timing.launches import Implementation
from tests.explain.planted import KernelCall, Planted, WellTuned
from tests.explain.planted_compute import COMPUTE_PAIRS
from tests.explain.planted_memory import MEMORY_PAIRS
from tests.explain.well_tuned import WELL_TUNED

RESULT = Path(__file__).parent / "results" / "planted.txt"
_PROMISE = 1.15
_TIMEOUT_S = 60.0
_PROCESSES = 12
WITHOUT_LINE = {Cause.LAUNCH, Cause.FEW_PROGRAMS, Cause.LAST_WAVE, Cause.SPILLS}
PAIRS = (*MEMORY_PAIRS, *COMPUTE_PAIRS)


@dataclass(frozen=True, slots=True)
class Judged:
    """What an explanation said of a pair; ``gain`` was measured, None without a GPU."""

    name: str
    explanation: Explanation
    has_cause: bool
    has_line: bool | None
    gain: float | None = None

    @property
    def holds(self) -> bool | None:
        """Whether the interval of the first finding contains the gain; None without a GPU."""
        if self.gain is None:
            return None
        if not self.explanation.findings:
            return False
        low, high = self.explanation.findings[0].gain
        return low <= self.gain <= high

    def text(self) -> str:
        """Return the row of the table."""
        first = next(iter(self.explanation.findings), None)
        said = "nothing" if first is None else f"{first.cause}, line {first.line}, {first.gain[0]:g}-{first.gain[1]:g}"
        line = {True: "line", False: "LINE?", None: "-"}[self.has_line]
        gain = "" if self.gain is None else f"{self.gain:7.2f} {'in' if self.holds else 'OUT'}"
        took = self.explanation.facts.time_s
        us = f"{(took or self.explanation.times.total) * 1e6:9,.1f} us"
        return f"{self.name:<38}{'cause' if self.has_cause else 'CAUSE?':<7}{line:<6}{gain:<12}{us}  {said}"


def looked_at(name: str, folder: str) -> Facts:
    """Return the facts of the slow half of a pair, or of a well tuned kernel, by its name; in a process of its own.

    What is compiled goes to the store in ``folder``, the mend as well.
    """
    lab = lab_of_process(folder)
    slow, fixed, inputs = named(name)
    if fixed is not None:
        implementation_of(lab, fixed, inputs(True, "cpu"))
    implementation = implementation_of(lab, slow, inputs(True, "cpu"))
    return facts_of(implementation, device_of(lab.session()), traffic_of_launch(implementation))


@cache
def lab_of_process(folder: str) -> kernellab.Lab:
    torch.set_num_threads(1)
    return kernellab.Lab("cuda:90", store=folder)


def named(name: str) -> tuple[KernelCall, KernelCall | None, Any]:
    """Return the launch, its mend and the inputs of a pair, or those of a well tuned kernel."""
    pair = next((each for each in PAIRS if each.name == name), None)
    if pair is not None:
        return pair.slow, pair.fixed, pair.inputs
    kernel = next(each for each in WELL_TUNED if each.name == name)
    return kernel.call, None, kernel.inputs


def implementation_of(lab: kernellab.Lab, call: KernelCall, inputs: dict[str, Any]) -> Implementation:
    grid, arguments = call.of(inputs)
    return compile_call(lab.session(), UserCall(lab.bind(call.kernel), grid, (), arguments))


def judged(pair: Planted, explanation: Explanation, gain: float | None = None) -> Judged:
    """Return what an explanation is worth."""
    first = next(iter(explanation.findings), None)
    lines = () if pair.causes[0] in WITHOUT_LINE else pair.slow.lines()
    has_cause = first is not None and first.cause in pair.causes
    has_line = None if not lines else first is not None and first.line in lines
    return Judged(pair.name, explanation, has_cause, has_line, gain)


def static(names: Iterable[str], pool: ProcessPoolExecutor, folder: str) -> dict[str, Future[Facts]]:
    return {name: pool.submit(looked_at, name, folder) for name in names}


def on_gpu(lab: kernellab.Lab, facts: Facts, call: KernelCall, inputs: dict[str, Any]) -> Facts:
    """Return facts with the time of the launch and the ceilings of the GPU."""
    session, implementation = lab.session(), implementation_of(lab, call, inputs)
    return replace(facts, device=device_of(session), time_s=launch_seconds(session, implementation, _TIMEOUT_S))


def gain_of(lab: kernellab.Lab, pair: Planted, inputs: dict[str, Any], slow_s: float) -> float:
    """Return how many times faster the fixed half is, for the same work."""
    fixed_s = launch_seconds(lab.session(), implementation_of(lab, pair.fixed, inputs), _TIMEOUT_S)
    return pair.work(inputs) * slow_s / fixed_s


def rows(pairs: list[Planted], facts: dict[str, Future[Facts]], lab: kernellab.Lab | None) -> Iterator[Judged]:
    for pair in pairs:
        found = facts[pair.name].result()
        gain = None
        if lab is not None:
            inputs = pair.inputs(True, "cuda")
            try:
                found = on_gpu(lab, found, pair.slow, inputs)
                gain = gain_of(lab, pair, inputs, found.time_s or 0.0)
            except KernellabError as exc:  # one pair does not cost the figures of the others; it counts as a miss
                print(f"{pair.name}: {exc.message}", flush=True)
                gain = math.inf
            del inputs
            torch.cuda.empty_cache()
        yield judged(pair, explain_facts(found), gain)


def tuned_rows(
    kernels: list[WellTuned], facts: dict[str, Future[Facts]], lab: kernellab.Lab | None
) -> Iterator[tuple[str, Explanation]]:
    for kernel in kernels:
        found = facts[kernel.name].result()
        if lab is not None:
            found = on_gpu(lab, found, kernel.call, kernel.inputs(True, "cuda"))
            torch.cuda.empty_cache()
        yield kernel.name, explain_facts(found)


def summary(found: list[Judged], tuned: list[tuple[str, Explanation]]) -> Iterator[str]:
    """Yield the shares that were asked for."""
    lined = [each.has_line for each in found if each.has_line is not None]
    held = [each.holds for each in found if each.holds is not None]
    yield f"cause {share(each.has_cause for each in found)} (asked: 90 %), line {share(lined)} (90 %)"
    if held:
        yield f"interval contains the gain: {share(held)} (75 %)"
    worst = [(max((each.gain[1] for each in e.findings), default=1.0), name) for name, e in tuned]
    over = [f"{name} ({gain:g})" for gain, name in worst if gain > _PROMISE]
    yield f"well tuned: {len(over)} of {len(tuned)} promise more than {_PROMISE}: {', '.join(over) or 'none'}"


def share(values: Iterable[object]) -> str:
    known = list(values)
    good = sum(map(bool, known))
    return f"{good} of {len(known)}, {good / max(1, len(known)):.0%}".replace("%", " %")


def tuned_text(name: str, explanation: Explanation) -> str:
    most = max((each.gain[1] for each in explanation.findings), default=1.0)
    said = "; ".join(f"{each.cause} {each.gain[0]:g}-{each.gain[1]:g}" for each in explanation.findings)
    mark = "OVER" if most > _PROMISE else ""
    return f"{name:<38}{mark:<6}{explanation.summary} {said}"


def main() -> None:
    begin = time.perf_counter()
    wanted = [word for word in sys.argv[1:] if not word.startswith("--")]
    pairs = [pair for pair in PAIRS if not wanted or any(word in pair.name for word in wanted)]
    kernels = [each for each in WELL_TUNED if not wanted or any(word in each.name for word in wanted)]
    has_gpu = torch.cuda.is_available() and "--static" not in sys.argv
    device = torch.cuda.get_device_name() if has_gpu else "static"
    print(f"{device}, triton {triton.__version__}, torch {torch.__version__}", flush=True)
    found, tuned = list[Judged](), list[tuple[str, Explanation]]()
    processes = _PROCESSES if has_gpu else 1
    with (
        tempfile.TemporaryDirectory(prefix="planted-") as folder,
        ProcessPoolExecutor(processes, get_context("spawn"), initializer=without_gpu) as pool,
    ):
        facts = static([*(pair.name for pair in pairs), *(kernel.name for kernel in kernels)], pool, folder)
        lab = kernellab.Lab(store=folder) if has_gpu else None
        for row in rows(pairs, facts, lab):
            found.append(row)
            print(row.text(), flush=True)
        for name, explanation in tuned_rows(kernels, facts, lab):
            tuned.append((name, explanation))
            print(tuned_text(name, explanation), flush=True)
        if lab is not None:
            lab.close()
    took = time.perf_counter() - begin
    rule_ms = 1e3 * median(
        timed(explanation.facts) for _, explanation in [*((r.name, r.explanation) for r in found), *tuned]
    )
    lines = [*summary(found, tuned), f"in {took:.0f} s; an explanation from ready facts takes {rule_ms:.2f} ms"]
    print(*lines, sep="\n")
    if has_gpu and not wanted:
        body = [f"{device}, triton {triton.__version__}, torch {torch.__version__}", *(row.text() for row in found)]
        body += [*(tuned_text(*each) for each in tuned), *lines]
        RESULT.write_text("\n".join(body) + "\n", encoding="utf-8")


def timed(facts: Facts) -> float:
    begin = time.perf_counter()
    explain_facts(facts)
    return time.perf_counter() - begin


def without_gpu() -> None:
    """Let a process of the pool see no GPU, and compile one kernel at a time: there are as many as it needs."""
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "KERNELLAB_WORKERS": "1"}


if __name__ == "__main__":
    main()
