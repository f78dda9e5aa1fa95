"""Every kernel of the suite: the analysis of its raw and of its optimised TTIR against its facts and the truth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kernellab.ir.effects import REACHED, Effects, effects_of
from tests.ir.conftest import graphs_of_case
from tests.ir.expected import Case, Fact, all_cases
from tests.ir.truth import ELSEWHERE
from tests.tables import every

pytestmark = pytest.mark.filterwarnings("ignore:.*make_block_ptr is deprecated.*:UserWarning")

CASES = all_cases()
RUN = [case for case in CASES if case.interpreted]
FORMS = pytest.mark.parametrize("form", [0, 1], ids=["raw", "optimised"])


def facts_of(effects: Effects) -> frozenset[Fact]:
    return frozenset((str(site.kind), site.argument) for site in effects.sites)


def case_id(case: Case) -> str:
    return case.name


@FORMS
@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_analysis_finds_exactly_the_facts(case: Case, form: int) -> None:
    effects = effects_of(graphs_of_case(case)[form])
    assert facts_of(effects) == case.facts
    assert {each.operation for each in effects.unknown} == case.unknown


@pytest.mark.slow
@pytest.mark.parametrize("case", RUN, ids=case_id)
def test_run_touches_what_the_facts_say(case: Case, truth: Mapping[str, Any]) -> None:
    outcome = truth[case.name]
    assert "error" not in outcome, outcome
    touched = {tuple(fact) for fact in outcome["facts"]}
    if case.unknown:
        assert {(kind, ELSEWHERE if name.startswith(REACHED) else name) for kind, name in case.facts - case.may} <= (
            touched
        )
    else:
        assert touched == case.facts - case.may
    assert bool(case.unknown) or ELSEWHERE not in {name for _, name in touched}


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cuda:75", "cuda:80", "cuda:100", "hip:gfx942"])
@pytest.mark.parametrize("case", every(4, CASES[::5]), ids=case_id)
def test_answer_does_not_depend_on_the_target(case: Case, target: str) -> None:
    for graph in graphs_of_case(case, target):
        assert facts_of(effects_of(graph)) == case.facts


def test_suite_is_large_enough() -> None:
    assert len(CASES) >= 120
