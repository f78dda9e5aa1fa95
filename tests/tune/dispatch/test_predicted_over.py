"""Tunings over sizes without a GPU: a rule by predicted times, which says so wherever it goes."""

from __future__ import annotations

import json
import pickle
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.errors import UsageError
from kernellab.export.launcher import Chooser
from kernellab.store.columns import PREDICTED_COLUMNS, Status
from kernellab.tune.dispatch import Dispatch
from kernellab.tune.dispatch.config_files import read_folder, read_table
from kernellab.tune.dispatch.result import DispatchProgress
from kernellab.views.cards.tuning import dispatch_card
from kernellab.views.figures.live import dispatch_shown
from tests.labs import shared_lab

pytestmark = pytest.mark.slow
SIZES = [4_000, 4_000_000]
CONFIGS = [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 1024})]


@triton.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * 2, mask=offsets < n)


def grid(meta: dict[str, int]) -> tuple[int, ...]:
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def inputs(n: int) -> dict[str, object]:
    return {"x_ptr": torch.zeros(n), "out_ptr": torch.empty(n), "n": n}


@pytest.fixture(scope="module")
def lab() -> Iterator[kernellab.Lab]:
    with shared_lab("l4", ":memory:") as lab:
        yield lab


@pytest.fixture(scope="module")
def dispatch(lab: kernellab.Lab) -> Dispatch:
    return lab.tune_over(scale, grid, over={"n": SIZES}, inputs=inputs, configs=CONFIGS)


def test_the_rule_picks_the_config_with_the_least_predicted_time(dispatch: Dispatch) -> None:
    assert dispatch.is_predicted
    assert dispatch.choose(n=SIZES[1]) is CONFIGS[1]
    large = dispatch.frame[dispatch.frame["n"] == SIZES[1]]
    assert large.set_index("BLOCK")["predicted_ms"].idxmin() == 1024
    assert dispatch.rule.multiprocessors == 58  # of an L4


def test_the_frames_have_predicted_columns_and_no_measured_time(dispatch: Dispatch) -> None:
    assert dispatch.frame[list(PREDICTED_COLUMNS)].notna().all(axis=None)
    assert dispatch.frame["time_ms"].isna().all()
    assert {"predicted_ms", "predicted_best_ms"} < set(dispatch.regret.columns)
    assert "time_ms" not in dispatch.regret.columns


def test_what_it_shows_says_predicted(dispatch: Dispatch) -> None:
    text = dispatch._repr_mimebundle_()["text/plain"]
    assert "predicted for L4 (no GPU)" in text
    assert "the best predicted time" in text
    assert "measured;" not in text
    assert "predicted for L4" in repr(dispatch)
    assert any(note.startswith("Predicted for L4, not measured") for note in dispatch.notes)
    assert "predicted for L4" in dispatch.plot().axes[0].get_title(loc="left")


def test_its_progress_says_predicted() -> None:
    progress = DispatchProgress("scale", done=1, total=2, measured=3, budget=4, is_predicted=True)
    assert "3 of at most 4 configs predicted" in dispatch_shown(progress, 1.0).text


def test_the_store_keeps_no_row_of_it(lab: kernellab.Lab, dispatch: Dispatch) -> None:
    assert lab.frame("measurements").empty
    for case in dispatch.cases:
        assert lab.kernels.store.history.measurements(key=case.key) == []


def test_an_exported_module_says_predicted_and_has_no_decision_for_the_device_itself(
    dispatch: Dispatch, tmp_path: Path
) -> None:
    path = dispatch.export(tmp_path / "scale.py").path
    text = path.read_text(encoding="utf-8")
    assert "predicted, not measured, for L4 (predicted)" in " ".join(text.split())
    assert "# Predicted, not measured: 2 cases" in text
    assert list(runpy.run_path(str(path))["DECISIONS"]) == ["L4 (predicted)"]


def test_a_table_of_predictions_is_read_as_predictions(dispatch: Dispatch, tmp_path: Path) -> None:
    path = dispatch.export(tmp_path / "scale.json").path
    (entry,) = json.loads(path.read_text(encoding="utf-8"))["devices"]["L4 (predicted)"].values()
    assert "time_ms" not in entry["sizes"][f"n={SIZES[0]}"]
    (again,) = read_table(path)
    assert again.is_predicted
    assert again.device == "L4 (predicted)"
    assert all(row.status is Status.NOT_TIMED and row.time_ms is None for case in again.cases for row in case.rows)
    assert again.frame["predicted_ms"].notna().all()


def test_a_folder_of_predictions_is_not_that_of_the_device(dispatch: Dispatch, tmp_path: Path) -> None:
    dispatch.export(tmp_path, kind="vllm")
    assert {each.device for each in read_folder(tmp_path)} == {"L4 (predicted)"}


def test_it_stays_predicted_through_a_pickle(dispatch: Dispatch) -> None:
    frame = pickle.loads(pickle.dumps(dispatch.frame))
    assert frame.attrs["predicted_for"] == "L4"
    assert frame["predicted_ms"].equals(dispatch.frame["predicted_ms"])


def test_decisions_that_were_measured_and_predicted_are_told_apart() -> None:
    from kernellab.export.launcher import Decision

    measured, predicted = (
        Decision(device, "cuda:90", 132, (), (), lambda name: "", "3 cases", is_predicted=is_predicted)
        for device, is_predicted in (("NVIDIA H200", False), ("H100 (predicted)", True))
    )
    assert Chooser((("n", "n"),), "x.device", (measured, predicted)).words == (
        "Its config is chosen by n, as measured on NVIDIA H200 (3 cases); "
        "predicted, not measured, for H100 (predicted) (3 cases)."
    )


def test_weights_and_a_baseline_give_a_predicted_speedup(lab: kernellab.Lab) -> None:
    found = lab.tune_over(
        scale,
        grid,
        over={"n": SIZES},
        inputs=inputs,
        configs=CONFIGS[1:],
        weights=lambda n: 1000 if n == SIZES[0] else 10,
        baseline=CONFIGS[0],
    )
    assert found.speedup is not None
    assert found.speedup.ratio > 1.0
    assert found.speedup.low < found.speedup.ratio < found.speedup.high
    assert [config.values["BLOCK"] for config in found.speedup.baseline] == [64]  # not among the configs
    assert found.regret["weight"].tolist() == [1000.0, 10.0]
    assert "by predicted times" in dispatch_card(found).text()


def test_a_baseline_without_weights_is_refused(lab: kernellab.Lab) -> None:
    with pytest.raises(UsageError, match="baseline needs weights"):
        lab.tune_over(scale, grid, over={"n": SIZES}, inputs=inputs, configs=CONFIGS, baseline=CONFIGS[0])
