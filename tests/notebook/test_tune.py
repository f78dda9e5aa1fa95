"""Tuning from a notebook without a GPU: configs are compiled, shown, and ranked by predicted times."""

from __future__ import annotations

import math

import pytest
from IPython.core.completer import provisionalcompleter

from kernellab.tune.result import Tuning
from tests.notebook.conftest import Notebook

TUNED = """
@triton.autotune(configs=[triton.Config({"BLOCK": block}) for block in (64, 128)], key=["n"])
@triton.jit
def shift(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, 1 + tl.load(x_ptr + offsets, mask=mask), mask=mask)

x = torch.zeros(300)
out = torch.zeros(300)
grid = lambda meta: (triton.cdiv(300, meta["BLOCK"]),)
"""


def shown_texts(shown: list[dict[str, object]]) -> list[str]:
    return [str(data.get("text/plain", "")) for data in shown]


@pytest.mark.slow
def test_a_cell_shows_how_the_configs_of_its_kernel_compare(notebook: Notebook) -> None:
    ran = notebook.triton(f"{TUNED}\nshift[grid](x, out, 300)", "--tune")
    assert ran.error is None
    assert any(text.startswith("shift: 2 configs compiled") for text in shown_texts(ran.shown))
    assert notebook.names["out"].tolist() == [1.0] * 300


@pytest.mark.slow
def test_the_line_magic_takes_a_launch(notebook: Notebook) -> None:
    notebook.triton(TUNED)
    ran = notebook.run("tuning = %triton_tune shift[grid](x, out, 300)")
    assert ran.error is None
    tuning = notebook.names["tuning"]
    assert isinstance(tuning, Tuning)
    assert [dict(row.config.parameters)["BLOCK"] for row in tuning.rows] == [64, 128]
    predicted = [row.predicted_ms or math.inf for row in tuning.rows]
    assert math.inf not in predicted
    assert tuning.best is notebook.names["shift"].configs[predicted.index(min(predicted))]


PLAIN = TUNED.replace(
    '@triton.autotune(configs=[triton.Config({"BLOCK": block}) for block in (64, 128)], key=["n"])', ""
)


@pytest.mark.slow
def test_a_launched_kernel_without_configs_is_tuned_by_its_name_alone(notebook: Notebook) -> None:
    assert notebook.triton(f"{PLAIN}\nshift[grid](x, out, 300, BLOCK=128, num_warps=2)").error is None
    ran = notebook.run("tuning = %triton_tune --limit 4 shift")
    assert ran.error is None
    tuning = notebook.names["tuning"]
    assert tuning.rows[0].config.text == "BLOCK=128, num_warps=2, num_stages=3"
    assert sum(row.predicted_ms is not None for row in tuning.rows) == 4
    assert tuning.notes[0].startswith("Proposed for an elementwise kernel: BLOCK 64 to 512, num_warps 1 to ")
    assert tuning.provenance["proposed"] == "elementwise"
    assert tuning.notes[0] in tuning._repr_mimebundle_()["text/plain"]
    assert notebook.names["out"].tolist() == [1.0] * 300


@pytest.mark.slow
def test_an_autotuned_kernel_is_tuned_by_its_name_with_its_own_configs(notebook: Notebook) -> None:
    notebook.triton(f"{TUNED}\nshift[grid](x, out, 300)")
    assert notebook.run("tuning = %triton_tune shift").error is None
    assert [row.config.values["BLOCK"] for row in notebook.names["tuning"].rows] == [64, 128]


def test_a_name_without_a_launch_is_refused(notebook: Notebook) -> None:
    assert "'nothing'" in str(notebook.run("%triton_tune nothing").error)


@pytest.mark.slow
def test_the_best_config_shows_as_it_is_written(notebook: Notebook) -> None:
    notebook.triton(TUNED)
    notebook.run("tuning = %triton_tune shift[grid](x, out, 300)")
    shown = notebook.run("tuning.best").printed.partition(": ")[2].strip()
    best = notebook.names["tuning"].best
    assert shown == f"triton.Config({best.kwargs}, num_warps=4, num_stages=3)"
    again = eval(shown, notebook.names)
    assert str(again) == str(best)
    hooked = "[triton.Config({'BLOCK': 64}, num_warps=8, maxnreg=96, pre_hook=print)]"
    assert "num_warps=8, num_stages=3, maxnreg=96, pre_hook=print" in notebook.run(hooked).printed.replace("\n", "")


@pytest.mark.slow
def test_the_line_magic_takes_configs_by_name(notebook: Notebook) -> None:
    notebook.triton(TUNED)
    notebook.run("some = [triton.Config({'BLOCK': 256}, num_warps=8)]")
    notebook.run("tuning = %triton_tune --configs some shift[grid](x, out, n=300)")
    assert [row.config.num_warps for row in notebook.names["tuning"].rows] == [8]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%triton_tune shift(x, out, 300)", "is not a launch"),
        ("%triton_tune shift[grid](x, out, absent)", "name 'absent' is not defined"),
        ("%triton_tune shift[grid](x, out", "is not valid Python: '(' was never closed; write kernel[grid](arguments)"),
        ("%triton_tune", "There is no launch; write kernel[grid](arguments)."),
        ("%triton_tune shift[grid](x, out, 300) --fresh", "options come before the launch"),
        ("%triton_tune --outputs x_ptr shift[grid](x, out, 300)", "outputs names x_ptr, and shift writes out_ptr"),
    ],
)
def test_what_is_no_launch_is_refused(notebook: Notebook, line: str, message: str) -> None:
    notebook.triton(TUNED)
    ran = notebook.run(line)
    assert message in ran.error_lines[0]


@pytest.mark.slow
def test_a_cell_without_configs_says_what_to_do(notebook: Notebook) -> None:
    body = TUNED.replace(TUNED.splitlines()[1], "") + "\nshift[(5,)](x, out, 300, BLOCK=64)"
    ran = notebook.triton(body, "--tune")
    assert "decorate one with @triton.autotune" in ran.error_lines[0]


@pytest.mark.slow
def test_a_number_of_configs_is_a_budget_and_a_search_has_its_own_option(notebook: Notebook) -> None:
    notebook.triton(TUNED)
    ran = notebook.run("tuning = %triton_tune --configs 1 --search descent shift[grid](x, out, 300)")
    assert ran.error is None
    assert notebook.names["tuning"].frame.attrs["search"] == "descent"


@pytest.mark.slow
def test_without_a_gpu_a_check_is_made_on_the_cpu(notebook: Notebook) -> None:
    notebook.triton(TUNED)
    notebook.run('tuning = %triton_tune --check "x + 1" shift[grid](x, out, 300)')
    assert any("configs that fit were launched on the CPU" in note for note in notebook.names["tuning"].notes)
    assert {row.status for row in notebook.names["tuning"].rows} == {"not_timed"}
    notebook.run('wrong = %triton_tune --check "x + 2" shift[grid](x, out, 300)')
    assert {row.status for row in notebook.names["wrong"].rows} == {"wrong"}
    assert "differs from the reference" in notebook.names["wrong"].rows[0].reason


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--devices 0", "devices has 0, and there is no GPU"),
        ("--devices first", "--devices is 'first'; expected GPU numbers"),
        ("--configs absent", "name 'absent' is not defined"),
        ('--configs "[triton.Config("', "'(' was never closed; write --configs \"[triton.Config({'BLOCK': 64})]\"."),
        ("--configs 2.5", "configs is 2.5; expected a list of triton.Config"),
        ('--check "x +"', "check 'x +' is not valid Python: invalid syntax; write an expression"),
        ('--check "x', "has a quote that is not closed"),
        ("--timeout soon", "invalid float value: 'soon'; %triton_tune? shows all options."),
    ],
)
def test_options_that_make_no_sense_are_refused(notebook: Notebook, options: str, message: str) -> None:
    notebook.triton(TUNED)
    ran = notebook.run(f"%triton_tune {options} shift[grid](x, out, 300)")
    assert message in ran.error_lines[0]


def completed(notebook: Notebook, text: str) -> set[str]:
    with provisionalcompleter():
        return {completion.text for completion in notebook.shell.Completer.completions(text, len(text))}


@pytest.mark.slow
def test_options_of_every_magic_are_completed(notebook: Notebook) -> None:
    assert completed(notebook, "%triton_tune --se") == {"--search"}
    assert completed(notebook, "t = %triton_tune --search ran") == {"random"}
    assert completed(notebook, "x = 1\n%triton_export --as to") == {"torch-op"}
    assert "--over" in completed(notebook, "%triton_bench --")
    assert completed(notebook, "%triton_tag --rem") == {"--remove"}
    assert "--search" not in completed(notebook, "x = 1\n%%triton --se")


@pytest.mark.parametrize("magic", ["load", "rm", "tag", "export", "diff"])
def test_kept_kernels_are_completed_by_name_and_version(notebook: Notebook, magic: str) -> None:
    notebook.double("completed_kernel")
    notebook.double("completed_kernel", factor=3)
    names = completed(notebook, f"%triton_{magic} completed_ker")
    assert {"completed_kernel", "completed_kernel@1", "completed_kernel@2"} <= names
    assert completed(notebook, f"%triton_{magic} completed_kernel@2") == {"completed_kernel@2"}


@pytest.mark.slow
def test_the_line_magic_takes_the_outputs_that_count(notebook: Notebook) -> None:
    notebook.triton(TUNED)
    assert notebook.run("tuning = %triton_tune --outputs out_ptr shift[grid](x, out, 300)").error is None
    assert notebook.names["tuning"].frame.attrs["outputs"] == ["out_ptr"]
    with provisionalcompleter():
        text = "%triton_tune --ou"
        found = {completion.text for completion in notebook.shell.Completer.completions(text, len(text))}
    assert found == {"--outputs"}


@pytest.mark.slow
def test_the_line_magic_tunes_over_sizes(notebook: Notebook) -> None:
    notebook.triton(TUNED)
    ran = notebook.run('found = %triton_tune --over "n=[200, 300]" --max-configs 1 shift[grid](x, out, 300)')
    assert ran.error is None
    found = notebook.names["found"]
    assert [case.sizes for case in found.cases] == [{"n": 200}, {"n": 300}]
    assert found.choose(n=250) in notebook.names["shift"].configs
    shown = notebook.run("from IPython.display import display\ndisplay(found)").shown[0]
    assert shown["text/plain"].startswith("shift over n: 2 cases in")
    assert "predicted for H100 (no GPU)" in shown["text/html"]


@pytest.mark.slow
def test_tuning_over_sizes_makes_its_inputs_by_a_function(notebook: Notebook) -> None:
    notebook.triton(TUNED)
    notebook.run("def inputs(n):\n    return {'x_ptr': torch.ones(n), 'out_ptr': torch.empty(n), 'n': n}")
    ran = notebook.run('found = %triton_tune --over "n=[200]" --inputs inputs shift[grid]()')
    assert ran.error is None
    assert [case.sizes for case in notebook.names["found"].cases] == [{"n": 200}]
    failed = notebook.run('%triton_tune --over "Q=[200]" --inputs inputs shift[grid]()')
    assert "neither the kernel nor inputs takes" in " ".join(failed.error_lines)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--limit 0", "--limit is 0; expected a positive integer."),
        ("--budget -1", "--budget is -1; expected a positive number of seconds."),
        ("--timeout 0", "--timeout is 0; expected a positive number of seconds."),
        ("--configs 0", "--configs is 0; expected how many to try, a list of triton.Config, or a Space."),
    ],
)
def test_a_number_that_is_not_positive_is_refused_by_the_name_of_its_option(
    notebook: Notebook, options: str, words: str
) -> None:
    assert str(notebook.run(f"%triton_tune {options} no_kernel").error) == words
