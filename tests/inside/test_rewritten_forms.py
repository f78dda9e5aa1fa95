"""Accesses in every form that Triton has them, in kernels that write their own values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from benchmarks.inside_gpu import launches
from kernellab.inside.first_difference import difference_of_devices
from kernellab.inside.recorded_launch import launch_of_call, record_launch
from kernellab.inside.values import Values
from kernellab.launch.calls import UserCall
from kernellab.launch.recorded_values import RecordRequest, ValueKind
from tests.inside.test_rewriting import SAME, logged, require_same
from tests.inside.transcripts import CASES
from tests.labs import lab_fixture
from tests.tables import every

pytestmark = pytest.mark.slow  # each compiles two kernels
HAS_BLOCK_POINTERS = tuple(map(int, triton.__version__.split(".")[:2])) < (3, 8)


@triton.jit
def tuples_of_loads(x, y, out, n, FLAG: tl.constexpr, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    first, second = tl.load(x + lanes), tl.load(y + lanes)
    cast, sum_ = tl.load(x + lanes).to(tl.float32), tl.load(y + lanes) + 1
    chosen = tl.load(x + lanes) if FLAG else tl.load(y + lanes)
    perhaps = tl.load(x + lanes) if n > 2 else first
    pair = (tl.load(x + lanes), first)
    same, inner = first, tl.load(y + lanes)
    second, first = first, second
    other_type = tl.load(x + lanes).to(tl.float16)
    spread = tl.broadcast_to(tl.load(x + lanes), [BLOCK])
    promised = tl.multiple_of(tl.load(x + lanes), 1)
    total = first + second + cast + sum_ + chosen + perhaps + pair[0] + same + inner
    tl.store(*(out + lanes, total + other_type + spread + promised))


@triton.jit
def named_inside(x, out, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    more = (loaded := tl.load(x + lanes)) + 1
    same, (inner, other) = more, (tl.load(x + lanes), loaded)
    tl.store(out + lanes, same * inner * other)


@triton.jit
def descriptors_in_a_loop(x, out, M, N, B: tl.constexpr, C: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [M, N], [N, 1], [B, C])
    target = tl.make_tensor_descriptor(base=out, shape=[M, N], strides=[N, 1], block_shape=[B, C])
    for row in tl.range(0, M, B, num_stages=2):
        left, right = source.load([row, 0]), source.load([row, C])
        target.store([row, 0], left + right)
        target.atomic_add([row, C], left)
        again = tl.load_tensor_descriptor(source, [row, 0])
        tl.store_tensor_descriptor(target, [row, 0], again + 1)


@triton.jit
def all_atomics(x, locks, out, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    old = tl.atomic_cas(locks, 0, 1)
    before, value = tl.atomic_xchg(locks + 1, 7), tl.load(x + lanes)
    tl.atomic_max(out + lanes, value)
    tl.atomic_min(out + lanes, tl.load(x + lanes))
    total = tl.atomic_add(out + lanes, value, sem="relaxed")
    bits = tl.atomic_or(locks + 2, old + before) + tl.atomic_xor(locks + 2, 1)
    tl.store(locks + 4, tl.atomic_and(locks + 3, bits))
    tl.store(x + lanes, total)


@triton.jit
def loops_in_loops(x, out, n, BLOCK: tl.constexpr, UNROLL: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.int32)
    step = 0
    while step < n:
        for unrolled in tl.static_range(UNROLL):
            for j in range(step, step + 2):
                place, value = j, tl.load(x + lanes + j)
                acc += value * unrolled + place
            if unrolled == 1:
                acc += tl.load(x + lanes) if step > 0 else acc
        step += 1
    for down in tl.range(3, 0, -1):
        acc -= down
    tl.store(out + lanes, acc)


@triton.jit
def product_of(a, b):
    product = a * b
    return product * 1.0


@triton.jit
def passed_functions(x, out, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    values = tl.load(x + lanes)
    total = tl.reduce(values, 0, product_of)
    sums = tl.associative_scan(values, 0, combine_fn=product_of)
    tl.store(out + lanes, sums + product_of(total, 2.0))


@triton.jit
def block_pointers(x, out, M, N, B: tl.constexpr, C: tl.constexpr):
    source = tl.make_block_ptr(x, (M, N), (N, 1), (0, 0), (B, C), (1, 0))
    target = tl.make_block_ptr(out, (M, N), (N, 1), (0, 0), (B, C), (1, 0))
    for _ in range(0, M, B):
        tile = tl.load(source, boundary_check=(0, 1), padding_option="zero")
        tl.store(target, tile + 1, boundary_check=(0,))
        source = tl.advance(source, (B, 0))
        target = tl.advance(target, (B, 0))


def add_to_zeros_hook(arguments: dict[str, Any]) -> None:
    arguments["bias"].fill_(2.0)


@triton.autotune(
    [triton.Config({"BLOCK": 8}, pre_hook=add_to_zeros_hook), triton.Config({"BLOCK": 16})],
    key=[],
    reset_to_zero=["total"],
    restore_value=["bias"],
)
@triton.jit
def accumulating(x, bias, total, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    before = tl.load(total + lanes)
    added = tl.load(x + lanes) + tl.load(bias + lanes)
    tl.store(total + lanes, before + added)


def _floats(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7))


def _integers(*shape: int) -> torch.Tensor:
    return torch.randint(0, 9, shape, generator=torch.Generator().manual_seed(7), dtype=torch.int32)


lab = lab_fixture("cuda:90")


def both(lab: kernellab.Lab, kernel: Any, arguments: dict[str, Any]) -> tuple[Values, Values]:
    """The values that a kernel writes, and those that the recorder sees."""
    return logged(lab, kernel, (1,), arguments), lab.values(kernel, (1,), **arguments)


@pytest.mark.parametrize(("flag", "n"), [(True, 3), *every(5, [(True, 2), (False, 3), (False, 2)])[1:]])
def test_loads_have_the_names_that_take_them_as_they_are(lab: kernellab.Lab, flag: bool, n: int) -> None:
    arguments = {"x": _floats(8), "y": _floats(8) + 1, "out": torch.zeros(8), "n": n, "FLAG": flag, "BLOCK": 8}
    values, expected = both(lab, tuples_of_loads, arguments)
    require_same(values, expected)
    names = [value.name for value in values.values if value.kind is ValueKind.LOAD]
    assert names[:3] == ["first", "second", "cast"]
    assert {"chosen", "pair[0]", "inner", "spread", "promised"} <= set(names)
    assert SAME in values.notes


@pytest.mark.skipif(HAS_BLOCK_POINTERS, reason="this Triton has no :=")
def test_a_load_that_is_named_inside_an_expression_has_its_name(lab: kernellab.Lab) -> None:
    values, expected = both(lab, named_inside, {"x": _floats(8), "out": torch.zeros(8), "BLOCK": 8})
    require_same(values, expected)
    assert [value.name for value in values.values] == ["lanes", "loaded", "more", "inner", "same", "other", None]


def test_accesses_through_descriptors_that_a_kernel_builds_name_their_argument(lab: kernellab.Lab) -> None:
    arguments = {"x": _floats(8, 32), "out": torch.zeros(8, 32), "M": 8, "N": 32, "B": 4, "C": 16}
    values, expected = both(lab, descriptors_in_a_loop, arguments)
    assert [(v.kind, v.name, v.line, v.iteration, v.argument) for v in values.values] == [
        (v.kind, v.name, v.line, v.iteration, v.argument) for v in expected.values
    ]
    assert {value.argument for value in values.values if value.kind is not ValueKind.LOOP} == {"x", "out"}
    require_same(values, expected)


def test_atomics_of_every_kind_have_their_rows(lab: kernellab.Lab) -> None:
    arguments = {"x": _integers(8), "locks": _integers(8), "out": _integers(8), "BLOCK": 8}
    require_same(*both(lab, all_atomics, arguments))


def test_iterations_of_loops_in_loops_come_in_order(lab: kernellab.Lab) -> None:
    arguments = {"x": _integers(32), "out": _integers(8), "n": 2, "BLOCK": 8, "UNROLL": 2}
    values, expected = both(lab, loops_in_loops, arguments)
    require_same(values, expected)
    places = [value.iteration for value in values.values if value.name == "place"]
    assert places == [(step, unrolled, j) for step in range(2) for unrolled in range(2) for j in range(2)]


def test_functions_that_are_passed_are_named_as_not_recorded(lab: kernellab.Lab) -> None:
    arguments = {"x": _floats(8), "out": torch.zeros(8), "BLOCK": 8}
    values, expected = both(lab, passed_functions, arguments)
    assert "product_of: passed as values, their lines are not recorded on a GPU" in values.notes
    line = passed_functions.starting_line_number + 6
    kept = tuple(v for v in expected.values if not v.calls or v.calls == (line,))
    assert len(kept) < len(expected.values)
    require_same(values, replace(expected, values=kept), compares_reads=False)
    wide = record_wide(lab, passed_functions, arguments)
    assert not difference_of_devices("passed_functions", replace(values, where="gpu"), expected, wide)


def record_wide(lab: kernellab.Lab, kernel: Any, arguments: dict[str, Any]) -> Values:
    launch = launch_of_call(lab.session(), UserCall(lab.bind(kernel), (1,), (), arguments))
    return record_launch(lab.session(), launch, RecordRequest(((0, 0, 0),), is_wide=True), 60.0)


@pytest.mark.skipif(not HAS_BLOCK_POINTERS, reason="Triton has no block pointers any more")
def test_accesses_through_block_pointers_have_rows_and_a_note(lab: kernellab.Lab) -> None:
    arguments = {"x": _floats(7, 16), "out": torch.zeros(7, 16), "M": 7, "N": 16, "B": 4, "C": 16}
    values, expected = both(lab, block_pointers, arguments)
    assert [(v.kind, v.name, v.line) for v in values.values] == [(v.kind, v.name, v.line) for v in expected.values]
    assert any(note.startswith("accesses through block pointers are recorded without") for note in values.notes)
    wide = record_wide(lab, block_pointers, arguments)
    assert not difference_of_devices("block_pointers", replace(values, where="gpu"), expected, wide)


def test_an_autotuned_kernel_begins_with_zeros_and_after_its_hook(lab: kernellab.Lab) -> None:
    arguments = {"x": torch.ones(8), "bias": torch.full((8,), 5.0), "total": torch.full((8,), 9.0)}
    values = lab.values(accumulating, (1,), **arguments)
    assert values.find("before").data.tolist() == [0.0] * 8
    assert values.find("added").data.tolist() == [3.0] * 8
    assert arguments["total"].tolist() == [9.0] * 8
    assert arguments["bias"].tolist() == [5.0] * 8


BENCHED = [launch for launch in launches() if launch.name not in {case.name for case in CASES}]


@pytest.mark.parametrize("launch", every(5, BENCHED), ids=lambda launch: launch.name)
def test_the_kernels_that_are_compared_on_a_gpu_agree_as_text(lab: kernellab.Lab, launch: Any) -> None:
    values = logged(lab, launch.kernel, launch.grid, launch.arguments())
    require_same(values, lab.values(launch.kernel, launch.grid, **launch.arguments()))
