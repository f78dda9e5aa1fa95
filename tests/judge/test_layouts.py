"""Layouts of inputs: how tensors lie in memory, and candidates that must serve them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernellab.errors import UsageError
from kernellab.judge.judging import judge, limit_of_trials_s
from kernellab.judge.layouts import AS_SPECIFIED, LAYOUTS, fill_gaps, with_layout
from kernellab.judge.replay import copies_of, copy_of
from kernellab.judge.specification import read_specification
from kernellab.judge.verdict import Verdict
from tests.judge.files import HEAD, write

SPECIFICATION = """
import torch

sizes = {"shown": [{"m": 9, "n": 32}], "hidden": [{"m": 4, "n": 21}]}
distributions = ("normal",)
layouts = ("contiguous", "padded", "strided", "transposed", "offset")


def inputs(generator, m, n):
    return {"x": torch.randn(m, n, generator=generator), "bias": torch.randn(n, generator=generator)}


def reference(x, bias):
    return torch.relu(x + bias)
"""

BY_STRIDES = (
    HEAD
    + """

@triton.jit
def relu(x, bias, out, n, row_step, column_step, bias_step, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * row_step + columns * column_step, mask=columns < n, other=0.0)
    value += tl.load(bias + columns * bias_step, mask=columns < n, other=0.0)
    tl.store(out + row * n + columns, tl.maximum(value, 0.0), mask=columns < n)


def solve(x, bias):
    m, n = x.shape
    out = torch.empty(m, n, dtype=x.dtype, device=x.device)
    relu[(m,)](x, bias, out, n, x.stride(0), x.stride(1), bias.stride(0), BLOCK=triton.next_power_of_2(n))
    return out
"""
)


def judged(folder: Path, candidate: str, specification: str = SPECIFICATION) -> Verdict:
    return judge(*write(folder, specification, candidate), time=False, seed=1)


@pytest.mark.parametrize(
    ("layout", "strides", "offset"),
    [
        ("contiguous", (5, 1), 0),
        ("padded", (21, 1), 0),
        ("strided", (10, 2), 0),
        ("transposed", (1, 4), 0),
        ("offset", (5, 1), 1),
    ],
)
def test_a_layout_changes_strides_and_offset_but_no_element(layout, strides, offset):
    x = torch.arange(20.0).view(4, 5)
    changed = with_layout(x, layout)
    assert (changed.stride(), changed.storage_offset()) == (strides, offset)
    assert torch.equal(changed, x)
    assert (changed is x) == (layout == "contiguous")


def test_all_layouts_are_tried_above():
    assert set(LAYOUTS) == {"contiguous", "padded", "strided", "transposed", "offset"}


@pytest.mark.parametrize(
    ("tensor", "layout"),
    [
        (torch.zeros(7), "padded"),
        (torch.zeros(7), "transposed"),
        (torch.zeros(7, 1), "transposed"),
        (torch.zeros(()), "strided"),
        (torch.zeros(0, 3), "offset"),
        (torch.zeros(3).expand(2, 3), "strided"),
    ],
)
def test_a_layout_that_places_elements_as_they_lie_changes_nothing(tensor, layout):
    assert with_layout(tensor, layout) is tensor


def test_a_tensor_that_has_strides_becomes_contiguous():
    x = torch.arange(12.0)[::2]
    assert with_layout(x, "contiguous").stride() == (1,)
    assert with_layout(x, AS_SPECIFIED) is x


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8, torch.bool, torch.float64])
def test_gaps_are_filled_and_a_write_between_elements_is_noticed(dtype):
    x = torch.ones(2, 3).to(dtype)
    given = copies_of({"x": with_layout(x, "strided"), "plain": x, "n": 3})
    (gaps,) = fill_gaps(given, 0x5A)
    assert gaps.name == "x"
    assert torch.equal(given["x"], x)
    given["x"].zero_()
    assert not gaps.is_written
    given["x"].as_strided((1,), (1,), 1).fill_(1)
    assert gaps.is_written


@pytest.mark.parametrize(
    ("tensor", "count"),
    [
        (torch.arange(9.0)[::4].expand(2, 3), 6),
        (torch.arange(9.0).as_strided((2, 3), (1, 2), 3), 3),
        (torch.arange(9.0).as_strided((2, 3), (1, 1), 3), 3),
        (torch.arange(9.0).view(3, 3)[:, 1:1], 1),
    ],
)
def test_elements_that_share_memory_have_gaps_too(tensor, count):
    (gaps,) = fill_gaps({"x": copy_of(tensor)}, 0xFF)
    assert int(gaps.is_gap.sum()) == 4 * count
    assert not gaps.is_written


def test_memory_in_front_of_an_offset_tensor_is_a_gap():
    given = {"x": copy_of(with_layout(torch.ones(4), "offset"))}
    (gaps,) = fill_gaps(given, 0xFF)
    assert gaps.is_gap.tolist() == [True] * 4 + [False] * 16


def test_each_layout_that_changes_an_input_makes_a_case_of_every_size(tmp_path):
    spec, _ = write(tmp_path, SPECIFICATION, "")
    specification = read_specification(spec).with_layouts()
    words = [case.words for case in specification.cases]
    assert words[:3] == ["m=9, n=32", "m=4, n=21", "m=9, n=32, padded inputs"]
    assert len(words) == 2 + 2 * 4
    case = specification.cases[-2]
    inputs = specification.draw(case, 3)
    laid_out = specification.lay_out(case, inputs)
    assert case.layout == "transposed"
    assert laid_out["x"].stride() == (1, 4)
    assert laid_out["bias"] is inputs["bias"]


def test_more_layouts_have_more_time(tmp_path):
    spec, _ = write(tmp_path, SPECIFICATION, "")
    specification = read_specification(spec)
    assert limit_of_trials_s(specification, 30.0) == 120.0
    assert limit_of_trials_s(specification.with_layouts(), 30.0) == 5 * 120.0


def test_layouts_by_input_leave_the_other_inputs(tmp_path):
    text = SPECIFICATION.replace('layouts = ("contiguous", "padded", "strided", "transposed", "offset")', "LAYOUTS")
    spec, _ = write(tmp_path, text.replace("LAYOUTS", 'layouts = {"x": ("strided", "offset"), "bias": "offset"}'), "")
    specification = read_specification(spec).with_layouts()
    offset, strided = (
        next(case for case in specification.cases if case.layout == layout) for layout in ("offset", "strided")
    )
    inputs = specification.draw(offset, 3)
    assert [specification.lay_out(offset, inputs)[name].storage_offset() for name in ("x", "bias")] == [1, 1]
    assert [specification.lay_out(strided, inputs)[name].stride(-1) for name in ("x", "bias")] == [2, 1]


@pytest.mark.parametrize(
    ("layouts", "message"),
    [
        ('"diagonal"', "layouts of spec.py is 'diagonal'; expected some of contiguous, padded, strided"),
        ("3", "layouts of spec.py is 3; expected some of"),
        ('{"x": 3}', "expected some of"),
        ('{"y": ("strided",)}', "names 'y', which is not a tensor; the tensors: bias, x"),
        ('{"bias": ("strided", "transposed")}', "names 'transposed', which changes no input of any size"),
    ],
)
def test_a_wrong_layout_is_a_wrong_specification(tmp_path, layouts, message):
    spec, _ = write(tmp_path, f"{SPECIFICATION}\n\nlayouts = {layouts}\n", "")
    with pytest.raises(UsageError, match=message):
        read_specification(spec).with_layouts()


@pytest.mark.slow
def test_a_candidate_that_uses_strides_is_accepted_in_all_layouts(tmp_path):
    verdict = judged(tmp_path, BY_STRIDES)
    assert verdict.is_accepted, verdict.reasons
    assert {trial.layout for trial in verdict.trials} == {*LAYOUTS, AS_SPECIFIED} - {"contiguous"}
    assert {trial.outcome for trial in verdict.trials if trial.layout != AS_SPECIFIED} == {"right"}


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["padded", "strided", "transposed"])
def test_a_candidate_that_ignores_strides_is_wrong_in_the_layout_that_is_named(tmp_path, layout):
    text = BY_STRIDES.replace("x.stride(0), x.stride(1), bias.stride(0)", "n, 1, 1")
    verdict = judged(tmp_path, text, f"{SPECIFICATION}\n\nlayouts = {layout!r}\n")
    assert verdict.verdict == "wrong"
    assert verdict.reasons[0].rule == "values"
    assert verdict.reasons[0].trial == f"m=9, n=32, {layout} inputs, seed 3"
    assert [trial.outcome for trial in verdict.trials[:2]] == ["right", "right"]


@pytest.mark.slow
def test_a_promise_of_alignment_is_unsafe_at_another_address(tmp_path):
    text = BY_STRIDES.replace("    value = tl.load(x +", "    x = tl.multiple_of(x, 16)\n    value = tl.load(x +")
    verdict = judged(tmp_path, text)
    assert verdict.verdict == "unsafe"
    assert "offset inputs" in verdict.reasons[0].trial


@pytest.mark.slow
def test_a_candidate_that_refuses_a_layout_is_refused_with_its_name(tmp_path):
    text = BY_STRIDES.replace("    m, n = x.shape\n", "    m, n = x.shape\n    assert x.is_contiguous()\n")
    verdict = judged(tmp_path, text, f"{SPECIFICATION}\n\nlayouts = ('strided',)\n")
    assert verdict.verdict == "refused"
    assert "m=9, n=32, strided inputs" in verdict.reasons[0].detail


@pytest.mark.slow
def test_a_copy_by_torch_before_a_kernel_serves_every_layout(tmp_path):
    text = BY_STRIDES.replace("    m, n = x.shape\n", "    m, n = x.shape\n    x = x.contiguous()\n")
    verdict = judged(tmp_path, text)
    assert verdict.is_accepted, verdict.reasons
    assert {"padded", "strided", "transposed"} <= {trial.layout for trial in verdict.trials}


FILLED = SPECIFICATION.replace('return {"x":', 'return {"out": torch.zeros(m, n), "x":') + '\n\noutputs = ("out",)\n'
FILLER = (
    BY_STRIDES.replace("row_step, column_step,", "row_step, column_step, out_row_step, out_step,")
    .replace("row * n + columns", "row * out_row_step + columns * out_step")
    .replace("x.stride(0), x.stride(1),", "x.stride(0), x.stride(1), out.stride(0), out.stride(1),")
    .replace("def solve(x, bias)", "def solve(x, bias, out)")
    .replace("    out = torch.empty(m, n, dtype=x.dtype, device=x.device)\n", "")
    .replace("    return out\n", "")
)


@pytest.mark.slow
def test_an_argument_to_fill_has_the_layout_too(tmp_path):
    verdict = judged(tmp_path, FILLER, FILLED)
    assert verdict.is_accepted, verdict.reasons


@pytest.mark.slow
def test_a_write_between_the_elements_of_an_argument_is_unsafe(tmp_path):
    gap = "    tl.store(out + row * out_row_step + n, 0.0, mask=(out_row_step > n) & (row + 1 < tl.num_programs(0)))\n"
    text = FILLER.replace("    tl.store(out +", f"{gap}    tl.store(out +")
    verdict = judged(tmp_path, text, f"{FILLED}\n\nlayouts = ('padded',)\n")
    assert verdict.verdict == "unsafe", verdict.reasons
    assert verdict.reasons[0].rule == "out_of_bounds"
    assert "outside of the elements of out, which has the strides (48, 1)" in verdict.reasons[0].detail
