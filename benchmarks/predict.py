"""Times that the model of `explain` predicts without a GPU, held against those that were recorded on one.

    python -m benchmarks.predict [--device h200] [--facts build/facts.pickle] [--processes 2] [--kernels NAME ...]

A file of facts is written if it is missing, and else read, so that a change of the model alone is judged in seconds.
Half of the cases, chosen by a hash of kernel and sizes, is for fitting; the figures of both halves are printed. A case
is a kernel at some sizes; a row is one of its configs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import os
import pickle
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from math import comb
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import torch

import kernellab
from benchmarks.truth_recipes import RECIPES
from kernellab.errors import KernellabError
from kernellab.explain.devices import named_device
from kernellab.explain.facts import DeviceRates, Facts
from kernellab.explain.prediction import Prediction, predict_facts
from kernellab.explain.verbs import prediction_of
from kernellab.launch.calls import UserCall

RESULTS = Path(__file__).parent / "results"
_FIRST = (1, 3, 8)
_OTHER = {"h100": "h200", "h200": "h100"}
_APART = 1.05  # times the best; where all configs are nearer, noise decides between them


@dataclass(frozen=True, slots=True)
class CountedCase:
    """A case with the facts of each config, or why there are none; ``cpu_s`` are the seconds of CPU of each.

    The seconds include the compile.
    """

    kernel: str
    sizes: Mapping[str, int]
    configs: Sequence[Mapping[str, Any]]
    facts: Sequence[Facts | str]
    cpu_s: Sequence[float]


@dataclass(frozen=True, slots=True)
class RankedCase:
    """Recorded milliseconds of configs, and what they are ranked by: predicted times, or those of another device."""

    true_ms: Sequence[float]
    ranking_ms: Sequence[float]

    def loss(self, first: int) -> float:
        """Return the best of the first configs by rank over the best of all."""
        order = sorted(range(len(self.true_ms)), key=lambda i: self.ranking_ms[i])
        return min(self.true_ms[i] for i in order[:first]) / min(self.true_ms)

    def beats_random(self) -> bool:
        """Whether the first choice is at least as fast as the best of three random configs is in the mean."""
        times = sorted(self.true_ms)
        draws = [(times[i], comb(len(times) - 1 - i, 2)) for i in range(len(times) - 2)]
        return self.loss(1) * times[0] <= sum(ms * ways for ms, ways in draws) / sum(ways for _, ways in draws)


@dataclass(frozen=True, slots=True)
class PredictedCase:
    """A case with recorded milliseconds and predictions, config by config; None where nothing could be predicted."""

    kernel: str
    sizes: Mapping[str, int]
    true_ms: Sequence[float]
    predictions: Sequence[Prediction | None]
    cpu_s: float

    @property
    def predicted_ms(self) -> list[float | None]:
        """The predicted times."""
        return [None if each is None else each.time_ms for each in self.predictions]

    @property
    def ranked(self) -> RankedCase:
        """The configs ranked by their predicted times."""
        return RankedCase(self.true_ms, [ms or float("inf") for ms in self.predicted_ms])

    @property
    def is_for_fitting(self) -> bool:
        """Whether the case belongs to the half that constants may be fitted on."""
        return is_for_fitting(self.kernel, self.sizes)

    def rank_correlation(self) -> float:
        """Return Spearman's correlation of predicted and recorded times."""
        frame = pd.DataFrame({"true": self.true_ms, "predicted": [p or float("inf") for p in self.predicted_ms]})
        return float(frame.rank().corr().iloc[0, 1])

    def ratios(self) -> list[float]:
        """Return predicted over recorded times."""
        return [p / t for p, t in zip(self.predicted_ms, self.true_ms, strict=True) if p is not None]


def is_for_fitting(kernel: str, sizes: Mapping[str, int]) -> bool:
    """Whether a case belongs to the half that constants may be fitted on."""
    key = json.dumps([kernel, *sorted(sizes.items())])
    return hashlib.sha256(key.encode()).digest()[0] % 2 == 0


def counted_case(case: Mapping[str, Any]) -> CountedCase:
    """Count the facts of each config of a case, without a GPU."""
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "KERNELLAB_WORKERS": "1"}
    torch.set_num_threads(1)
    recipe, rows = RECIPES[case["kernel"]], [row for row in case["rows"] if row["time_ms"] is not None]
    inputs = recipe.inputs("cpu", **case["sizes"])
    hooks = {config.pre_hook for config in recipe.configs} - {None}
    facts: list[Facts | str] = []
    seconds = []
    with kernellab.Lab("h200", store=":memory:") as lab:
        kernel = lab.bind(recipe.kernel)
        for row in rows:
            begin_s = time.perf_counter()
            meta = {**inputs, **row["config"]}
            for hook in hooks:
                hook(meta)
            try:
                prediction = prediction_of(lab.session(), UserCall(kernel, recipe.grid, (), meta))
                facts.append(require_facts(prediction))
            except KernellabError as exc:
                facts.append(exc.message)
            seconds.append(time.perf_counter() - begin_s)
    return CountedCase(case["kernel"], case["sizes"], [row["config"] for row in rows], facts, seconds)


def require_facts(prediction: Prediction) -> Facts:
    """Return the facts of a prediction of the lab."""
    assert prediction.facts is not None, "only a stored prediction has none"
    return prediction.facts


def predicted_case(counted: CountedCase, truth: Mapping[str, Any], device: DeviceRates) -> PredictedCase:
    """Predict the configs of a case that were recorded on a device."""
    true_ms = {json.dumps(row["config"], sort_keys=True): row["time_ms"] for row in truth["rows"]}
    times, predictions = [], []
    for config, facts in zip(counted.configs, counted.facts, strict=True):
        time_ms = true_ms.get(json.dumps(config, sort_keys=True))
        if time_ms is not None:
            times.append(time_ms)
            predictions.append(None if isinstance(facts, str) else predict_facts(replace(facts, device=device)))
    return PredictedCase(counted.kernel, counted.sizes, times, predictions, median(counted.cpu_s))


def _share(values: Iterable[bool]) -> str:
    known = list(values)
    return f"{sum(known) / max(1, len(known)):.0%}"


def summary(cases: Sequence[PredictedCase]) -> Iterator[str]:
    """Yield the figures of some cases: choice, order, absolute time."""
    yield from choices([case.ranked for case in cases])
    yield f"rank correlation: median {median(case.rank_correlation() for case in cases):.2f}"
    off = [max(ratio, 1 / ratio) for case in cases for ratio in case.ratios()]
    missing = sum(time_ms is None for case in cases for time_ms in case.predicted_ms)
    yield (
        f"time: within 1.25 times in {_share(o <= 1.25 for o in off)} of {len(off)} rows, "
        f"within 1.6 in {_share(o <= 1.6 for o in off)}; {missing} not predicted"
    )
    known = [(t, p) for case in cases for t, p in zip(case.true_ms, case.predictions, strict=True) if p is not None]
    width = median(p.high_ms / p.low_ms for _, p in known)
    yield f"interval: holds {_share(p.low_ms <= t <= p.high_ms for t, p in known)}, width {width:.2f} in the median"
    apart = [case for case in cases if max(case.true_ms) > _APART * min(case.true_ms)]
    yield (
        f"of {len(apart)} cases whose configs differ by more than {_APART - 1:.0%}: first within 1.02 in "
        f"{_share(case.ranked.loss(1) <= 1.02 for case in apart)}, better than three random ones in "
        f"{_share(case.ranked.beats_random() for case in apart)}"
    )


def choices(cases: Sequence[RankedCase]) -> Iterator[str]:
    """Yield how good the first choices are, and whether they beat chance."""
    for first in _FIRST:
        losses = [case.loss(first) for case in cases]
        within = ", ".join(f"within {most} in {_share(loss <= most for loss in losses)}" for most in (1.01, 1.02))
        yield f"first {first}: median {median(losses):.3f}, worst {max(losses):.2f}, {within}"
    beats = _share(case.beats_random() for case in cases)
    yield f"better than the best of three random configs, on average: in {beats}"


def ranked_by_times(case: Mapping[str, Any], other: Mapping[str, Any]) -> RankedCase:
    """Rank the configs of a recorded case by their times on another device."""
    times = [{json.dumps(row["config"], sort_keys=True): row["time_ms"] for row in c["rows"]} for c in (case, other)]
    both = [config for config, ms in times[0].items() if ms and times[1].get(config)]
    return RankedCase([times[0][config] for config in both], [times[1][config] for config in both])


def _row_text(case: PredictedCase) -> str:
    sizes = ", ".join(f"{name} {value}" for name, value in case.sizes.items())
    half = "fit  " if case.is_for_fitting else "judge"
    ratios = case.ratios()
    if not ratios:
        return f"{half} {case.kernel:<20}{sizes:<42}not predicted"
    losses = " ".join(f"{case.ranked.loss(first):5.2f}" for first in _FIRST)
    spread = f"{min(ratios):.2f} {median(ratios):.2f} {max(ratios):.2f}"
    bounds = [each.bound for each in case.predictions if each is not None]
    bound = max(set(bounds), key=bounds.count)
    order = f"{losses}  {case.rank_correlation():5.2f}  {spread}"
    return f"{half} {case.kernel:<20}{sizes:<42}{order}  {case.cpu_s:4.1f} s  {bound}"


def counted_cases(cases: Sequence[Mapping[str, Any]], processes: int, path: Path | None) -> Iterator[CountedCase]:
    """Yield the cases with their facts, read from a file if it is there, else written to it at the end."""
    if path is not None and path.exists():
        yield from pickle.loads(lzma.decompress(path.read_bytes()))
        return
    counted = []
    with ProcessPoolExecutor(processes, get_context("spawn"), max_tasks_per_child=1) as pool:
        for future in [pool.submit(counted_case, case) for case in cases]:
            counted.append(future.result())
            yield counted[-1]
    if path is not None:
        path.write_bytes(lzma.compress(pickle.dumps(counted)))


_Key = tuple[str, str]


def _key(case: Mapping[str, Any]) -> _Key:
    return case["kernel"], json.dumps(case["sizes"], sort_keys=True)


def _by_other_device(device: str, recorded: Mapping[_Key, Mapping[str, Any]]) -> list[RankedCase]:
    """Rank the judged cases as a model would that knew the times of the other device: no order repeats better."""
    other = json.loads((RESULTS / f"truth_{_OTHER[device]}.json").read_text(encoding="utf-8"))
    known = {_key(case): case for case in other["cases"]}
    return [
        ranked_by_times(case, known[key])
        for key, case in recorded.items()
        if key in known and not is_for_fitting(case["kernel"], case["sizes"])
    ]


def main() -> None:
    """Predict the recorded cases and print the figures of both halves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["h100", "h200"], default="h200")
    parser.add_argument("--facts", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--kernels", nargs="*")
    options = parser.parse_args()
    truth = json.loads((RESULTS / f"truth_{options.device}.json").read_text(encoding="utf-8"))
    wanted = [case for case in truth["cases"] if not options.kernels or case["kernel"] in options.kernels]
    recorded = {_key(case): case for case in wanted}
    device, begin_s = named_device(options.device).rates, time.perf_counter()
    print(f"{truth['device']}, recorded under Triton {truth['triton']}; predicted from {device.name}'s data sheet")
    print("half  kernel, sizes; best of the first 1, 3, 8 over the best; rank correlation; predicted over true: low,")
    print("median, high; CPU seconds of a config; bound", flush=True)
    cases = []
    for counted in counted_cases(wanted, options.processes, options.facts):
        case = recorded.get((counted.kernel, json.dumps(counted.sizes, sort_keys=True)))
        if case is not None:
            cases.append(predicted_case(counted, case, device))
            print(_row_text(cases[-1]), flush=True)
    for name, half in (("fit", True), ("judge", False)):
        own = [case for case in cases if case.is_for_fitting is half and case.ratios()]
        if own:
            print(f"\n{name}: {len(own)} cases", *summary(own), sep="\n")
    if others := _by_other_device(options.device, recorded):
        print("\njudge, ranked by the times that the other device recorded:", *choices(others), sep="\n")
    print(f"\nin {time.perf_counter() - begin_s:.0f} s, {options.processes} processes")


if __name__ == "__main__":
    main()
