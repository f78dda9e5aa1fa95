"""What ``search="predicted"`` finds in simulated spaces of about 2,000 configs. It needs no GPU and compiles nothing.

    python -m benchmarks.predicted_search_simulated [--kernels product attention ...] [--seeds 20]

The predicted time of a config is the model's, from facts that are worked out by hand for four kernels. The true time is
this, times random factors that the search does not see: one per block shape, per number of warps and of stages, per
shape and warps together, and per config. Their standard deviations add up to about 17 %, as those of the model's errors
do. A measurement of a true time is off by half a per cent.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, exp
from statistics import mean, median

from benchmarks.predicted_search import SPACES
from kernellab.explain.devices import named_device
from kernellab.explain.facts import AccessFacts, AccessKind, DotFacts, Facts, LineFacts
from kernellab.explain.prediction import Prediction, predict_facts
from kernellab.store.columns import Status
from kernellab.timing.config import Config, Space
from kernellab.tune.predicted_search import PredictedSearch, compile_budget
from kernellab.tune.result import Row

_SHAPE, _WARPS, _STAGES, _SHAPE_AND_WARPS, _CONFIG = 0.12, 0.06, 0.06, 0.08, 0.03
_NOISE = 0.005
_SHARED_BYTES = 227 << 10
_REGISTERS, _MOST_REGISTERS, _MOST_WARPS = 65536, 255, 64
_DEVICE = named_device("h200").rates

Values = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Work:
    """What one program of a simulated kernel does: its loop and its resources.

    ``loads`` are the bytes that an iteration loads from each argument, ``registers`` those of a thread,
    ``instructions`` and ``special`` those of a warp in an iteration.
    """

    programs: int
    iterations: int
    loads: Mapping[str, float]
    sizes: Mapping[str, float]
    stored_bytes: float
    shared_bytes: int
    registers: float
    instructions: float
    special: float = 0.0
    dots: tuple[DotFacts, ...] = ()
    is_async: bool = True


def product_work(values: Values) -> Work:
    """A product of two matrices of 4096 by 1024."""
    m, n, k, stages, warps = 4096, 4096, 1024, values["num_stages"], values["num_warps"]
    bm, bn, bk = values["BM"], values["BN"], values["BK"]
    unit = "wgmma" if warps >= 4 and bm >= 64 else "mma"
    products = bm * bn * bk / (4096 if unit == "mma" else 65536) / warps
    return Work(
        programs=ceil(m / bm) * ceil(n / bn),
        iterations=k // bk,
        loads={"a": 2.0 * bm * bk, "b": 2.0 * bn * bk},
        sizes={"a": 2.0 * m * k, "b": 2.0 * n * k, "out": 2.0 * m * n},
        stored_bytes=2.0 * bm * bn,
        shared_bytes=2 * (bm + bn) * bk * max(1, stages),
        registers=40 + bm * bn / (32 * warps) + (0 if unit == "wgmma" else (bm + bn) * bk / (64 * warps)),
        instructions=20 + 3 * products + (bm + bn) * bk / (128 * warps),
        dots=(DotFacts(1, "fp16", 2.0 * m * n * k, True, (bm, bn, bk), in_loop=True, unit=unit),),
    )


def attention_work(values: Values) -> Work:
    """The forward pass of attention, 64 heads of 2048 by 64, with a head's width in pieces of ``BK``."""
    heads, length, width = 64, 2048, 64
    bm, bn, bk, stages, warps = (values[name] for name in ("BM", "BN", "BK", "num_stages", "num_warps"))
    unit = "wgmma" if warps >= 4 and bm >= 64 else "mma"
    flops, pieces = 2.0 * heads * length * length * width, width // bk
    products = 2 * bm * bn * width / (4096 if unit == "mma" else 65536) / warps
    weights = bm * bn / (32 * warps)
    return Work(
        programs=heads * ceil(length / bm),
        iterations=length // bn,
        loads={"k": 2.0 * bn * width, "v": 2.0 * bn * width},
        sizes=dict.fromkeys(("k", "v", "out"), 2.0 * heads * length * width),
        stored_bytes=2.0 * bm * width,
        shared_bytes=2 * bm * width + 4 * bn * (bk + width) // 2 * stages,
        registers=48 + bm * width / (32 * warps) + weights,
        instructions=30 * pieces + 3 * products + 5 * weights + bn * width / (64 * warps),
        special=weights,
        dots=(
            DotFacts(1, "fp16", flops, True, (bm, bn, bk), in_loop=True, unit=unit),
            DotFacts(2, "fp16", flops, True, (bm, width, bn), in_loop=True, unit=unit),
        ),
    )


def column_sum_work(values: Values) -> Work:
    """The sums of the columns of 8192 by 4096 floats."""
    return _sum_work(values, outer=4096, own="BLOCK", inner=8192, looped="ROWS")


def row_sum_work(values: Values) -> Work:
    """The sums of the rows of 16384 by 1024 floats."""
    return _sum_work(values, outer=16384, own="ROWS", inner=1024, looped="BLOCK")


def _sum_work(values: Values, *, outer: int, own: str, inner: int, looped: str) -> Work:
    tile, warps = values[own] * values[looped], values["num_warps"]
    elements = max(1.0, tile / (32 * warps))
    per_access = min(4.0, elements)
    return Work(
        programs=ceil(outer / values[own]),
        iterations=ceil(inner / values[looped]),
        loads={"x": 4.0 * values[own] * min(inner, values[looped])},
        sizes={"x": 4.0 * outer * inner, "out": 4.0 * outer},
        stored_bytes=4.0 * values[own],
        shared_bytes=4 * tile * (values["num_stages"] - 1),
        registers=24 + 2.2 * elements,
        instructions=12 + 3 * elements + 4 * elements / per_access,
        is_async=values["num_stages"] > 1,
    )


def facts_of_work(work: Work, values: Values) -> Facts | None:
    """Return the facts of a launch, None if a program does not fit on an SM."""
    warps = values["num_warps"]
    if work.shared_bytes > _SHARED_BYTES:
        return None
    registers = min(_MOST_REGISTERS, work.registers)
    by_registers = int(_REGISTERS / (registers * warps * 32))
    if not by_registers:
        return None
    resident = min(32, _MOST_WARPS // warps, by_registers, _SHARED_BYTES // max(1024, work.shared_bytes))
    spilled = max(0.0, work.registers - _MOST_REGISTERS)
    runs = float(work.programs * work.iterations * warps)
    depth = max(1, values["num_stages"] - 1) if work.is_async else 1
    return Facts(
        kernel="simulated",
        target="cuda:90",
        device=_DEVICE,
        programs=work.programs,
        warps=warps,
        resident=resident,
        stages=values["num_stages"],
        spill_bytes=int(4 * spilled),
        accesses=(
            *(_access("load", name, size * work.programs * work.iterations, work) for name, size in work.loads.items()),
            _access("store", "out", work.stored_bytes * work.programs, work),
        ),
        dots=work.dots,
        lines=(
            LineFacts(
                line=1,
                instructions=work.instructions * runs,
                slow={"special": work.special * runs, "barrier": runs, "spill": 2 * spilled * runs},
                cycles=1.5 * work.instructions * runs,
                spill_cycles=20.0 * spilled * runs,
                spilled_bytes=8.0 * spilled * 32 * runs,
                in_loop=True,
            ),
        ),
        footprint_bytes=sum(work.sizes.values()),
        loop_trips=work.iterations / depth,
        has_traffic=True,
    )


def _access(kind: AccessKind, name: str, total_bytes: float, work: Work) -> AccessFacts:
    is_async = kind == "load" and work.is_async
    sectors, requests = total_bytes / 32, total_bytes / 512
    touched = min(total_bytes, work.sizes[name])
    return AccessFacts(1, kind, name, total_bytes, sectors, sectors, requests, touched, 16, 16, is_async=is_async)


_TILES = [16, 32, 64, 128, 256]
KERNELS: dict[str, tuple[Callable[[Values], Work], Space]] = {
    "product": (product_work, SPACES["matmul"][1]),
    "column-sum": (column_sum_work, SPACES["column-sum"][1]),
    "row-sum": (row_sum_work, SPACES["row-sum"][1]),
    "attention": (
        attention_work,
        Space(BM=_TILES, BN=_TILES, BK=[16, 32, 64], num_warps=[1, 2, 4, 8, 16], num_stages=[1, 2, 3, 4, 5]),
    ),
}


@dataclass(slots=True)
class SimulatedKernel:
    """A space with the predictions of its configs, None where one does not fit; notes which were compiled."""

    name: str
    predictions: Mapping[Config, Prediction | None]
    compiled: set[Config] = field(default_factory=set)

    @classmethod
    def of(cls, name: str) -> SimulatedKernel:
        """Predict a whole space."""
        work_of, space = KERNELS[name]
        predictions = {}
        for config in space:
            facts = facts_of_work(work_of(config.values), config.values)
            predictions[config] = None if facts is None else predict_facts(facts)
        return cls(name, predictions)

    def predict_rows(self, configs: Sequence[Config]) -> dict[Config, Row]:
        """Return the rows of configs as a compile and a prediction would."""
        self.compiled.update(configs)
        return {config: self._row(config) for config in configs}

    def _row(self, config: Config) -> Row:
        prediction = self.predictions[config]
        if prediction is None:
            return Row(config, Status.CANNOT_RUN, "it does not fit")
        return Row(
            config,
            Status.NOT_TIMED,
            predicted_ms=prediction.time_ms,
            predicted_low_ms=prediction.low_ms,
            predicted_high_ms=prediction.high_ms,
        )

    def true_times(self, seed: int) -> dict[Config, float]:
        """Return the milliseconds of the configs that fit, on a GPU drawn by the seed."""

        def factor(sigma: float, *key: object) -> float:
            return sigma * random.Random(f"{seed} {self.name} {key}").gauss(0.0, 1.0)

        times = {}
        for config, prediction in self.predictions.items():
            if prediction is not None:
                shape, warps, stages = config.parameters, config.num_warps, config.num_stages
                distortion = factor(_SHAPE, shape) + factor(_WARPS, "warps", warps) + factor(_STAGES, "stages", stages)
                distortion += factor(_SHAPE_AND_WARPS, shape, warps) + factor(_CONFIG, shape, warps, stages)
                times[config] = prediction.time_ms * exp(distortion)
        return times


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a search found, over the best of the space, and how much it compiled and measured."""

    loss: float
    compiled: int
    measured: int


def search_space(kernel: SimulatedKernel, seed: int) -> Outcome:
    """Search a simulated space; the config that measured least is what it finds."""
    true_ms, noise, measured = kernel.true_times(seed), random.Random(seed), dict[Config, float]()
    kernel.compiled.clear()
    search = PredictedSearch(kernel.predictions, kernel.predict_rows, seed=seed)
    while asked := search.ask():
        for config in asked:
            measured[config] = true_ms[config] * exp(noise.gauss(0.0, _NOISE))
            search.tell(config, measured[config])
    winner = min(measured, key=lambda config: measured[config])
    return Outcome(true_ms[winner] / min(true_ms.values()), len(kernel.compiled), len(measured))


def outcome_text(name: str, size: int, outcomes: Sequence[Outcome]) -> str:
    """Return a line of figures."""
    losses = [outcome.loss for outcome in outcomes]
    within = sum(loss <= 1.01 for loss in losses)
    compiled = mean(outcome.compiled for outcome in outcomes)
    measured = mean(outcome.measured for outcome in outcomes)
    return (
        f"{name:<11}{size:,} configs, {compiled:5.1f} compiled ({compiled / size:.1%}), {measured:5.1f} measured: "
        f"within 1.01 in {within} of {len(losses)}; median {median(losses):.3f}, worst {max(losses):.3f}"
    )


def main() -> None:
    """Search the simulated spaces and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", nargs="*", choices=list(KERNELS), default=list(KERNELS))
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    for name in options.kernels:
        kernel, begin_s = SimulatedKernel.of(name), time.perf_counter()
        outcomes = [search_space(kernel, seed) for seed in range(options.seeds)]
        seconds = (time.perf_counter() - begin_s) / options.seeds
        text = outcome_text(name, len(kernel.predictions), outcomes)
        print(f"{text}; at most {compile_budget(len(kernel.predictions))} compiled; {seconds:.2f} s each", flush=True)


if __name__ == "__main__":
    main()
