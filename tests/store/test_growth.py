"""A store of many versions: what is asked of one of them, and what a listing shows, reads nothing of the others."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from kernellab.errors import UnknownName
from kernellab.registry import Registry
from kernellab.registry.listing import listing, search
from kernellab.store import Argument, Measurement, Store
from tests.store import hostile
from tests.store.test_store import ADD

BROKEN = '{"torn": '


def store_of(versions: int) -> Store:
    """Return a store whose versions of one kernel were launched and measured once each."""
    store = Store(None)
    for number in range(versions):
        added = store.add(ADD, f"{number}", "k")
        store.history.add_launch(added.id, hostile.LAUNCH)
        store.history.add_measurements(added.id, [Measurement("key", {"BLOCK": 64}, "gpu", "ok", 1.0)])
    return store


def damage(store: Store, table: str, column: str, condition: str) -> None:
    store.database.execute(f"UPDATE {table} SET {column} = ? WHERE {condition}", BROKEN)


@contextmanager
def reading_no_broken_row() -> Iterator[None]:
    """Let the warning about a row that cannot be read be an error, inside a with statement."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def steps_of(store: Store, ask: Callable[[Store], object]) -> int:
    """Return the number of steps of SQLite's virtual machine that a question takes."""
    steps: list[int] = []
    store.database._connection.set_progress_handler(lambda: steps.append(1), 1)
    ask(store)
    store.database._connection.set_progress_handler(None, 1)
    return len(steps)


QUESTIONS: dict[str, Callable[[Store], object]] = {
    "a version by its number": lambda store: store.find("k", 3),
    "a version by its id": lambda store: store.by_id(3),
    "its launches": lambda store: store.history.launches(3),
    "its results": lambda store: store.history.results(3),
    "its best measurement": lambda store: store.history.best(3),
    "its tags, notes and error": lambda store: (store.tags([3]), store.notes(3), store.failures([3])),
    "its listing": lambda store: listing(store, 0.0, only=(3,)),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_is_asked_of_one_version_takes_as_many_steps_however_many_there_are(question: str) -> None:
    few, many = (steps_of(store_of(versions), QUESTIONS[question]) for versions in (10, 100))
    assert 0 < many < 1.2 * few


def test_a_listing_reads_the_source_of_no_version() -> None:
    store = store_of(3)
    damage(store, "versions", "closure", "1")
    with reading_no_broken_row():
        assert [row.label for row in search(store).rows] == ["k@3", "k@2", "k@1"]


def test_a_listing_decodes_launches_of_shown_versions_alone() -> None:
    store = store_of(30)
    damage(store, "launches", "launch", "version_id <= 10")
    with reading_no_broken_row():
        shown = search(store)
    assert [row.label for row in shown.rows] == [f"k@{number}" for number in range(30, 10, -1)]
    assert shown.more == 10


def test_a_listing_decodes_no_argument_but_constexprs() -> None:
    store = store_of(1)
    store.database.execute("UPDATE launches SET launch = json_set(launch, '$.arguments[0].shape', 'none')")
    with reading_no_broken_row():
        (row,) = search(store).rows
    assert row.last_config == "BLOCK=64"


def test_a_listing_shows_large_constexprs_as_they_are() -> None:
    store = Store(None)
    added = store.add(ADD, "a", "k")
    large = Argument("SEED", "scalar", constexpr=True, value=2**60 + 1)
    store.history.add_launch(added.id, replace(hostile.LAUNCH, arguments=(*hostile.LAUNCH.arguments, large), config=""))
    (row,) = search(store).rows
    assert row.last_config == f"BLOCK=64, SEED={2**60 + 1}, num_warps=2"


@pytest.mark.parametrize("member", ["config", "where", "options.num_warps"])
def test_a_listing_leaves_a_damaged_launch_out_with_a_warning(member: str) -> None:
    store = store_of(1)
    store.database.execute(f"UPDATE launches SET launch = json_set(launch, '$.{member}', 0.5)")
    with pytest.warns(UserWarning, match="Row 1 of launches .* cannot be read"):
        (row,) = search(store).rows
    assert (row.label, row.last_config) == ("k@1", "")


def test_a_listing_shows_launches_of_earlier_releases_which_wrote_neither_config_nor_device() -> None:
    store = store_of(1)
    store.database.execute("UPDATE launches SET launch = json_remove(launch, '$.config', '$.device')")
    with reading_no_broken_row():
        (row,) = search(store).rows
    assert row.last_config == "BLOCK=64, num_warps=2"


def test_a_listing_asks_for_the_measurements_of_measured_versions_alone() -> None:
    store = store_of(2)
    never_measured = store.add(ADD, "never", "k")
    assert store.history.measured() == {1, 2}
    assert store.history.measured([2, never_measured.id]) == {2}


def test_a_listing_decodes_the_last_launch_of_a_version_and_counts_all() -> None:
    store = Store(None)
    added = store.add(ADD, "a", "k")
    for grid in range(1, 6):
        store.history.add_launch(added.id, replace(hostile.LAUNCH, grid=(grid, 1, 1)), count=grid)
    store.database.execute("UPDATE launches SET launch = json_set(launch, '$.signature', 0) WHERE id < ?", 5)
    with reading_no_broken_row():
        (row,) = search(store).rows
    assert (row.launches, str(row.status)) == (15, "launched")


def test_a_listing_reads_of_many_launches_those_that_it_shows_alone() -> None:
    store = Store(None)
    added = store.add(ADD, "a", "k")
    timed = replace(hostile.LAUNCH, where="gpu", config="fast", device="H200")
    store.history.add_launch(added.id, timed, seconds=1e-3)
    store.history.add_launch(added.id, replace(timed, grid=(6, 1, 1)), seconds=1e-2)
    for grid in range(1, 30):
        store.history.add_launch(added.id, replace(hostile.LAUNCH, grid=(grid, 1, 1)))
    store.history.add_launch(added.id, replace(hostile.LAUNCH, by="run"), count=3)
    damage(store, "launches", "launch", "id BETWEEN 2 AND 30")
    with reading_no_broken_row():
        (row,) = search(store).rows
    assert (row.launches, row.runs, row.best_ms, row.config, row.last_config) == (31, 3, 1.0, "fast", "BLOCK=64")


def test_the_newest_version_of_a_name_is_found_without_a_look_at_the_others() -> None:
    store = store_of(3)
    damage(store, "versions", "closure", "version < 3")
    with reading_no_broken_row():
        newest = store.find("k")
    assert newest is not None
    assert newest.label == "k@3"


def test_a_newest_version_that_cannot_be_read_gives_way_to_the_one_before() -> None:
    store = store_of(3)
    damage(store, "versions", "closure", "version = 3")
    with pytest.warns(UserWarning, match="Row 3 of versions"):
        newest = store.find("k")
    assert newest is not None
    assert newest.label == "k@2"


def test_the_best_measurement_is_the_only_one_that_is_decoded() -> None:
    store = Store(None)
    added = store.add(ADD, "a", "k")
    rows = [Measurement("key", {"BLOCK": 16 * i}, "gpu", "ok", float(i)) for i in range(1, 6)]
    store.history.add_measurements(added.id, rows)
    damage(store, "measurements", "details", "time_ms > 1")
    with reading_no_broken_row():
        best = store.history.best(added.id)
    assert best is not None
    assert best.config == {"BLOCK": 16}


def test_of_a_name_with_many_versions_the_newest_are_offered_until_one_is_asked_for() -> None:
    store = store_of(30)
    store.add(ADD, "other", "other")
    assert store.overview.numbers("k", most=3) == {"k": [28, 29, 30]}
    assert store.overview.numbers("k@2") == {"k": [2, *range(20, 30)]}
    assert store.overview.numbers(most=1) == {"k": [30], "other": [1]}
    assert store.overview.numbers("%") == {}


def test_names_are_offered_without_their_source() -> None:
    store = store_of(3)
    damage(store, "versions", "closure", "1")
    kernels = Registry(store)
    with reading_no_broken_row():
        assert "k@1, k@2, k@3" in repr(kernels)
        with pytest.raises(UnknownName, match="known are k"):
            kernels.version("absent")
