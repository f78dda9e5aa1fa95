"""Candidates judged and timed on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernellab.judge.judging import judge
from kernellab.judge.on_gpu import needed_shares
from kernellab.judge.specification import read_specification
from kernellab.judge.verdict import Verdict
from tests.judge.files import ADDER, ADDITION, HEAD, write
from tests.judge.test_judging import GLUON, TUNED

TIMED = ADDITION.replace('"hidden":', '"timed": [{"n": 1 << 24}], "hidden":') + "\n\nbaseline = reference\n"

BEYOND_32_BITS = """
import torch

sizes = {"shown": [{"n": 1000}], "timed": [{"n": (1 << 31) + 1000}]}


def inputs(generator, n):
    part = torch.randint(0, 200, (1 << 20,), generator=generator, dtype=torch.uint8)
    return {"x": part.repeat(n // part.numel() + 1)[:n]}


def reference(x):
    return x + 1
"""
INCREMENT = (
    HEAD
    + """

@triton.jit
def increment(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + 1, mask=mask)


def solve(x):
    out = torch.empty_like(x)
    increment[(triton.cdiv(x.numel(), 4096),)](x, out, x.numel(), BLOCK=4096)
    return out
"""
)


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
def test_more_elements_than_32_bits_count_are_judged_and_timed(tmp_path):
    verdict = on_gpu(tmp_path, INCREMENT, BEYOND_32_BITS)
    assert verdict.is_accepted, verdict.reasons
    assert verdict.timings[0].sizes == (("n", (1 << 31) + 1000),)


@pytest.mark.gpu
def test_offsets_of_32_bits_fail_where_elements_go_beyond(tmp_path):
    verdict = on_gpu(tmp_path, INCREMENT.replace(".to(tl.int64)", ""), BEYOND_32_BITS)
    assert not verdict.is_accepted
    small = {trial.outcome for trial in verdict.trials if trial.sizes == (("n", 1000),)}
    assert small <= {"right", "not asked"}
    assert verdict.reasons[0].trial.startswith(f"n={(1 << 31) + 1000}")


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
