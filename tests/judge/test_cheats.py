"""Cheats, none of which may be accepted: each is judged from its file, and refused for the right reason.

Each launch of the whole table is made with its programs one by one and in batches: both leave the same, and fail in the
same words. The sample is judged as users judge.
"""

from __future__ import annotations

import pytest

from kernellab.judge.judging import judge
from tests.judge.cheats.candidates import CANDIDATES
from tests.judge.cheats.cheat import Cheat
from tests.judge.cheats.layouts_and_tolerances import RIGHT as RIGHT_IN_LAYOUTS
from tests.judge.cheats.right import RIGHT
from tests.tables import every

_FAST = (
    "a_write_beyond_the_end",
    "a_sum_without_atomics",
    "no_maximum_before_exp",
    "all_but_the_last_block",
    "the_output_is_an_input",
    "an_import_in_a_kernel",
    "a_read_beyond_the_end",
    "a_branch_on_a_sum",
    "torch_by_name",
    "an_exit_at_import",
)
_BY_NAME = {candidate.name: candidate for candidate in CANDIDATES}


def _check(candidate: Cheat, folder) -> None:
    file = folder / "candidate.py"
    file.write_text(candidate.text)
    verdict = judge(candidate.file, file, time=False, seed=1, timeout_s=candidate.timeout_s)
    assert not verdict.is_accepted
    assert verdict.verdict in candidate.verdicts, verdict.reasons
    reason = verdict.reasons[0]
    assert reason.rule in candidate.rules, verdict.reasons
    assert reason.detail
    if candidate.line is not None:
        assert candidate.line in [each.line for each in verdict.reasons], verdict.reasons


@pytest.mark.parametrize("name", _FAST)
def test_a_sample_of_cheats_is_not_accepted(name, tmp_path):
    _check(_BY_NAME[name], tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("launchers")
@pytest.mark.parametrize("name", every(36, [name for name in _BY_NAME if name not in _FAST]))
def test_a_cheat_is_not_accepted_and_the_reason_names_the_rule(name, tmp_path):
    _check(_BY_NAME[name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("specification", every(3, {**RIGHT, **RIGHT_IN_LAYOUTS}))
def test_the_candidate_that_cheats_are_made_from_is_accepted(specification, tmp_path):
    file = tmp_path / "candidate.py"
    file.write_text({**RIGHT, **RIGHT_IN_LAYOUTS}[specification])
    path = _BY_NAME["torch_by_name"].file.with_name(f"spec_{specification}.py")
    verdict = judge(path, file, time=False, seed=1)
    assert verdict.is_accepted, verdict.reasons
