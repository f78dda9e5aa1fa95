"""Comparisons without a tolerance: what only rounds otherwise is equal, what computes otherwise is not."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from benchmarks import algebra_kernels as kernels
from benchmarks.algebra_variants import CLOSE, LAUNCHES, RIGHT, Variant
from kernellab.errors import OutOfBounds, UsageError
from kernellab.inside.equivalence import Equivalence
from tests.inside.planted_faults import EQUAL, FAULTS, Change
from tests.inside.transcripts import CASES
from tests.labs import lab_fixture
from tests.tables import every

CASE_OF = {case.name: case for case in CASES}
N = 100
lab = lab_fixture()


def compared(lab: kernellab.Lab, variant: Variant, folder: Path) -> Equivalence:
    launch = variant.launch
    kernel = getattr(kernels, launch.kernel)
    return lab.equivalent(kernel, variant.compared_with(folder), launch.grid, *launch.arguments(), **launch.meta)


@pytest.mark.parametrize("variant", every(6, RIGHT), ids=lambda variant: f"{variant.kernel}: {variant.name}")
def test_variants_that_only_round_otherwise_are_equal(lab: kernellab.Lab, variant: Variant, tmp_path: Path) -> None:
    result = compared(lab, variant, tmp_path)
    assert result.equal, result.summary
    assert not result.unmodelled


@pytest.mark.parametrize(
    "variant",
    every(4, [variant for variant in CLOSE if "where it is 0" not in variant.name]),
    ids=lambda variant: f"{variant.kernel}: {variant.name}",
)
def test_wrong_variants_differ_that_allclose_passes(lab: kernellab.Lab, variant: Variant, tmp_path: Path) -> None:
    result = compared(lab, variant, tmp_path)
    assert not result.equal
    assert any(output.different and output.first is not None for output in result.outputs)


@pytest.mark.parametrize("change", every(9, FAULTS[:-1]), ids=lambda change: change.name)
def test_planted_faults_differ(lab: kernellab.Lab, change: Change, tmp_path: Path) -> None:
    case = CASE_OF[change.kernel]
    changed, _ = change.apply(tmp_path)
    with suppress(OutOfBounds):
        assert not lab.equivalent(case.kernel, changed, case.grid, **case.arguments()).equal


def test_the_algebra_tells_apart_a_product_with_two_and_a_sum_with_itself(lab: kernellab.Lab, tmp_path: Path) -> None:
    change = next(change for change in EQUAL if change.new == "tile * 2")
    case = CASE_OF[change.kernel]
    changed, _ = change.apply(tmp_path)
    assert not lab.equivalent(case.kernel, changed, case.grid, **case.arguments()).equal


@triton.jit
def two_pass_variance(x, out, n, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for step in range(n):
        total += tl.load(x + lanes * n + step)
    mean = total / n
    spread = tl.zeros((BLOCK,), tl.float32)
    for step in range(n):
        value = tl.load(x + lanes * n + step)
        spread += (value - mean) * (value - mean)
    tl.store(out + lanes, spread / n)


def test_welford_is_not_equal_to_two_passes_since_quotients_do_not_cancel(lab: kernellab.Lab) -> None:
    welford = CASE_OF["welford"].kernel
    x, out = torch.randn(16, 12), torch.zeros(16)
    real = [torch.zeros(16) for _ in range(2)]
    for kernel, result in zip((welford, two_pass_variance), real, strict=True):
        lab.run(kernel, (1,), x, result, 12, BLOCK=16)
    assert torch.allclose(*real)
    assert not lab.equivalent(welford, two_pass_variance, (1,), x, out, 12, BLOCK=16)


def softmax_call(x: torch.Tensor) -> tuple[Any, ...]:
    return (3,), x, torch.zeros_like(x), N


def test_tensors_stay_as_they_are_and_the_answer_is_displayed(lab: kernellab.Lab) -> None:
    grid, x, y, n = softmax_call(torch.randn(3, N))
    before = x.clone()
    result = lab.equivalent(kernels.softmax, lambda x: x.softmax(1), grid, x, y, n, BLOCK=128)
    assert torch.equal(x, before)
    assert not y.any()
    assert [(output.name, output.equal, output.elements) for output in result.outputs] == [("out", True, 3 * N)]
    bundle = result._repr_mimebundle_()
    assert "equal in the algebra" in bundle["text/plain"]
    assert "equal in the algebra" in bundle["text/html"]
    assert result.plot().texts or result.plot().axes


def test_a_difference_names_the_first_element_and_how_many(lab: kernellab.Lab) -> None:
    grid, x, y, n = softmax_call(torch.randn(3, N))

    def wrong(x: torch.Tensor) -> torch.Tensor:
        result = x.softmax(1).clone()
        result[1, 5:8] = 0.0
        return result

    (output,) = lab.equivalent(kernels.softmax, wrong, grid, x, y, n, BLOCK=128).outputs
    assert (output.first, output.different) == ((1, 5), 3)


def test_an_unknown_operation_of_torch_is_named(lab: kernellab.Lab) -> None:
    grid, x, y, n = softmax_call(torch.randn(3, N))
    with pytest.raises(UsageError, match=r"does not know aten\.sort"):
        lab.equivalent(kernels.softmax, lambda x: x.sort(1)[0], grid, x, y, n, BLOCK=128)


def test_what_is_no_kernel_and_no_function_is_refused(lab: kernellab.Lab) -> None:
    grid, x, y, n = softmax_call(torch.randn(3, N))
    with pytest.raises(UsageError, match="expected a kernel"):
        lab.equivalent(kernels.softmax, 3.5, grid, x, y, n, BLOCK=128)


@triton.jit
def product_and_sum(x, y, z, out, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    product = tl.load(x + lanes).to(tl.float32) * tl.load(y + lanes).to(tl.float32)
    tl.store(out + lanes, product + tl.load(z + lanes).to(tl.float32))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_kernel_that_rounds_once_is_equal_to_torch_that_rounds_each_operation(
    lab: kernellab.Lab, dtype: torch.dtype
) -> None:
    x, y, z = (torch.randn(64).to(dtype) for _ in range(3))
    out = torch.zeros(64, dtype=dtype)
    assert lab.equivalent(product_and_sum, lambda x, y, z: x * y + z, (1,), x, y, z, out, BLOCK=64)
    assert not lab.equivalent(product_and_sum, lambda x, y, z: x * y + x, (1,), x, y, z, out, BLOCK=64)


@triton.jit
def softmax_by_bits(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    values = tl.load(x + row * n + columns, mask=columns < n, other=-float("inf"))
    values = values.to(tl.int32, bitcast=True).to(tl.float32, bitcast=True)
    parts = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * n + columns, parts / tl.sum(parts, 0), mask=columns < n)


def test_a_bitcast_is_no_proof(lab: kernellab.Lab) -> None:
    grid, x, y, n = softmax_call(torch.randn(3, N))
    result = lab.equivalent(kernels.softmax, softmax_by_bits, grid, x, y, n, BLOCK=128)
    assert result.unmodelled == ("a bitcast between float and integer",)
    assert "no proof" in result.summary


@triton.jit
def extremes_of_rows(x, high, low, n, BLOCK: tl.constexpr, SPLIT: tl.constexpr):
    row = tl.program_id(0)
    if SPLIT:
        columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        values = tl.load(x + row * n + columns)
        tl.atomic_max(high + row, tl.max(values, 0))
        tl.atomic_min(low + row + tl.zeros((BLOCK,), tl.int32), values)
    else:
        first = tl.load(high + row)
        values = tl.load(x + row * n + tl.arange(0, 4 * BLOCK))
        tl.store(high + row, tl.maximum(first, tl.max(values, 0)))
        tl.store(low + row, tl.minimum(tl.load(low + row), tl.min(values, 0)))


def test_extremes_by_atomics_are_those_of_a_whole_row(lab: kernellab.Lab) -> None:
    x, high, low = torch.randn(3, 64), torch.full((3,), -float("inf")), torch.full((3,), float("inf"))
    split = (extremes_of_rows, (3, 4), {"SPLIT": True})
    result = lab.equivalent(extremes_of_rows, split, (3,), x, high, low, 64, BLOCK=16, SPLIT=False)
    assert result.equal, result.summary
    assert not result.unmodelled
    x[:, :48] = x[:, :1]  # in whatever order payloads are, an extreme of the row is among the last 16
    fewer = (extremes_of_rows, (3, 3), {"SPLIT": True})
    assert not lab.equivalent(extremes_of_rows, fewer, (3,), x, high, low, 64, BLOCK=16, SPLIT=False)


@triton.jit
def sum_by_swaps(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + row * n + columns, mask=columns < n, other=0.0), 0)
    expected = 0.0
    seen = tl.atomic_cas(out + row, expected, total)
    while seen != expected:
        expected = seen
        seen = tl.atomic_cas(out + row, expected, expected + total)


def test_a_sum_by_compare_and_swap_is_that_of_a_whole_row(lab: kernellab.Lab) -> None:
    other = (sum_by_swaps, (3, 4), {})
    result = lab.equivalent(kernels.row_sum, other, (3,), torch.randn(3, N), torch.zeros(3), N, BLOCK=32)
    assert result.equal, result.summary
    assert not result.unmodelled


@triton.jit
def scaled_product(a, a_scale, b, b_scale, out, SIDE: tl.constexpr, K: tl.constexpr, STEP: tl.constexpr):
    rows, inner, groups = tl.arange(0, SIDE), tl.arange(0, STEP), tl.arange(0, STEP // 32)
    result = tl.zeros((SIDE, SIDE), tl.float32)
    for start in range(0, K, STEP):
        left = tl.load(a + rows[:, None] * K + start + inner[None, :])
        right = tl.load(b + (start + inner[:, None]) * SIDE + rows[None, :])
        scales = rows[:, None] * (K // 32) + start // 32 + groups[None, :]
        left_scales, right_scales = tl.load(a_scale + scales), tl.load(b_scale + scales)
        result = tl.dot_scaled(left, left_scales, "e4m3", right, right_scales, "e4m3", result)
    tl.store(out + rows[:, None] * SIDE + rows[None, :], result)


def scaled_arguments() -> tuple[torch.Tensor, ...]:
    a, b = torch.randn(32, 128).to(torch.float8_e4m3fn), torch.randn(128, 32).to(torch.float8_e4m3fn)
    scales = (torch.randint(120, 134, (32, 4), dtype=torch.uint8) for _ in range(2))
    return a, next(scales), b, next(scales), torch.zeros(32, 32)


def test_scaled_products_are_equal_in_any_order_and_differ_by_a_scale(lab: kernellab.Lab) -> None:
    arguments = scaled_arguments()
    whole = {"SIDE": 32, "K": 128, "STEP": 128}
    result = lab.equivalent(scaled_product, {"STEP": 64}, (1,), *arguments, **whole)
    assert result.equal, result.summary
    assert not result.unmodelled
    results = []
    for change in (0, 1):
        changed = [argument.clone() for argument in arguments]
        changed[1][3, 2] += change
        lab.run(scaled_product, (1,), *changed, algebra=True, **whole)
        results.append(changed[4].view(torch.int32))
    assert [int(row) for row in (results[0] != results[1]).any(1).nonzero()] == [3]


def test_a_scale_that_is_nan_is_no_proof(lab: kernellab.Lab) -> None:
    arguments = scaled_arguments()
    arguments[1][0, 0] = 255
    result = lab.equivalent(scaled_product, {"STEP": 64}, (1,), *arguments, SIDE=32, K=128, STEP=128)
    assert result.unmodelled == ("an infinity in tl.dot",)


@triton.jit
def racing_sum(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + row * n + columns, mask=columns < n, other=0.0)
    tl.store(out + row, tl.load(out + row) + tl.sum(values, 0))


def test_a_race_is_reported_though_the_outputs_are_equal(lab: kernellab.Lab) -> None:
    other = (racing_sum, (3, 4), {})
    result = lab.equivalent(kernels.row_sum, other, (3,), torch.randn(3, N), torch.zeros(3), N, BLOCK=32)
    assert result.equal
    assert any("racing_sum: race" in warning for warning in result.warnings)


def test_a_run_in_the_algebra_leaves_bit_patterns(lab: kernellab.Lab) -> None:
    launch = LAUNCHES["row_sum"]
    results = []
    for block in (16, 64):
        arguments = launch.arguments()
        run = lab.run(kernels.row_sum, launch.grid, *arguments, algebra=True, BLOCK=block)
        assert run.changed["out"] == 3
        results.append(arguments[1].view(torch.int32))
    assert torch.equal(*results)
    real = launch.arguments()
    lab.run(kernels.row_sum, launch.grid, *real, BLOCK=16)
    assert not torch.equal(real[1].view(torch.int32), results[0])


def test_a_check_does_not_go_with_the_algebra(lab: kernellab.Lab) -> None:
    launch = LAUNCHES["row_sum"]
    with pytest.raises(UsageError, match="check compares floats"):
        lab.run(kernels.row_sum, launch.grid, *launch.arguments(), algebra=True, check=lambda x: x.sum(1), BLOCK=16)


@pytest.mark.parametrize("function", ["mean", "var", "amax", "cumsum", "sigmoid", "log_softmax"])
def test_torch_references_are_evaluated_by_the_definitions(function: str) -> None:
    from kernellab.checking.payload_tensor import in_algebra

    x = torch.randn(4, 8)
    forms = {
        "mean": (lambda x: x.mean(1), lambda x: x.sum(1) / 8),
        "var": (
            lambda x: x.var(1, correction=0),
            lambda x: ((x - x.mean(1, keepdim=True)) * (x - x.mean(1, keepdim=True))).sum(1) / 8,
        ),
        "amax": (lambda x: x.amax(1), lambda x: -((-x).amin(1))),
        "cumsum": (lambda x: x.cumsum(1)[:, -1], lambda x: x.sum(1)),
        "sigmoid": (lambda x: x.sigmoid(), lambda x: 1 / (1 + (-x).exp())),
        "log_softmax": (
            lambda x: x.log_softmax(1),
            lambda x: x - x.amax(1, keepdim=True) - (x - x.amax(1, keepdim=True)).exp().sum(1, keepdim=True).log(),
        ),
    }
    one, other = (
        in_algebra(lambda arguments, form=form: form(arguments["x"]), {"x": x}).view(torch.int32)
        for form in forms[function]
    )
    assert torch.equal(one, other)
