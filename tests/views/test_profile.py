from __future__ import annotations

from typing import Any

import pytest

import kernellab
from kernellab.errors import share_text
from kernellab.explain.profile import Counters, InstructionSamples, LineSamples, Profile, Share, Stall
from kernellab.ir.graph import main_file
from kernellab.views.cards.explanation import counters_words, profile_card
from kernellab.views.explorers import heat_of
from tests.kernels.cases import all_cases


@pytest.fixture(scope="module")
def compiled(lab: kernellab.Lab) -> Any:
    case = next(iter(all_cases().values()))
    return lab.compile(case.kernel, **case.fresh_arguments(), **case.meta, target="cuda:90")


@pytest.fixture(scope="module")
def profile(compiled: Any) -> Profile:
    file = main_file(compiled.graph)
    place = next(op.location for op in compiled.graph.operations if op.name == "tt.load")
    reasons = {Stall.MEMORY: 60, Stall.ISSUING: 15}
    return Profile(
        compiled.kernel,
        "cuda:90",
        "a GPU",
        (4, 1, 1),
        lines=(
            LineSamples(file, place.line, 75, Share(0.75, 0.7, 0.8), reasons),
            LineSamples(None, None, 25, Share(0.25, 0.2, 0.3), {Stall.BARRIER: 25}),
        ),
        instructions=(InstructionSamples(0x10, "S2R R1", file, place.line, reasons),),
        launches=20,
        sessions=2,
        seconds=1.5,
        compiled=compiled,
    )


@pytest.mark.slow
def test_the_card_has_the_heat_beside_source_and_machine_code(profile: Profile) -> None:
    html = profile_card(profile).html()
    assert '<b style="--heat:0.87"' in html
    assert "waits for memory 80 %" in html
    assert "  75 % /*0010*/" in html.replace("        ", "  ")


def test_the_text_leads_with_the_lines_that_cost_most(profile: Profile) -> None:
    lines = profile_card(profile).text().splitlines()
    assert "100 samples of 20 launches" in lines[0]
    assert "75 %" in lines[3]
    assert "waits for memory" in lines[3]
    assert lines[4].startswith("unknown")


def test_a_refusal_is_told_and_draws_no_explorer(compiled: Any) -> None:
    refused = Profile("k", "cuda:90", "", (1, 1, 1), refused="There is no GPU.", compiled=compiled)
    assert "There is no GPU." in profile_card(refused).text()
    assert "kx-code" not in profile_card(refused).html()
    assert heat_of(refused) is None


def test_counters_are_told_as_shares() -> None:
    said = counters_words(Counters(dram=0.825, tensor=0.034))
    assert said == "Share of peak, by counters: HBM 82 %, tensor cores 3.4 %."


@pytest.mark.parametrize(("share", "text"), [(0.0004, "0.0 %"), (0.042, "4.2 %"), (0.423, "42 %"), (1.0, "100 %")])
def test_small_shares_keep_a_digit(share: float, text: str) -> None:
    assert share_text(share) == text
