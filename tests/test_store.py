from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from kernellab.source import Closure, closure_of
from kernellab.store import FILE, SCHEMA, Store
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
