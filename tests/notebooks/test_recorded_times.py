"""The recorded times next to predictions in a notebook are those of the benchmarks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CASES: list[dict[str, Any]] = json.loads((ROOT / "notebooks/data/predicted_and_recorded.json").read_text())["cases"]
OF_THE_RUN = ("device", "driver", "triton", "torch")
OUTCOME = ("time_ms", "low_ms", "high_ms", "spill_bytes")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['kernel']}, {case['device']}")
def test_each_time_is_that_of_the_benchmark_with_its_provenance(case: dict[str, Any]) -> None:
    model = case["device"].split()[1].lower()
    record = json.loads((ROOT / f"benchmarks/results/truth_{model}.json").read_text())
    assert [case[name] for name in OF_THE_RUN] == [record[name] for name in OF_THE_RUN]
    original = next(
        each for each in record["cases"] if (each["kernel"], each["sizes"]) == (case["kernel"], case["sizes"])
    )
    assert case["rows"] == [{**row["config"], **{name: row[name] for name in OUTCOME}} for row in original["rows"]]
