"""What a version of a kernel is: its text, its helpers and the values that it captures, as they were at the launch."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

import kernellab
from kernellab.views.cards.benchmark import comparison_card
from kernellab.views.cards.listing import exported_card, listing_card
from kernellab.views.report import CellReport
from tests.alone import run_alone, run_with_lab
from tests.export.exporting import run_files
from tests.notebook.conftest import Notebook

pytestmark = pytest.mark.slow

SCALED = """
@triton.jit
def {name}(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets) * {value})
"""
LAUNCH = "{name}[(1,)](x, out, BLOCK=64)"
AFTER_RESTART = """\
import sys, torch, kernellab
with kernellab.Lab(store=sys.argv[1]) as lab:
    for label, factor in zip(sys.argv[2::2], sys.argv[3::2]):
        x, out = torch.arange(64.0), torch.zeros(64)
        lab.kernels[label][(1,)](x, out, BLOCK=64)
        assert torch.equal(out, float(factor) * x), (label, out)
"""


def current() -> kernellab.Lab:
    return kernellab.current_lab()


def label_of(notebook: Notebook, cell: str) -> str:
    """Run a cell; return the name and version on its card."""
    ran = notebook.triton(cell, "-o report -q")
    assert ran.error is None
    report = notebook.names["report"]
    assert isinstance(report, CellReport)
    return report.kernels[-1].label


def value_of(notebook: Notebook, line: str) -> Any:
    result = notebook.shell.run_cell(line)
    result.raise_error()
    return result.result


def factor_of(notebook: Notebook) -> float:
    return float(notebook.names["out"][1] / notebook.names["x"][1])


def check_after_restart(**factors: float) -> None:
    """Launch kept versions in a new process over the store, which must multiply by these factors."""
    path = current().kernels.store.path
    assert path is not None
    given = [each for label, factor in factors.items() for each in (label, str(factor))]
    ended = run_with_lab(AFTER_RESTART, str(path.parent), *given, folder=path.parent)
    assert ended.returncode == 0, ended.stderr


def check_export(label: str, factor: float, folder: Path) -> None:
    """Export a version; run the file in a process of its own, and its ``launch`` on other numbers."""
    current().export(label, folder / "exported.py")
    text = "import torch, exported\nout = exported.launch(torch.ones(64))\nassert out.eq(FACTOR).all(), out"
    for ended in (run_files(folder / "exported.py"), run_alone(text.replace("FACTOR", str(factor)), folder=folder)):
        assert ended.returncode == 0, ended.stderr


def test_another_value_of_a_captured_constexpr_is_another_version(notebook: Notebook, tmp_path: Path) -> None:
    define = SCALED.format(name="captured", value="SCALE") + LAUNCH.format(name="captured")
    assert label_of(notebook, "SCALE = tl.constexpr(2.0)\n" + define) == "captured@1"
    notebook.run("SCALE = tl.constexpr(5.0)")
    assert label_of(notebook, LAUNCH.format(name="captured")) == "captured@2"
    assert factor_of(notebook) == 5
    check_after_restart(**{"captured": 5.0, "captured@1": 2.0, "captured@2": 5.0})
    check_export("captured", 5.0, tmp_path)
    words = comparison_card(current().compare("captured@1", "captured@2")).text()
    assert "- SCALE = tl.constexpr(2.0)" in words
    assert "+ SCALE = tl.constexpr(5.0)" in words
    assert "DIFFERS" in words


def test_a_value_that_comes_back_is_the_version_that_it_was(notebook: Notebook) -> None:
    define = SCALED.format(name="returning", value="BACK") + LAUNCH.format(name="returning")
    labels = [label_of(notebook, "BACK = tl.constexpr(2)\n" + define)]
    for value in (3, 2, 2.0, True):
        notebook.run(f"BACK = tl.constexpr({value})")
        labels.append(label_of(notebook, LAUNCH.format(name="returning")))
        assert factor_of(notebook) == value
    assert labels == [f"returning@{number}" for number in (1, 2, 1, 3, 4)]
    assert [row.launches for row in sorted(kept("returning"), key=lambda row: row.id)] == [2, 1, 1, 1]


def kept(name: str) -> list[Any]:
    from kernellab.registry.listing import search

    return [row for row in search(current().kernels.store, name).rows if row.label.startswith(f"{name}@")]


def test_versions_of_one_cell_are_those_of_its_launches(notebook: Notebook) -> None:
    launch = LAUNCH.format(name="within")
    cell = (
        f"W = tl.constexpr(2.0)\n{SCALED.format(name='within', value='W')}{launch}\nW = tl.constexpr(7.0)\n{launch}\n"
    )
    assert label_of(notebook, cell + "W = tl.constexpr(9.0)") == "within@2"
    assert [report.label for report in notebook.names["report"].kernels] == ["within@1", "within@2"]
    assert len(kept("within")) == 2
    check_after_restart(**{"within@1": 2.0, "within@2": 7.0, "within": 7.0})


def test_a_global_that_becomes_a_constexpr_is_kept_as_it_was_launched(notebook: Notebook, tmp_path: Path) -> None:
    notebook.names["LATER"] = 2.0
    assert notebook.triton(SCALED.format(name="later_constexpr", value="LATER")).error is None
    notebook.run("LATER = tl.constexpr(3.0)")
    label = label_of(notebook, LAUNCH.format(name="later_constexpr"))
    assert factor_of(notebook) == 3
    check_after_restart(**{"later_constexpr": 3.0, label: 3.0})
    check_export("later_constexpr", 3.0, tmp_path)


def test_a_card_shows_the_helper_that_ran(notebook: Notebook, tmp_path: Path) -> None:
    helper = "@triton.jit\ndef times(value):\n    return value * {}\n"
    define = SCALED.format(name="calls_times", value="1").replace(
        "tl.load(x_ptr + offsets) * 1", "times(tl.load(x_ptr + offsets))"
    )
    assert label_of(notebook, helper.format(2) + define + LAUNCH.format(name="calls_times")) == "calls_times@1"
    before = notebook.names["report"].kernels[0].compiled
    assert notebook.triton(helper.format(8)).error is None
    assert label_of(notebook, LAUNCH.format(name="calls_times")) == "calls_times@2"
    after = notebook.names["report"].kernels[0].compiled
    assert factor_of(notebook) == 8
    assert "8.0" in after.ttir.replace("8.000000e+00", "8.0")
    assert after.digest != before.digest
    check_after_restart(**{"calls_times@1": 2.0, "calls_times@2": 8.0, "calls_times": 8.0})
    check_export("calls_times@1", 2.0, tmp_path)
    check_export("calls_times", 8.0, tmp_path)


def test_an_ordinary_cell_launches_a_new_version_as_well(notebook: Notebook, tmp_path: Path) -> None:
    define = "P = tl.constexpr(2.0)\n" + SCALED.format(name="plainly", value="P") + LAUNCH.format(name="plainly")
    assert label_of(notebook, define) == "plainly@1"
    launch = LAUNCH.format(name="plainly")
    for value in (4.0, 6.0):
        assert notebook.run(f"P = tl.constexpr({value})\nfor _ in range(4):\n    {launch}").error is None
        assert factor_of(notebook) == value
    assert current().kernels.version("plainly").label == "plainly@3"
    check_export("plainly", 6.0, tmp_path)
    assert notebook.run(f"P = tl.constexpr(4.0)\n{launch}").error is None
    assert current().kernels.version("plainly").label == "plainly@2"


def test_members_of_a_module_are_captured(notebook: Notebook) -> None:
    import triton.language as tl

    sys.modules["loose_settings"] = module = types.ModuleType("loose_settings")
    vars(module)["SCALE"] = tl.constexpr(2.0)
    define = "import loose_settings\n" + SCALED.format(name="by_module", value="loose_settings.SCALE")
    assert label_of(notebook, define + LAUNCH.format(name="by_module")) == "by_module@1"
    vars(module)["SCALE"] = tl.constexpr(5.0)
    assert label_of(notebook, LAUNCH.format(name="by_module")) == "by_module@2"
    assert factor_of(notebook) == 5
    vars(module)["SCALE"] = tl.constexpr(6.0)
    for _ in range(3):
        notebook.run(LAUNCH.format(name="by_module"))
    assert factor_of(notebook) == 6
    check_after_restart(**{"by_module@1": 2.0, "by_module@2": 5.0})


def test_a_kept_version_that_is_launched_stays_that_version(notebook: Notebook) -> None:
    define = SCALED.format(name="old_and_new", value="OLD") + LAUNCH.format(name="old_and_new")
    label_of(notebook, "OLD = tl.constexpr(2.0)\n" + define)
    notebook.run("OLD = tl.constexpr(5.0)")
    label_of(notebook, LAUNCH.format(name="old_and_new"))
    notebook.names["first"] = current().kernels["old_and_new@1"]
    assert label_of(notebook, LAUNCH.format(name="first")) == "old_and_new@1"
    assert factor_of(notebook) == 2
    assert current().kernels.version("old_and_new").label == "old_and_new@2"
    assert len(kept("old_and_new")) == 2


def test_a_trial_is_in_the_history_as_a_run(notebook: Notebook) -> None:
    label_of(notebook, SCALED.format(name="tried", value="2.0") + LAUNCH.format(name="tried"))
    x = torch.arange(16.0)
    current().run(notebook.names["tried"], (1,), x, torch.zeros(16), BLOCK=16)
    frame = current().frame("launches")
    assert list(frame[frame["kernel"] == "tried@1"]["by"]) == ["launch", "run"]
    (row,) = kept("tried")
    assert (row.launches, row.runs) == (1, 1)
    assert current().compare("tried", lambda x_ptr: 2 * x_ptr).outputs[0].elements == 100
    assert "1, 1 run" in listing_card(value_of(notebook, "%triton_ls tried")).text()


TUNED = """
@triton.autotune([triton.Config({{"BLOCK": 64}}), triton.Config({{"BLOCK": 128}})], key=["n"])
@triton.heuristics({{"EVEN": lambda a: a["n"] % a["BLOCK"] == 0}})
@triton.jit
def {name}(x_ptr, out_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, 3 * tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)
"""


@pytest.mark.parametrize("launched", [True, False])
def test_an_export_keeps_the_decorators_of_what_an_ordinary_cell_launched(
    notebook: Notebook, tmp_path: Path, *, launched: bool
) -> None:
    name = f"tuned_{launched}".lower()
    assert notebook.triton(TUNED.format(name=name)).error is None
    launch = f"{name}[lambda meta: (triton.cdiv(100, meta['BLOCK']),)](x, out, 100)"
    if launched:
        assert notebook.run(launch).error is None
    exported = value_of(notebook, f"%triton_export {name} --to {tmp_path / 'tuned.py'}")
    assert ("No recorded launch" in exported_card(exported).text()) == (not launched)
    text = (tmp_path / "tuned.py").read_text()
    assert "triton.Config({'BLOCK': 64}" in text.replace('"', "'")
    assert "@triton.heuristics" in text
    if launched:
        check = "import torch, tuned\nx = torch.arange(100.0)\nassert torch.equal(tuned.launch(x, 100), 3 * x)"
        for ended in (run_files(tmp_path / "tuned.py"), run_alone(check, folder=tmp_path)):
            assert ended.returncode == 0, ended.stderr


def test_a_buggy_version_is_compared_with_its_mend(notebook: Notebook) -> None:
    body = TUNED.split("@triton.jit")[1].format(name="mended").replace("EVEN: tl.constexpr, ", "")
    launch = "mended[(2,)](x, out, 100, BLOCK=64)"
    failed = notebook.triton("@triton.jit" + body.replace(", mask=offsets < n)", ")") + launch)
    assert failed.error is not None
    assert notebook.triton("@triton.jit" + body + launch).error is None
    comparison = value_of(notebook, "%triton_diff mended@1 mended@2")
    for text in (comparison_card(comparison).text(), comparison_card(comparison).html()):
        assert "mended@1 failed: OutOfBounds" in text
        assert "mended@2 finished" in text
        assert "mask=" in text
    assert not comparison.equal
    assert None not in comparison.compiled


def test_a_version_that_does_not_compile_is_compared_as_text(notebook: Notebook) -> None:
    body = SCALED.format(name="broken", value="2.0") + LAUNCH.format(name="broken")
    assert notebook.triton(body).error is None
    assert notebook.triton(body.replace("* 2.0", "@ 2.0")).error is not None
    shown = comparison_card(value_of(notebook, "%triton_diff broken@1 broken@2")).text()
    assert "broken@2 failed: CompileError" in shown
    assert "broken@1 takes: registers" in shown
    assert "+    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets) @ 2.0)" in shown


def test_versions_with_other_parameters_run_on_inputs_of_their_own(notebook: Notebook) -> None:
    body = SCALED.format(name="grown", value="2.0") + LAUNCH.format(name="grown")
    assert notebook.triton(body).error is None
    assert (
        notebook.triton(body.replace("out_ptr, BLOCK", "out_ptr, more, BLOCK").replace("out, B", "out, 3, B")).error
        is None
    )
    shown = comparison_card(value_of(notebook, "%triton_diff grown@1 grown@2")).text()
    assert "grown@1 finished" in shown
    assert "grown@2 finished" in shown
    assert not current().compare("grown@1", "grown@2").equal


def test_a_listing_begins_with_names_and_a_bare_name_removes_the_only_version(notebook: Notebook) -> None:
    for name in ("aa_zebra_user", "my_zebra", "zebra", "zebra_stripes"):
        notebook.triton(f"# zebra\n@triton.jit\ndef {name}(x_ptr):\n    tl.store(x_ptr, 1)  # zebra\n")
    notebook.triton("@triton.jit\ndef aaa(x_ptr):\n    tl.store(x_ptr, 1)  # zebra\n")
    found = notebook.run("listed = %triton_ls zebra")
    assert found.error is None
    names = [row.label.partition("@")[0] for row in notebook.names["listed"].rows]
    assert names == ["zebra", "zebra_stripes", "my_zebra", "aa_zebra_user", "aaa"]
    notebook.triton("@triton.jit\ndef zebra(x_ptr):\n    tl.store(x_ptr, 2)\n")
    refused = notebook.run("%triton_rm zebra")
    assert "zebra@1, zebra@2, or add --all" in str(refused.error)
    assert "zebra@1, zebra@2 are deleted" in listing_card(value_of(notebook, "%triton_rm zebra --all")).text()
    assert "my_zebra@1 is deleted; nothing is left" in listing_card(value_of(notebook, "%triton_rm my_zebra")).text()


def test_a_default_stays_what_it_was_at_the_definition(notebook: Notebook) -> None:
    define = SCALED.format(name="by_default", value="F").replace("):", ", F: tl.constexpr = DEFAULT):")
    notebook.names["DEFAULT"] = 2
    assert label_of(notebook, f"{define}DEFAULT = 3\n" + LAUNCH.format(name="by_default")) == "by_default@1"
    notebook.run("DEFAULT = 5")
    assert label_of(notebook, LAUNCH.format(name="by_default")) == "by_default@1"
    assert factor_of(notebook) == 2
    check_after_restart(by_default=2.0)


def test_a_captured_program_runs_again_as_it_was_recorded(notebook: Notebook) -> None:
    helper = "@triton.jit\ndef factor():\n    return {}\n"
    define = SCALED.format(name="in_program", value="factor()")
    body = helper.format("2.0") + define + LAUNCH.format(name="in_program")
    assert notebook.triton(body, "--capture program").error is None
    assert (
        notebook.run(helper.format("9.0")).error is None
    )  # %%triton would compile it as a kernel: it needs no argument
    assert notebook.run(LAUNCH.format(name="in_program")).error is None
    assert factor_of(notebook) == 9
    program = notebook.names["program"]
    given = {"x": torch.arange(100.0), "out": torch.zeros(100)}
    found = program.run(**{name: given[name] for name in program.inputs})
    assert all(tensor[63] == 126 for tensor in found.values())
    assert found
