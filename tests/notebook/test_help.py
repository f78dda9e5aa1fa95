"""`%triton` and `%triton_help`: everything that a user can call is listed, with an example that runs."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
from IPython.core.completer import provisionalcompleter

import kernellab
from kernellab.errors import UsageError
from kernellab.notebook.help import Magic, magics, overview, page_of, words
from kernellab.notebook.topics import NEEDS_GPU, TOPICS
from tests.notebook.conftest import Notebook

NAMES = [name for examples in TOPICS.values() for name in examples]
OWN_BUSINESS = {"session", "set_interpreting_aside", "start_interpreter"}  # for the rooms below the lab
ADD = """%%triton -q
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask), mask=mask)
"""
LAUNCH = "add_kernel[grid](x, y, out, n, BLOCK=256)"
SETUP = """
import kernellab, torch, triton
from concurrent.futures import ThreadPoolExecutor
lab = kernellab.current_lab()
n, grid = 300, lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
x, y, out = torch.rand(n), torch.rand(n), torch.zeros(n)
client, train_step = ThreadPoolExecutor(1), lambda: None
"""


def test_every_magic_and_every_verb_of_the_lab_is_listed_once() -> None:
    verbs = {name for name, _ in inspect.getmembers(kernellab.Lab, inspect.isfunction) if name[0] != "_"}
    assert {name for name in NAMES if name.startswith("%")} == {magic.label for magic in magics()}
    assert {name.removeprefix("lab.") for name in NAMES if name.startswith("lab.")} == verbs - OWN_BUSINESS
    assert len(NAMES) == len(set(NAMES))


def test_functions_of_the_package_are_listed() -> None:
    functions = {name for name in kernellab.__all__ if inspect.isfunction(getattr(kernellab, name))}
    listed = {name.removeprefix("kernellab.") for name in NAMES}
    assert functions - {"gluon_tile"} <= listed


@pytest.mark.slow
def test_every_example_runs(notebook: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    second = ADD.replace("mask = offsets < n", "mask = (offsets < n) & (offsets >= 0)")
    for cell in (SETUP, ADD + LAUNCH, second + LAUNCH):
        assert notebook.run(cell).error is None
    examples = [pair for table in TOPICS.values() for pair in table.items()]
    for name, example in sorted(examples, key=lambda pair: pair[0] in {"lab.close", "%triton_rm"}):
        error = notebook.run(example).error
        if name in NEEDS_GPU and not torch.cuda.is_available():
            assert error is None or "GPU" in str(error), f"{name}: {error}"
        else:
            assert error is None, f"{name}: {example}: {error}"
    notebook.run("%reload_ext kernellab")  # the last example closed the lab


def test_every_word_has_a_page_as_text_and_html() -> None:
    for word in (*words(), *NAMES):
        page = page_of(word)
        assert repr(page).strip()
        assert page._repr_html_().startswith('<div class="kl-card">')


def test_the_overview_has_a_line_and_an_example_for_each_name() -> None:
    text, html = repr(overview()), overview()._repr_html_()
    for examples in TOPICS.values():
        for name, example in examples.items():
            assert f"  {name} " in text
            assert example.splitlines()[0] in text
            assert f"<code>{name}</code>" in html
    assert "Find the fastest config of a kernel and launch it once." in text


@pytest.mark.parametrize("word", ["tune", "triton_tune", "%triton_tune"])
def test_the_page_of_a_magic_says_what_it_takes_and_gives(word: str) -> None:
    text = repr(page_of(word))
    assert "%triton_tune [--configs CONFIGS]" in text
    assert "--search exhaustive|random|descent|optuna" in text
    assert "Returns a Tuning: .kernel, .rows" in text
    assert "%triton_tune --limit 4 add_kernel" in text
    assert ("lab.tune(kernel, grid=" in text) == (word == "tune")


@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        ("--check", "%triton_bench --check"),
        ("bank conflicts", "cause of lost time"),
        ("differs", "Its outputs differ from those of most configs"),
        ("torch-op", "A module with the kernel as an operator of PyTorch."),
        ("occupancy", "The theoretical share of resident warps"),
        ("Tuning", "The result of tuning one kernel"),
    ],
)
def test_options_causes_statuses_and_results_have_pages(word: str, meaning: str) -> None:
    assert meaning in repr(page_of(word))


def test_a_word_that_summaries_use_leads_to_their_verbs(notebook: Notebook) -> None:
    for word, verb in (("coalesced", "traffic"), ("draw", "plot"), ("sliders", "explore"), ("fastest", "tune")):
        with pytest.raises(UsageError, match=rf"did you mean .*\b{verb}\b"):
            page_of(word)


def test_an_unknown_word_names_similar_ones(notebook: Notebook) -> None:
    with pytest.raises(UsageError, match=r"No help on 'tunne'; did you mean tune.*\? %triton lists what there is"):
        page_of("tunne")
    assert "%triton lists what there is" in str(notebook.run("%triton_help zzzz").error)


def test_the_magics_show_pages_in_a_shell(notebook: Notebook) -> None:
    notebook.run("listed = %triton")
    assert repr(notebook.names["listed"]) == repr(overview())
    notebook.run("page = %triton bank conflicts\nother = %triton_help bank conflicts")
    assert repr(notebook.names["page"]) == repr(notebook.names["other"]) == repr(page_of("bank conflicts"))


@pytest.mark.slow
def test_kernels_tags_options_and_values_complete(notebook: Notebook) -> None:
    def completed(text: str) -> set[str]:
        with provisionalcompleter():
            return {each.text for each in notebook.shell.Completer.completions(text, len(text))}

    notebook.double("twice")
    notebook.run("%triton_tag twice@1 good")
    for magic in ("tune", "why", "bench", "load", "export", "diff", "rm", "tag"):
        assert {"twice", "twice@1"} <= completed(f"%triton_{magic} tw"), magic
    assert completed("%triton_diff twice@1 twi") == {"twice", "twice@1"}
    assert completed("%triton_tag twice@1 go") == completed("%triton_ls go") == {"good"}
    assert completed("%triton_tune --search de") == {"descent"}
    assert completed("%triton_export twice --as re") == {"report"}
    assert completed("%triton_predict --device rtx4") == {"rtx4090"}
    assert completed("%triton_target a100-") == completed("%%triton --target a100-") == {"a100-40", "a100-80"}
    assert completed("%triton_help tun") == {"tune", "tune_over"}
    assert "--samples" in completed("%triton_why --")


@pytest.mark.parametrize("magic", [magic for magic in magics() if magic.label != "%triton"], ids=lambda m: m.label)
def test_help_as_an_option_shows_the_page_of_any_magic(magic: Magic, notebook: Notebook) -> None:
    kind = "cell" if magic.label.startswith("%%") else "line"
    function = notebook.shell.magics_manager.magics[kind][magic.name]
    page = repr(function("--help", *(["x = 1"] if kind == "cell" else [])))
    assert page.startswith(magic.label)
    assert all(name in page for action in magic.parameters for name in action.option_strings)


def test_help_after_a_launch_shows_the_page_and_launches_nothing(notebook: Notebook) -> None:
    assert notebook.run("page = %triton_tune no_kernel[grid](x) --help").error is None
    assert repr(notebook.names["page"]).startswith("%triton_tune")
    assert repr(notebook.names["page"]) == repr(page_of("%triton_tune"))


@pytest.mark.parametrize("word", ["coalesced", "coalescing"])
def test_any_form_of_a_word_leads_to_the_pages_about_it(word: str, notebook: Notebook) -> None:
    assert "did you mean uncoalesced access or traffic?" in str(notebook.run(f"%triton {word}").error)
