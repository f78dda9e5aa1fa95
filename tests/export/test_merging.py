"""Measurements of two people in one table."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from kernellab.errors import StoreError, UsageError
from kernellab.export.merging import ConflictKind, Merged, RowOrigin, merge
from kernellab.export.write import write_measurements
from kernellab.registry import Registry
from kernellab.store import FILE, SCHEMA, Measurement, Store
from kernellab.views.cards.kernels import conflict_words, merged_card
from tests.registry.kept import CHANGED, START, entered, key, measured, store_of
from tests.store.test_store import LAUNCH

Rows = list[Measurement]


def never(*_: Any, **__: Any) -> Any:
    raise AssertionError("a kept kernel was executed")


def theirs_in(folder: Path, *rows: Measurement, **options: Any) -> Path:
    """Return the folder of a store of somebody else."""
    store = Store(folder)
    entered(store, *((row, day) for day, row in enumerate(rows)), **options)
    store.close()
    return folder


def merged_with(path: Path, *mine: Measurement) -> Merged:
    return merge(Registry(store_of(*((row, day) for day, row in enumerate(mine))), never), path)


def test_a_store_enters_with_its_history_and_a_second_time_nothing(tmp_path: Path) -> None:
    theirs = Store(tmp_path)
    entered(theirs, (measured(key(), 1.0), 0))
    (version,) = theirs.versions()
    theirs.history.add_launch(version.id, LAUNCH, seconds=0.5, count=3)
    theirs.tag(version.id, ["good"])
    theirs.note(version.id, "from the other lab")
    mine = Registry(Store(None), never)
    assert merge(mine, tmp_path).new == 1  # while it is open there
    (entered_here,) = mine.store.versions()
    assert (entered_here.label, entered_here.closure) == ("add_kernel@1", version.closure)
    assert [row.created for row in mine.store.history.measurements()] == [START]
    assert [(row.launch, row.count) for row in mine.store.history.launches()] == [(LAUNCH, 3)]
    assert mine.store.tags() == {entered_here.id: ("good",)}
    assert mine.store.notes(entered_here.id) == ["from the other lab"]
    again = merge(mine, tmp_path / FILE)
    assert (again.new, again.known) == (0, 1)
    theirs.close()


def test_exported_lines_merge_as_the_store_does(tmp_path: Path) -> None:
    store = Store(tmp_path / "theirs")
    entered(store, (measured(key(), 1.0), 0))
    write_measurements(Registry(store, never), None, tmp_path / "lines.jsonl")
    store.close()
    lines, whole = (merged_with(path).rows for path in (tmp_path / "lines.jsonl", tmp_path / "theirs"))
    assert lines == whole
    assert len(lines) == 1


def test_the_table_tells_device_driver_version_and_whose_measurements_they_are(tmp_path: Path) -> None:
    folder = theirs_in(tmp_path, measured(key(), 1.0, block=256), measured(key(device="NVIDIA B200"), 0.5))
    merged = merged_with(folder, measured(key(), 2.0), measured(key(driver="580.2"), 2.0))
    assert [(row.device, row.driver, row.config, row.configs, row.origin) for row in merged.rows] == [
        ("NVIDIA B200", "550.1", "BLOCK=128, num_warps=4, num_stages=3", 1, RowOrigin.THERE),
        ("NVIDIA H200", "550.1", "BLOCK=256, num_warps=4, num_stages=3", 2, RowOrigin.BOTH),
        ("NVIDIA H200", "580.2", "BLOCK=128, num_warps=4, num_stages=3", 1, RowOrigin.HERE),
    ]
    assert merged.frame.loc[1, "time_ms"] == 1.0


def test_kernels_with_the_same_text_are_one_and_others_are_versions(tmp_path: Path) -> None:
    folder = theirs_in(tmp_path, measured(key(), 1.0))
    other = Store(tmp_path)
    entered(other, (measured(key(closure=CHANGED), 1.0), 0), closure=CHANGED)
    other.close()
    merged = merged_with(folder, measured(key(triton="3.9.0"), 1.0))
    assert merged.versions == ("add_kernel@1", "add_kernel@2")
    assert {(row.version, row.triton) for row in merged.rows} == {
        ("add_kernel@1", "3.6.0"), ("add_kernel@1", "3.9.0"), ("add_kernel@2", "3.6.0")
    }  # fmt: skip


def test_the_same_config_under_the_same_conditions_with_another_time_is_a_conflict(tmp_path: Path) -> None:
    merged = merged_with(theirs_in(tmp_path, measured(key(), 1.5)), measured(key(), 1.0))
    (conflict,) = merged.conflicts
    assert (conflict.kind, conflict.by) == (ConflictKind.TIME, "")
    assert merged.rows[0].conflict == "time"
    assert conflict_words(conflict) == (
        "add_kernel (n=4096), BLOCK=128, num_warps=4, num_stages=3: 1 ms here, 1.5 ms there, 1.5x the time; "
        "both on NVIDIA H200, driver 550.1, Triton 3.6.0, add_kernel@1."
    )
    assert not merged_with(tmp_path, measured(key(), 1.49)).conflicts


def test_a_config_that_fails_for_one_of_them_is_a_conflict(tmp_path: Path) -> None:
    failed = measured(key(), None, status="fault", reason="an illegal access")
    (conflict,) = merged_with(theirs_in(tmp_path, failed), measured(key(), 1.0)).conflicts
    assert conflict.kind is ConflictKind.STATUS


@pytest.mark.parametrize(
    ("where", "by"),
    [
        ({"device": "NVIDIA B200"}, "device NVIDIA H200 to NVIDIA B200"),
        ({"driver": "580.2"}, "driver 550.1 to 580.2"),
        ({"triton": "3.9.0"}, "Triton 3.6.0 to 3.9.0"),
    ],
)
def test_another_choice_is_told_with_what_differs(tmp_path: Path, where: dict[str, str], by: str) -> None:
    theirs = [measured(key(**where), ms, block=block) for block, ms in ((128, 1.0), (256, 0.5))]
    mine = [measured(key(), ms, block=block) for block, ms in ((128, 1.0), (256, 1.5))]
    merged = merged_with(theirs_in(tmp_path, *theirs), *mine)
    (conflict,) = merged.conflicts
    assert (conflict.kind, conflict.by) == (ConflictKind.CHOICE, by)
    assert "BLOCK=128, num_warps=4, num_stages=3 is the fastest here (1 ms), BLOCK=256" in conflict_words(conflict)
    assert {row.conflict for row in merged.rows} == {"choice"}


def test_a_choice_that_ties_there_is_no_conflict(tmp_path: Path) -> None:
    theirs = [measured(key(driver="580.2"), ms, block=block) for block, ms in ((128, 1.01), (256, 1.0))]
    mine = [measured(key(), ms, block=block) for block, ms in ((128, 1.0), (256, 1.5))]
    assert not merged_with(theirs_in(tmp_path, *theirs), *mine).conflicts


def test_the_latest_measurement_counts_whoever_made_it(tmp_path: Path) -> None:
    folder = theirs_in(tmp_path, measured(key(), 5.0))
    mine = store_of((measured(key(), 1.0), 3))
    merge(Registry(mine, never), folder)
    assert [row.measurement.time_ms for row in mine.history.measurements()] == [5.0, 1.0]


def test_the_other_store_is_not_written(tmp_path: Path) -> None:
    folder = theirs_in(tmp_path / "theirs", measured(key(), 1.0))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    merged_with(folder)
    after = {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith(("-shm", "-wal"))}
    assert after == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_store_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    folder = theirs_in(tmp_path / "theirs", measured(key(), 1.0))
    folder.chmod(0o500)
    try:
        assert merged_with(folder).new == 1
    finally:
        folder.chmod(0o700)


def test_what_is_no_store_enters_nothing(tmp_path: Path) -> None:
    mine = Registry(store_of((measured(key(), 1.0), 0)), never)
    later = theirs_in(tmp_path / "later", measured(key(), 2.0))
    with sqlite3.connect(later / FILE) as connection:
        connection.execute(f"PRAGMA user_version={SCHEMA + 1}")
    connection.close()
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes((later / FILE).read_bytes()[:5000])
    (tmp_path / "x.zip").write_bytes(b"PK\3\4")
    (tmp_path / "empty").mkdir()
    for path, error, message in (
        (later, StoreError, f"its schema is {SCHEMA + 1}"),
        (broken, StoreError, "cannot be read as a kernel store"),
        (tmp_path / "x.zip", UsageError, "%triton_load x.zip"),
        (tmp_path / "empty", UsageError, f"it has no {FILE}"),
        (tmp_path / "absent", UsageError, "it is not a file"),
        (Path("/dev/null"), UsageError, "it is not a file"),
    ):
        with pytest.raises(error, match=message):
            merge(mine, path)
    assert [row.measurement.time_ms for row in mine.store.history.measurements()] == [1.0]


def test_a_store_with_a_trigger_is_refused(tmp_path: Path) -> None:
    theirs_in(tmp_path, measured(key(), 1.0))
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute("CREATE TRIGGER gone AFTER INSERT ON tags BEGIN DELETE FROM versions; END")
    connection.close()
    with pytest.raises(StoreError, match="its trigger gone is none of the lab's"):
        merged_with(tmp_path)


def test_a_row_that_cannot_be_read_costs_no_other(tmp_path: Path) -> None:
    theirs_in(tmp_path, measured(key(), 1.0), measured(key(), 2.0, block=64))
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute("UPDATE measurements SET details = '{' WHERE time_ms = 1")
    connection.close()
    with pytest.warns(UserWarning, match="Row 1 of measurements .* is skipped"):
        assert merged_with(tmp_path).new == 1


def test_the_views_have_table_and_conflicts(tmp_path: Path) -> None:
    merged = merged_with(theirs_in(tmp_path, measured(key(device="<H>"), 1.5)), measured(key(device="<H>"), 1.0))
    lines = merged_card(merged).text().splitlines()
    assert lines[0] == f"{tmp_path}: add_kernel@1; 1 measurement entered, 0 known before, 1 conflict."
    assert lines[1].split()[:3] == ["kernel", "launch", "device"]
    assert lines[-1].startswith("conflict: add_kernel (n=4096), BLOCK=128")
    html = merged_card(merged).html()
    assert "&lt;H&gt;" in html
    assert "<H>" not in html


def test_a_path_that_is_too_long_to_be_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: File name too long"):
        merge(Registry(Store(tmp_path)), tmp_path / ("x" * 5000))
