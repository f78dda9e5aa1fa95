from __future__ import annotations

from dataclasses import replace

from kernellab.explain.explanation import Explanation, explain_facts
from kernellab.views.cards.explanation import explanation_card, gain_words
from tests.explain.test_rules import access, facts


def strided() -> Explanation:
    apart = access(sectors=64e6, ideal_sectors=8e6, lane_step_bytes=4096.0, width_bytes=4, line=3)
    return explain_facts(facts(apart, access(64, operation="store", argument="out")), __file__)


def test_the_card_has_the_limit_the_findings_and_what_is_not_known() -> None:
    html = explanation_card(strided()).html()
    assert "limited by" in html
    assert "1. uncoalesced access" in html
    assert "times faster" in html
    assert "Without a GPU" in html
    assert "from dataclasses import replace" in html  # line 3 of this file


def test_the_text_says_the_same_in_lines() -> None:
    lines = explanation_card(strided()).text().splitlines()
    assert lines[0].startswith("k  H100")
    assert lines[1].startswith("Limited by ")
    assert lines[2].startswith("1. uncoalesced access, ")
    assert any(line.startswith("not known: ") for line in lines)


def test_gains_are_told_as_factors() -> None:
    finding = strided().findings[0]
    assert gain_words(replace(finding, gain=(1.2, 3.456))) == "1.2 to 3.46 times faster"
    assert gain_words(replace(finding, gain=(1.0, 1.3))) == "up to 1.3 times faster"
