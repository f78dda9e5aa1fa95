"""Rows of tunings on their way to the store and back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernellab._triton.closure import closure_of
from kernellab.store import Measurement, Store
from kernellab.store.columns import Status
from kernellab.timing.config import Config
from kernellab.timing.provenance import key_of
from kernellab.tune.result import Records, Row, measurement_of, row_of
from tests.launch.test_on_gpu import add_into
from tests.tune.frames import row

FAST, SLOW = Config.of({"BLOCK": 64}), Config.of({"BLOCK": 128, "num_warps": 8})


def records(store: Store, key: str = "a key") -> Records:
    version = store.add(closure_of(add_into)[0], "digest", "add_into")
    return Records(store.history, version.id, key, "NVIDIA H200")


@pytest.mark.parametrize(
    "kept",
    [
        row(FAST, 1.5),
        replace(row(SLOW, 2.0), standing="winner", tuning="one", warm_ms=1.9),
        row(FAST, None, Status.FAULT, "illegal memory access"),
    ],
)
def test_a_row_survives_the_store(kept: Row) -> None:
    assert row_of(measurement_of(kept, "a key", "NVIDIA H200")) == kept


def test_rows_are_found_again_by_their_key() -> None:
    store = Store(None)
    records(store).add([row(FAST, 1.5), row(SLOW, 2.0)])
    assert set(records(store).latest_rows()) == {FAST, SLOW}
    assert not records(store, "another key").latest_rows()


def test_the_latest_row_of_a_config_counts() -> None:
    store = Store(None)
    records(store).add([row(FAST, 1.5)])
    records(store).add([row(FAST, 1.2)])
    assert records(store).latest_rows()[FAST].time_ms == 1.2


def test_what_was_not_measured_is_not_kept() -> None:
    store = Store(None)
    records(store).add([row(FAST, None, Status.NOT_TIMED, "not measured: the budget was spent")])
    assert not records(store).latest_rows()


def test_measurements_of_others_are_left_alone() -> None:
    assert row_of(Measurement("a key", {"BLOCK": 64}, "NVIDIA H200", "ok", 1.0)) is None


def test_a_key_does_not_depend_on_the_order_of_its_fields() -> None:
    assert key_of({"a": 1, "b": {"c": 2, "d": 3}}) == key_of({"b": {"d": 3, "c": 2}, "a": 1})


def test_a_row_is_found_again_whatever_the_order_of_its_parameters() -> None:
    given = Config.of({"BM": 64, "BK": 32})
    store = Store(None)
    records(store).add([row(given, 1.5)])
    assert records(store).latest_rows()[given].time_ms == 1.5
