from __future__ import annotations

from dataclasses import replace

from kernellab.explain.causes import Cause
from kernellab.explain.explanation import Explanation, explain_facts
from kernellab.views.cards.explanation import explanation_card, gain_words
from tests.explain.test_rules import access, facts


def strided() -> Explanation:
    apart = access(sectors=64e6, ideal_sectors=8e6, lane_step_bytes=4096.0, width_bytes=4, line=3)
    return explain_facts(facts(apart, access(64, operation="store", argument="out")), __file__)


def test_the_card_has_the_limit_the_findings_and_what_is_not_known() -> None:
    html = explanation_card(strided()).html()
    assert "Limited by" in html
    assert "1. Uncoalesced access" in html
    assert "estimated speedup" in html
    assert "Estimated" in html
    assert "from dataclasses import replace" in html  # line 3 of this file


def test_the_text_says_the_same_in_lines() -> None:
    lines = explanation_card(strided()).text().splitlines()
    assert lines[0].startswith("k  cuda:90  H100")
    assert lines[1].startswith("Limited by ")
    assert lines[2].startswith("1. Uncoalesced access: estimated speedup ")
    assert any(line.strip().startswith("3  from") for line in lines)


def test_gains_are_factors_and_none_is_rounded_up() -> None:
    finding = strided().findings[0]
    assert gain_words(replace(finding, cause=Cause.LAUNCH, gain=(2.5, 4.07))) == "at most 4x"
    assert gain_words(replace(finding, gain=(1.2, 3.456))) == "estimated speedup 1.2-3.4x"
    assert gain_words(replace(finding, gain=(1.05, 1.3))) == "estimated speedup up to 1.3x"
