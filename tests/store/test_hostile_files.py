"""What comes from elsewhere enters whole or not at all, executes nothing, and spoils nothing for what is there."""

from __future__ import annotations

import json
import math
import shutil
import sqlite3
import tracemalloc
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import triton.language as tl

import kernellab
from kernellab.errors import KernellabError, StoreError, UnknownName, UsageError
from kernellab.export.frames import read_frame, save_frame
from kernellab.export.merging import merge
from kernellab.export.write import EXPORT_KINDS, ExportContext, export, write_measurements
from kernellab.registry import Registry, regenerated_arguments, version_digest
from kernellab.registry.history_frames import TABLES, frame
from kernellab.registry.listing import listing
from kernellab.source import DTYPE_NAMES, Closure, Function, grid_of_formula, is_formula, is_name
from kernellab.store import FILE, SCHEMA, Argument, Entry, Store
from kernellab.store.decoding import TORCH_DTYPES
from kernellab.tune.result import Records
from kernellab.views.cards.kernels import report_page
from tests.store import hostile
from tests.tables import every

pytestmark = pytest.mark.slow

OTHER = Closure((Function("other", "jit", "def other():\n    pass\n", "cell:other", 1, False, ()),))


def never(*_: Any, **__: Any) -> Any:
    raise AssertionError("a kept kernel was executed")


def require_usable(store: Store, folder: Path) -> None:
    """Look at everything that a store holds, in all the ways that execute nothing."""
    kernels = Registry(store, never)
    listing(store, 0.0)
    for table in TABLES:
        frame(store, table)
    Records(store.history, 1, hostile.MEASUREMENT.key, "H200").latest_rows()
    for version in kernels:
        assert version.label in kernels
        for kind in EXPORT_KINDS:
            try:
                export(ExportContext(store, folder, report_page), version, folder / f"out.{kind}", kind)
            except KernellabError:
                continue  # not every launch can be written as a module
        write_measurements(kernels, version.id, folder / "out.jsonl")


def outcome(read: Callable[[bytes], None], content: bytes, store: Store, folder: Path) -> str:
    """Return what became of a file: it entered and all is well, was refused and changed nothing, or what went wrong."""
    before = hostile.contents(store)
    try:
        read(content)
    except (UsageError, StoreError) as exc:
        return "refused" if hostile.contents(store) == before else f"refused, and it changed the store: {exc}"
    except Exception as exc:  # noqa: BLE001 - whatever it is, it is the finding
        return f"{type(exc).__name__}: {exc}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            require_usable(store, folder)
    except Exception as exc:  # noqa: BLE001
        return f"entered, and then {type(exc).__name__}: {exc}"
    return "entered"


def outcomes(found: Iterable[tuple[str, bytes]], folder: Path) -> dict[str, str]:
    results, store = {}, Store(None)
    for label, content in found:
        results[label] = outcome(hostile.enter(store, folder), content, store, folder)
        if results[label] != "refused":  # which leaves the store as it was: empty
            store.close()
            store = Store(None)
    store.close()
    return results


def surprises(results: dict[str, str], *, may_enter: bool = False) -> dict[str, str]:
    fine = {"refused", "entered"} if may_enter else {"refused"}
    return {label: what for label, what in results.items() if what not in fine}


def test_the_bundle_that_the_others_are_made_of_enters(tmp_path: Path) -> None:
    results = outcomes([("sound", hostile.bundle_of(hostile.sound_content()))], tmp_path)
    assert results == {"sound": "entered"}


def test_broken_archives_are_refused(tmp_path: Path) -> None:
    results = outcomes(hostile.broken_files(tmp_path / "canary"), tmp_path)
    assert len(results) >= 60
    may_enter = {label for label in results if label.startswith("a broken byte")}  # in a date, or in the other file
    assert surprises({label: what for label, what in results.items() if label not in may_enter}) == {}
    assert surprises({label: results[label] for label in may_enter}, may_enter=True) == {}


def test_code_in_fields_is_refused_and_never_executed(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    found = ((label, hostile.bundle_of(content)) for label, content in hostile.with_code(canary))
    results = outcomes(found, tmp_path)
    assert len(results) >= 60
    assert surprises(results) == {}
    assert not canary.exists()


def test_a_wrong_value_anywhere_is_refused_or_does_no_harm(tmp_path: Path) -> None:
    found = ((label, hostile.bundle_of(content)) for label, content in hostile.with_wrong_values())
    results = outcomes(found, tmp_path)
    assert surprises(results, may_enter=True) == {}
    assert Counter(results.values())["refused"] > 800


def test_bundles_that_unpack_to_much_are_refused_before_they_are_unpacked(tmp_path: Path) -> None:
    store = Store(None)
    for label, content in hostile.bombs():
        (tmp_path / "x.zip").write_bytes(content)
        del content
        tracemalloc.start()
        try:
            with pytest.raises(UsageError):
                hostile.read_bundle(store, tmp_path / "x.zip")
            assert tracemalloc.get_traced_memory()[1] < 100 * 2**20, label
        finally:
            tracemalloc.stop()


def test_what_is_no_file_is_no_bundle(tmp_path: Path) -> None:
    store = Store(None)
    for path in (tmp_path, tmp_path / "absent.zip", Path("/dev/null"), tmp_path / "a\0b.zip"):
        with pytest.raises(UsageError, match="is not a bundle"):
            hostile.read_bundle(store, path)


def test_lines_of_an_import_are_refused_or_do_no_harm(tmp_path: Path) -> None:
    write_measurements(Registry(hostile.sound_store(None), never), None, tmp_path / "sound.jsonl")
    kernel, row = map(json.loads, (tmp_path / "sound.jsonl").read_text().splitlines())
    results = {}
    for which, sound in enumerate((kernel, row)):
        for number, path in enumerate(hostile.paths_of(sound)):
            for step in (0, 5, 11):
                wrong = hostile.WRONG[(number + step) % len(hostile.WRONG)]
                pair = [kernel, row]
                pair[which] = hostile.replaced(sound, path, wrong)
                (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, pair)))
                store = Store(None)
                read = lambda content, store=store: merge(Registry(store, never), tmp_path / "x.jsonl")  # noqa: E731
                results[f"{which} {path} {step}"] = outcome(read, b"", store, tmp_path)
                store.close()
    assert len(results) > 100
    assert surprises(results, may_enter=True) == {}


def test_a_file_that_breaks_in_its_last_line_enters_nothing(tmp_path: Path) -> None:
    write_measurements(Registry(hostile.sound_store(None), never), None, tmp_path / "x.jsonl")
    with (tmp_path / "x.jsonl").open("a") as file:
        file.write('{"schema": 1, "created": "now"}\n')
    store = Store(None)
    with pytest.raises(StoreError, match="Line 3"):
        merge(Registry(store, never), tmp_path / "x.jsonl")
    assert not any(hostile.contents(store))


@pytest.mark.parametrize("path", ["absent.jsonl", "folder", "zip"])
def test_what_is_no_file_of_measurements_is_an_error(tmp_path: Path, path: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "zip").write_bytes(hostile.bundle_of(hostile.sound_content()))
    with pytest.raises((UsageError, StoreError)):
        merge(Registry(Store(None), never), tmp_path / path)


def _sound_pair(folder: Path | None) -> Store:
    store = hostile.sound_store(folder)
    store.enter([Entry("other", OTHER, version_digest(OTHER), ("fine",), ("too",), ((hostile.LAUNCH, 0.5, 1),))])
    return store


def _looked_at(store: Store) -> None:
    kernels = Registry(store, never)
    listing(store, 0.0)
    for table in TABLES:
        frame(store, table)
    store.history.results()
    for version in kernels:
        store.notes(version.id)


def _changed(store: Store, statement: str, value: object) -> bool:
    """Change a row; tell whether the schema let it be."""
    try:
        store.database.write(lambda cursor: cursor.execute(statement, (value,)))
    except StoreError:
        return False
    return True


@pytest.mark.parametrize("steps", every(2, [[0, 3], [1, 2, 4, 5]]))
def test_a_broken_row_is_skipped_with_one_warning_and_costs_no_other(steps: list[int]) -> None:
    found: dict[str, str] = {}
    tried = 0
    sound = _sound_pair(None)
    for place, (table, column) in enumerate(hostile.columns(sound)):
        for step in steps:
            wrong = hostile.WRONG_CELLS[(place * 3 + step * 7) % len(hostile.WRONG_CELLS)]
            store = Store(None)
            sound.database._connection.backup(store.database._connection)
            store.database.rows("PRAGMA foreign_keys=OFF")
            if not _changed(store, f"UPDATE {table} SET {column} = ? WHERE rowid = 1", wrong):
                continue
            tried += 1
            label = f"{table}.{column} = {str(wrong)[:20]!r}"
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    _looked_at(store)
                    _looked_at(store)
                    known = "other@1" in Registry(store, never) and len(store.history.launches(2)) == 1
                    found |= {} if known else {label: "the other kernel is gone"}
                except Exception as exc:  # noqa: BLE001
                    found[label] = f"{type(exc).__name__}: {exc}"
            ours = [str(each.message) for each in caught if "kernel store" in str(each.message)]
            if len(ours) > 1 or any(f" of {table} " not in text for text in ours):
                found[label] = f"warnings: {ours}"
            store.close()
    assert tried > 25 * len(steps)
    assert found == {}


def test_a_broken_row_is_named(tmp_path: Path) -> None:
    store = _sound_pair(tmp_path)
    store.database.write(lambda cursor: cursor.execute("UPDATE launches SET count = 'many' WHERE id = 1"))
    with pytest.warns(UserWarning, match=r"Row 1 of launches .* cannot be read.* count is 'many'"):
        assert [row.version_id for row in store.history.launches()] == [2]


def test_code_in_a_row_is_not_taken_for_a_grid(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    store = hostile.sound_store(None)
    ((text,),) = store.database.rows("SELECT launch FROM launches")
    launch = {**json.loads(str(text)), "grid_text": f"lambda meta: ({hostile.code(canary)},)", "check": "x.__class__"}
    store.database.write(lambda cursor: cursor.execute("UPDATE launches SET launch = ?", (json.dumps(launch),)))
    require_usable(store, tmp_path)
    (row,) = store.history.launches()
    assert (row.launch.grid_text, row.launch.check, row.launch.grid) == ("", "", (5, 1, 1))
    assert not canary.exists()


def _file(folder: Path) -> sqlite3.Connection:
    _sound_pair(folder).close()
    return sqlite3.connect(folder / FILE, isolation_level=None)


@pytest.mark.parametrize("number", [0, -1, -(2**31)])
def test_a_store_without_its_schema_number_keeps_everything(tmp_path: Path, number: int) -> None:
    file = _file(tmp_path)
    file.execute(f"PRAGMA user_version={number}")
    file.close()
    store = Store(tmp_path)
    assert [version.label for version in store.versions()] == ["other@1", "scaled@1"]
    assert store.database.rows("PRAGMA user_version") == [(SCHEMA,)]
    require_usable(store, tmp_path)


@pytest.mark.parametrize("number", [SCHEMA + 1, 2**31 - 1])
def test_a_store_of_a_later_release_is_set_aside(tmp_path: Path, number: int) -> None:
    file = _file(tmp_path)
    file.execute(f"PRAGMA user_version={number}")
    file.close()
    with pytest.warns(UserWarning, match="set aside"):
        require_usable(Store(tmp_path), tmp_path)


@pytest.mark.parametrize(
    "table", [table for table in (*hostile.TABLES, "trials", "explanations", "snapshots") if table != "versions"]
)
def test_a_table_that_is_missing_is_made_again(tmp_path: Path, table: str) -> None:
    file = _file(tmp_path)
    file.execute("PRAGMA foreign_keys=OFF")
    file.execute(f"DROP TABLE {table}")
    file.close()
    store = Store(tmp_path)
    assert [version.label for version in store.versions()] == ["other@1", "scaled@1"]
    require_usable(store, tmp_path)
    store.history.add_launch(1, hostile.LAUNCH, result=hostile.RESULT)


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE measurements RENAME COLUMN time_ms TO time",
        "ALTER TABLE launches ADD COLUMN more GENERATED ALWAYS AS (count + 1)",
        "CREATE TABLE other (x)",
        "CREATE VIEW other AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n",
        "CREATE TRIGGER gone AFTER INSERT ON launches BEGIN DELETE FROM versions; END",
    ],
)
def test_a_store_with_other_tables_is_set_aside(tmp_path: Path, statement: str) -> None:
    file = _file(tmp_path)
    file.execute(statement)
    file.close()
    with pytest.warns(UserWarning, match="set aside"):
        store = Store(tmp_path)
    require_usable(store, tmp_path)
    assert list(tmp_path.glob("*.aside"))


_NOT_FROM_TEXT = {"torch-op", "binaries"}  # the kinds of export that need more than the text of a kernel


def test_names_that_an_earlier_release_let_in_lead_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(None)
    for number, name in enumerate(("../../x", "x@7", "a-b", "class", "1x")):
        store.add(OTHER, str(number), name)
    kernels = Registry(store, never)
    (tmp_path / "in" / "side").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "in" / "side")
    assert all(is_name(version.identifier) for version in kernels)
    assert kernels.version("x@7@1").name == "x@7"
    for version in list(kernels):
        for kind in EXPORT_KINDS:
            if kind not in _NOT_FROM_TEXT:
                path = export(ExportContext(store, tmp_path, report_page), version, None, kind).path
                assert path.resolve().parent == tmp_path / "in" / "side"
    require_usable(store, tmp_path)


@pytest.mark.parametrize("name", ["../../x", "x@7", "a b", "class", "1x", "ﬁle", "x" * 300, "x\n"])
def test_a_name_is_an_identifier(name: str) -> None:
    kernels = Registry(Store(None), never)
    with pytest.raises(UsageError, match="cannot name a kernel"):
        kernels.add(hostile.scaled, name)
    assert not list(kernels)


@pytest.mark.parametrize("key", ["absent", "x@", "@", "x@1@2", "x@²", "x@" + "9" * 40, 10**30, -1, None, 1.5, ("x",)])
def test_asking_for_an_unknown_kernel_tells_that_it_is_unknown(key: Any) -> None:
    kernels = Registry(hostile.sound_store(None), never)
    assert key not in kernels
    if isinstance(key, str | int):
        with pytest.raises(UnknownName):
            kernels.version(key)


def test_looking_at_a_store_executes_nothing(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    content = hostile.sound_content()
    text = content["closure"]["closure"][1][1][3]
    content["closure"]["closure"][1][1][3] = text.replace(
        "F: tl.constexpr", f"F: tl.constexpr = {hostile.code(canary)}"
    )
    (tmp_path / "x.zip").write_bytes(hostile.bundle_of(content))
    with kernellab.Lab(target="cuda:80", store=tmp_path / "store") as lab:
        hostile.read_bundle(lab.kernels.store, tmp_path / "x.zip")
        assert "scaled" in lab.kernels
        assert not lab.frame("kernels").empty
        with pytest.raises(UsageError, match="its text is not executed"):
            lab.export("scaled", tmp_path / "x.binaries", kind="binaries")
        for kind in (kind for kind in EXPORT_KINDS if kind not in _NOT_FROM_TEXT):
            written = lab.export("scaled", tmp_path / f"x.{kind}", kind=kind)
            assert (kind == "bundle" or written.notes) or lab.kernels.store.history.launches()[0].launch.check
        assert not canary.exists()
        lab.load("scaled", {})
        assert canary.exists(), "loading is what executes it"


def test_the_names_of_dtypes_are_those_of_torch_and_triton() -> None:
    known = {str(each).removeprefix("torch.") for each in vars(torch).values() if isinstance(each, torch.dtype)}
    assert {name for name in known if not name.startswith(("bits", "int", "uint"))} <= TORCH_DTYPES
    assert known >= TORCH_DTYPES
    kinds = ("SINT_TYPES", "UINT_TYPES", "FP_TYPES", "STANDARD_FP_TYPES", "OTHER_TYPES")
    assert {name for kind in kinds for name in getattr(tl.dtype, kind)} <= DTYPE_NAMES


@pytest.mark.parametrize(
    ("text", "grid"),
    [
        ("lambda meta: (triton.cdiv(n, meta['BLOCK']),)", (5,)),
        ("lambda meta: (-(-n // meta['BLOCK']), x.shape[0])", (5, 2)),
        ("lambda m: (min(n, 8) * triton.next_power_of_2(x.numel()) if n > 2 else 1,)", (64,)),
        ("lambda meta: (math.prod(x.shape) + len(x.size()), 2**3)", (8, 8)),
    ],
)
def test_a_grid_is_evaluated_over_the_arguments(text: str, grid: tuple[int, ...]) -> None:
    assert grid_of_formula(text, {"n": 300, "x": torch.zeros(2, 3), "BLOCK": 64}) == grid


@pytest.mark.parametrize(
    "text",
    [
        "lambda meta: (x.shape * 10**9,)",
        "lambda meta: ('x' * n**9,)",
        "lambda meta: (9**9**9**9,)",
        "lambda meta: (1 << n << n,)",
        "lambda meta: (meta['absent'],)",
        "lambda meta: (1 // 0,)",
    ],
)
def test_a_grid_without_a_value_is_an_error(text: str) -> None:
    with pytest.raises(UsageError, match="has no value"):
        grid_of_formula(text, {"n": 3000, "x": torch.zeros(2, 3)})


def test_a_persistent_grid_is_a_formula() -> None:
    properties = "torch.cuda.get_device_properties('cuda').multi_processor_count"
    assert is_formula(f"lambda meta: (min({properties}, triton.cdiv(m, meta['B']) * triton.cdiv(n, 64)),)", {"m", "n"})
    assert not is_formula("lambda meta: (round(5, -10**9),)", ())


@pytest.mark.parametrize(
    "argument",
    [
        Argument("x", "tensor", dtype="float32", shape=(2**50,), stride=(1,)),
        Argument("x", "tensor", dtype="float32", shape=(2, 2), stride=(2**55, 1)),
        Argument("x", "tensor", dtype="int64", shape=(8,), stride=(1,), low=-(2**63), high=2**63 - 1),
        Argument("x", "tensor", dtype="uint8", shape=(2,), stride=(1,), values=(1, 10**6)),
        Argument("x", "other", value="Thing"),
    ],
)
def test_arguments_that_cannot_be_made_again_are_named(argument: Argument) -> None:
    with pytest.raises(UsageError, match=r"recorded launch|cannot make"):
        regenerated_arguments([argument], "cpu", 0)


def test_malformed_tables_are_refused(tmp_path: Path) -> None:
    results = {}
    for label, content in hostile.tables():
        (tmp_path / label).write_bytes(content)
        for read in (read_frame, lambda path: merge(Registry(Store(None), never), path)):
            try:
                read(tmp_path / label)
            except (UsageError, StoreError):
                results.setdefault(label, "refused")
            except Exception as exc:  # noqa: BLE001
                results[label] = f"{type(exc).__name__}: {exc}"
            else:
                results[label] = "read" if content else "refused"  # a file without a line holds no measurements
    assert len(results) >= 45
    assert surprises(results) == {}


def test_a_table_that_unpacks_to_much_is_refused(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    arrow = pytest.importorskip("pyarrow")
    parquet.write_table(arrow.table({"x": arrow.nulls(60_000_000, arrow.int64())}), tmp_path / "x.parquet")
    assert (tmp_path / "x.parquet").stat().st_size < 2**20
    with pytest.raises(UsageError, match="number of its cells"):
        read_frame(tmp_path / "x.parquet")


@pytest.mark.parametrize(
    "found",
    [
        None,
        [1, 2],
        {"a": [1]},
        pd.Series([1]),
        pd.DataFrame([[1, 2]], columns=["a", "a"]),
        pd.DataFrame([[1, 2]], columns=["1", 1]),
        pd.DataFrame({"a": pd.Series(["\ud800"], dtype=object)}),
    ],
    ids=["None", "list", "dict", "series", "twice", "alike", "surrogate"],
)
@pytest.mark.parametrize("suffix", [".csv", ".json", ".parquet"])
def test_what_is_no_table_is_not_written(found: Any, suffix: str, tmp_path: Path) -> None:
    if suffix == ".json" and isinstance(found, pd.DataFrame) and "a" in found and found["a"].ndim == 1:
        pytest.skip("JSON escapes a surrogate")
    with pytest.raises(UsageError):
        save_frame(found, tmp_path / f"x{suffix}")


CELLS = ["=1+1", "+1", "-1", "@x", "\t=1", "'=1", "''@x", "'tis", "1-1", "", None, "=cmd|' /C calc'!A0"]


def test_no_cell_of_a_csv_begins_a_formula(tmp_path: Path) -> None:
    found = pd.DataFrame({"=a": CELLS, "n": -1.5, "b": pd.Series(CELLS, dtype="string")})
    found.attrs = {"note": "x,=1+1,@y,-2,+3", "@": [-1, 2.5e-7]}
    again = read_frame(save_frame(found, tmp_path / "x.csv"))
    assert again["=a"].tolist() == found["=a"].tolist()
    assert again["b"].tolist() == found["b"].tolist()
    assert (again["n"].tolist(), again.attrs) == (found["n"].tolist(), found.attrs)
    first, *lines = (tmp_path / "x.csv").read_text().splitlines()
    cells = [cell.strip('"') for cell in first.split(",")] + [cell for line in lines for cell in line.split(",")]
    begins = {cell for cell in cells if cell.lstrip('"').startswith(("=", "+", "-", "@", "\t"))}
    assert begins == {"-1.5"}


def test_escaping_can_be_switched_off(tmp_path: Path) -> None:
    found = pd.DataFrame({"a": CELLS[:4]})
    path = save_frame(found, tmp_path / "x.csv", escape=False)
    assert "\n=1+1\n" in path.read_text()
    assert read_frame(path)["a"].tolist() == CELLS[:4]


def test_a_folder_in_place_of_the_file_costs_no_session(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.warns(UserWarning, match="kept in memory"):
        store = Store(tmp_path)
    store.add(OTHER, "a", "k")
    shutil.rmtree(tmp_path)
    assert math.isfinite(store.versions()[0].created)
