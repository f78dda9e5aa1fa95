"""What a tuning predicts is never taken for measured: by a warm tuning, an export, regressions, a file."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.store.columns import PREDICTED_COLUMNS, Status
from kernellab.target import Target
from kernellab.timing.bench import Bench
from kernellab.timing.config import Config
from kernellab.timing.launches import Launches
from kernellab.timing.provenance import Device
from kernellab.tune.options import Options
from kernellab.tune.result import Tuning
from kernellab.tune.run_tuning import Environment, MakeBench, tune_launches
from kernellab.tune.verbs import environment_of
from tests.labs import shared_lab
from tests.tune.fakes import FakeBench

pytestmark = pytest.mark.slow
N = 300_000
X, OUT = torch.zeros(N), torch.empty(N)
CONFIGS = [triton.Config({"BLOCK": block}) for block in (1024, 64, 128)]
DEVICE = Device(Target("cuda", 90, 32), "NVIDIA H200", "580.1", {"device": "NVIDIA H200", "triton": "3.9.0"})
SLOW_IS_FAST = {Config.from_triton(config): 1.0 / (1 + place) for place, config in enumerate(CONFIGS)}


@triton.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * 2, mask=offsets < n)


def grid(meta: dict[str, int]) -> tuple[int, ...]:
    return (triton.cdiv(N, meta["BLOCK"]),)


@pytest.fixture
def lab() -> Iterator[kernellab.Lab]:
    with shared_lab("cuda:90", ":memory:") as lab:
        yield lab


@pytest.fixture(scope="module")
def tuning() -> Tuning:
    with shared_lab("cuda:90", ":memory:") as lab:
        return lab.tune(scale, grid, X, OUT, N, configs=CONFIGS)


def tune_as_on(lab: kernellab.Lab, make_bench: MakeBench | None) -> Tuning:
    """Tune on a device that is said to be an H200, measured by a bench or else predicted; the store's key is one."""
    predict = environment_of(lab.session()).predict
    environment = Environment(lab.compiler, lab.kernels, DEVICE, make_bench, predict=None if make_bench else predict)
    return tune_launches(environment, Launches(scale, grid, (X, OUT, N), {}, DEVICE.target), Options(CONFIGS))


def bench_of(measured: list[Config], launches: Launches, timeout_s: float, device: int | None) -> Bench:
    measured += SLOW_IS_FAST
    return FakeBench(SLOW_IS_FAST)


def test_a_tuning_on_a_gpu_measures_every_config_that_was_predicted(lab: kernellab.Lab) -> None:
    predicted = tune_as_on(lab, None)
    assert predicted.is_predicted
    begun: list[Config] = []
    measured = tune_as_on(lab, partial(bench_of, begun))
    assert begun
    assert measured.provenance["key"] == predicted.provenance["key"]
    assert not measured.from_cache
    assert not measured.is_predicted
    assert [row.status for row in measured.rows] == [Status.OK] * 3
    assert measured.frame[list(PREDICTED_COLUMNS)].isna().all(axis=None)
    assert measured.best is not predicted.best


def test_a_prediction_takes_no_measured_row_from_the_store_nor_changes_it(lab: kernellab.Lab) -> None:
    tune_as_on(lab, partial(bench_of, []))
    rows = lab.frame("measurements")
    predicted = tune_as_on(lab, None)
    assert predicted.frame["time_ms"].isna().all()
    assert lab.frame("measurements").equals(rows)


def test_an_export_keeps_the_config_that_was_launched(lab: kernellab.Lab, tmp_path: Path) -> None:
    bound = lab.bind(scale)
    key = lab.kernels.add(bound).id
    bound[grid](X, OUT, N, BLOCK=64)
    tuning = lab.tune(bound, grid, X, OUT, N, configs=CONFIGS)
    assert tuning.best.kwargs["BLOCK"] != 64
    text = lab.export(key, tmp_path / "scale.py").path.read_text(encoding="utf-8")
    assert '"BLOCK": 64' in text
    assert f'"BLOCK": {tuning.best.kwargs["BLOCK"]}' not in text


def test_regressions_and_exported_measurements_have_none_of_it(lab: kernellab.Lab, tmp_path: Path) -> None:
    bound = lab.bind(scale)
    lab.kernels.add(bound)
    lab.tune(bound, grid, X, OUT, N, configs=CONFIGS)
    assert lab.regressions().rows == ()
    assert lab.export_measurements("scale", tmp_path / "rows.jsonl") == 0


@pytest.mark.parametrize("name", ["tuning.json", "tuning.csv"])
def test_a_saved_frame_stays_predicted(tuning: Tuning, tmp_path: Path, name: str) -> None:
    kernellab.save_frame(tuning.frame, tmp_path / name)
    frame = kernellab.read_frame(tmp_path / name)
    columns = list(PREDICTED_COLUMNS)
    assert frame[columns].to_numpy().tolist() == tuning.frame[columns].to_numpy().tolist()
    assert frame["time_ms"].isna().all()
    again = Tuning.from_frame(frame)
    assert again.is_predicted
    assert again.provenance["predicted_for"] == "H100"
    assert "predicted" in repr(again)


def test_what_a_tuning_saves_has_predicted_columns_and_no_measured_time(tuning: Tuning, tmp_path: Path) -> None:
    tuning.save(tmp_path / "tuning.json")
    data = json.loads((tmp_path / "tuning.json").read_text(encoding="utf-8"))
    assert data["provenance"]["predicted_for"] == "H100"
    assert all(row["time_ms"] is None and row["predicted_ms"] > 0 for row in data["rows"])
    tuning.save(tmp_path / "tuning.csv")
    table = pd.read_csv(tmp_path / "tuning.csv")
    assert table["time_ms"].isna().all()
    assert (table["predicted_low_ms"] < table["predicted_ms"]).all()


def test_a_pickled_tuning_stays_predicted(tuning: Tuning) -> None:
    again = pickle.loads(pickle.dumps(tuning))
    assert again.is_predicted
    assert [row.predicted_ms for row in again.rows] == [row.predicted_ms for row in tuning.rows]
    assert again.frame[list(PREDICTED_COLUMNS)].equals(tuning.frame[list(PREDICTED_COLUMNS)])


def test_a_point_that_a_panel_keeps_has_no_time(lab: kernellab.Lab) -> None:
    panel = lab.explore(scale, grid, X[:3000], OUT[:3000], 3000, BLOCK=[64, 128])
    panel.keep()
    (row,) = lab.kernels.store.history.measurements()
    assert row.measurement.time_ms is None
    assert not set(PREDICTED_COLUMNS) & row.measurement.details.keys()


def test_an_export_without_a_launch_has_the_first_config_and_not_the_predicted_one(
    lab: kernellab.Lab, tmp_path: Path
) -> None:
    order = [CONFIGS[1], CONFIGS[0], CONFIGS[2]]
    predicted = lab.tune(scale, grid, X, OUT, N, configs=order)
    assert predicted.winner != 0
    lab.export("scale", tmp_path / "scale.py")
    assert (
        '"BLOCK": 64' in (tmp_path / "scale.py").read_text(encoding="utf-8").partition("META = ")[2].partition("}")[0]
    )
