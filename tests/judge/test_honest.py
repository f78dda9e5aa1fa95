"""Honest candidates, as users write them: a judge accepts each of them.

Each launch is made with its programs one by one and in batches: both leave the same.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kernellab.judge.judging import judge
from tests.judge import honest
from tests.judge.honest.candidates import CANDIDATES
from tests.tables import every

FOLDER = Path(honest.__file__).parent


_FAST = ("add_tutorial", "sum_last_block", "embedding", "softmax_online")
_BY_NAME = {name: (specification, text) for name, specification, text in CANDIDATES}


def _check(name, folder, launchers):
    specification, text = _BY_NAME[name]
    candidate = folder / f"{name}.py"
    candidate.write_text(text)
    verdict = judge(FOLDER / specification, candidate, time=False, seed=1)
    assert verdict.is_accepted, verdict.reasons
    assert {trial.outcome for trial in verdict.trials} <= {"right", "not asked"}
    assert any(trial.outcome == "right" for trial in verdict.trials)
    assert launchers[0].count


@pytest.mark.parametrize("name", _FAST)
def test_a_sample_of_honest_candidates_is_accepted(name, tmp_path, launchers):
    _check(name, tmp_path, launchers)


@pytest.mark.slow
@pytest.mark.parametrize("name", every(8, [name for name in _BY_NAME if name not in _FAST]))
def test_an_honest_candidate_is_accepted(name, tmp_path, launchers):
    _check(name, tmp_path, launchers)


def test_names_of_honest_candidates_are_unique_and_each_specification_is_used():
    names = [name for name, _, _ in CANDIDATES]
    assert len(set(names)) == len(names)
    assert {specification for _, specification, _ in CANDIDATES} <= {file.name for file in FOLDER.glob("spec_*.py")}
