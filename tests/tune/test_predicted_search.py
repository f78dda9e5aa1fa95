"""The search by predicted times: it compiles few of many configs, measures the promising ones, and stops in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log, log2

import pytest
import torch
import triton

import kernellab
from kernellab.errors import UsageError
from kernellab.store.columns import Status
from kernellab.timing.config import Config, Space
from kernellab.tune.predicted_search import (
    PredictedSearch,
    TimeEstimates,
    by_axes_in_turn,
    compile_budget,
    expected_gain,
)
from kernellab.tune.result import Row
from kernellab.tune.search import search_of
from tests.tune.test_predicted_tuning import grid, lab, scale

__all__ = ["lab"]
SPACE = Space(
    BM=[16, 32, 64, 128, 256],
    BN=[16, 32, 64, 128, 256],
    BK=[16, 32, 64, 128],
    GROUP=[1, 4, 8, 16],
    num_warps=[1, 2, 4, 8, 16],
    num_stages=[2],
)


def true_ms(config: Config) -> float:
    """A product's time, roughly: best at tiles of 128 by 256 with 8 warps; slow where a warp's tile is large."""
    values = config.values
    tile = values["BM"] * values["BN"] / values["num_warps"]
    spills = max(1.0, tile / 4096) ** 2
    shape = (log2(values["BM"]) - 7) ** 2 + (log2(values["BN"]) - 8) ** 2 + 0.5 * (log2(values["BK"]) - 6) ** 2
    few = max(1.0, 64 * values["num_warps"] / tile)
    return 0.1 * spills * few * (1 + 0.12 * shape) * (1.02 if values["GROUP"] == 1 else 1.0)


class Compiler:
    """Predicts a time that is off by a constant factor, and refuses what needs too much shared memory."""

    def __init__(self) -> None:
        self.compiled: list[Config] = []

    def __call__(self, configs: Sequence[Config]) -> dict[Config, Row]:
        self.compiled += configs
        return {config: self.row(config) for config in configs}

    def row(self, config: Config) -> Row:
        if (config.values["BM"] + config.values["BN"]) * config.values["BK"] > 40_000:
            return Row(config, Status.CANNOT_RUN, "it needs too much shared memory")
        time_ms = 2.5 * true_ms(config)
        bounds = {"predicted_low_ms": 0.77 * time_ms, "predicted_high_ms": 1.28 * time_ms}
        return Row(config, Status.NOT_TIMED, predicted_ms=time_ms, **bounds)


def run(search: PredictedSearch) -> dict[Config, float]:
    times: dict[Config, float] = {}
    while asked := search.ask():
        for config in asked:
            times[config] = true_ms(config)
            search.tell(config, times[config])
    return times


@pytest.mark.slow
def test_of_two_thousand_configs_one_in_twenty_is_compiled_and_a_best_one_found() -> None:
    compiler = Compiler()
    search = PredictedSearch(SPACE, compiler)
    times = run(search)
    assert SPACE.size == 2000
    assert len(compiler.compiled) == len(set(compiler.compiled)) <= compile_budget(2000) == 100
    assert min(times.values()) <= 1.01 * min(map(true_ms, SPACE))
    assert search.note.startswith(f"{2000 - len(compiler.compiled):,} of 2,000 configs were not compiled")


def test_configs_that_cannot_win_within_their_interval_are_not_measured_and_say_so() -> None:
    search = PredictedSearch(SPACE, Compiler())
    times = run(search)
    unmeasured = [row for row in search.left.values() if row.status is Status.NOT_TIMED]
    assert unmeasured
    best_ms = min(times.values())
    assert all(true_ms(row.config) > 1.1 * best_ms for row in unmeasured)
    assert all(f"best measured {best_ms:.4g} ms" in row.reason for row in unmeasured)
    assert not times.keys() & {row.config for row in unmeasured}


def test_a_short_list_is_compiled_whole() -> None:
    compiler = Compiler()
    some = [config for config in SPACE if config.values["GROUP"] == 1 and config.values["num_warps"] == 4][:40]
    run(PredictedSearch(some, compiler))
    assert set(compiler.compiled) == set(some)


def test_what_was_measured_before_is_asked_first() -> None:
    known = [Config.of({"BM": 128, "BN": 256, "BK": 64, "GROUP": 8, "num_warps": 8, "num_stages": 2})]
    assert PredictedSearch(SPACE, Compiler(), known=known).ask() == known


class DistortedCompiler(Compiler):
    """Its predictions are too long by 30 % for the fastest shapes, which only measured times correct."""

    def row(self, config: Config) -> Row:
        row = super().row(config)
        if row.predicted_ms is None or config.values["BN"] < 256:
            return row
        names = ("predicted_ms", "predicted_low_ms", "predicted_high_ms")
        return replace(row, **{name: 1.3 * (getattr(row, name) or 0.0) for name in names})


@pytest.mark.slow
def test_measured_times_and_neighbours_lead_to_a_best_config_where_predictions_mislead() -> None:
    """Three of four draws of the random part suffice: one of them may start too far away."""
    within = 0
    for seed in range(4):
        compiler = DistortedCompiler()
        times = run(PredictedSearch(SPACE, compiler, seed=seed))
        assert len(compiler.compiled) <= compile_budget(2000)
        within += min(times.values()) <= 1.01 * min(map(true_ms, SPACE))
    assert within >= 3


def test_neighbours_differ_in_one_value_and_come_by_axes_in_turn() -> None:
    centre = Config.of({"BM": 64, "BN": 64, "num_warps": 4})
    changes = [{"BM": 32}, {"BM": 128}, {"BM": 32, "BN": 32}, {"num_warps": 8}, {"BM": 16}, {"BN": 128}]
    configs = [centre.with_values(change) for change in changes]
    assert by_axes_in_turn([*configs, centre], [centre]) == [configs[place] for place in (0, 3, 5, 1, 4)]


def test_a_gain_is_expected_of_what_is_fast_or_uncertain() -> None:
    assert expected_gain(0.0, log(0.5), 0.01) == pytest.approx(log(2), rel=0.01)
    assert expected_gain(0.0, log(1.5), 0.01) < 1e-9
    assert expected_gain(0.0, log(1.5), 0.5) > 0.01


def scaled_rows(configs: Sequence[Config]) -> dict[Config, Row]:
    return {
        config: Row(config, Status.NOT_TIMED, predicted_ms=config.values["BLOCK"] * (1 if config.values["FAST"] else 2))
        for config in configs
    }


BLOCKS = [Config.of({"BLOCK": 2**power, "FAST": fast}) for power in range(4, 12) for fast in (True, False)]


def test_estimates_follow_the_parameters() -> None:
    estimates = TimeEstimates(BLOCKS).estimate(scaled_rows(BLOCKS[::3]), {}, BLOCKS)
    assert estimates[BLOCKS[0]].log_ms < estimates[BLOCKS[1]].log_ms < estimates[BLOCKS[-1]].log_ms
    assert estimates[BLOCKS[0]].log_ms == pytest.approx(log(16))
    assert estimates[BLOCKS[0]].deviation < estimates[BLOCKS[1]].deviation


def test_measured_times_correct_the_estimates_of_neighbours() -> None:
    rows = scaled_rows(BLOCKS)
    times = {config: 3.0 * (rows[config].predicted_ms or 0.0) for config in BLOCKS[:3]}
    times[BLOCKS[-1]] = 3.6 * (rows[BLOCKS[-1]].predicted_ms or 0.0)
    estimates = TimeEstimates(BLOCKS).estimate(rows, times, BLOCKS)
    assert estimates[BLOCKS[4]].ratio == pytest.approx(log(3.0), abs=0.01)
    assert log(3.0) < estimates[BLOCKS[-2]].ratio < log(3.6)
    assert estimates[BLOCKS[0]].ratio_share < 0.2
    assert estimates[BLOCKS[8]].ratio_share > 0.9


@pytest.mark.slow
def test_without_a_gpu_it_compiles_and_predicts(lab: kernellab.Lab) -> None:
    x, out = torch.zeros(300_000), torch.empty(300_000)
    space = Space(BLOCK=[32, 64, 128, 256, 512, 1024, 2048], num_warps=[1, 2, 4, 8], num_stages=[1, 2, 3])
    tuning = lab.tune(scale, grid, x, out, 300_000, configs=space, search="predicted", budget_configs=9)
    assert tuning.is_predicted
    assert len(tuning.rows) == 9
    assert any("75 of 84 configs were not compiled" in note for note in tuning.notes)


def test_without_a_tuning_it_has_no_compiler() -> None:
    with pytest.raises(UsageError, match="needs the compiler of a tuning"):
        search_of("predicted", None, [Config.from_triton(triton.Config({"BLOCK": 64}))], 4, 0, lambda fits: None)
