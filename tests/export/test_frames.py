"""The history as DataFrames, and DataFrames as files."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

import kernellab
from kernellab.errors import UsageError
from kernellab.export.frames import read_frame, save_frame
from kernellab.store import Measurement
from tests.export.test_module import SCALE, cell, tensors
from tests.labs import shared_lab
from tests.tune.frames import divided_tuning


@pytest.fixture
def lab() -> Iterator[kernellab.Lab]:
    with shared_lab(target="cuda:80", store=":memory:") as opened:
        cell(opened, SCALE, **tensors())
        version = opened.kernels.version("scale")
        rows = [
            Measurement("key", {"BLOCK": 64, "num_warps": 4}, "H200", "ok", 0.1 + 0.2, {"samples": 5, "reason": ""}),
            Measurement(
                "key", {"BLOCK": 128, "num_warps": 4}, "H200", "fault", None, {"samples": None, "reason": 'a, "b"'}
            ),
        ]
        opened.kernels.store.history.add_measurements(version.id, rows)
        opened.kernels.store.tag(version.id, ["good"])
        yield opened


@pytest.mark.slow
def test_kernels_launches_and_measurements_are_tidy_tables(lab: kernellab.Lab) -> None:
    kernels, launches, measurements = (lab.frame(table) for table in ("kernels", "launches", "measurements"))
    assert kernels.loc[0, ["name", "version", "launches", "tags", "best_ms"]].tolist() == [
        "scale",
        1,
        1,
        "good",
        0.1 + 0.2,
    ]
    assert launches.loc[0, ["kernel", "where", "grid", "count"]].tolist() == ["scale@1", "interpreter", "[3, 1, 1]", 1]
    assert measurements["BLOCK"].tolist() == [64, 128]
    assert measurements["status"].tolist() == ["ok", "fault"]
    assert str(kernels["created"].dtype).endswith("UTC]")
    assert measurements.attrs["table"] == "measurements"


@pytest.mark.parametrize("suffix", [".csv", ".json"])
def test_every_digit_of_a_time_survives_a_file(tmp_path: Path, suffix: str) -> None:
    rng = random.Random(0)
    times = [rng.random() * 10 ** rng.randint(-5, 4) for _ in range(1000)]
    found = pd.DataFrame({"time_ms": [*times, float("nan")], "limiter": [*["threads"] * 1000, None]})
    assert read_frame(save_frame(found, tmp_path / f"x{suffix}")).equals(found)


@pytest.mark.parametrize("suffix", [".csv", ".json", ".parquet"])
@pytest.mark.parametrize("table", ["kernels", "launches", "measurements"])
def test_a_table_comes_back_from_a_file_with_types_and_attributes(
    lab: kernellab.Lab, tmp_path: Path, table: str, suffix: str
) -> None:
    if suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        with pytest.raises(UsageError, match="pip install pyarrow"):
            save_frame(lab.frame(table), tmp_path / f"x{suffix}")
        return
    found = lab.frame(table)
    save_frame(found, tmp_path / f"x{suffix}")
    again = read_frame(tmp_path / f"x{suffix}")
    pd.testing.assert_frame_equal(again, found)
    assert again.attrs == found.attrs


def test_an_empty_history_gives_empty_tables_with_columns() -> None:
    with shared_lab(target="cuda:80", store=":memory:") as lab:
        for table in ("kernels", "launches", "measurements"):
            assert lab.frame(table).empty
            assert "created" in lab.frame(table)


def test_an_unknown_table_or_ending_is_an_error(lab: kernellab.Lab, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected one of kernels, launches, measurements"):
        lab.frame("nothing")
    with pytest.raises(UsageError, match=r"expected one of \.csv, \.json, \.parquet"):
        save_frame(lab.frame("kernels"), tmp_path / "x.xls")


@pytest.mark.parametrize("suffix", [".csv", ".json"])
def test_which_configs_agree_survives_a_file(tmp_path: Path, suffix: str) -> None:
    found = divided_tuning(has_majority=True).frame
    again = read_frame(save_frame(found, tmp_path / f"x{suffix}"))
    assert again.attrs["agreement"] == found.attrs["agreement"]
    assert list(again["status"]) == list(found["status"])
