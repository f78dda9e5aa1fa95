"""The architecture page stays short, and names records where they are defined."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
MOST_RECORDS = {"A cell to its card": 14, "A tuning": 12, "A slider move": 10, "An explanation": 8}


def records_of(journey: str) -> list[tuple[str, list[str]]]:
    """Return the records of a journey's table, each with the files that may define it."""
    section = PAGE.split(f"### {journey}\n")[1].split("\n#")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return [
        (record, re.findall(r"`([^`]+)`", files))
        for names, _, files in rows
        for record in re.findall(r"`(\w+)`", names)
    ]


@pytest.mark.parametrize("journey", MOST_RECORDS)
def test_the_records_of_a_journey_are_few_and_defined_where_the_page_says(journey: str) -> None:
    records = records_of(journey)
    assert 0 < len(records) <= MOST_RECORDS[journey]
    for record, files in records:
        texts = [(ROOT / "kernellab" / file).read_text(encoding="utf-8") for file in files]
        assert any(re.search(rf"^class {record}\b", text, re.MULTILINE) for text in texts), f"{record}: {files}"


def test_the_page_can_be_read_at_one_sitting() -> None:
    assert len(PAGE.split()) <= 2500
