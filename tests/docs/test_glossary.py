"""Sentences of the product and of its pages use no phrase that the glossary retires."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
AVOIDED = "## Words we avoid"
PACKAGE = ROOT / "kernellab"
ROOMS = sorted(path for path in (*PACKAGE.iterdir(), ROOT / "docs" / "pages") if path.is_dir() or path.suffix == ".py")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CODE = re.compile(r"^ *```.*?^ *```$|`[^`]+`|<[a-z][^>]*>|\]\([^)]*\)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A template of text with its place; each value stands as ``{}``."""

    place: str
    text: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of the glossary's last table."""

    phrase: re.Pattern[str]
    instead: str
    allowed: re.Pattern[str] | None

    def hit(self, text: str) -> str | None:
        """Return the first retired phrase in a text, or None."""
        rest = self.allowed.sub(" ... ", text) if self.allowed else text
        match = self.phrase.search(rest)
        return match[0] if match else None


@cache
def rules() -> list[Rule]:
    """Return the rows of the table of avoided words."""
    rows = table_rows()
    return [Rule(phrases(avoided), but, phrases(allowed) if allowed else None) for avoided, but, allowed in rows]


@cache
def any_phrase() -> re.Pattern[str]:
    """Return a pattern for any avoided phrase; most sentences have none, and need no look at the rules one by one."""
    return phrases(",".join(row[0] for row in table_rows()))


def table_rows() -> list[list[str]]:
    """Return the cells of the table of avoided words, without its head."""
    table = GLOSSARY.read_text(encoding="utf-8").partition(AVOIDED)[2]
    rows = [[cell.strip() for cell in line.strip()[1:-1].split("|")] for line in table.splitlines() if line[:1] == "|"]
    return rows[2:]


def phrases(words: str) -> re.Pattern[str]:
    """Return a pattern for any of some phrases, in which ``...`` is up to 50 characters of one clause."""
    parts = words.split(",")
    patterns = [re.escape(part.strip()).replace(r"\.\.\.", r"[^.;:]{1,50}?").replace(r"\ ", r"\s+") for part in parts]
    return re.compile(rf"(?<!\w)(?:{'|'.join(patterns)})(?!\w)", re.IGNORECASE)


def python_sentences(path: Path) -> Iterator[Sentence]:
    """Yield the strings of a file that have several words, docstrings included."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node, text in templates(tree):
        if re.search(r"\w\s+\w", text):
            yield Sentence(f"{path.relative_to(ROOT)}:{node.lineno}", re.sub(r"``.*?``|`[^`]+`", "{}", text))


def templates(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """Yield strings and f-strings under a node; a string within an f-string's value is one of its own."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node, node.value
    elif isinstance(node, ast.JoinedStr):
        yield node, "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                yield from templates(part.value)
    else:
        for child in ast.iter_child_nodes(node):
            yield from templates(child)


def markdown_sentences(text: str, place: str) -> Iterator[Sentence]:
    """Yield the paragraphs of a page without its code."""
    prose = CODE.sub(lambda code: "{}" + "\n" * code[0].count("\n"), text)
    line = 1
    for paragraph in prose.split("\n\n"):
        blank = len(paragraph) - len(paragraph.lstrip("\n"))
        yield Sentence(f"{place}:{line + blank}", paragraph)
        line += paragraph.count("\n") + 2


def notebook_sentences(path: Path) -> Iterator[Sentence]:
    """Yield the text cells of a notebook."""
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        if cell["cell_type"] == "markdown":
            yield from markdown_sentences("".join(cell["source"]), f"{path.relative_to(ROOT)} cell {number}")


def printed_sentences(path: Path) -> Iterator[Sentence]:
    """Yield what the cells of a notebook printed and showed as text, where values stand in the sentences."""
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        for output in cell.get("outputs", []):
            text = output.get("text") or output.get("data", {}).get("text/plain") or output.get("evalue", "")
            yield Sentence(f"{path.relative_to(ROOT)} output of cell {number}", "".join(text))


def violations(sentences: Iterator[Sentence]) -> list[str]:
    """Return each retired phrase with its place and what to write."""
    return [
        f"{sentence.place}: {found!r}; write: {rule.instead}"
        for sentence in sentences
        if any_phrase().search(sentence.text)
        for rule in rules()
        if (found := rule.hit(sentence.text)) is not None
    ]


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.stem)
def test_sentences_of_a_room_use_the_words_of_the_glossary(room: Path) -> None:
    files = sorted(room.rglob("*.py")) if room.is_dir() else [room]
    assert not violations(sentence for file in files for sentence in python_sentences(file))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_uses_the_words_of_the_glossary(page: Path) -> None:
    text = page.read_text(encoding="utf-8").partition(AVOIDED)[0]
    assert not violations(markdown_sentences(text, str(page.relative_to(ROOT))))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_the_text_of_a_notebook_uses_the_words_of_the_glossary(notebook: Path) -> None:
    assert not violations(notebook_sentences(notebook))
    assert not violations(printed_sentences(notebook))


def test_a_retired_phrase_is_found_with_its_place_and_replacement(tmp_path: Path) -> None:
    table = rules()
    assert len(table) > 20
    for text, instead in (
        ("{} tells what to mend", "fix"),
        ("off by {} where {} is allowed", "tolerance ..."),
        ("1.5 to\n  2 times faster", "2.1x faster, 2.1x slower"),
        ("{} is no layout", "is not a, are not"),
    ):
        assert instead in [rule.instead for rule in table if rule.hit(text)]
    for text in ("there is no GPU, so {} is no longer timed", "an object with ask and tell", "a foretelling"):
        assert not [rule.instead for rule in table if rule.hit(text)]
