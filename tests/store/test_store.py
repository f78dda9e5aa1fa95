from __future__ import annotations

import sqlite3
import threading
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pytest

from kernellab._triton.closure import closure_of
from kernellab.source import Closure
from kernellab.store import FILE, SCHEMA, Argument, History, Measurement, RecordedLaunch, Result, Store
from kernellab.store.content import FIGURE
from kernellab.store.database import Database, Row
from kernellab.store.decoding import launch_digest, launch_to_jsonable
from tests import samples

ADD: Closure = closure_of(samples.add_kernel)[0]


def test_versions_count_up_by_name() -> None:
    store = Store(None)
    labels = [store.add(ADD, digest, name).label for digest, name in (("a", "k"), ("b", "k"), ("a", "other"))]
    assert labels == ["k@1", "k@2", "other@1"]


def test_the_same_digest_is_the_same_version() -> None:
    store = Store(None)
    first = store.add(ADD, "a", "k")
    store.add(ADD, "b", "k")
    assert store.add(ADD, "a", "k") == first


def test_a_row_is_there_for_the_next_process(tmp_path: Path) -> None:
    added = Store(tmp_path).add(ADD, "a", "k")
    assert Store(tmp_path).by_id(added.id) == added
    assert Store(tmp_path).find("k", 1) == added
    assert Store(tmp_path).find("k", 2) is None


def test_two_connections_number_versions_without_a_clash(tmp_path: Path) -> None:
    stores = [Store(tmp_path), Store(tmp_path)]

    def write(store: Store, mark: str) -> None:
        for i in range(50):
            store.add(ADD, f"{mark}{i}", "k")

    threads = [threading.Thread(target=write, args=(s, m)) for s, m in zip(stores, "ab", strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [v.version for v in stores[0].versions()] == list(range(1, 101))


def test_a_corrupt_file_is_set_aside_and_named(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"not a database at all" * 100)
    with pytest.warns(UserWarning, match=r"set aside as .*\.aside"):
        store = Store(tmp_path)
    assert store.add(ADD, "a", "k").label == "k@1"
    (aside,) = tmp_path.glob("*.aside")
    assert aside.read_bytes().startswith(b"not a database")


def test_a_file_of_a_later_release_is_set_aside(tmp_path: Path) -> None:
    Store(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute(f"PRAGMA user_version={SCHEMA + 1}")
    connection.close()
    with pytest.warns(UserWarning, match=f"its schema is {SCHEMA + 1}, this release knows {SCHEMA}"):
        store = Store(tmp_path)
    assert not store.versions()


def test_a_folder_that_cannot_be_made_leaves_a_store_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(UserWarning, match="kept in memory"):
        store = Store(tmp_path / "file" / "store")
    assert store.path is None
    assert store.add(ADD, "a", "k").label == "k@1"


LAUNCH = RecordedLaunch(
    signature=(("x_ptr", "*fp32"), ("BLOCK", "constexpr")),
    arguments=(
        Argument("x_ptr", "tensor", dtype="float32", shape=(4, 2), stride=(2, 1), device="cpu", low=-1.5, high=2.0),
        Argument("pair", "tuple", members=(Argument("pair[0]", "scalar", value=1e-3), Argument("pair[1]", "scalar"))),
        Argument("BLOCK", "scalar", constexpr=True, value=128),
    ),
    options={"num_warps": 4, "maxnreg": None},
    grid=(3, 1, 1),
    target="cuda:90",
    where="interpreter",
    result="r1",
)


@dataclass(frozen=True, slots=True)
class LaunchWithFigure(RecordedLaunch):
    waited_s: float | None = field(default=None, metadata=FIGURE)


def test_a_figure_of_a_launch_makes_it_no_other_launch() -> None:
    plain = {each.name: getattr(LAUNCH, each.name) for each in fields(LAUNCH)}
    without, with_figure = LaunchWithFigure(**plain), LaunchWithFigure(**plain, waited_s=0.5)
    assert launch_to_jsonable(without) == launch_to_jsonable(LAUNCH)
    assert launch_to_jsonable(with_figure) == {**launch_to_jsonable(LAUNCH), "waited_s": 0.5}
    assert launch_digest(with_figure) == launch_digest(LAUNCH) != launch_digest(replace(LAUNCH, grid=None))


RESULT = Result("r1", "cuda:90", {"num_warps": 4}, {"registers": 10}, ("x_ptr",), (), (), True, 0.5, "3.9.0")


def test_a_launch_comes_back_as_it_was_and_its_repeats_are_counted(tmp_path: Path) -> None:
    store = Store(tmp_path)
    version = store.add(ADD, "a", "k")
    number = store.history.add_launch(version.id, LAUNCH, seconds=0.5, result=RESULT)
    other_values = replace(LAUNCH, arguments=(replace(LAUNCH.arguments[0], low=0.0), *LAUNCH.arguments[1:]))
    assert store.history.add_launch(version.id, other_values, count=2) == number
    other_number = store.history.add_launch(version.id, replace(LAUNCH, grid=(4, 1, 1)))
    first, second = Store(tmp_path).history.launches(version.id)
    assert [first.id, second.id] == [number, other_number]
    assert (first.launch, first.count, first.seconds) == (other_values, 3, 0.5)
    assert second.launch == replace(LAUNCH, grid=(4, 1, 1))
    assert Store(tmp_path).history.results() == [(version.id, RESULT)]


def test_of_many_launches_the_latest_are_read_and_of_results_the_one_with_a_digest() -> None:
    store = Store(None)
    version = store.add(ADD, "a", "k")
    for extent in range(1, 6):
        result = replace(RESULT, digest=f"r{extent}")
        store.history.add_launch(version.id, replace(LAUNCH, grid=(extent, 1, 1)), result=result)
    assert [row.launch.grid for row in store.history.launches(version.id, most=2)] == [(4, 1, 1), (5, 1, 1)]
    assert len(store.history.launches(version.id, most=9)) == 5
    assert store.history.results(version.id, "r3") == [(version.id, replace(RESULT, digest="r3"))]
    assert store.history.results(version.id, "r9") == []


def test_a_run_is_kept_apart_and_a_launch_is_written_as_in_earlier_releases(tmp_path: Path) -> None:
    store = Store(tmp_path)
    version = store.add(ADD, "a", "k")
    store.history.add_launch(version.id, LAUNCH)
    ((text, digest),) = store.database.rows("SELECT launch, digest FROM launches")
    assert '"by"' not in str(text)
    assert digest == "5db4a637f96ed57b07840ecdee5886308718a395e01233e8a602e880a637d7fa"
    store.history.add_launch(version.id, replace(LAUNCH, by="run"))
    assert [row.launch.by for row in Store(tmp_path).history.launches()] == ["launch", "run"]


def test_the_best_measurement_is_the_fastest_good_one_of_the_newest_key() -> None:
    store = Store(None)
    version = store.add(ADD, "a", "k")
    rows = [("old", "ok", 0.1), ("new", "ok", 3.0), ("new", "ok", 2.0), ("new", "wrong", 1.0), ("new", "fault", None)]
    store.history.add_measurements(
        version.id, [Measurement(key, {"BLOCK": i}, "gpu", status, ms) for i, (key, status, ms) in enumerate(rows)]
    )
    best = store.history.best(version.id)
    assert best is not None
    assert (best.config, best.time_ms) == ({"BLOCK": 2}, 2.0)
    assert [row.measurement.status for row in store.history.measurements(key="new")] == ["ok", "ok", "wrong", "fault"]


def test_what_turned_out_to_differ_from_most_is_not_the_best() -> None:
    store = Store(None)
    version = store.add(ADD, "a", "k")
    rows = [(64, "ok", 1.0), (128, "ok", 2.0), (256, "ok", 3.0), (64, "differs", 1.0), (256, "ok", 3.5)]
    store.history.add_measurements(version.id, [Measurement("key", {"BLOCK": b}, "gpu", s, ms) for b, s, ms in rows])
    best = store.history.best(version.id)
    assert best is not None
    assert best.config == {"BLOCK": 128}


def test_derived_rows_are_trimmed_oldest_first_and_kernels_never() -> None:
    store = Store(None)
    version = store.add(ADD, "a", "k")
    details = {"text": "x" * 2000}
    store.history.add_measurements(
        version.id, [Measurement(f"{i}", {}, "gpu", "ok", 1.0, details) for i in range(1000)]
    )
    assert store.history.trim(1_000_000) > 0
    kept = [int(row.measurement.key) for row in store.history.measurements()]
    assert 0 < len(kept) < 500
    assert kept == list(range(1000 - len(kept), 1000))
    store.history.trim(0)
    assert store.history.measurements() == []
    assert store.versions() == [version]


def test_a_removed_version_takes_its_history_along_and_leaves_its_number_unused() -> None:
    store = Store(None)
    store.add(ADD, "a", "k")
    second = store.add(ADD, "b", "k")
    store.history.add_launch(second.id, LAUNCH)
    store.tag(second.id, ["good"])
    store.remove(second.id)
    assert store.history.launches() == []
    assert store.tags() == {}
    third = store.add(ADD, "b", "k")
    assert (third.label, third.id > second.id) == ("k@3", True)


def test_tags_and_notes_stay_with_their_version() -> None:
    store = Store(None)
    first, second = store.add(ADD, "a", "k"), store.add(ADD, "b", "k")
    store.tag(first.id, ["good", "fp16", "good"])
    store.untag(first.id, ["fp16"])
    store.note(second.id, "slower on short rows")
    assert store.tags() == {first.id: ("good",)}
    assert (store.notes(first.id), store.notes(second.id)) == ([], ["slower on short rows"])


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("plu", ["plus@1"]),
        ("good", ["k@1"]),
        ("slow", ["k@1"]),
        ("mask=mask", ["k@1", "plus@1"]),
        ("%", []),
        ("k_", []),
    ],
)
def test_a_search_looks_at_names_tags_notes_and_source(text: str, labels: list[str]) -> None:
    store = Store(None)
    first = store.add(ADD, "a", "k")
    store.add(ADD, "a", "plus")
    store.tag(first.id, ["good"])
    store.note(first.id, "slow")
    assert [outline.label for outline in store.overview.outlines(text)] == labels


class WatchedDatabase(Database):
    """Keeps what it was asked."""

    asked: list[str]

    def rows(self, query: str, values: tuple[object, ...] = ()) -> list[Row]:
        self.asked = [*getattr(self, "asked", []), query]
        return super().rows(query, values)


@pytest.mark.parametrize("wanted", [{"key": "a"}, {"version_id": 1}, {"key": "a", "version_id": 1}], ids=str)
def test_measurements_are_found_through_an_index(wanted: dict[str, Any]) -> None:
    database = WatchedDatabase(None)
    History(database).measurements(**wanted)
    plan = database.rows(f"EXPLAIN QUERY PLAN {database.asked[0].replace('?', '1')}")
    assert "SEARCH measurements USING INDEX" in str(plan[0])
