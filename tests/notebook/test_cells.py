from __future__ import annotations

import inspect
import linecache
from pathlib import Path

import pytest
import torch
import triton
from IPython.core.completer import provisionalcompleter

import kernellab
from kernellab.views.report import CellReport
from tests.notebook.conftest import Notebook

LAUNCH = "{name}[(2,)](x, out, 100, BLOCK=64)"


@pytest.mark.slow
def test_a_cell_shows_one_card_with_effects_resources_and_graph(notebook: Notebook) -> None:
    ran = notebook.double("carded", launch=LAUNCH.format(name="carded"))
    assert ran.error is None
    (card,) = ran.shown
    assert "carded@1  cuda:90" in card["text/plain"]
    assert "written (line 6); 99 elements changed, 1 same as before" in " ".join(card["text/plain"].split())
    assert "registers" in card["text/plain"]
    assert "<svg" in card["text/html"]
    assert "<script" not in card["text/html"]
    assert "http" not in card["text/html"].replace("http://www.w3.org", "")


@pytest.mark.slow
def test_the_result_arrives_in_the_tensors_of_the_notebook(notebook: Notebook) -> None:
    out = notebook.names["out"]
    notebook.double("arrives", launch=LAUNCH.format(name="arrives"))
    assert notebook.names["out"] is out
    assert torch.equal(out, 2 * torch.arange(100.0))


def test_a_later_plain_cell_launches_the_kernel(notebook: Notebook) -> None:
    notebook.double("later")
    ran = notebook.run("later[lambda meta: (triton.cdiv(100, meta['BLOCK']),)](x, out, n=100, BLOCK=32)")
    assert ran.error is None
    assert torch.equal(notebook.names["out"], 2 * torch.arange(100.0))


@pytest.mark.slow
def test_a_launch_takes_grids_of_one_to_three_numbers(notebook: Notebook) -> None:
    notebook.double("gridded")
    for grid in ("(2,)", "(2, 1)", "(2, 1, 1)", "lambda meta: (2,)"):
        notebook.names["out"].zero_()
        assert notebook.run(f"gridded[{grid}](x, out, 100, BLOCK=64)").error is None
        assert torch.equal(notebook.names["out"], 2 * torch.arange(100.0))


def test_the_kernel_stays_a_triton_kernel_with_its_source(notebook: Notebook) -> None:
    notebook.double("dropin")
    kernel = notebook.names["dropin"]
    assert isinstance(kernel, triton.JITFunction)
    assert inspect.getsource(kernel.fn) == DEFINITION


DEFINITION = """@triton.jit
def dropin(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=mask), mask=mask)
"""


def test_triton_tl_and_torch_are_provided_and_a_users_own_names_kept(notebook: Notebook) -> None:
    own = object()
    for name in ("triton", "tl"):
        notebook.names.pop(name, None)
    notebook.names["torch"] = own
    try:
        assert notebook.double("provided").error is None
        assert notebook.names["tl"] is triton.language
        assert notebook.names["torch"] is own
    finally:
        notebook.names["torch"] = torch


@pytest.mark.slow
def test_an_unchanged_cell_is_the_same_version_and_an_edited_one_the_next(notebook: Notebook) -> None:
    kernels = kernellab.current_lab().kernels
    labels = []
    for factor in (2, 2, 3, 2):
        ran = notebook.double("versioned", factor=factor, launch=LAUNCH.format(name="versioned"))
        labels.append(ran.shown[0]["text/plain"].split()[0])
    assert labels[:3] == ["versioned@1", "versioned@1", "versioned@2"]
    assert kernels["versioned"] is notebook.names["versioned"]
    notebook.names["first"] = kernels["versioned@1"]
    assert notebook.run("first[(2,)](x, out, 100, BLOCK=64)").error is None
    assert torch.equal(notebook.names["out"], 2 * torch.arange(100.0))


@pytest.mark.slow
def test_a_changed_global_constant_takes_effect(notebook: Notebook) -> None:
    body = """
FACTOR = tl.constexpr(2)

@triton.jit
def with_global(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, FACTOR * tl.load(x_ptr + offsets))

with_global[(1,)](x, out, BLOCK=64)
"""
    assert notebook.triton(body).error is None
    assert notebook.names["out"][63] == 126
    assert notebook.triton(body.replace("constexpr(2)", "constexpr(5)")).error is None
    assert notebook.names["out"][63] == 315


def test_helpers_of_an_earlier_cell_are_taken_along(notebook: Notebook) -> None:
    notebook.triton("@triton.jit\ndef twice(x):\n    return x + x")
    ran = notebook.triton("""
@triton.jit
def calls_helper(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, twice(tl.load(x_ptr + offsets)))

calls_helper[(1,)](x, out, BLOCK=64)
""")
    assert ran.error is None
    assert notebook.names["out"][63] == 126


@pytest.mark.slow
def test_functions_of_an_earlier_cell_are_taken_along_after_linecache_was_cleared(notebook: Notebook) -> None:
    notebook.triton(
        """
plus_one = lambda v: v + 1

@triton.jit
def scaled(x_ptr, out_ptr, FACTOR: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, FACTOR(1) * tl.load(x_ptr + offsets))
x, out = torch.ones(32), torch.empty(32)
"""
    )
    linecache.clearcache()
    ran = notebook.triton("scaled[(1,)](x, out, plus_one, BLOCK=32)")
    assert ran.error is None
    assert notebook.names["out"].eq(2).all()


@pytest.mark.slow
def test_no_run_compiles_and_leaves_the_tensors_alone(notebook: Notebook) -> None:
    ran = notebook.double("not_run", launch=LAUNCH.format(name="not_run"), options="--no-run")
    assert ran.error is None
    assert "not launched" in ran.shown[0]["text/plain"]
    assert not notebook.names["out"].any()


def test_args_compile_a_kernel_that_the_cell_does_not_launch(notebook: Notebook) -> None:
    ran = notebook.double("by_args", options='--args "x, out, 100, BLOCK=64"')
    assert ran.error is None
    assert "by_args@1" in ran.shown[0]["text/plain"]
    assert "not launched" in ran.shown[0]["text/plain"]


def test_a_cell_without_a_launch_says_how_to_launch(notebook: Notebook) -> None:
    ran = notebook.double("defined")
    assert ran.error is None
    assert "defined[grid](x_ptr, out_ptr, n, BLOCK)" in ran.shown[0]["text/plain"].replace("\n", " ")


def test_a_cell_that_defines_only_a_helper_offers_no_launch(notebook: Notebook) -> None:
    ran = notebook.triton("@triton.jit\ndef silu_of(x):\n    return x * tl.sigmoid(x)")
    assert ran.error is None
    assert not any("silu_of" in str(shown) for shown in ran.shown)


def test_the_report_is_bound_and_a_quiet_cell_shows_nothing(notebook: Notebook) -> None:
    ran = notebook.double("quiet", launch=LAUNCH.format(name="quiet"), options="-q -o report")
    assert ran.shown == []
    report = notebook.names["report"]
    assert isinstance(report, CellReport)
    assert report.kernels[0].compiled.effects.writes == {"out_ptr"}


def test_a_name_enters_the_kernel_under_it(notebook: Notebook) -> None:
    notebook.double("plain_name", options="--name other_name")
    assert kernellab.current_lab().kernels["other_name"] is not None


@pytest.mark.slow
def test_a_target_holds_for_its_cell_alone(notebook: Notebook) -> None:
    launch = LAUNCH.format(name="targeted")
    other = notebook.double("targeted", launch=launch, options="--target cuda:80")
    usual = notebook.triton(launch)
    assert "cuda:80" in other.shown[0]["text/plain"]
    assert "cuda:90" in usual.shown[0]["text/plain"]


@pytest.mark.slow
def test_a_check_that_holds_is_on_the_card(notebook: Notebook) -> None:
    ran = notebook.double("checked", launch=LAUNCH.format(name="checked"), options='--check "2 * x"')
    assert ran.error is None
    assert "out_ptr matches 2 * x; " in ran.shown[0]["text/plain"]


@pytest.mark.slow
def test_every_kernel_of_a_cell_is_on_its_card(notebook: Notebook) -> None:
    notebook.double("one_of_two")
    notebook.double("two_of_two")
    ran = notebook.triton(LAUNCH.format(name="one_of_two") + "\n" + LAUNCH.format(name="two_of_two"))
    assert "one_of_two@1" in ran.shown[0]["text/plain"]
    assert "two_of_two@1" in ran.shown[0]["text/plain"]


@pytest.mark.slow
def test_bfloat16_is_computed_as_bfloat16(notebook: Notebook) -> None:
    notebook.names.update(x=torch.arange(100).bfloat16() / 7, out=torch.zeros(100, dtype=torch.bfloat16))
    notebook.double("brain", launch=LAUNCH.format(name="brain"))
    assert torch.equal(notebook.names["out"], 2 * notebook.names["x"])


def test_options_and_targets_are_completed(notebook: Notebook) -> None:
    def completed(text: str) -> set[str]:
        with provisionalcompleter():
            return {completion.text for completion in notebook.shell.Completer.completions(text, len(text))}

    assert completed("%%triton --ch") == {"--check"}
    assert {"--no-run", "--target", "--timeout"} <= completed("%%triton --")
    assert completed("%%triton --target cuda:10") == {"cuda:100", "cuda:103"}


@pytest.mark.slow
def test_a_global_constant_on_the_left_of_a_tensor_gives_a_tensor(notebook: Notebook) -> None:
    ran = notebook.triton("""
CONSTANT = tl.constexpr(3)

@triton.jit
def constant_first(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    tl.store(out_ptr + offsets, tl.where(CONSTANT <= x, CONSTANT - x, CONSTANT * x / CONSTANT))

constant_first[(1,)](x, out, BLOCK=64)
""")
    assert ran.error is None
    x = torch.arange(64.0)
    assert torch.equal(notebook.names["out"][:64], torch.where(x >= 3, 3 - x, x))


@pytest.mark.slow
def test_a_version_that_was_compiled_for_stand_ins_alone_is_exported_without_a_launch(
    notebook: Notebook, tmp_path: Path
) -> None:
    lab = kernellab.current_lab()
    notebook.double("stands", launch=LAUNCH.format(name="stands"))
    notebook.double("stands", factor=5)
    exported = lab.export("stands", tmp_path / "stands.py")
    assert exported.label == "stands@2"
    assert "no check and no benchmark" in exported.notes[0]
    assert "MockTensor" not in (tmp_path / "stands.py").read_text()
