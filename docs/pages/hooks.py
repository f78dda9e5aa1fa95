"""What mkdocs calls: the generated pages, the navigation, and the cells of notebooks."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:  # mkdocs loads this file by its path
    sys.path.insert(0, str(ROOT))

from docs.pages import commands, errors, magics, notebooks, reference, settings  # noqa: E402

EXPLANATIONS = ROOT / "docs"
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


def generated_pages() -> dict[str, str]:
    """Return the text of every generated page by its path in the site."""
    return {
        **magics.pages(),
        **notebooks.pages(),
        **reference.pages(),
        "errors.md": errors.page(),
        "commands.md": commands.page(),
        "settings.md": settings.page(),
        "changelog.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
    }


def navigation(pages: dict[str, str]) -> list[Any]:
    """Return the navigation: one tab per kind of page; those written in docs/ are found there."""
    explanations = sorted(path.name for path in EXPLANATIONS.glob("*.md") if path.name != "index.md")
    how_to, decisions = (
        sorted(path.relative_to(EXPLANATIONS).as_posix() for path in EXPLANATIONS.glob(f"{folder}/*.md"))
        for folder in ("how-to", "decisions")
    )
    return [
        {"Start": "index.md"},
        {"Notebooks": _under(pages, "notebooks/")},
        {"Magics": _under(pages, "magics/")},
        {"Errors": "errors.md"},
        {"Reference": [*_under(pages, "reference/"), {"Command line": "commands.md"}, {"Settings": "settings.md"}]},
        {"How to": how_to},
        {"Explanations": [*explanations, {"Decisions": decisions}, {"Changelog": "changelog.md"}]},
    ]


def on_config(config: Any) -> Any:
    config.nav = navigation(generated_pages())
    return config


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for path, text in generated_pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Put the cells of notebooks where the page has slots for them."""
    return notebooks.filled(html)


def _under(pages: dict[str, str], folder: str) -> list[Any]:
    """Return the pages of a folder in their order, the index first."""
    own = [path for path in pages if path.startswith(folder)]
    return [path if path.endswith("index.md") else {_title(pages[path]): path} for path in own]


def _title(text: str) -> str:
    found = _TITLE.search(text)
    return found[1].replace("`", "") if found else ""
