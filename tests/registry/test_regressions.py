from __future__ import annotations

import datetime
from typing import Any

import pytest

import kernellab
from kernellab.errors import UnknownName, UsageError
from kernellab.registry import Registry
from kernellab.registry.regressions import FASTEST, ChangedTime, TimeChange, regressions_of
from kernellab.registry.versions import moment_of
from kernellab.store import Measurement, Store
from tests.registry.kept import ADD, CHANGED, DAY, START, entered, key, measured, store_of

OLD, NEW = key(triton="3.6.0"), key(triton="3.9.0")


def changes(store: Store, kernel: Any = None, since: Any = None, margin: float = 0.03) -> list[ChangedTime]:
    return list(regressions_of(Registry(store), kernel, since, margin).rows)


def launches(store: Store, **options: Any) -> list[ChangedTime]:
    return [row for row in changes(store, **options) if row.config == FASTEST]


def only(store: Store, **options: Any) -> ChangedTime:
    (row,) = launches(store, **options)
    return row


@pytest.mark.parametrize(
    ("after_ms", "noise", "became"),
    [
        (1.10, 0.01, TimeChange.SLOWER),
        (0.90, 0.01, TimeChange.FASTER),
        (1.02, 0.001, TimeChange.SAME),  # apart, and two sessions on one GPU differ by as much
        (1.10, 0.08, TimeChange.OPEN),
    ],
)
def test_intervals_and_margin_decide_what_a_launch_became(after_ms: float, noise: float, became: TimeChange) -> None:
    row = only(store_of((measured(OLD, 1.0, noise=noise), 0), (measured(NEW, after_ms, noise=noise), 1)))
    assert row.became is became
    assert row.by == "Triton 3.6.0 to 3.9.0"
    assert row.ratio is not None
    assert row.ratio.low < row.ratio.median < row.ratio.high
    assert row.ratio.median == pytest.approx(after_ms)


def test_the_margin_is_the_users() -> None:
    store = store_of((measured(OLD, 1.0, noise=0.001), 0), (measured(NEW, 1.02, noise=0.001), 1))
    assert only(store, margin=0.01).became is TimeChange.SLOWER


def test_driver_and_kernel_are_changes_as_well_and_a_version_is_told_by_its_label() -> None:
    store = store_of((measured(key(driver="550.1"), 1.0), 0), (measured(key(driver="580.2"), 1.2), 1))
    assert only(store).by == "driver 550.1 to 580.2"
    entered(store, (measured(key(driver="580.2", closure=CHANGED), 0.9), 2), closure=CHANGED)
    assert [(row.became, row.by) for row in launches(store)] == [
        (TimeChange.FASTER, "kernel add_kernel@1 to add_kernel@2"),
        (TimeChange.SLOWER, "driver 550.1 to 580.2"),
    ][::-1]


def test_each_change_is_told_alone_where_the_store_lets_it() -> None:
    both = key(triton="3.9.0", driver="580.2")
    store = store_of((measured(key(), 1.0), 0), (measured(key(driver="580.2"), 1.0), 1), (measured(both, 1.3), 2))
    assert [(row.became, row.by) for row in launches(store)] == [
        (TimeChange.SLOWER, "Triton 3.6.0 to 3.9.0"),
        (TimeChange.SAME, "driver 550.1 to 580.2"),
    ]


def test_two_changes_at_once_are_told_as_two() -> None:
    row = only(store_of((measured(key(), 1.0), 0), (measured(key(triton="3.9.0", driver="580.2"), 1.3), 1)))
    assert row.by == "Triton 3.6.0 to 3.9.0, driver 550.1 to 580.2"
    assert "2 conditions changed at once" in row.reason


def test_the_fastest_is_taken_of_the_configs_that_were_measured_before_and_after() -> None:
    rows = [(64, OLD, 0.5), (128, OLD, 1.0), (256, OLD, 1.5), (128, NEW, 1.0), (256, NEW, 1.5)]
    found = changes(store_of(*((measured(k, ms, block=block), day) for day, (block, k, ms) in enumerate(rows))))
    assert [(row.config == FASTEST, row.became) for row in found] == [(True, "same"), (False, "same"), (False, "same")]
    assert found[0].before is not None
    assert "BLOCK=128" in found[0].before.words


def test_a_config_that_fails_now_is_told_with_its_reason() -> None:
    failed = measured(NEW, None, status="compile_error", reason="ptxas ran out of registers")
    row = only(store_of((measured(OLD, 1.0), 0), (failed, 1)))
    assert (row.became, row.reason) == (TimeChange.FAILS, "compile_error: ptxas ran out of registers")
    assert only(store_of((failed, 0), (measured(OLD, 1.0), 1))).became is TimeChange.WORKS


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([measured(OLD, 1.0)], "measured under one Triton, driver and version alone"),
        ([measured(OLD, 1.0), measured(NEW, 1.0, block=64)], "no config was measured both before and after"),
        ([measured(OLD, 1.0), measured(NEW, 1.3, samples=2)], "2 samples after, and 4 are needed"),
        ([measured(OLD, 1.0, status="differs", reason="other outputs"), measured(NEW, 1.0)], "differs before: other"),
        ([measured(OLD, 1.0), measured(key(2048, triton="3.9.0"), 1.0)], "else at other sizes"),
        ([measured(OLD, 1.0), measured(key(triton="3.9.0", dtype="fp16"), 1.0)], "its arguments had other types"),
        ([measured(OLD, 1.0), measured(key(triton="3.9.0", attributes=["tuple"]), 1.0)], "aligned otherwise"),
        ([measured(OLD, 1.0), measured(key(triton="3.9.0", timed="graph"), 1.0)], "timed in another way"),
        ([measured(OLD, 1.0), measured(key(device="NVIDIA B200"), 1.0)], "on this device"),
    ],
)
def test_what_cannot_be_compared_says_why(rows: list[Measurement], reason: str) -> None:
    found = launches(store_of(*((row, day) for day, row in enumerate(rows))))
    assert {row.became for row in found} == {TimeChange.INCOMPARABLE}
    assert all(reason in row.reason for row in found)


def test_a_version_with_other_parameters_is_compared_by_its_fastest_configs() -> None:
    store = store_of((measured(OLD, 1.0), 0))
    other = measured(key(closure=CHANGED), 0.5, config={"ROWS": 4, "num_warps": 4})
    entered(store, (other, 1), closure=CHANGED)
    row = only(store)
    assert (row.became, row.reason) == (TimeChange.FASTER, "their configs have other parameters: the fastest of each")


def test_since_leaves_out_what_changed_before() -> None:
    store = store_of(
        (measured(OLD, 1.0), 0), (measured(NEW, 1.2), 10), (measured(key(triton="3.9.0", driver="580.2"), 1.5), 20)
    )
    assert len(launches(store)) == 2
    assert only(store, since=START + 15 * DAY).by == "driver 550.1 to 580.2"
    assert not changes(store, since=START + 30 * DAY)


def test_the_latest_measurement_of_a_config_counts() -> None:
    assert only(store_of((measured(OLD, 1.0), 0), (measured(NEW, 2.0), 1), (measured(NEW, 1.0), 2))).became == "same"


def test_rows_of_benchmarks_count_and_those_of_peers_do_not() -> None:
    bench = {"point": {"n": 4096}, "closure": None, "signature": None, "attributes": None, "values": None}
    rows = [
        measured(key(triton=version, bench=name, **bench), ms)
        for version, ms in (("3.6.0", 1.0), ("3.9.0", 2.0))
        for name in ("add_kernel", "torch")
    ]
    row = only(store_of(*((row, day) for day, row in enumerate(rows))))
    assert (row.became, row.launch) == (TimeChange.SLOWER, "n=4096")


def test_launches_are_told_by_the_sizes_in_which_they_differ() -> None:
    rows = [measured(key(n, triton), 1.0) for n in (1024, 4096) for triton in ("3.6.0", "3.9.0")]
    store = store_of(*((row, day) for day, row in enumerate(rows)))
    assert {row.launch for row in launches(store)} == {"n=1024", "n=4096"}


def test_one_kernel_is_asked_for_by_name_version_or_id() -> None:
    store = store_of((measured(OLD, 1.0), 0), (measured(NEW, 2.0), 1))
    entered(store, (measured(key(), 1.0), 0), name="other", closure=CHANGED)
    assert {row.kernel for row in launches(store)} == {"add_kernel", "other"}
    for kernel in ("add_kernel", "add_kernel@1", 1):
        assert {row.kernel for row in launches(store, kernel=kernel)} == {"add_kernel"}
    with pytest.raises(UnknownName):
        launches(store, kernel="absent")


def test_the_frame_has_both_sides_of_each_row() -> None:
    found = regressions_of(Registry(store_of((measured(OLD, 1.0), 0), (measured(NEW, 2.0), 1))), None, None, 0.03)
    first = found.frame.iloc[0]
    assert (first.became, first.ratio, first.before_triton, first.after_triton) == ("slower", 2.0, "3.6.0", "3.9.0")
    assert found.slower == (found.rows[0],)
    assert repr(found) == "<Regressions: 1 slower>"


@pytest.mark.parametrize(
    ("since", "seconds"),
    [
        ("7d", START - 7 * DAY),
        ("12h", START - DAY / 2),
        (datetime.timedelta(days=1), START - DAY),
        (START - 5, START - 5),
        ("2025-10-01T00:00:00+00:00", 1_759_276_800.0),
        (datetime.datetime(2025, 10, 1, tzinfo=datetime.UTC), 1_759_276_800.0),
    ],
)
def test_moments_are_dates_durations_and_seconds(since: Any, seconds: float) -> None:
    assert moment_of(since, START) == seconds


def test_a_date_is_its_midnight_here() -> None:
    midnight = datetime.datetime(2025, 10, 1).astimezone().timestamp()
    assert moment_of("2025-10-01", START) == moment_of(datetime.date(2025, 10, 1), START) == midnight


@pytest.mark.parametrize("since", ["yesterday", True, -1, float("nan"), [], "99999-01-01"])
def test_what_is_no_moment_is_refused(since: Any) -> None:
    with pytest.raises(UsageError, match="expected a date"):
        moment_of(since, START)


def test_what_is_no_margin_is_refused(lab: kernellab.Lab) -> None:
    for margin in ("3%", -0.1, 1, True, None):
        with pytest.raises(UsageError, match="expected a share"):
            lab.regressions(margin=margin)


def test_a_key_that_no_lab_wrote_is_left_out() -> None:
    for text in ("{}", '{"triton": 1}', "[1]", '{"triton":"3","driver":"5","target":"c","signature":7,"values":[]}'):
        store = Store(None)
        version = store.add(ADD, "a", "k")
        store.history.add_measurements(version.id, [Measurement(text, {}, "gpu", "ok", 1.0, {})])
        assert all(row.became is TimeChange.INCOMPARABLE for row in changes(store))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("details", "{"),
        ("details", '{"samples": "many", "low_ms": 1.0, "high_ms": 1.0}'),
        ("details", '{"samples": 30, "low_ms": [1.0], "high_ms": 1.0}'),
        ("config", '{"BLOCK": '),
        ("config", '{"no name": 1}'),
        ("status", "splendid"),
        ("time_ms", "soon"),
    ],
)
def test_a_row_that_is_broken_is_left_out_and_costs_no_other(column: str, value: str) -> None:
    store = store_of((measured(OLD, 1.0), 0), (measured(NEW, 1.1), 1), (measured(NEW, 5.0), 2))
    store.database.rows(f"UPDATE measurements SET {column} = ? WHERE id = 3", (value,))
    with pytest.warns(UserWarning, match="Row 3 of measurements in the kernel store"):
        assert only(store).became is TimeChange.SLOWER


def test_a_key_that_is_nested_without_end_is_left_out() -> None:
    store = store_of((measured(OLD, 1.0), 0), (measured(NEW, 1.1), 1))
    store.database.rows("UPDATE measurements SET key = ? WHERE id = 1", ("[" * 100_000,))
    assert only(store).before is None
