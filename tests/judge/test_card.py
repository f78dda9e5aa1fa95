"""A verdict as a card, a page, a table and JSON."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from kernellab.display import Savable
from kernellab.errors import UsageError
from kernellab.judge.verdict import is_signed
from kernellab.views.bundles import OwnView, bundle_of
from kernellab.views.rendering import FIGURES
from tests.judge.verdicts import ACCEPTED, KEY, WRONG, signed


def test_a_notebook_shows_the_verdict_with_its_reasons_and_trials() -> None:
    bundle = WRONG._repr_mimebundle_()
    for text in (bundle["text/html"], bundle["text/plain"]):
        assert "output is wrong in 3 of 7,000 elements" in text
        assert "n=1000, m=7" in text
        assert "no network" in text
    assert "soft&lt;max&gt;.py" in bundle["text/html"]
    assert "<max>" not in bundle["text/html"]
    assert 'class="kl-alert"' in bundle["text/html"]
    assert bundle["text/plain"].startswith("wrong: soft<max>.py  1 trial")


def test_times_and_speedup_of_an_accepted_one_show() -> None:
    text = bundle_of(ACCEPTED)["text/plain"]
    assert "speedup 1.32x (1.3 - 1.34)" in text.splitlines()[0]
    assert "12.5 us  12.2 us - 12.8 us  16.5 us" in text
    assert "x alone tiny (hidden)" in text
    assert "note: not asked" in text


def test_a_verdict_is_saved_as_a_page_its_trials_or_its_signed_line(tmp_path: Path) -> None:
    verdict = signed(WRONG)
    assert "soft&lt;max&gt;.py: Verdict" in verdict.save(tmp_path / "a.html").read_text()
    rows = list(csv.DictReader(verdict.save(tmp_path / "a.csv").read_text().splitlines()))
    assert [(row["sizes"], row["outcome"]) for row in rows] == [("n=1000, m=7", "wrong")]
    assert is_signed(verdict.save(tmp_path / "a.json").read_text(), KEY)
    with pytest.raises(UsageError, match=r"ends in one of \.html, \.csv, \.json"):
        verdict.save(tmp_path / "a.png")


def test_a_result_with_a_view_of_its_own_is_not_one_that_is_drawn_by_type() -> None:
    assert isinstance(WRONG, OwnView)
    assert isinstance(WRONG, Savable)
    assert not [kind for kind in FIGURES if issubclass(kind, OwnView)]
