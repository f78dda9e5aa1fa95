"""Candidates, judged on the CPU from their files."""

from __future__ import annotations

from pathlib import Path

import pytest

import kernellab
from kernellab.errors import UsageError
from kernellab.judge.verdict import Verdict, is_signed
from tests.judge.files import ADDER, ADDITION, HEAD, SOFTMAX, write

pytestmark = pytest.mark.slow


def judged(folder: Path, candidate: str, specification: str = ADDITION, **options: object) -> Verdict:
    return kernellab.judge(*write(folder, specification, candidate), time=False, seed=1, **options)


def test_a_right_candidate_is_accepted_after_trials_on_shown_and_hidden_sizes_and_other_contents(tmp_path):
    verdict = judged(tmp_path, ADDER)
    assert verdict.verdict == "accepted", verdict.reasons
    sizes = {trial.sizes for trial in verdict.trials}
    assert {(("n", 1024),), (("n", 997),), (("n", 1),), (("n", 0),)} <= sizes
    assert {"normal", "large", "sorted", "repeated", "with zeros"} <= {trial.distribution for trial in verdict.trials}
    assert {"x", "y"} == {trial.varied for trial in verdict.trials if trial.varied}
    assert any(trial.is_hidden for trial in verdict.trials)
    assert verdict.kernels == ("add",)


def test_a_wrong_element_is_named_with_size_seed_and_bound(tmp_path):
    wrong = ADDER.replace("mask = offsets < n\n", "mask = offsets < n - 1\n")
    reason = judged(tmp_path, wrong).reasons[0]
    assert reason.rule == "values"
    assert reason.index == (1023,)
    assert reason.bound is not None
    assert reason.trial == "n=1024, as specified, seed 1"


def test_a_candidate_that_is_right_for_shown_sizes_alone_is_wrong(tmp_path):
    shown_only = ADDER.replace("triton.cdiv(x.numel(), 256)", "x.numel() // 256")
    verdict = judged(tmp_path, shown_only)
    assert verdict.verdict == "wrong"
    assert verdict.trials[0].outcome == "right"
    assert "n=997" in verdict.reasons[0].trial


def test_a_softmax_without_its_maximum_is_wrong_for_large_inputs(tmp_path):
    candidate = (
        HEAD
        + """

@triton.jit
def softmax(x, out, n, BLOCK: tl.constexpr):
    row, offsets = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * n + offsets, mask=offsets < n, other=-float("inf"))
    value = tl.exp(value)
    tl.store(out + row * n + offsets, value / tl.sum(value, 0), mask=offsets < n)


def solve(x):
    out = torch.empty_like(x)
    softmax[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out
"""
    )
    verdict = judged(tmp_path, candidate, SOFTMAX)
    assert verdict.verdict == "wrong"
    assert "large" in verdict.reasons[0].trial


def test_an_access_out_of_bounds_is_unsafe_with_its_line(tmp_path):
    verdict = judged(tmp_path, ADDER.replace("tl.load(x + offsets, mask=mask)", "tl.load(x + offsets + n)"))
    assert verdict.verdict == "unsafe"
    assert verdict.reasons[0].rule == "out_of_bounds"
    assert (
        "tl.load(x + offsets + n)" in (tmp_path / "candidate.py").read_text().splitlines()[verdict.reasons[0].line - 1]
    )


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (("return out", "return x + y"), "torch_operation"),
        (("return out", "return x.clone()"), "torch_operation"),
        (("out = torch", "s = x[0].item()\n    out = torch"), "host_reads_data"),
        (("out = torch", "s = x.tolist()\n    out = torch"), "host_reads_data"),
        (("    add[", "    torch.rand(x.shape[0], out=out)\n    add["), "random"),
    ],
)
def test_host_code_that_computes_or_reads_data_is_refused_with_its_line(tmp_path, change, rule):
    text = ADDER.replace(*change)
    verdict = judged(tmp_path, text)
    assert verdict.verdict == "refused"
    assert verdict.reasons[0].rule == rule
    assert verdict.reasons[0].line is not None


def test_memory_from_an_earlier_call_is_refused(tmp_path):
    kept = ADDER.replace("def solve", "KEPT = torch.empty(4096)\n\n\ndef solve").replace(
        "out = torch.empty_like(x)", "out = KEPT[: x.numel()]"
    )
    verdict = judged(tmp_path, kept)
    assert verdict.verdict == "refused"
    assert "outside of the call" in verdict.reasons[0].detail


def test_a_number_that_came_from_chance_is_refused_by_name(tmp_path):
    text = ADDER.replace("import torch\n", "import random\nimport torch\n", 1)
    text = text.replace("x.numel(), BLOCK=256", "x.numel() - random.randrange(1 << 30) * 0, BLOCK=256").replace(
        "(triton.cdiv(x.numel(), 256),)", "(triton.cdiv(x.numel(), 256) + random.randrange(1000),)"
    )
    verdict = judged(tmp_path, text)
    assert verdict.verdict == "refused"
    assert verdict.reasons[0].rule == "constant_from_data"


def test_an_output_in_the_memory_of_an_input_is_wrong(tmp_path):
    text = ADDER.replace("out = torch.empty_like(x)", "out = x")
    verdict = judged(tmp_path, text)
    assert verdict.verdict == "wrong"
    assert verdict.reasons[0].rule == "aliased_output"


def test_outputs_that_follow_from_old_memory_are_wrong(tmp_path):
    text = ADDER.replace(
        "tl.load(y + offsets, mask=mask)", "tl.load(y + offsets, mask=mask) + 0 * tl.load(out + offsets)"
    )
    verdict = judged(tmp_path, text)
    assert verdict.verdict in {"wrong", "unsafe"}


def test_arguments_that_solve_fills_are_the_outputs(tmp_path):
    specification = (
        ADDITION.replace('return {"x": ', 'return {"out": torch.empty(n), "x": ') + '\n\noutputs = ("out",)\n'
    )
    text = ADDER.replace("def solve(x, y):\n    out = torch.empty_like(x)\n", "def solve(x, y, out):\n").replace(
        "    return out\n", ""
    )
    assert judged(tmp_path, text, specification).is_accepted


def test_an_exit_at_import_is_no_verdict(tmp_path):
    verdict = judged(tmp_path, "import os\nos._exit(0)\n")
    assert verdict.verdict == "refused"
    assert verdict.reasons[0].rule == "no_program"


def test_a_candidate_of_many_megabytes_is_refused(tmp_path):
    verdict = judged(tmp_path, ADDER + "#" * (5 << 20))
    assert verdict.verdict == "refused"
    assert verdict.reasons[0].rule == "too_large"


def test_a_kernel_that_launches_another_is_not_run(tmp_path):
    text = (
        ADDER.replace("BLOCK: tl.constexpr):", "BLOCK: tl.constexpr, HELPER: tl.constexpr):")
        .replace("    mask = offsets < n\n", "    HELPER[(1,)](x)\n    mask = offsets < n\n")
        .replace("BLOCK=256)", "BLOCK=256, HELPER=helper)")
        .replace("@triton.jit\ndef add", "@triton.jit\ndef helper(x):\n    tl.store(x, 0.0)\n\n\n@triton.jit\ndef add")
    )
    verdict = judged(tmp_path, text)
    assert verdict.verdict in {"wrong", "refused"}


def test_a_candidate_with_no_solve_is_refused(tmp_path):
    verdict = judged(tmp_path, "x = 1\n")
    assert verdict.verdict == "refused"
    assert verdict.reasons[0].detail.startswith("The candidate defines no function solve")


def test_an_error_of_solve_is_one_reason_for_all_sizes(tmp_path):
    (reason,) = judged(tmp_path, ADDER.replace("    return out\n", "    return out.numpy()\n")).reasons
    assert reason.rule == "host_code"
    assert "n=1024 and 3 more sizes" in reason.detail


def test_the_same_seed_asks_the_same_and_the_signature_holds(tmp_path):
    key = b"0123456789abcdef"
    first = judged(tmp_path, ADDER, key=key, nonce="7")
    second = judged(tmp_path, ADDER, key=key, nonce="7")
    assert [trial.words for trial in first.trials] == [trial.words for trial in second.trials]
    assert is_signed(first.as_json(), key)
    assert not is_signed(first.as_json().replace('"accepted"', '"slow"'), key)
    assert not is_signed(first.as_json(), b"another key, 16 b")


@pytest.mark.parametrize(
    ("specification", "message"),
    [
        ("def inputs(generator):\n    return {}\n", "reference"),
        (ADDITION + '\nallow = "cuda"\n', "allow"),
        (ADDITION.replace('[{"n": 1024}]', '[{"m": 1024}]'), "takes n"),
        (ADDITION.replace("return {", "return 3\n    return {"), "dict by name"),
        (ADDITION.replace('{"n": 997}', '{"n": 997, "m": 3}'), "takes no size 'm'"),
    ],
)
def test_a_wrong_specification_is_a_wrong_call(tmp_path, specification, message):
    with pytest.raises(UsageError, match=message):
        judged(tmp_path, ADDER, specification)


PRODUCT = """
import torch

sizes = {"shown": [{"n": 32}], "hidden": [{"n": 23}]}
distributions = "normal"


def inputs(generator, n):
    return {"a": torch.randn(n, n, generator=generator), "b": torch.randn(n, n, generator=generator)}


def reference(a, b):
    return a @ b
"""

PRODUCER = (
    HEAD
    + """

@triton.jit
def product(a, b, out, n, BLOCK: tl.constexpr):
    rows, columns = tl.arange(0, BLOCK), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, n, 16):
        depth = start + tl.arange(0, 16)
        left = tl.load(a + rows[:, None] * n + depth, mask=(rows < n)[:, None] & (depth < n), other=0.0)
        right = tl.load(b + depth[:, None] * n + columns, mask=(depth < n)[:, None] & (columns < n), other=0.0)
        acc += tl.dot(left, right)
    tl.store(out + rows[:, None] * n + columns, acc, mask=(rows < n)[:, None] & (columns < n))


def solve(a, b):
    out = torch.empty_like(a)
    product[(1,)](a, b, out, a.shape[0], BLOCK=32)
    return out
"""
)


def test_a_sum_in_another_order_has_the_same_bits_in_a_ring(tmp_path):
    verdict = judged(tmp_path, PRODUCER, PRODUCT)
    assert verdict.is_accepted, verdict.reasons
    assert [trial.outcome for trial in verdict.trials if trial.distribution == "in a ring"] == ["right", "right"]


def test_a_narrower_format_inside_a_product_is_told_by_the_ring_and_not_where_the_specification_forgoes_it(tmp_path):
    narrow = PRODUCER.replace("tl.dot(left, right)", "tl.dot(left.to(tl.float16), right.to(tl.float16))")
    verdict = judged(tmp_path, narrow, PRODUCT)
    assert verdict.verdict == "wrong"
    assert {reason.rule for reason in verdict.reasons} == {"other_terms"}
    assert judged(tmp_path, narrow, PRODUCT + "\nalgebra = False\n").is_accepted


def test_a_reference_with_other_functions_is_not_asked_in_a_ring(tmp_path):
    specification = ADDITION.replace("return x + y", "return x + y.exp()")
    candidate = ADDER.replace("tl.load(y + offsets, mask=mask)", "tl.exp(tl.load(y + offsets, mask=mask))")
    verdict = judged(tmp_path, candidate, specification)
    assert verdict.is_accepted, verdict.reasons
    assert {trial.outcome for trial in verdict.trials if trial.distribution == "in a ring"} == {"not asked"}


def test_outputs_of_a_dict_are_compared_by_name(tmp_path):
    specification = ADDITION.replace("return x + y", 'return {"a": x + y, "b": x + y + y}')
    second = """    more = torch.empty_like(x)
    add[(triton.cdiv(x.numel(), 256),)](out, y, more, x.numel(), BLOCK=256)
    return {"b": more, "a": out}
"""
    assert judged(tmp_path, ADDER.replace("    return out\n", second), specification).is_accepted


TUNED = ADDER.replace(
    "@triton.jit\n",
    '@triton.autotune([triton.Config({"BLOCK": 256, "EXTRA": 0}), triton.Config({"BLOCK": 128, "EXTRA": 1})], ["n"])\n'
    "@triton.jit\n",
).replace("BLOCK: tl.constexpr)", "BLOCK: tl.constexpr, EXTRA: tl.constexpr)")
TUNED = TUNED.replace("(triton.cdiv(x.numel(), 256),)", 'lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)')
TUNED = TUNED.replace(", BLOCK=256)", ")")


def test_every_config_of_an_autotuned_kernel_is_tried(tmp_path):
    verdict = judged(tmp_path, TUNED)
    assert verdict.is_accepted, verdict.reasons
    assert "as specified, config 1" in {trial.distribution for trial in verdict.trials}


def test_a_config_that_computes_something_else_is_wrong(tmp_path):
    verdict = judged(tmp_path, TUNED.replace("tl.store(out + offsets, ", "tl.store(out + offsets, EXTRA + "))
    assert verdict.verdict == "wrong"
    assert "config 1" in verdict.reasons[0].trial


GLUON = """
import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def add(x, y, out, n, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    mask = offsets < n
    gl.store(out + offsets, gl.load(x + offsets, mask=mask) + gl.load(y + offsets, mask=mask), mask=mask)


def solve(x, y):
    out = torch.empty_like(x)
    add[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256, num_warps=4)
    return out
"""


def test_a_kernel_in_gluon_is_judged_on_a_gpu_alone(tmp_path):
    verdict = judged(tmp_path, GLUON)
    assert verdict.verdict == "refused"
    assert verdict.reasons[0].rule == "needs_gpu"
