"""Honest candidates, as users write them: a judge accepts each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernellab.judge.judging import judge
from tests.judge import honest
from tests.judge.honest.candidates import CANDIDATES
from tests.tables import every

FOLDER = Path(honest.__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize(("name", "specification", "text"), every(8, CANDIDATES))
def test_an_honest_candidate_is_accepted(name, specification, text, tmp_path):
    candidate = tmp_path / f"{name}.py"
    candidate.write_text(text)
    verdict = judge(FOLDER / specification, candidate, time=False, seed=1)
    assert verdict.is_accepted, verdict.reasons
    assert {trial.outcome for trial in verdict.trials} <= {"right", "not asked"}
    assert any(trial.outcome == "right" for trial in verdict.trials)


def test_names_of_honest_candidates_are_unique_and_each_specification_is_used():
    names = [name for name, _, _ in CANDIDATES]
    assert len(set(names)) == len(names)
    assert {specification for _, specification, _ in CANDIDATES} <= {file.name for file in FOLDER.glob("spec_*.py")}
