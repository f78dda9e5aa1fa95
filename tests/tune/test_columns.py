"""Each place that lists the columns of a tuning's table, or the statuses of its rows, lists all of them."""

from __future__ import annotations

from kernellab.cli import schema
from kernellab.store.content import ROW_DETAILS, STATUSES
from kernellab.timing.config import OUTCOME_COLUMNS, Status

# What a measurement has as a field of its own, or follows from the other rows.
NOT_DETAILS = {"status", "time_ms", "rank"}


def test_the_store_keeps_every_column_that_a_row_has() -> None:
    assert set(OUTCOME_COLUMNS) - NOT_DETAILS <= set(ROW_DETAILS)


def test_every_column_has_a_description_in_json() -> None:
    assert [field.name for field in schema._OUTCOME] == list(OUTCOME_COLUMNS)


def test_the_store_and_the_description_know_every_status() -> None:
    assert set(STATUSES) == set(Status)
    meaning = next(field.meaning for field in schema._OUTCOME if field.name == "status")
    assert all(f"`{status}`" in meaning for status in Status)
