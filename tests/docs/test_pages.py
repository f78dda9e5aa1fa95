"""The generated pages name what the package has, and nothing that it lacks."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import kernellab
from docs.pages import hooks, magics, notebooks, reference, settings
from kernellab.launch.run import FindingKind
from kernellab.notebook.help import MAGICS

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
NO_RESULTS = {"Any", "None", "Self", "Session", "bool", "int", "str"}  # a session is for the rooms below the lab


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return hooks.generated_pages()


def test_every_magic_has_a_page_with_its_options(pages: dict[str, str]) -> None:
    names = {name for family in MAGICS for kind in ("cell", "line") for name in family.magics[kind]}
    assert {magic.name for magic in magics.magics()} == names
    for magic in magics.magics():
        page = pages[magics.path_of(magic)]
        assert page.startswith(f"# `{magic.label}`") or magic.label == "%triton"
        for action in magic.parser._actions if magic.parser else ():
            for option in action.option_strings:
                assert f"`{option}" in page
        assert f"[`{magic.label}`]({magics.path_of(magic).rpartition('/')[2]})" in pages["magics/index.md"]


def test_a_magic_links_to_what_it_returns(pages: dict[str, str]) -> None:
    assert "[`Tuning`][kernellab.tune.result.Tuning]" in pages["magics/triton_tune.md"]
    assert "[`lab.tune`][kernellab.lab.Lab.tune]" in pages["magics/triton_tune.md"]


def test_the_example_of_a_magic_is_a_cell_with_a_picture_where_one_has_it(pages: dict[str, str]) -> None:
    assert "kl-card" in notebooks.filled(pages["magics/triton.md"])


def test_what_the_reference_names_exists() -> None:
    for chapter in reference.CHAPTERS:
        for name in chapter.objects:
            assert reference.resolve(name), name


def test_what_the_package_offers_and_its_verbs_return_is_in_the_reference() -> None:
    documented = reference.documented()
    assert "kernellab.judge.judging.judge" in documented  # kernellab.judge is a module that calls it
    for name in set(kernellab.__all__) - {"__version__", "errors", "KernellabError", "judge"}:
        offered = getattr(kernellab, name)
        assert f"{offered.__module__}.{offered.__name__}" in documented
    verbs = {name: verb for name, verb in inspect.getmembers(kernellab.Lab, inspect.isfunction) if name[0] != "_"}
    results = {name for verb in verbs.values() for name in inspect.signature(verb).return_annotation.split(" | ")}
    assert {"Compiled", "Tuning", "Explanation", "CapturedFunction"} <= results
    assert {name for name in results if name.isidentifier()} - NO_RESULTS <= set(kernellab.__all__)


def test_the_page_of_checked_runs_has_each_kind_of_warning() -> None:
    page = (ROOT / "docs" / "cpu_runs.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert sorted(named) == sorted({*FindingKind} - {FindingKind.OUT_OF_BOUNDS})  # which is an error


def test_every_setting_has_a_meaning_and_a_default(pages: dict[str, str]) -> None:
    assert sorted(settings.variables()) == sorted(settings.MEANINGS)
    for line in pages["settings.md"].splitlines()[6:]:
        assert re.fullmatch(r"\| `KERNELLAB_\w+` \| .+ \| .+ \|", line)


@pytest.mark.parametrize("name", notebooks.names())
def test_a_notebook_page_has_every_cell(pages: dict[str, str], name: str) -> None:
    page, cells = notebooks.filled(pages[f"notebooks/{name}.md"]), notebooks.notebook(name).cells
    assert "nb-slot" not in page
    assert page.count('class="nb-cell"') == sum(cell.cell_type == "code" for cell in cells)


def test_slots_of_written_pages_name_cells_that_exist() -> None:
    start = (hooks.EXPLANATIONS / "index.md").read_text(encoding="utf-8")
    assert "kl-card" in notebooks.filled(start)


def test_written_pages_are_in_the_navigation(pages: dict[str, str]) -> None:
    listed = str(hooks.navigation(pages))
    for path in hooks.EXPLANATIONS.rglob("*.md"):
        assert f"'{path.relative_to(hooks.EXPLANATIONS).as_posix()}'" in listed


def test_outputs_show_in_their_richest_form() -> None:
    import nbformat  # takes a second

    cell = nbformat.v4.new_code_cell(
        "%%triton\nf()",
        outputs=[
            nbformat.v4.new_output("stream", text="a < b\n"),
            nbformat.v4.new_output("display_data", data={"text/plain": "plain", "text/html": "<b>rich</b>"}),
            nbformat.v4.new_output("error", ename="E", evalue="v", traceback=["\x1b[31mred\x1b[0m"]),
        ],
    )
    html = notebooks.cell_html(cell)
    assert "a &lt; b" in html
    assert "<b>rich</b>" in html
    assert "plain" not in html
    assert '<pre class="nb-text nb-error">red</pre>' in html


def test_pictures_for_the_dark_follow_the_palette_of_the_site() -> None:
    html = '<picture><source srcset="D" media="(prefers-color-scheme: dark)"><img src="L" alt="a"></picture>'
    assert notebooks._by_palette(html) == '<img src="L#only-light" alt="a"><img src="D#only-dark" alt="a">'


@pytest.mark.parametrize(
    ("link", "shown"),
    [
        ("[first](01_quickstart.ipynb#add)", "[first](01_quickstart.md#add)"),
        ("[runs](../docs/cpu_runs.md)", "[runs](../cpu_runs.md)"),
        ("[source](../kernellab/lab/__init__.py)", "source"),
        ("[Triton](https://triton-lang.org)", "[Triton](https://triton-lang.org)"),
        ("`kernel[grid](x)`", "`kernel[grid](x)`"),
    ],
)
def test_links_of_notebooks_lead_to_pages(link: str, shown: str) -> None:
    assert notebooks._for_markdown(link) == shown


def test_a_list_right_after_text_becomes_one() -> None:
    assert notebooks._for_markdown("Two things:\n- one\n- two\n  more") == "Two things:\n\n- one\n- two\n  more"


@pytest.mark.slow
@pytest.mark.exhaustive  # make docs does so, too
def test_the_site_builds_without_warnings_and_needs_no_network(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    build(load_config(str(hooks.ROOT / "mkdocs.yml"), site_dir=str(tmp_path)))
    loaded = re.compile(r'<(?:script|img|iframe)[^>]+src="(?:https?:)?//|<link[^>]+href="(?:https?:)?//')
    for path in tmp_path.rglob("*.html"):
        assert not loaded.search(path.read_text(encoding="utf-8")), path.name
