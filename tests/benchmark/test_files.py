"""Frames of benchmarks and tunings as files: the same when read again, provenance included."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import kernellab
from kernellab.errors import UsageError
from kernellab.timing.timer import Clocks
from tests.benchmark.frames import products, sweep, untimed
from tests.tune.frames import large_tuning, small_tuning, untimed_tuning

FRAMES = {
    "sweep": sweep(("float32", "float16")).frame,
    "configs": products(3).frame,
    "two clocks": replace(sweep(), clocks=(Clocks("add", 1.01, 0.99, 1.03, 30, (("n", 64),)),)).frame,
    "no GPU": untimed().frame,
    "tuning": small_tuning().frame,
    "large tuning": large_tuning().frame,
    "tuning without GPU": untimed_tuning().frame,
}


def test_a_benchmark_is_one_line_where_nothing_draws_it() -> None:
    assert repr(sweep()) == "<Benchmark of add over n: 35 of 36 rows timed (add, torch)>"


@pytest.mark.parametrize("suffix", [".csv", ".json", ".parquet"])
@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_comes_back_with_dtypes_and_provenance(tmp_path: Path, name: str, suffix: str) -> None:
    frame = FRAMES[name]
    path = kernellab.save_frame(frame, tmp_path / f"x{suffix}")
    again = kernellab.read_frame(path)
    pd.testing.assert_frame_equal(again, frame)
    assert again.attrs == frame.attrs


def test_labels_of_rows_in_the_attributes_stay_numbers(tmp_path: Path) -> None:
    frame = small_tuning().frame
    assert frame.attrs["warm_ms"] == {1: 0.9}
    kernellab.save_frame(frame, tmp_path / "x.json")
    assert kernellab.read_frame(tmp_path / "x.json").attrs["warm_ms"] == {1: 0.9}


def test_other_programs_read_the_files(tmp_path: Path) -> None:
    frame = sweep().frame
    plain = pd.read_csv(kernellab.save_frame(frame, tmp_path / "x.csv"), comment="#")
    assert plain.time_ms.tolist() == pytest.approx(frame.time_ms.tolist(), nan_ok=True)
    assert pd.read_parquet(kernellab.save_frame(frame, tmp_path / "x.parquet")).n.tolist() == frame.n.tolist()


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    sweep().frame.to_csv(tmp_path / "x.csv")
    with pytest.raises(UsageError, match="was not written by save_frame"):
        kernellab.read_frame(tmp_path / "x.csv")
    with pytest.raises(UsageError, match="There is no file"):
        kernellab.read_frame(tmp_path / "absent.csv")
