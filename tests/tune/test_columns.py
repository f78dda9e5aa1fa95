"""The one table of columns, the fields of rows and the statuses agree with each other."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from docs.pages.json_schema import ROWS
from kernellab.benchmark.result import BenchmarkRow
from kernellab.store.columns import BITS_COLUMNS, OUTCOME_COLUMNS, ROW_DETAILS, Status
from kernellab.tune.result import PREDICTED, Row, Tuning
from tests.tune.frames import small_tuning


def test_every_column_is_a_field_of_a_row_or_its_rank() -> None:
    assert set(OUTCOME_COLUMNS) - {"rank"} <= {field.name for field in fields(Row)}
    assert all(hasattr(BenchmarkRow, name) for name in OUTCOME_COLUMNS)


def test_the_store_keeps_every_field_of_a_row_but_predictions_and_bits() -> None:
    not_stored = {"config", "status", "time_ms", *PREDICTED, *BITS_COLUMNS}
    assert {field.name for field in fields(Row)} - not_stored == set(ROW_DETAILS)


def test_a_frame_and_its_json_have_every_column() -> None:
    names = {field.name for field in ROWS["tune"]}
    assert set(OUTCOME_COLUMNS) <= names
    assert set(OUTCOME_COLUMNS) <= set(small_tuning().frame.columns)


def test_the_description_names_every_status() -> None:
    assert all(f"`{status}`" in OUTCOME_COLUMNS["status"].meaning for status in Status)


@pytest.mark.parametrize("name", [name for name in OUTCOME_COLUMNS if name != "rank"])
def test_a_column_comes_back_from_a_saved_frame(name: str) -> None:
    values = {"status": Status.OK, "number": 0.5, "integer": 3, "string": "text"}
    value = values.get(name, values[OUTCOME_COLUMNS[name].type.partition(" ")[0]])
    first, *rest = small_tuning().rows
    tuning = replace(small_tuning(), rows=(replace(first, **{name: value}), *rest))
    assert getattr(Tuning.from_frame(tuning.frame).rows[0], name) == value


@pytest.mark.parametrize("name", [name for name in OUTCOME_COLUMNS if name not in {"status", "reason", "time_ms"}])
def test_a_frame_that_an_earlier_release_saved_may_lack_a_column(name: str) -> None:
    frame = small_tuning().frame
    attrs, frame = frame.attrs, frame.drop(columns=name)
    frame.attrs = attrs
    tuning = Tuning.from_frame(frame)
    assert [row.config for row in tuning.rows] == [row.config for row in small_tuning().rows]
    assert all(getattr(row, name, None) in {None, 0} for row in tuning.rows)
