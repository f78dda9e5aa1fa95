"""Times that the model of `explain` predicts without a GPU, held against those that were recorded on one.

    python -m benchmarks.predict [--device h200] [--processes 2] [--cases 84] [--kernels NAME ...]

Half of the cases, chosen by a hash of kernel and sizes, is for fitting; the figures of both halves are printed. A case
is a kernel at some sizes; a row is one of its configs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import torch

import kernellab
from benchmarks.truth_recipes import RECIPES
from kernellab.errors import KernellabError
from kernellab.explain.explanation import explain_facts
from kernellab.explain.facts import DeviceRates, device_of_table
from kernellab.explain.launch_facts import facts_of, traffic_of_launch
from kernellab.explain.verbs import compile_call
from kernellab.launch.calls import UserCall
from kernellab.target import parse_target

RESULTS = Path(__file__).parent / "results"
_FIRST = (1, 3, 8)


@dataclass(frozen=True, slots=True)
class PredictedCase:
    """A case with recorded and predicted milliseconds, config by config; None where nothing could be predicted.

    ``cpu_s`` are the seconds of CPU that a config took in the median, its compile included.
    """

    kernel: str
    sizes: Mapping[str, int]
    true_ms: Sequence[float]
    predicted_ms: Sequence[float | None]
    bounds: Sequence[str]
    cpu_s: float

    @property
    def is_for_fitting(self) -> bool:
        """Whether the case belongs to the half that constants may be fitted on."""
        key = json.dumps([self.kernel, *sorted(self.sizes.items())])
        return hashlib.sha256(key.encode()).digest()[0] % 2 == 0

    def loss(self, first: int) -> float:
        """Return the best of the first configs by prediction over the best of all."""
        order = sorted(range(len(self.true_ms)), key=lambda i: self.predicted_ms[i] or float("inf"))
        return min(self.true_ms[i] for i in order[:first]) / min(self.true_ms)

    def rank_correlation(self) -> float:
        """Return Spearman's correlation of predicted and recorded times."""
        frame = pd.DataFrame({"true": self.true_ms, "predicted": [p or float("inf") for p in self.predicted_ms]})
        return float(frame.rank().corr().iloc[0, 1])

    def ratios(self) -> list[float]:
        """Return predicted over recorded times."""
        return [p / t for p, t in zip(self.predicted_ms, self.true_ms, strict=True) if p is not None]


def device_named(name: str) -> DeviceRates:
    """Return the rates of a data sheet: NVIDIA H100 SXM or H200 (2024)."""
    table = device_of_table(parse_target("cuda:90"))
    return replace(table, name="H200", memory_gbps=table.memory_gbps * 4800 / 3350) if name == "h200" else table


def predicted_case(case: Mapping[str, Any], device: DeviceRates) -> PredictedCase:
    """Predict the time of each config of a case, without a GPU."""
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "KERNELLAB_WORKERS": "1"}
    torch.set_num_threads(1)
    recipe, rows = RECIPES[case["kernel"]], [row for row in case["rows"] if row["time_ms"] is not None]
    inputs = recipe.inputs("cpu", **case["sizes"])
    hooks = {config.pre_hook for config in recipe.configs} - {None}
    predicted: list[float | None] = []
    bounds, seconds = [], []
    with kernellab.Lab("cuda:90", store=":memory:") as lab:
        kernel = lab.bind(recipe.kernel)
        for row in rows:
            begin_s = time.perf_counter()
            meta = {**inputs, **row["config"]}
            for hook in hooks:
                hook(meta)
            try:
                call = UserCall(kernel, recipe.grid, (), meta)
                implementation = compile_call(lab.session(), call, takes_best=False)
                explanation = explain_facts(facts_of(implementation, device, traffic_of_launch(implementation)))
                predicted.append(explanation.times.total * 1e3)
                bounds.append(str(explanation.bound))
            except KernellabError as exc:
                predicted.append(None)
                bounds.append(exc.message)
            seconds.append(time.perf_counter() - begin_s)
    return PredictedCase(
        case["kernel"], case["sizes"], [r["time_ms"] for r in rows], predicted, bounds, median(seconds)
    )


def _share(values: Iterable[bool]) -> str:
    known = list(values)
    return f"{sum(known) / max(1, len(known)):.0%}"


def summary(cases: Sequence[PredictedCase]) -> Iterator[str]:
    """Yield the figures of some cases: choice, order, absolute time."""
    for first in _FIRST:
        losses = [case.loss(first) for case in cases]
        within = f"within 1.02 in {_share(loss <= 1.02 for loss in losses)}"
        yield f"first {first}: median {median(losses):.3f}, worst {max(losses):.2f}, {within}"
    yield f"rank correlation: median {median(case.rank_correlation() for case in cases):.2f}"
    off = [max(ratio, 1 / ratio) for case in cases for ratio in case.ratios()]
    missing = sum(time_ms is None for case in cases for time_ms in case.predicted_ms)
    yield (
        f"time: within 1.25 times in {_share(o <= 1.25 for o in off)} of {len(off)} rows, "
        f"within 1.6 in {_share(o <= 1.6 for o in off)}; {missing} not predicted"
    )


def _row_text(case: PredictedCase) -> str:
    sizes = ", ".join(f"{name} {value}" for name, value in case.sizes.items())
    half = "fit  " if case.is_for_fitting else "judge"
    ratios = case.ratios()
    if not ratios:
        return f"{half} {case.kernel:<20}{sizes:<42}not predicted: {case.bounds[0]}"
    losses = " ".join(f"{case.loss(first):5.2f}" for first in _FIRST)
    spread = f"{min(ratios):.2f} {median(ratios):.2f} {max(ratios):.2f}"
    bound = max(set(case.bounds), key=case.bounds.count)
    order = f"{losses}  {case.rank_correlation():5.2f}  {spread}"
    return f"{half} {case.kernel:<20}{sizes:<42}{order}  {case.cpu_s:4.1f} s  {bound}"


def main() -> None:
    """Predict the recorded cases and print the figures of both halves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["h100", "h200"], default="h200")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--kernels", nargs="*")
    options = parser.parse_args()
    truth = json.loads((RESULTS / f"truth_{options.device}.json").read_text(encoding="utf-8"))
    wanted = [case for case in truth["cases"] if not options.kernels or case["kernel"] in options.kernels]
    device, begin_s = device_named(options.device), time.perf_counter()
    print(f"{truth['device']}, recorded under Triton {truth['triton']}; predicted from {device.name}'s data sheet")
    print("half  kernel, sizes; best of the first 1, 3, 8 over the best; rank correlation; predicted over true: low,")
    print("median, high; CPU seconds of a config; bound", flush=True)
    cases = []
    with ProcessPoolExecutor(options.processes, get_context("spawn"), max_tasks_per_child=1) as pool:
        futures = [pool.submit(predicted_case, case, device) for case in wanted[: options.cases]]
        for future in futures:
            cases.append(future.result())
            print(_row_text(cases[-1]), flush=True)
    for name, half in (("fit", True), ("judge", False)):
        own = [case for case in cases if case.is_for_fitting is half and case.ratios()]
        if own:
            print(f"\n{name}: {len(own)} cases", *summary(own), sep="\n")
    print(f"\nin {time.perf_counter() - begin_s:.0f} s, {options.processes} processes")


if __name__ == "__main__":
    main()
