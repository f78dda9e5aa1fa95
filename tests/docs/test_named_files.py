"""What the pages for contributors name is there: files, modules, names, targets of the Makefile, links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOW_TO = sorted((ROOT / "docs" / "how-to").glob("*.md"))
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "docs" / "architecture.md", *DECISIONS, *HOW_TO]
# A path in prose may leave out what the page is about.
UNDER = (ROOT, ROOT / "kernellab", ROOT / "tests")
MADE_BY_USE = re.compile(r"^(build|dist|\.venv)\b|[*<>{}]")
SUFFIXES = (".py", ".md", ".toml", ".yml", ".yaml", ".css", ".js", ".ipynb")

SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")


def prose(page: Path) -> str:
    """Return a page without its blocks of code, each span on one line."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`([^`]+)`", lambda span: span[0].replace("\n", " "), text)


def paths(page: Path) -> list[str]:
    """Return what a page names as a file or folder."""
    found = SPAN.findall(prose(page))
    return [
        span
        for span in found
        if re.fullmatch(r"[\w./-]+", span)
        and (span.endswith(SUFFIXES) or re.fullmatch(r"\.?\w[\w-]*(/[\w.-]+)*/", span) or span.startswith("kernellab/"))
        and not MADE_BY_USE.search(span)
    ]


@cache
def targets() -> frozenset[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return frozenset(re.findall(r"^([a-z-]+):", text, re.MULTILINE))


def is_defined(dotted: str) -> bool:
    """Whether a dotted name is a module of the package, or a name or member of a class that one defines."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        stem = ROOT.joinpath(*parts[:count])
        file = stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")
        if file.is_file():
            rest = parts[count:]
            return not rest or set(rest) <= words(file)
    return False


@cache
def words(file: Path) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", file.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    missing = [path for path in paths(page) if not any((folder / path).exists() for folder in UNDER)]
    missing += [link for link in LINK.findall(SPAN.sub("", prose(page))) if not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_module_and_target_that_a_page_names_is_there(page: Path) -> None:
    found = SPAN.findall(prose(page))
    missing = [span for span in found if re.fullmatch(r"kernellab(\.\w+)+", span) and not is_defined(span)]
    made = [span.split()[1] for span in found if re.match(r"make [a-z-]+", span)]
    assert not missing
    assert set(made) <= targets()


@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.stem)
def test_every_name_of_a_how_to_page_stands_in_a_file_that_it_names(page: Path) -> None:
    files = [path for name in paths(page) for path in files_of(name)]
    known = frozenset().union(*map(words, files)) | {path.name for path in ROOT.iterdir()}
    names = [span for span in SPAN.findall(prose(page)) if re.fullmatch(r"[A-Za-z_]\w+", span)]
    assert len(page.read_text(encoding="utf-8").splitlines()) <= 32
    assert not [name for name in names if name not in known]


def files_of(name: str) -> Iterator[Path]:
    for folder in UNDER:
        path = folder / name
        yield from path.rglob("*.py") if path.is_dir() else [path] if path.is_file() else []


def test_what_is_left_out_of_another_triton_is_there() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    listed = re.search(r"^WITHOUT_TRITON := (.+)$", text, re.MULTILINE)
    assert listed
    assert [name for name in listed[1].split() if not (ROOT / "tests" / name).exists()] == []
