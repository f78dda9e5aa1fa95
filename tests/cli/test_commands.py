"""Each command, as text and as JSON; the fields are those of the schema."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from docs.pages.json_schema import ANSWERS, EFFECTS, HEAD, ROWS
from kernellab import Harvest, cli
from kernellab.export import EXPORT_KINDS
from kernellab.store import Store
from tests.cli.conftest import ADD, Call
from tests.judge.files import ADDER, ADDITION
from tests.registry.kept import entered, key, measured
from tests.upgrade.stores import OTHER, as_of_another_triton

CALLS = {
    "compile": ("compile", "add.py::add_kernel"),
    "effects": ("effects", "add.py"),
    "run": ("run", "add.py"),
    "traffic": ("traffic", "add.py", "--size", "n=1024"),
    "explain": ("explain", "add.py", "--size", "n=2**20"),
    "predict": ("predict", "add.py", "--size", "n=2**20", "--device", "h200"),
    "tune": ("tune", "add.py", "--space", "BLOCK=128,256", "--space", "num_warps=2,4", "--where", "BLOCK > 128"),
    "bench": ("bench", "add.py", "--over", "n=500,1000", "--versus", "reference"),
    "judge": ("judge", "spec.py", "candidate.py", "--no-time", "--sizes", "n=64"),
    "ls": ("ls",),
    "merge": ("merge", "theirs"),
    "regressions": ("regressions", "add_kernel", "--since", "2020-01-01"),
    "upgrade": ("upgrade", "store"),
    "harvest": ("harvest", "program.py"),
    "export": ("export", "add.py", "--as", "bundle", "-o", "add.zip"),
}


PROGRAM = f"""\
import sys

{ADD}

for n in (1000, 1000, 500):
    grid, args, meta = arguments(n)
    add_kernel[grid](*args, **meta)
sys.exit(len(sys.argv) - 1)
"""

# Columns of rows that are named by the call: what is swept, and the parameters of configs.
CHOSEN = {"tune": ("BLOCK",), "bench": ("n", "BLOCK")}


@pytest.mark.slow
@pytest.mark.parametrize("command", ANSWERS)
def test_json_has_the_fields_of_the_schema_and_nothing_else_is_printed(kernellab: Call, command: str) -> None:
    if command == "ls":
        kernellab("run", "add.py")
    if command == "judge":
        Path("spec.py").write_text(ADDITION)
        Path("candidate.py").write_text(ADDER)
    if command == "regressions":
        keep_times(1.0)
    if command == "merge":
        keep_times(1.0, folder="theirs")
    if command == "upgrade":
        kernellab("run", "add.py")
        with closing(Store(Path("store"))) as store:
            as_of_another_triton(store)
    if command == "harvest":
        Path("program.py").write_text(PROGRAM)
    name, *words = CALLS[command]
    called = kernellab(name, "--json", *words)
    assert called.status == 0
    assert list(called.json) == [field.name for field in (*HEAD, *ANSWERS[command])]
    if command in ROWS:
        row = next(row for row in called.json["rows"])
        assert [name for name in row if name not in CHOSEN.get(command, ())] == [field.name for field in ROWS[command]]
    assert called.json["schema"] == 1
    assert called.json["command"] == command
    assert ("imported" in called.err) is (command not in {"judge", "ls", "merge", "regressions", "upgrade"})


@pytest.mark.slow
def test_tune_proposes_configs_for_a_kernel_that_has_none_and_takes_a_kept_one(kernellab: Call) -> None:
    of_file = kernellab("tune", "add.py", "--budget", "1", "--limit", "2", "--json").json
    assert of_file["notes"][0].startswith("Proposed for an elementwise kernel: BLOCK ")
    of_name = kernellab("tune", "add_kernel", "--limit", "2", "--json").json
    assert of_name["kernel"] == "add_kernel"
    assert of_name["notes"][0].startswith("Proposed for an elementwise kernel: ")
    refused = kernellab("tune", "add_kernel", "--size", "n=5")
    assert refused.status != 0
    assert "is kept with its recorded launch" in refused.err


def keep_times(*times_ms: float, folder: str = "store") -> None:
    """Let a store have a launch that took as long under one Triton after the other."""
    store = Store(Path(folder))
    rows = [(measured(key(triton=f"3.{number}.0"), ms), number) for number, ms in enumerate(times_ms)]
    entered(store, *rows)
    store.close()


def test_compile_tells_resources_effects_and_stages_of_a_target(kernellab: Call) -> None:
    found = kernellab("compile", "add.py::add_kernel", "--target", "cuda:80", "--json").json
    assert found["target"] == "cuda:80"
    assert found["resources"]["registers"] > 0
    assert found["resources"]["fits"] is True
    assert found["effects"]["writes"] == ["out_ptr"]
    assert list(found["effects"]) == [field.name for field in EFFECTS]
    assert found["stages"] == ["ttir", "ttgir", "llir", "ptx", "sass"]
    assert found["seconds"] > 0


@pytest.mark.slow
def test_compile_prints_a_card_or_a_stage(kernellab: Call) -> None:
    assert kernellab("compile", "add.py").out.startswith("add_kernel  cuda:90  compiled ")
    assert "tt.func public @add_kernel" in kernellab("compile", "add.py", "--stage", "ttir").out
    assert ".visible .entry add_kernel" in kernellab("compile", "add.py", "--stage", "ptx", "--json").json["text"]


def test_effects_name_arguments_and_lines(kernellab: Call) -> None:
    assert kernellab("effects", "add.py").out.splitlines()[-1] == "out_ptr  written (line 12)"


@pytest.mark.slow
def test_run_compares_with_the_reference_of_the_file(kernellab: Call) -> None:
    called = kernellab("run", "add.py", "--json")
    assert called.json["equals"] == "reference"
    assert called.json["changed"] == {"x_ptr": 0, "y_ptr": 0, "out_ptr": 1000}
    assert called.json["where"] == "interpreter"
    assert kernellab("run", "add.py", "--no-check", "--json").json["equals"] is None
    assert "  out_ptr matches reference; max error 0" in kernellab("run", "add.py", "--size", "n=2**8").out


@pytest.mark.slow
def test_run_fails_where_an_output_differs(kernellab: Call) -> None:
    called = kernellab("run", "add.py", "--check", "x_ptr", "--json")
    assert called.status == 1
    assert called.error["type"] == "CheckFailed"
    assert "1,000 of 1,000 elements" in called.error["message"]


@pytest.mark.slow
def test_what_ran_is_kept_and_exported(kernellab: Call) -> None:
    kernellab("run", "add.py")
    assert [row["label"] for row in kernellab("ls", "--json").json["rows"]] == ["add_kernel@1"]
    assert "add_kernel@1 was written as out.py (module)" in kernellab("export", "add_kernel@1", "-o", "out.py").out
    assert "add_kernel[grid]" in Path("out.py").read_text()
    assert kernellab("export", "add_kernel", "--as", "report", "--json").json["notes"] == []
    assert "<h2>Compiled</h2>" in Path("add_kernel.html").read_text()


@pytest.mark.slow
def test_an_export_without_a_path_does_not_replace_the_file_of_its_kernel(kernellab: Call) -> None:
    kernellab("export", "add.py", "-o", "exported.py")
    for source in ("add.py", "exported.py"):
        text = Path(source).read_text()
        Path("add_kernel.py").write_text(text)
        called = kernellab("export", "add_kernel.py::add_kernel")
        assert called.status == cli.WRONG_CALL
        assert "The kernel is read from 'add_kernel.py', so its export does not replace that; name" in called.err
        assert "-o PATH of kernellab export" in called.err
        assert Path("add_kernel.py").read_text() == text
    Path("add_kernel.py").write_text(ADD)
    assert "'add_kernel.py' is not an export, so it is not replaced" in kernellab("export", "add_kernel").err
    assert Path("add_kernel.py").read_text() == ADD


@pytest.mark.slow
def test_an_export_of_what_is_kept_says_how_to_add_expected_outputs(kernellab: Call) -> None:
    kernellab("run", "add.py", "--no-check")
    (note,) = kernellab("export", "add_kernel", "--json").json["notes"]
    assert note.endswith("no expected outputs. `kernellab export FILE.py::add_kernel` launches it first")
    refused = kernellab("export", "add_kernel", "--as", "binaries")
    assert "`kernellab export FILE.py::add_kernel --as binaries` launches it first." in refused.err
    assert kernellab("export", "add.py::add_kernel", "-o", "out.py", "--json").json["notes"] == []


def test_a_store_in_memory_writes_no_folder(kernellab: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELLAB_STORE", ":memory:")
    before = set(Path().iterdir())
    assert kernellab("run", "add.py").status == 0
    assert kernellab("ls", "--json").json["rows"] == []
    assert {path.name for path in set(Path().iterdir()) - before} <= {"__pycache__"}


def test_the_help_of_export_says_what_each_kind_writes(kernellab: Call) -> None:
    text = " ".join(kernellab("export", "--help").out.split())
    for kind, meaning in EXPORT_KINDS.items():
        assert f"{kind}: {meaning.replace('``', '`')}" in text


@pytest.mark.slow
def test_sizes_and_meta_reach_the_launch(kernellab: Call) -> None:
    found = kernellab("run", "add.py", "--size", "n=600", "--meta", "BLOCK=64", "--json").json
    assert found["grid"] == [10, 1, 1]
    assert found["equals"] == "reference"


@pytest.mark.slow
def test_traffic_tells_the_sectors_of_each_access(kernellab: Call) -> None:
    found = kernellab(*CALLS["traffic"], "--json").json
    assert [(row["line"], row["argument"], row["bytes"]) for row in found["rows"]] == [
        (12, "x_ptr", 4096), (12, "y_ptr", 4096), (12, "out_ptr", 4096)
    ]  # fmt: skip
    assert found["unknown"] == []
    lines = kernellab(*CALLS["traffic"]).out.splitlines()
    assert lines[0] == "add_kernel  cuda:90  grid 4"
    assert lines[1].split()[:4] == ["line", "operation", "space", "argument"]


@pytest.mark.slow
def test_an_explanation_is_kept_until_its_file_changes(kernellab: Call) -> None:
    first = kernellab(*CALLS["explain"])
    again = kernellab(*CALLS["explain"])
    assert again.out.startswith(first.out.rstrip())
    assert "; --fresh explains it again." in again.out
    assert "imported" not in again.err
    assert kernellab(*CALLS["explain"], "--json").json["from_cache"] is True
    assert kernellab(*CALLS["explain"], "--fresh", "--json").json["from_cache"] is False
    assert kernellab("explain", "add.py", "--size", "n=2**19", "--json").json["from_cache"] is False
    Path("add.py").write_text(Path("add.py").read_text() + "# changed\n")
    assert kernellab(*CALLS["explain"], "--json").json["from_cache"] is False


@pytest.mark.slow
def test_a_kept_kernel_is_explained_by_its_name(kernellab: Call) -> None:
    kernellab("run", "add.py")
    first, again = (kernellab("explain", "add_kernel", "--json").json for _ in range(2))
    assert (first.pop("from_cache"), again.pop("from_cache")) == (False, True)
    assert first == again
    assert "kept with its recorded launch" in kernellab("explain", "add_kernel", "--size", "n=3").err
    assert "known are add_kernel" in kernellab("explain", "add_kernels").err


def test_regressions_tell_what_became_slower_and_exit_with_1(kernellab: Call) -> None:
    keep_times(1.0, 1.5)
    called = kernellab("regressions")
    assert called.status == 1
    assert called.out.splitlines()[0] == "Of each launch, its fastest configs before and after a change: 1 slower."
    assert "Triton 3.0.0 to 3.1.0" in called.out
    found = kernellab("regressions", "--json", "--margin", "0.6").json
    assert [(row["config"] == "fastest", row["became"]) for row in found["rows"]] == [(True, "same"), (False, "same")]
    assert kernellab("regressions", "--since", "1d").status == 0
    assert kernellab("regressions", "--since", "soon").status == 2
    assert kernellab("regressions", "absent").status == 2


@pytest.mark.slow
def test_upgrade_exits_with_1_where_a_winner_is_suspect_and_writes_the_table(kernellab: Call) -> None:
    kernellab("tune", "add.py", "--space", "BLOCK=256", "--limit", "1")
    with closing(Store(Path("store"))) as store:
        as_of_another_triton(store, predicted_ms=1e-4, loop_code={})
    called = kernellab("upgrade", "store", "--summary", "upgrade.md")
    assert called.status == 1
    assert called.out.splitlines()[0].endswith(": 1 suspect"), called.out
    assert "predicted time" in Path("upgrade.md").read_text()
    found = kernellab("upgrade", "store", "--from", OTHER, "--json")
    assert found.status == 1
    assert [(row["outcome"], row["is_winner"]) for row in found.json["rows"]] == [("suspect", True)]
    assert kernellab("upgrade", "elsewhere").status == 2  # a misspelt store is not one without suspects
    Store(Path("elsewhere")).close()
    assert kernellab("upgrade", "elsewhere").status == 0  # an empty store has nothing suspect
    assert kernellab("upgrade", "store", "--from", "1.0").status == 2
    assert kernellab("upgrade", "store", "--summary", "upgrade.pdf").status == 2
    assert kernellab("upgrade", "store", "--python", "nowhere").status == 2


def test_merge_enters_another_store_and_tells_what_disagrees(kernellab: Call) -> None:
    keep_times(1.0)
    keep_times(1.5, 1.0, folder="theirs")
    found = kernellab("merge", "theirs", "--json").json
    assert (found["new"], found["known"], [row["origin"] for row in found["rows"]]) == (2, 0, ["both", "there"])
    assert [each["kind"] for each in found["conflicts"]] == ["time"]
    assert "2 known before, no conflict" in kernellab("merge", "theirs").out
    assert kernellab("merge", "absent").status == 2


@pytest.mark.slow
def test_explain_tells_what_limits_a_launch(kernellab: Call) -> None:
    found = kernellab(*CALLS["explain"], "--json").json
    assert found["bound"]
    assert all({"cause", "line", "text", "evidence", "gain"} == set(each) for each in found["findings"])
    assert found["summary"] in kernellab(*CALLS["explain"]).out.splitlines()


@pytest.mark.slow
def test_tune_tells_the_winner_and_a_row_per_config(kernellab: Call) -> None:
    found = kernellab(*CALLS["tune"], "--json").json
    assert [row["BLOCK"] for row in found["rows"]] == [256, 256]
    assert found["best"]["BLOCK"] == 256
    assert {row["status"] for row in found["rows"]} == {"not_timed"}
    assert found["rows"][0]["time_ms"] is None


@pytest.mark.slow
def test_limit_is_the_most_configs_that_a_tuning_tries(kernellab: Call) -> None:
    words = ("tune", "add.py", "--space", "BLOCK=16,32,64", "--limit", "2", "--json")
    reasons = [row["reason"] for row in kernellab(*words).json["rows"]]
    assert [reason.startswith("not measured: limited to 2 configs") for reason in reasons].count(True) == 1


@pytest.mark.slow
def test_a_long_table_says_where_its_other_rows_are(kernellab: Call) -> None:
    words = ("tune", "add.py", "--size", "n=64", "--space", "BLOCK=16,32,64,128,256", "--space", "num_stages=2,3,4")
    assert "... and 3 more with --json" in kernellab(*words).out.splitlines()


@pytest.mark.slow
def test_a_sweep_over_sizes_asks_the_file_for_each(kernellab: Call) -> None:
    found = kernellab(*CALLS["bench"], "--over", "BLOCK=128,256", "--check", "--json").json
    own = [row for row in found["rows"] if row["implementation"] == "add_kernel"]
    assert [(row["n"], row["BLOCK"], row["bytes"]) for row in own] == [
        (500, 128, 6000), (500, 256, 6000), (1000, 128, 12000), (1000, 256, 12000)
    ]  # fmt: skip
    assert any("agree with those of reference" in note for note in found["notes"])


@pytest.mark.slow
def test_a_benchmark_whose_outputs_are_wrong_says_so(kernellab: Call) -> None:
    found = kernellab("bench", "add.py", "--versus", "wrong_sum", "--check", "--json")
    assert "wrong" in {row["status"] for row in found.json["rows"]}


@pytest.mark.slow
def test_what_the_lab_exported_is_a_kernel_file(kernellab: Call) -> None:
    kernellab("export", "add.py", "-o", "exported.py")
    called = kernellab("run", "exported.py::add_kernel", "--json")
    assert called.status == 0
    assert called.json["grid"] == [4, 1, 1]
    assert called.json["changed"]["out_ptr"] == 1000


@pytest.mark.slow
def test_harvest_runs_a_program_with_its_arguments_and_writes_what_it_launched(kernellab: Call) -> None:
    Path("program.py").write_text(PROGRAM)
    called = kernellab("harvest", "-o", "seen.json", "program.py", "--json", "-x")
    assert called.status == 2  # of the program, which got two arguments
    assert "3 launches: 1 kernel, 2 cases" in called.out
    counts = {case.sizes["n"]: case.launches for case in Harvest.load("seen.json").record.cases}
    assert counts == {1000: 2, 500: 1}
    assert kernellab("harvest", "-m", "program").status == 0
    assert kernellab("harvest", "elsewhere.py").status == 2
