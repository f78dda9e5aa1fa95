"""What a store survives: processes killed while they write, files that are broken, disks that are full."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import kernellab
from kernellab.compile.cache import Compiler
from kernellab.compile.entries import GRAPH, SIZES, evict, mark_used
from kernellab.compile.types import compile_job
from kernellab.compile.worker import BuildRequest, compile_kernel
from kernellab.errors import StoreError
from kernellab.source import Closure, Function
from kernellab.store import FILE, SCHEMA, AccessSummary, KeptExplanation, PassedTrial, Snapshot, Store, Use
from kernellab.store.schema import MIGRATIONS
from kernellab.target import parse_target
from tests import samples
from tests.alone import run_with_lab
from tests.labs import shared_lab

ROOT = Path(__file__).parents[2]
EMPTY = Closure((Function("k", "jit", "def k():\n    pass\n", "cell:k", 1, False, ()),))


def writer(folder: Path, mark: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, str(ROOT / "tests" / "store" / "store_writer.py"), str(folder), mark, str(count)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def read_lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().strip() for _ in range(count)]


@pytest.mark.slow
def test_nothing_committed_is_lost_when_writers_are_killed(tmp_path: Path) -> None:
    chance = random.Random(0)
    committed: set[str] = set()
    for round_ in range(4):
        pair = [writer(tmp_path, f"{mark}{round_}-", 100_000) for mark in "ab"]
        for process in pair:
            committed.update(read_lines(process, chance.randrange(1, 120)))
        for process in pair:
            process.kill()
            rest, _ = process.communicate()
            committed.update(rest.splitlines(keepends=False)[:-1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = Store(tmp_path)
    kept = {row.measurement.key for row in store.history.measurements()}
    assert len(committed) > 8
    assert committed <= kept
    assert store.database.rows("PRAGMA integrity_check") == [("ok",)]


@pytest.mark.slow
def test_two_processes_that_open_a_new_store_at_once_share_it(tmp_path: Path) -> None:
    pair = [writer(tmp_path / "new", mark, 50) for mark in "ab"]
    for process in pair:
        process.communicate()
    assert [process.returncode for process in pair] == [0, 0]
    store = Store(tmp_path / "new")
    assert len(store.history.measurements()) == 100
    assert [version.label for version in store.versions()] == ["a@1", "b@1"]


def test_a_store_of_the_first_schema_is_brought_to_this_one(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE) as old:
        old.execute(
            "CREATE TABLE versions (id INTEGER PRIMARY KEY, name TEXT NOT NULL, version INTEGER NOT NULL, "
            "digest TEXT NOT NULL, closure TEXT NOT NULL, created REAL NOT NULL, "
            "UNIQUE (name, version), UNIQUE (name, digest))"
        )
        old.execute("PRAGMA user_version=1")
        function = '["Function","k","jit","def k(): pass","f",1,false,["tuple"]]'
        closure = f'{{"schema":1,"closure":["Closure",["tuple",{function}],"",["tuple"]]}}'
        old.execute("INSERT INTO versions VALUES (7, 'k', 3, 'd', ?, 1.5)", (closure,))
    old.close()
    store = Store(tmp_path)
    (version,) = store.versions()
    assert (version.id, version.label, version.closure.name, version.created) == (7, "k@3", "k", 1.5)
    assert store.add(EMPTY, "new", "k").label == "k@4"
    assert store.database.rows("PRAGMA user_version") == [(SCHEMA,)]


def test_a_store_of_the_second_schema_keeps_its_measurements(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE, isolation_level=None) as old:
        for statement in (statement for migration in MIGRATIONS[:2] for statement in migration):
            old.execute(statement)
        old.execute("PRAGMA user_version=2")
        old.execute("INSERT INTO versions VALUES (1, 'k', 1, 'd', '{}', '', 1.5)")
        old.execute("INSERT INTO measurements VALUES (1, 1, 'key', '{\"BLOCK\":64}', 'H200', 'ok', 0.5, '{}', 1.5)")
    old.close()
    store = Store(tmp_path)
    (row,) = store.history.measurements(key="key")
    assert (row.version_id, row.measurement.config, row.measurement.time_ms) == (1, {"BLOCK": 64}, 0.5)
    assert store.database.rows("PRAGMA user_version") == [(SCHEMA,)]


def test_a_store_of_the_third_schema_keeps_its_trial_launches(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE, isolation_level=None) as old:
        for statement in (statement for migration in MIGRATIONS[:3] for statement in migration):
            old.execute(statement)
        old.execute("PRAGMA user_version=3")
        old.execute("INSERT INTO flights VALUES (1, 'abc', 'H200', '580.1', 'def', 1.5)")
    old.close()
    store = Store(tmp_path)
    assert PassedTrial("abc", "H200", "580.1", "def") in store.trials
    assert store.database.rows("SELECT name FROM sqlite_master WHERE name = 'flights'") == []
    assert store.database.rows("PRAGMA user_version") == [(SCHEMA,)]


def test_a_store_of_the_fourth_schema_keeps_its_trial_launches(tmp_path: Path) -> None:
    trial = PassedTrial("abc", "H200", "580.1", "def")
    with sqlite3.connect(tmp_path / FILE, isolation_level=None) as old:
        for statement in (statement for migration in MIGRATIONS[:4] for statement in migration):
            old.execute(statement)
        old.execute("PRAGMA user_version=4")
        old.execute("INSERT INTO trials VALUES (1, 'abc', 'H200', '580.1', 'def', 1.5)")
    old.close()
    store = Store(tmp_path)
    assert trial in store.trials


@pytest.mark.parametrize("number", [5, 0])
def test_a_store_of_the_fifth_schema_keeps_its_trial_launches_without_ranges(tmp_path: Path, number: int) -> None:
    with sqlite3.connect(tmp_path / FILE, isolation_level=None) as old:
        for statement in (statement for migration in MIGRATIONS[:5] for statement in migration):
            old.execute(statement)
        old.execute(f"PRAGMA user_version={number}")
        old.execute("INSERT INTO trials VALUES (1, 'abc', 'H200', '580.1', 'def', 1.5)")
        old.execute("INSERT INTO bounded_trials VALUES (1, 'abc', 'H200', '580.1', 'ghi', '{\"x\":[0,1]}', 1.5)")
    old.close()
    store = Store(tmp_path)
    assert PassedTrial("abc", "H200", "580.1", "def") in store.trials
    assert PassedTrial("abc", "H200", "580.1", "ghi") not in store.trials
    assert store.database.rows("SELECT name FROM sqlite_master WHERE name = 'bounded_trials'") == []
    assert store.database.rows("PRAGMA user_version") == [(SCHEMA,)]


@pytest.mark.parametrize("number", [6, 0])
def test_a_store_of_the_sixth_schema_keeps_its_rows_and_takes_explanations(tmp_path: Path, number: int) -> None:
    with sqlite3.connect(tmp_path / FILE, isolation_level=None) as old:
        for statement in (statement for migration in MIGRATIONS[:6] for statement in migration):
            old.execute(statement)
        old.execute(f"PRAGMA user_version={number}")
        old.execute("INSERT INTO trials VALUES (1, 'abc', 'H200', '580.1', 'def', 1.5)")
        old.execute("INSERT INTO versions VALUES (1, 'k', 1, 'd', '{}', '', 1.5)")
    old.close()
    store = Store(tmp_path)
    assert PassedTrial("abc", "H200", "580.1", "def") in store.trials
    assert store.database.rows("SELECT name FROM versions") == [("k",)]
    explanation = KeptExplanation({"bound": "memory"}, "Limited by memory.", {"add.py": "abc"})
    store.explanations.add("digest", explanation)
    found = store.explanations.find("digest")
    assert found is not None
    assert found[0] == explanation
    assert store.explanations.find("other") is None


def test_an_explanation_that_is_none_is_skipped_with_a_warning(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.database.write(
        lambda cursor: cursor.execute("INSERT INTO explanations VALUES (1, 'digest', '{\"text\": 3}', 1.5)")
    )
    with pytest.warns(UserWarning, match="explanations"):
        assert store.explanations.find("digest") is None


def test_a_store_of_the_seventh_schema_can_keep_compile_errors(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE, isolation_level=None) as old:
        for statement in (statement for migration in MIGRATIONS[:7] for statement in migration):
            old.execute(statement)
        old.execute("PRAGMA user_version=7")
    old.close()
    store = Store(tmp_path)
    version = store.add(EMPTY, "digest", "k")
    store.set_failure(version.id, "first")
    store.set_failure(version.id, "second")
    assert store.failures()[version.id][0] == "second"
    store.remove(version.id)
    assert store.failures() == {}
    assert store.database.rows("PRAGMA user_version") == [(SCHEMA,)]


@pytest.mark.parametrize("number", [8, 0])
def test_a_store_of_the_eighth_schema_keeps_its_rows_and_takes_snapshots(tmp_path: Path, number: int) -> None:
    with sqlite3.connect(tmp_path / FILE, isolation_level=None) as old:
        for statement in (statement for migration in MIGRATIONS[:8] for statement in migration):
            old.execute(statement)
        old.execute(f"PRAGMA user_version={number}")
        old.execute("INSERT INTO versions VALUES (1, 'k', 1, 'd', '{}', '', 1.5)")
        old.execute("INSERT INTO failures VALUES (1, 'it does not compile', 1.5)")
    old.close()
    store = Store(tmp_path)
    assert store.failures()[1][0] == "it does not compile"
    access = AccessSummary(3, "load", "x_ptr", 16, False, 10.0, 40.0)
    first, second = Snapshot("3.6.0", registers=30, accesses=(access,)), Snapshot("3.9.0", registers=32)
    for snapshot in (first, second, first):
        store.snapshots.add(1, "launch", snapshot)
    assert store.snapshots.of_version(1) == {("launch", "3.6.0"): first, ("launch", "3.9.0"): second}
    assert store.snapshots.of_version(2) == {}
    assert store.database.rows("PRAGMA user_version") == [(SCHEMA,)]


@pytest.mark.parametrize("number", [9, 0])
@pytest.mark.parametrize("has_table", [True, False])
def test_a_store_of_the_ninth_schema_gets_the_kinds_of_its_launches(
    tmp_path: Path, number: int, has_table: bool
) -> None:
    launches = {
        "gpu": {"grid": [1, 1, 1], "where": "gpu"},
        "launch": {"by": "launch", "grid": [1, 1, 1], "where": "interpreter"},
        "run": {"by": "run", "grid": [1, 1, 1], "where": "gpu"},
        "compile": {"grid": None, "where": "nowhere"},
    }
    with sqlite3.connect(tmp_path / FILE, isolation_level=None) as old:
        for statement in (statement for migration in MIGRATIONS[:9] for statement in migration):
            old.execute(statement)
        old.execute(f"PRAGMA user_version={number}")
        old.execute("INSERT INTO versions VALUES (1, 'k', 1, 'd', '{}', '', 1.5)")
        for kind, launch in launches.items():
            old.execute("INSERT INTO launches VALUES (NULL, 1, ?, ?, NULL, 2, 1.5, 1.5)", (kind, json.dumps(launch)))
        old.execute("INSERT INTO launches VALUES (NULL, 1, 'torn', '{\"torn\": ', NULL, 2, 1.5, 1.5)")
        if not has_table:
            old.execute("DROP TABLE launches")
    old.close()
    store = Store(tmp_path)
    kinds = store.database.rows("SELECT digest, kind FROM launches ORDER BY id")
    assert kinds == ([*((kind, kind) for kind in launches), ("torn", "compile")] if has_table else [])
    assert store.overview.uses() == ({1: Use(1.5, 1.5, launches=4, runs=2, was_run=True)} if has_table else {})
    assert store.database.rows("PRAGMA user_version") == [(SCHEMA,)]


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE launches ADD COLUMN kind TEXT",
        "ALTER TABLE launches RENAME COLUMN launch TO other",
        "CREATE INDEX launches_by_time ON launches (id)",
        "DROP TABLE launches; CREATE VIEW launches AS SELECT 1 AS id",
    ],
)
def test_a_store_of_the_ninth_schema_with_other_tables_is_set_aside(tmp_path: Path, change: str) -> None:
    with sqlite3.connect(tmp_path / FILE, isolation_level=None) as old:
        for statement in (statement for migration in MIGRATIONS[:9] for statement in migration):
            old.execute(statement)
        old.executescript(f"PRAGMA user_version=9; {change}")
    old.close()
    with pytest.warns(UserWarning, match="none of the lab's"):
        store = Store(tmp_path)
    assert store.database.rows("PRAGMA user_version") == [(SCHEMA,)]


def test_launches_of_an_older_release_in_a_migrated_file_get_their_kind_at_the_next_opening(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path)
    version = store.add(EMPTY, "digest", "k")
    launch = json.dumps({"grid": [1, 1, 1], "where": "gpu"})
    insert = "INSERT INTO launches (version_id, digest, launch, count, created, last) VALUES (?, 'd', ?, 1, 1.5, 1.5)"
    store.database.execute(insert, version.id, launch)
    assert Store(tmp_path).database.rows("SELECT kind FROM launches") == [("gpu",)]


@pytest.mark.parametrize("text", ['{"triton": 3}', "[]", '{"triton": "3", "accesses": [{"line": 1}]}', "{"])
def test_a_snapshot_that_is_none_is_skipped_with_a_warning(tmp_path: Path, text: str) -> None:
    store = Store(tmp_path)
    version = store.add(EMPTY, "digest", "k")
    insert = "INSERT INTO snapshots VALUES (1, ?, 'launch', '3.6.0', ?, 1.5)"
    store.database.execute(insert, version.id, text)
    with pytest.warns(UserWarning, match="snapshots"):
        assert store.snapshots.of_version(version.id) == {}


def test_a_store_of_the_third_schema_without_trial_launches_gets_their_table(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE, isolation_level=None) as old:
        for statement in (statement for migration in MIGRATIONS[:3] for statement in migration):
            old.execute(statement)
        old.execute("DROP TABLE flights")
        old.execute("PRAGMA user_version=3")
        old.execute("INSERT INTO versions VALUES (1, 'k', 1, 'd', '{}', '', 1.5)")
    old.close()
    store = Store(tmp_path)
    assert store.database.rows("SELECT name FROM versions") == [("k",)]
    assert store.database.rows("SELECT count(*) FROM trials") == [(0,)]


def test_a_file_broken_in_the_middle_is_set_aside(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number in range(200):
        store.add(EMPTY, f"{number}", "k")
    store.close()
    content = bytearray((tmp_path / FILE).read_bytes())
    content[4096:-4096] = os.urandom(len(content) - 8192)
    (tmp_path / FILE).write_bytes(content)
    with pytest.warns(UserWarning, match="set aside"):
        fresh = Store(tmp_path)
    assert fresh.versions() == []
    assert fresh.add(EMPTY, "a", "k").label == "k@1"


def test_a_file_that_breaks_while_it_is_open_is_set_aside(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add(EMPTY, "a", "k")
    store.database.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    with (tmp_path / FILE).open("r+b") as file:
        file.write(b"\0" * (tmp_path / FILE).stat().st_size)
    with pytest.warns(UserWarning, match="set aside"):
        assert Store(tmp_path).add(EMPTY, "b", "k").label == "k@1"
    assert store.add(EMPTY, "c", "k").label == "k@2", "the store that was open goes on in the fresh file"


@pytest.mark.parametrize("loses", ["deleted", "moved", "deleted file"])
def test_a_store_that_is_gone_from_its_place_is_written_there_again_with_a_warning(tmp_path: Path, loses: str) -> None:
    folder = tmp_path / "folder"
    store = Store(folder)
    store.add(EMPTY, "a", "k")
    if loses == "moved":
        folder.rename(tmp_path / "elsewhere")
    elif loses == "deleted":
        shutil.rmtree(folder)
    else:
        (folder / FILE).unlink()
    with pytest.warns(UserWarning, match="was deleted or moved while it was open.* written there again") as told:
        labels = [store.add(EMPTY, digest, "k").label for digest in "abc"]
    assert (len(told), labels) == (1, ["k@1", "k@2", "k@3"])
    assert [version.label for version in Store(folder).versions()] == labels


def test_sessions_that_share_a_store_which_is_deleted_go_on_in_one(tmp_path: Path) -> None:
    stores = [Store(tmp_path / "folder") for _ in range(2)]
    stores[0].add(EMPTY, "a", "k")
    shutil.rmtree(tmp_path / "folder")
    with pytest.warns(UserWarning, match="written there again") as told:
        labels = [store.add(EMPTY, digest, "k").label for digest in "bc" for store in stores]
    assert (len(told), labels) == (1, ["k@2", "k@2", "k@3", "k@3"])


def test_a_store_in_whose_place_another_one_is_put_is_kept_beside_it(tmp_path: Path) -> None:
    store, other = Store(tmp_path / "folder"), Store(tmp_path / "other")
    store.add(EMPTY, "a", "k")
    other.add(EMPTY, "b", "k")
    other.close()
    shutil.rmtree(tmp_path / "folder")
    shutil.copytree(tmp_path / "other", tmp_path / "folder")
    with pytest.warns(UserWarning, match="replaced by another one.* lacks 1 versions.*kept as"):
        assert store.find("k", 1).digest == "b"  # type: ignore[union-attr]
    (aside,) = (tmp_path / "folder").glob("*.aside")
    assert Store.copy_of(aside).find("k", 1).digest == "a"  # type: ignore[union-attr]


def test_a_store_in_whose_place_a_file_is_put_goes_on_in_memory(tmp_path: Path) -> None:
    store = Store(tmp_path / "folder")
    store.add(EMPTY, "a", "k")
    shutil.rmtree(tmp_path / "folder")
    (tmp_path / "folder").touch()
    with pytest.warns(UserWarning, match="cannot be written.*kept in memory"):
        assert store.add(EMPTY, "b", "k").label == "k@2"
    assert store.path is None


@pytest.mark.parametrize("pragma", ["max_page_count=1", "query_only=ON"], ids=["full", "read-only"])
def test_a_full_or_read_only_disk_degrades_to_memory_with_one_warning(tmp_path: Path, pragma: str) -> None:
    store = Store(tmp_path)
    store.add(EMPTY, "a", "k")
    store.database.rows(f"PRAGMA {pragma}")
    big = Closure((Function("k", "jit", "#" * 100_000, "cell:k", 1, False, ()),))
    with pytest.warns(UserWarning, match="cannot be written") as told:
        labels = [store.add(big, digest, "k").label for digest in "bcd"]
    assert len(told) == 1
    assert labels == ["k@2", "k@3", "k@4"]
    assert store.path is None
    assert [version.label for version in Store(tmp_path).versions()] == ["k@1"]


@pytest.mark.slow
def test_a_disk_that_fills_up_while_a_process_writes_does_not_end_it(tmp_path: Path) -> None:
    text = (
        "import resource, sys, warnings\nfrom pathlib import Path\nfrom tests.store.test_failures import EMPTY\n"
        "from kernellab.store import Store\nstore = Store(Path(sys.argv[1]))\nstore.add(EMPTY, 'a', 'k')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
        "for number in range(400):\n    store.add(EMPTY, str(number), 'k')\nprint(len(store.versions()))\n"
    )
    result = run_with_lab(text, str(tmp_path), folder=ROOT)
    assert (result.returncode, result.stdout) == (0, "401\n"), result.stderr
    assert result.stderr.count("UserWarning") == 1
    assert 1 <= len(Store(tmp_path).versions()) < 401


def test_a_lab_that_finds_no_disk_for_a_temporary_folder_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file/one"))
    monkeypatch.setattr("kernellab.workers.scratch._IN_MEMORY", tmp_path / "file/two")
    with pytest.raises(StoreError, match=r"^A temporary folder cannot be made: .* Correct that, then try again\.$"):
        kernellab.Lab(store=":memory:")


def test_what_the_system_refuses_to_a_new_lab_is_an_error_of_the_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/full")

    monkeypatch.setattr("kernellab.lab.workspace.Pool", refuse)
    with pytest.raises(StoreError) as caught:
        kernellab.Lab(store=":memory:")
    sentence = "The lab cannot be opened: No space left on device (/full). Free space on that disk, then try again."
    assert str(caught.value) == sentence


def test_eviction_deletes_the_oldest_until_the_rest_fits(tmp_path: Path) -> None:
    for age, name in enumerate(["aa/one", "bb/two", "cc/three"]):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "k.cubin").write_bytes(b"x" * 1000)
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    assert evict(tmp_path, 2500, clock=lambda: 10_000.0) == 1000
    assert not (tmp_path / "cc/three").exists()
    mark_used(tmp_path / "bb/two")
    assert evict(tmp_path, 1500, clock=lambda: 10_000.0) == 1000
    assert (tmp_path / "bb/two").exists()
    assert evict(tmp_path, 0, clock=lambda: (tmp_path / "bb/two").stat().st_mtime + 1) == 0, "it was just used"


def test_eviction_asks_for_the_sizes_of_changed_kernels_alone(tmp_path: Path) -> None:
    for name in ("aa/one", "bb/two"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "k.cubin").write_bytes(b"x" * 1000)
        os.utime(tmp_path / name, (1000, 1000))
    assert evict(tmp_path, 2000, clock=lambda: 10_000.0) == 0
    for name in ("aa/one", "bb/two"):
        (tmp_path / name / "k.cubin").write_bytes(b"x" * 5000)
    assert evict(tmp_path, 2000, clock=lambda: 10_000.0) == 0, "no folder has changed"
    os.utime(tmp_path / "bb/two", (2000, 2000))
    assert evict(tmp_path, 6000, clock=lambda: 10_000.0) == 0
    assert evict(tmp_path, 5000, clock=lambda: 10_000.0) == 1000
    assert not (tmp_path / "aa/one").exists()


@pytest.mark.parametrize("content", ["{", "[]", '{"a": 1}', '{"a": [1, -5]}', '{"a": ["b", 1]}', '{"a": [1e400, 1]}'])
def test_eviction_measures_again_where_the_kept_sizes_are_damaged(tmp_path: Path, content: str) -> None:
    (tmp_path / "aa/one").mkdir(parents=True)
    (tmp_path / "aa/one/k.cubin").write_bytes(b"x" * 1000)
    os.utime(tmp_path / "aa/one", (1000, 1000))
    (tmp_path / SIZES).write_text(content)
    assert evict(tmp_path, 500, clock=lambda: 10_000.0) == 1000


def test_a_kept_size_that_no_compiled_kernel_has_evicts_nothing(tmp_path: Path) -> None:
    for name, age in (("aa/one", 1), ("bb/two", 0)):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "k.cubin").write_bytes(b"x" * 1000)
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    path = str(tmp_path / "bb/two")
    (tmp_path / SIZES).write_text(json.dumps({path: [1000 * 10**9, 10**15]}))
    assert evict(tmp_path, 2500, clock=lambda: 10_000.0) == 0
    assert json.loads((tmp_path / SIZES).read_text())[path] == [1000 * 10**9, 1000]


@pytest.mark.slow
def test_a_lab_deletes_old_compiled_kernels_and_keeps_the_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELLAB_CACHE_MB", "0.001")
    x = torch.zeros(16)
    with shared_lab("cuda:80", tmp_path) as lab:
        lab.kernels.add(samples.doubled)
        lab.compile(samples.endless_kernel, x)
        (folder,) = (tmp_path / "artifacts").glob("??/*")
        os.utime(folder, (1, 1))
        lab.tidy()
        assert not folder.exists()
        assert lab.compile(samples.endless_kernel, x).ptx
        assert lab.kernels.version("doubled").label == "doubled@1"


@pytest.mark.slow
def test_where_the_store_cannot_be_written_kernels_compile_and_run_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    x = torch.ones(64)
    with pytest.warns(UserWarning, match="cannot be written"):
        lab = shared_lab("cuda:90", tmp_path / "file" / "store")
    with lab:
        place = lab.compiler.folder
        lab.bind(samples.add_kernel)[(1,)](x, x, x, 64, BLOCK=64)
        assert any(place.iterdir())
    assert x.tolist() == [2.0] * 64
    assert not place.exists()


def test_launches_before_and_after_a_store_is_deleted_are_kept(tmp_path: Path) -> None:
    x = torch.ones(64)
    with shared_lab("cuda:90", tmp_path / "store") as lab:
        lab.kernels.add(samples.add_kernel)
        lab.run(samples.add_kernel, (1,), x, x, x, 64, BLOCK=64)
        compiled = lab.compile(samples.add_kernel, x, x, x, 64, BLOCK=64)
        shutil.rmtree(tmp_path / "store")
        with pytest.warns(UserWarning, match="deleted or moved while it was open") as told:
            lab.run(samples.add_kernel, (1,), x, x, x, 64, BLOCK=64)
        lab.run(samples.add_kernel, (1,), x, x, x, 64, BLOCK=64)
        assert len(told) == 1
        assert [version.label for version in lab.kernels] == ["add_kernel@1"]
        assert sum(lab.frame("launches")["count"]) == 3
        shutil.rmtree(compiled.folder, ignore_errors=True)
        with pytest.raises(StoreError, match=r"The files of add_kernel .* are gone from .*; compile it again\."):
            _ = compiled.ptx
        assert lab.compile(samples.add_kernel, x, x, x, 64, BLOCK=64).ptx


def test_a_closed_store_says_that_the_lab_is_closed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.close()
    with pytest.raises(StoreError, match="The lab is closed, and its store with it; open another lab"):
        store.versions()


def test_a_name_that_no_disk_takes_is_told_in_a_short_sentence() -> None:
    with pytest.warns(UserWarning, match="cannot be written .File name too long.*kept in memory") as told:
        shared_lab("cuda:90", "x" * 5000).close()
    assert len(str(told[0].message)) < 600


@pytest.mark.parametrize(
    ("made", "store", "remedy"),
    [
        ("file", "file", "A store is a folder, and this is none: name another one"),
        ("file", "file/store", "A store is a folder, and this is none: name another one"),
        (f"store/{FILE}", f"store/{FILE}", "A store is a folder: name '.*store' "),
        (f"store/{FILE}/in_it", "store", f"{FILE} is a folder there: move it away"),
    ],
)
def test_a_place_that_can_be_no_store_is_told_with_what_to_do_at_the_line_of_the_user(
    tmp_path: Path, made: str, store: str, remedy: str
) -> None:
    (tmp_path / made).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / made).touch()
    with pytest.warns(UserWarning, match=f"cannot be written .*{remedy}.*KERNELLAB_STORE") as told:
        kernellab.Lab(target="cuda:90", store=tmp_path / store).close()
    assert [warning.filename for warning in told] == [__file__]
    assert (tmp_path / made).is_file()


def test_a_compile_on_a_full_disk_names_the_folder_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch" / GRAPH).symlink_to("/dev/full")
    job = compile_job(samples.endless_kernel, parse_target("cuda:90"), (torch.zeros(16),), {})
    with pytest.raises(StoreError) as caught:
        compile_kernel(BuildRequest(job, tmp_path / "scratch"), lambda progress: None)
    assert f"cannot be written to {tmp_path}: No space left on device. Free space there" in caught.value.message
    assert "KERNELLAB_STORE" in caught.value.message


@pytest.mark.slow
def test_a_folder_that_takes_no_compiled_kernel_is_named_and_the_session_keeps_what_it_has(tmp_path: Path) -> None:
    x = torch.zeros(16)
    (tmp_path / "file").touch()
    with shared_lab("cuda:90", tmp_path / "store") as lab:
        compiled = lab.compile(samples.endless_kernel, x)
        full = Compiler(lab.compiler.pool, tmp_path / "file", lab.compiler.timeout_s)
        job = compile_job(samples.endless_kernel, lab.target, (x,), {})
        with pytest.raises(StoreError, match=f"cannot be written to {tmp_path / 'file'}: .* Or restart") as caught:
            full.compile(job)
        assert caught.value.place is None
        (kept,) = (result for _, result in full.stream([job]))
        assert isinstance(kept, StoreError)
        assert lab.compile(samples.endless_kernel, x).folder == compiled.folder


@pytest.mark.slow
def test_a_full_disk_of_temporary_files_is_no_error_of_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = find_spec("triton.backends.nvidia")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0]) / "bin"
    for name in ("ptxas", "ptxas-blackwell"):
        script = tmp_path / name
        script.write_text(
            f'#!/bin/sh\ncase "$*" in *--version*) exec {folder}/{name} "$@";; esac\n'
            'echo "ptxas fatal   : Write failed: No space left on device" >&2\nexit 255\n'
        )
        script.chmod(0o755)
        monkeypatch.setenv(f"TRITON_{name.upper().replace('-', '_')}_PATH", str(script))
    told = pytest.raises(StoreError, match=r"temporary files to .*: No space left on device.*TMPDIR")
    with kernellab.Lab(target="cuda:90", store=tmp_path / "store") as lab, told:
        lab.compile(samples.endless_kernel, torch.zeros(16))


def test_a_store_that_another_process_keeps_locked_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store(tmp_path).close()
    monkeypatch.setattr("kernellab.store.database._LOCK_S", 0.05)
    with (tmp_path / FILE).with_suffix(".lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.warns(UserWarning, match=r"another process has kept .* locked for 0\.05 s.*kept in memory"):
            store = Store(tmp_path)
    assert store.path is None
    store.close()
