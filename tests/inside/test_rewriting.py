"""Kernels that write their own values: decoded, these are those of the recorder, and the outputs stay the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab._triton.closure import closure_of
from kernellab.inside.logged_launch import changed_operations, fused_operations, record_on_device
from kernellab.inside.rewriting import LogEvent, logging_kernel
from kernellab.inside.value_log import entries_of, initial_log, needed_words, region_of
from kernellab.inside.values import Values
from kernellab.launch.calls import UserCall
from kernellab.launch.recorded_values import RecordedValue, RecordRequest, ValueKind
from kernellab.registry.calls import compile_call
from tests.inside.transcripts import CASES, Case
from tests.labs import lab_fixture
from tests.tables import every

SAME = "the copy of the kernel that stored these values left the same outputs as the plain kernel, bit by bit"


@triton.jit
def halves(value, LEAVES: tl.constexpr):
    if LEAVES:
        return value / 2, value
    value += 1
    return value, value


@triton.jit
def branches(x, out, n, FLAG: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    if tl.program_id(0) == 1:
        return
    value = tl.load(x + offsets, mask=offsets < n)
    if FLAG:
        value = value * 2
    elif n > 3:
        value = value * 3
    left, right = halves(value, FLAG)
    while n > 2:
        n -= 1
        left += n
    for i in tl.static_range(2):
        for j in range(i + 1):
            right += j
    tl.store(out + offsets, left + right, mask=offsets < n + 9)


@triton.jit
def types(x, flags, out, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    low = tl.load(x + offsets)
    small = low.to(tl.float8e5)
    chosen = tl.load(flags + offsets) != 0
    pointers = out + offsets
    number = 3
    ratio = 0.5
    tl.store(pointers, tl.where(chosen, small.to(tl.float32) * number * ratio, 0.0))


@triton.jit
def tuples(x, out, weight, BLOCK: tl.constexpr):
    value = tl.load(x + tl.arange(0, BLOCK))
    pair = (value, weight)
    first, second = pair
    tl.store(out + tl.arange(0, BLOCK), first * second)


lab = lab_fixture("cuda:90")


def logged(
    lab: kernellab.Lab, kernel: Any, grid: Any, arguments: dict[str, Any], words: int = 1 << 15, **request: Any
) -> Values:
    plain = compile_call(lab.session(), UserCall(lab.bind(kernel), grid, (), arguments))
    return record_on_device(lab.session(), plain, RecordRequest(**request), 60.0, words)


def key(value: RecordedValue) -> tuple[Any, ...]:
    place = (value.kind, value.function, value.name, value.file, value.line, value.calls)
    argument = None if value.is_pointer else value.argument  # of pointers out of bounds, memory does not tell
    return (*place, value.program, value.iteration, value.shape, value.dtype, argument, value.read_arguments)


def require_same(values: Values, expected: Values, *, compares_reads: bool = True) -> None:
    """Compare all values with those of the recorder."""
    assert list(map(key, values.values)) == list(map(key, expected.values))
    for value, other in zip(values.values, expected.values, strict=True):
        place = f"{value.name} in line {value.line}, iteration {value.iteration}"
        if compares_reads and value.kind is not ValueKind.PARAMETER:
            assert value.reads == other.reads, place
        if not value.is_pointer:
            np.testing.assert_array_equal(value.data, other.data, err_msg=place)
        assert (value.mask is None) == (other.mask is None), place
        if value.mask is not None:
            np.testing.assert_array_equal(value.mask, other.mask, err_msg=place)
        if value.elements is not None and other.elements is not None:
            lanes = np.ones(value.shape, bool) if value.mask is None else value.mask
            np.testing.assert_array_equal(value.elements[lanes], other.elements[lanes], err_msg=place)


@pytest.mark.parametrize("case", every(3, CASES), ids=lambda case: case.name)
def test_a_kernel_writes_the_values_that_the_recorder_sees(lab: kernellab.Lab, case: Case) -> None:
    values = logged(lab, case.kernel, case.grid, case.arguments())
    require_same(values, lab.values(case.kernel, case.grid, **case.arguments()))
    assert SAME in values.notes


@pytest.mark.parametrize("flag", [True, False])
def test_branches_loops_and_early_returns_are_followed(lab: kernellab.Lab, flag: bool) -> None:
    arguments = {"x": torch.randn(8), "out": torch.zeros(8), "n": 5, "FLAG": flag, "BLOCK": 8}
    values = logged(lab, branches, (2,), arguments)
    require_same(values, lab.values(branches, (2,), **arguments))
    assert {value.name for value in values.values} >= {"left", "right", "n", "i", "j", "return[0]", "return[1]"}
    assert SAME in values.notes


def test_a_program_that_returns_early_has_the_values_before_it(lab: kernellab.Lab) -> None:
    arguments = {"x": torch.randn(8), "out": torch.zeros(8), "n": 5, "FLAG": True, "BLOCK": 8}
    values = logged(lab, branches, (2,), arguments, programs=((1, 0, 0),))
    assert [value.name for value in values.values] == ["offsets"]
    assert values.values[0].program == (1, 0, 0)


def test_every_type_comes_back_as_it_was(lab: kernellab.Lab) -> None:
    arguments = {
        "x": torch.randn(8, dtype=torch.bfloat16),
        "flags": torch.tensor([1, 0] * 4, dtype=torch.bool),
        "out": torch.zeros(8),
        "BLOCK": 8,
    }
    values = logged(lab, types, (1,), arguments)
    require_same(values, lab.values(types, (1,), **arguments))
    found = {value.name: value.dtype for value in values.values}
    assert found["low"] == "bf16"
    assert found["small"] == "fp8e5"
    assert found["chosen"] == "int1"
    pointers = values.find("pointers")
    assert (pointers.argument, pointers.data.tolist()) == ("out", list(range(8)))


def test_members_of_a_tuple_are_values_of_their_own(lab: kernellab.Lab) -> None:
    arguments = {"x": torch.randn(8), "out": torch.zeros(8), "weight": 3, "BLOCK": 8}
    values = logged(lab, tuples, (1,), arguments)
    assert [value.name for value in values.values] == ["value", "pair[0]", "pair[1]", "first", "second", None]
    require_same(values, lab.values(tuples, (1,), **arguments), compares_reads=False)


def test_only_the_chosen_lines_and_programs_are_written(lab: kernellab.Lab) -> None:
    case = next(case for case in CASES if case.name == "nested")
    everything = logged(lab, case.kernel, case.grid, case.arguments(), programs=((0, 0, 0),))
    line = everything.find("acc").line
    values = logged(lab, case.kernel, case.grid, case.arguments(), programs=((0, 0, 0),), lines=frozenset({line}))
    assert [value.name for value in values.values] == ["acc"]
    several = tuple((program, 0, 0) for program in range(case.grid[0]))
    values = logged(lab, case.kernel, case.grid, case.arguments(), programs=several)
    require_same(values, lab.values(case.kernel, case.grid, **case.arguments(), programs=several))


def test_a_region_that_is_too_short_is_made_longer(lab: kernellab.Lab) -> None:
    case = next(case for case in CASES if case.name == "product")
    short = logged(lab, case.kernel, case.grid, case.arguments(), words=64)
    require_same(short, logged(lab, case.kernel, case.grid, case.arguments()))


def test_what_a_full_region_lacks_is_said(lab: kernellab.Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernellab.inside.logged_launch._FIRST_WORDS", 512)
    case = next(case for case in CASES if case.name == "product")
    values = logged(lab, case.kernel, case.grid, case.arguments(), words=512, total_bytes=4096)
    assert 0 < len(values.values) < 28
    assert "values beyond the first 4 KiB of a program were left out" in values.notes


def test_a_large_tile_is_sampled_and_its_figures_count_all(lab: kernellab.Lab) -> None:
    case = next(case for case in CASES if case.name == "product")
    values = logged(lab, case.kernel, case.grid, case.arguments(), tile_bytes=256)
    whole = logged(lab, case.kernel, case.grid, case.arguments())
    tile, other = values.find("acc"), whole.find("acc")
    assert tile.is_sampled
    assert tile.data.size < other.data.size
    assert tile.summary == other.summary
    assert any("sampled" in note for note in values.notes)


def test_the_arguments_of_the_user_stay_as_they_are(lab: kernellab.Lab) -> None:
    case = next(case for case in CASES if case.name == "helpers")
    arguments = case.arguments()
    before = {name: value.clone() for name, value in arguments.items() if hasattr(value, "clone")}
    logged(lab, case.kernel, case.grid, arguments)
    assert all(torch.equal(arguments[name], value) for name, value in before.items())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_statements_stay_on_their_lines(case: Case) -> None:
    closure, _ = closure_of(case.kernel)
    kernel = logging_kernel(closure, None, 1, 64)
    old, new = closure.functions[0].text.splitlines(), kernel.closure.functions[0].text.splitlines()
    loops = [line for line in old if line.strip().startswith(("for ", "while "))]
    assert 0 <= len(new) - len(old) <= 3 * len(loops), "only loops add lines"
    assert loops == [line for line in new if line.strip().startswith(("for ", "while "))]


def test_a_program_finds_its_region_and_an_unknown_one_none() -> None:
    closure, _ = closure_of(branches)
    kernel = logging_kernel(closure, None, 3, 64)
    assert kernel.slots == 4
    words = initial_log(kernel, [7, 2, 5])
    assert words[:4].tolist() == [7, 2, 5, -1]
    assert [region_of(words, kernel, place)[:3].tolist() for place in range(3)] == [[3, 1, 64]] * 3
    assert words[kernel.slots + 4 * 64 :].tolist() == [0, 0, 0]
    assert needed_words(words, kernel, 3) == 3
    assert list(entries_of(region_of(words, kernel, 0), kernel.sites)) == []


def test_each_helper_has_one_twin_and_functions_passed_as_values_have_none() -> None:
    @triton.jit
    def add(a, b):
        return a + b

    @triton.jit
    def kernel(x, BLOCK: tl.constexpr):
        values = tl.load(x + tl.arange(0, BLOCK))
        tl.store(x, tl.reduce(values, 0, add))
        tl.store(x + 1, add(add(1.0, 2.0), 3.0))

    closure, _ = closure_of(kernel)
    rewritten = logging_kernel(closure, None, 1, 64)
    names = [function.name for function in rewritten.closure.functions]
    assert len([name for name in names if name.startswith("kl_twin")]) == 1
    assert "tl.reduce(values, 0, add)" in rewritten.closure.functions[0].text
    assert len([site for site in rewritten.sites if site.event is LogEvent.CALL]) == 2


LAYOUTS = """
#blocked = #ttg.blocked<{sizePerThread = [4]}>
#blocked1 = #ttg.blocked<{sizePerThread = [1]}>
    %1 = tt.load %0 : tensor<64x!tt.ptr<f32>, #blocked> loc(#loc)
    %2 = tt.dot %1, %1, %1, inputPrecision = tf32 : tensor<64x64xf32, #blocked1> loc(#loc)
"""


def test_layouts_are_compared_by_what_they_are_and_not_by_their_names() -> None:
    renamed = LAYOUTS.replace("#blocked1", "#other").replace("#blocked ", "#new ").replace("#blocked>", "#new>")
    assert changed_operations(LAYOUTS, renamed) == ()
    assert changed_operations(LAYOUTS, LAYOUTS.replace("[4]", "[2]")) == ("tt.load",)
    assert changed_operations(LAYOUTS, LAYOUTS.replace("tf32", "ieee")) == ("tt.dot",)
    more = "    %9 = tt.load %8 : tensor<2x!tt.ptr<i64>, #blocked> loc(#loc)"
    assert changed_operations(LAYOUTS, LAYOUTS + more) == ()


def test_a_product_that_is_stored_is_no_longer_fused_and_a_note_says_so(lab: kernellab.Lab) -> None:
    case = next(case for case in CASES if case.name == "helpers")
    notes = logged(lab, case.kernel, case.grid, case.arguments()).notes
    assert any("has 0 fused multiply-adds, the plain kernel 2: it rounds more often" in note for note in notes)
    case = next(case for case in CASES if case.name == "welford")
    assert not any("fused" in note for note in logged(lab, case.kernel, case.grid, case.arguments()).notes)


def test_fused_operations_of_packed_floats_count_and_integer_ones_do_not() -> None:
    plain = "\tfma.rn.f32 %f1, %f2, %f3, %f4;\n\t@%p1 fma.rn.ftz.bf16x2 %r1, %r2, %r3, %r4;\n\tmad.lo.s32 %r1, %r2;\n"
    assert fused_operations(plain, plain) is None
    assert fused_operations(plain, "\tmul.f32 %f1, %f2, %f3;\n") == (2, 0)


def test_the_accesses_of_a_copy_keep_their_layouts_where_nothing_forces_others(lab: kernellab.Lab) -> None:
    case = next(case for case in CASES if case.name == "gather")
    assert not any("layouts" in note for note in logged(lab, case.kernel, case.grid, case.arguments()).notes)
