"""Tunings without a GPU: every config has a predicted time, which ranks and wins, and is never taken for measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.errors import KernellabError
from kernellab.explain import prediction_requests
from kernellab.explain.prediction_requests import PredictionRequest
from kernellab.store.columns import PREDICTED_COLUMNS, Status
from kernellab.timing.config import Config
from kernellab.tune.result import Row
from kernellab.tune.rows import predicted_final
from kernellab.views.figures.tuning import overlap_words
from kernellab.workers.worker import Job
from tests.labs import shared_lab

N = 300_000
X, OUT = torch.zeros(N), torch.empty(N)


@triton.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * 2, mask=offsets < n)


def grid(meta: dict[str, int]) -> tuple[int, ...]:
    return (triton.cdiv(N, meta["BLOCK"]),)


def blocks(*sizes: int) -> list[triton.Config]:
    return [triton.Config({"BLOCK": size}) for size in sizes]


@pytest.fixture(scope="module")
def lab() -> Iterator[kernellab.Lab]:
    with shared_lab("cuda:90", ":memory:") as lab:
        yield lab


@pytest.fixture(scope="module")
def tuning(lab: kernellab.Lab) -> kernellab.Tuning:
    return lab.tune(scale, grid, X, OUT, N, configs=blocks(64, 1024, 128))


@pytest.mark.slow
def test_each_config_has_a_predicted_time_in_its_interval(tuning: kernellab.Tuning) -> None:
    times = tuning.frame[list(PREDICTED_COLUMNS)]
    assert times.notna().all(axis=None)
    assert (times["predicted_low_ms"] < times["predicted_ms"]).all()
    assert (times["predicted_ms"] < times["predicted_high_ms"]).all()
    assert tuning.frame["time_ms"].isna().all()


@pytest.mark.slow
def test_the_least_predicted_time_wins_and_ranks_first(tuning: kernellab.Tuning) -> None:
    assert tuning.is_predicted
    first = tuning.frame["predicted_ms"].idxmin()
    assert tuning.winner == first
    assert tuning.frame.loc[first, "rank"] == 1
    assert sorted(tuning.frame["rank"]) == [1, 2, 3]
    assert tuning.provenance["predicted_for"] == "H100"


@pytest.mark.slow
def test_a_frame_of_predictions_is_read_again(tuning: kernellab.Tuning) -> None:
    again = kernellab.Tuning.from_frame(tuning.frame)
    assert again.is_predicted
    assert again.best.kwargs == tuning.best.kwargs
    assert [row.predicted_ms for row in again.rows] == [row.predicted_ms for row in tuning.rows]


@pytest.mark.parametrize(
    ("count", "words"), [(1, "the interval of 1 more overlaps"), (3, "the intervals of 3 more overlap")]
)
def test_the_number_of_overlapping_intervals_is_a_sentence(count: int, words: str) -> None:
    assert overlap_words(count) == words


@pytest.mark.slow
def test_the_card_and_its_chart_say_that_times_are_predicted(tuning: kernellab.Tuning) -> None:
    text = tuning._repr_mimebundle_()["text/plain"]
    assert "3 configs compiled in " in text
    assert ", predicted for H100 (no GPU); best is BLOCK=" in " ".join(text.split())
    assert " ms (" in text, "the unit of the table"
    assert " us" not in text
    assert tuning.plot().axes[0].get_title(loc="left").startswith("scale: predicted for H100")


@pytest.mark.slow
def test_the_store_keeps_no_prediction(lab: kernellab.Lab, tuning: kernellab.Tuning) -> None:
    assert lab.frame("measurements").empty
    assert lab.kernels.store.history.measurements(key=tuning.provenance["key"]) == []


@pytest.mark.slow
def test_for_amd_the_first_config_that_fits_wins_and_one_note_says_why() -> None:
    with shared_lab("hip:gfx942", ":memory:") as amd:
        tuning = amd.tune(scale, grid, X, OUT, N, configs=blocks(64, 1024))
    assert not tuning.is_predicted
    assert tuning.best.kwargs == {"BLOCK": 64}
    assert sum("cannot be predicted for hip:gfx942" in note for note in tuning.notes) == 1


def row(block: int, low: float, time: float, high: float, checked: str = "") -> Row:
    config = Config.from_triton(triton.Config({"BLOCK": block}))
    return Row(
        config, Status.NOT_TIMED, predicted_ms=time, predicted_low_ms=low, predicted_high_ms=high, checked=checked
    )


def test_configs_tie_whose_intervals_overlap_the_first() -> None:
    rows = [row(1, 0.8, 1.0, 1.3), row(2, 1.2, 1.5, 2.0), row(4, 1.4, 1.7, 2.1)]
    final = predicted_final({each.config: each for each in rows})
    assert (final.winner, final.ties) == (rows[0].config, (rows[1].config,))


def test_configs_that_agree_with_the_reference_come_before_quicker_ones() -> None:
    rows = [row(1, 0.8, 1.0, 1.3), row(2, 1.2, 1.5, 2.0, checked="torch.add")]
    assert predicted_final({each.config: each for each in rows}).winner == rows[1].config


@pytest.mark.slow
def test_an_unpredicted_config_does_not_stop_the_others(lab: kernellab.Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = lab.compiler.pool
    run, predictions = pool.run, []

    def fail_once(job: Job[Any, Any], *limits: Any, **more: Any) -> Any:
        if isinstance(job.payload, PredictionRequest):
            predictions.append(job)
            if len(predictions) == 1:
                raise KernellabError("Its addresses are not known.")
        return run(job, *limits, **more)

    monkeypatch.setattr(pool, "run", fail_once)
    tuning = lab.tune(scale, grid, X, OUT, N, configs=blocks(64, 1024))
    assert tuning.is_predicted
    assert tuning.frame["predicted_ms"].notna().sum() == 1
    assert "Its addresses are not known." in tuning.notes


@pytest.mark.slow
def test_configs_are_predicted_side_by_side(lab: kernellab.Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    predict_all, together = prediction_requests.predict_all, []

    def note_number(pool: Any, implementations: Any, *rest: Any) -> Any:
        together.append(len(implementations))
        return predict_all(pool, implementations, *rest)

    monkeypatch.setattr(prediction_requests, "predict_all", note_number)
    monkeypatch.setattr("kernellab.tune.tuner._PREDICTED_AT_ONCE", 3)
    tuning = lab.tune(scale, grid, X, OUT, N, configs=blocks(64, 128, 256, 512))
    assert together == [3, 1]
    assert tuning.frame["predicted_ms"].notna().all()


class Asking:
    """A search that asks two configs, and keeps what it is told."""

    def __init__(self) -> None:
        self.asked = [Config.from_triton(config) for config in blocks(64, 1024)]
        self.told: dict[Config, float | None] = {}

    def ask(self) -> list[Config]:
        asked, self.asked = self.asked, []
        return asked

    def tell(self, config: Config, time_ms: float | None) -> None:
        self.told[config] = time_ms


@pytest.mark.slow
def test_a_search_without_a_gpu_is_told_predicted_times(lab: kernellab.Lab) -> None:
    search = Asking()
    tuning = lab.tune(scale, grid, X, OUT, N, configs=blocks(64, 1024, 128), search=search)
    assert list(search.told.values()) == [row.predicted_ms for row in tuning.rows]
    assert None not in search.told.values()


@pytest.mark.slow
def test_the_heading_of_the_card_names_the_device_that_is_predicted_for(tuning: kernellab.Tuning) -> None:
    assert "cuda:90, predicted for H100" in tuning._repr_mimebundle_()["text/html"]
