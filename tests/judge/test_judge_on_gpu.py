"""Candidates judged and timed on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernellab.judge.judging import judge
from kernellab.judge.on_gpu import needed_shares
from kernellab.judge.specification import read_specification
from kernellab.judge.verdict import Verdict
from tests.judge.files import ADDER, ADDITION, write
from tests.judge.test_judging import GLUON, TUNED

TIMED = ADDITION.replace('"hidden":', '"timed": [{"n": 1 << 24}], "hidden":') + "\n\nbaseline = reference\n"


def on_gpu(folder: Path, candidate: str, specification: str = TIMED) -> Verdict:
    return judge(*write(folder, specification, candidate), seed=1)


@pytest.mark.gpu
@pytest.mark.parametrize("candidate", [ADDER, TUNED, GLUON], ids=["plain", "autotuned", "gluon"])
def test_a_right_candidate_is_timed_next_to_the_baseline(tmp_path, candidate):
    verdict = on_gpu(tmp_path, candidate)
    assert verdict.is_accepted, verdict.reasons
    (timing,) = verdict.timings
    assert timing.low_us <= timing.time_us <= timing.high_us
    assert timing.roofline_us < timing.time_us
    assert verdict.speedup_low <= verdict.speedup <= verdict.speedup_high
    assert {trial.device for trial in verdict.trials} - {"cpu"}


@pytest.mark.gpu
def test_a_kernel_in_gluon_that_is_wrong_is_found_on_the_gpu(tmp_path):
    verdict = on_gpu(tmp_path, GLUON.replace("mask=mask)\n\n", "mask=offsets < n - 1)\n\n"))
    assert verdict.verdict == "wrong"
    assert verdict.reasons[0].rule == "values"


@pytest.mark.gpu
def test_a_speedup_that_is_asked_and_not_reached_is_slow(tmp_path):
    verdict = on_gpu(tmp_path, ADDER, TIMED + "\n\nmin_speedup = 3\n")
    assert verdict.verdict == "slow"
    assert verdict.reasons[0].rule == "speedup"


def test_all_elements_of_a_sum_and_a_few_of_a_gather_must_be_read(tmp_path):
    spec, _ = write(tmp_path, ADDITION, "")
    assert needed_shares(read_specification(spec), 1) == {"x": 1.0, "y": 1.0}
    gather = ADDITION.replace("return x + y", "return x[:100] + 0 * y[:100]").replace(
        '"hidden": [', '"hidden": [][:0] and ['
    )
    spec.write_text(gather)
    shares = needed_shares(read_specification(spec), 1)
    assert shares["x"] < 0.5
    assert shares["y"] == 0.0
