"""The language runs on the CPU and computes what torch computes, without a false alarm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from kernellab.errors import OutOfBounds, RunError
from kernellab.launch.run import Run
from tests.interpreter import features

Launch = Callable[..., Run]


def version() -> tuple[int, ...]:
    return tuple(map(int, triton.__version__.split(".")[:2]))


@pytest.fixture(name="quiet")
def quiet_launch(launch: Launch) -> Launch:
    """Return a launch that must find nothing."""

    def run(*args: Any, **named: Any) -> Run:
        result = launch(*args, **named)
        assert result.findings == ()
        return result

    return run


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))).to(dtype)


def test_sort_topk_and_flip(quiet: Launch) -> None:
    x, out = random(2, 32), torch.zeros(2, 32)
    quiet(features.sort_rows, (2,), x, out, 32)
    assert torch.equal(out, x.sort(1).values)
    best = torch.zeros(8)
    quiet(features.topk, (1,), x, best, 32, 8)
    assert torch.equal(best, x[0].topk(8).values)
    turned = torch.zeros(32)
    quiet(features.flip, (1,), x, turned, 32)
    assert torch.equal(turned, x[0].flip(0))


def test_histogram_drops_masked_and_foreign_values(quiet: Launch) -> None:
    x = torch.tensor([0, 1, 1, 3, 9, -1, 2, 0], dtype=torch.int32)
    out = torch.zeros(4, dtype=torch.int32)
    quiet(features.block_histogram, (1,), x, out, 7, 8, 4)
    assert out.tolist() == [1, 2, 1, 1]


def test_gather(quiet: Launch) -> None:
    x, out = random(4, 8), torch.zeros(4, 8)
    index = torch.randint(0, 4, (4, 8), dtype=torch.int32)
    quiet(features.gather_rows, (1,), x, index, out, 4, 8)
    assert torch.equal(out, x.gather(0, index.long()))


def test_reductions(quiet: Launch) -> None:
    x, out = random(4, 8), torch.zeros(8, 4)
    quiet(features.reductions, (1,), x, out, 4, 8)
    expected = [x.sum(1), x.amax(1), x.amin(1), x.argmax(1).float(), x.argmin(1).float(), x.prod(1), x.sum(1)]
    torch.testing.assert_close(out[:7], torch.stack(expected))
    assert (out[7] == x.max()).all()


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_with_a_combine_function_of_tuples(quiet: Launch, reverse: bool) -> None:
    a, b, out = random(16) * 0.5, random(16), torch.zeros(16)
    quiet(features.linear_recurrence, (1,), a, b, out, 16, reverse)
    order = range(15, -1, -1) if reverse else range(16)
    state, expected = 0.0, [0.0] * 16
    for i in order:
        state = state * a[i].item() + b[i].item()
        expected[i] = state
    torch.testing.assert_close(out, torch.tensor(expected), rtol=1e-5, atol=1e-5)


def test_scan_with_an_if_decides_per_element(quiet: Launch) -> None:
    x, out = random(16), torch.zeros(16)
    quiet(features.running_max_with_if, (1,), x, out, 16)
    assert torch.equal(out, x.cummax(0).values)


def test_cumsum_and_cumprod(quiet: Launch) -> None:
    x, out = random(16), torch.zeros(3, 16)
    quiet(features.cumulative, (1,), x, out, 16)
    torch.testing.assert_close(out, torch.stack([x.cumsum(0), x.flip(0).cumsum(0).flip(0), x.cumprod(0)]))


def test_while_loop_and_early_return(quiet: Launch) -> None:
    x, out = torch.tensor([1, 2, 7, 27], dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    quiet(features.collatz, (4,), x, out)
    assert out.tolist() == [0, 1, 16, 111]
    values, doubled = random(4), torch.zeros(4)
    run = quiet(features.early_return, (9,), values, doubled, 3)
    assert torch.equal(doubled[:3], values[:3] * 2)
    assert run.changed == {"x": 0, "out": 3}


def test_tuples_of_tensors(quiet: Launch) -> None:
    inputs, outs = (random(8), random(8) + 1), (torch.zeros(8), torch.zeros(8))
    run = quiet(features.tuple_arguments, (1,), inputs, outs, 8)
    assert torch.equal(outs[1], inputs[1] + 1)
    assert run.changed == {"inputs[0]": 0, "inputs[1]": 0, "outs[0]": 8, "outs[1]": 8}


def test_descriptors(quiet: Launch) -> None:
    x, out = random(20, 24), torch.zeros(20, 24)
    quiet(features.copy_by_descriptor, (2, 2), x, out, 20, 24, 16)
    assert torch.equal(out, x * 2)
    y, z = random(8, 8), torch.zeros(8, 8)
    quiet(features.add_by_host_descriptor, (2,), *(TensorDescriptor(t, [8, 8], [8, 1], [4, 8]) for t in (y, z)), 4)
    assert torch.equal(z, y + 1)


def test_descriptor_atomic_add(quiet: Launch) -> None:
    x, out = random(16, 8), torch.zeros(8, 8)
    quiet(features.accumulate_by_descriptor, (2,), x, out, 8)
    torch.testing.assert_close(out, x[:8] + x[8:])


def test_atomics(quiet: Launch) -> None:
    ints = torch.tensor([0, -5, 9, 0, -1, 0, 77, 2], dtype=torch.int32)
    floats, olds = torch.tensor([0.0, -9.0, 9.0]), torch.zeros(4, dtype=torch.int32)
    quiet(features.all_atomics, (4,), ints, floats, olds)
    assert ints.tolist() == [6, 3, 0, 15, -16, 15, 3, 4]
    assert floats.tolist() == [2.0, 0.5, -2.5]
    assert olds.tolist() == [77, 0, 1, 2]


def test_what_a_lock_orders_is_no_race(quiet: Launch) -> None:
    x, out, lock = random(4, 8), torch.zeros(8), torch.zeros(1, dtype=torch.int32)
    quiet(features.locked_sum, (4,), x, out, lock, 8)
    torch.testing.assert_close(out, x.sum(0))


def test_what_a_counter_orders_is_no_race(quiet: Launch) -> None:
    x, out = random(4, 8), torch.zeros(1)
    quiet(features.last_one_sums, (4,), x, torch.zeros(4), out, torch.zeros(1, dtype=torch.int32), 4, 8, 4)
    torch.testing.assert_close(out, x.sum().reshape(1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int8])
def test_dot(quiet: Launch, dtype: torch.dtype) -> None:
    a, b = (random(16, 32) * 3).to(dtype), (random(32, 16) * 3).to(dtype)
    out = torch.zeros(16, 16, dtype=torch.int32 if dtype == torch.int8 else torch.float32)
    quiet(features.dot_of_types, (1,), a, b, out, 16, 16, 32)
    torch.testing.assert_close(out, (a.double() @ b.double()).to(out.dtype), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("precision", ["ieee", "tf32x3", "bf16x3", "bf16x6"])
def test_dot_takes_each_precision_that_some_target_has(quiet: Launch, precision: str) -> None:
    a, b, out = random(16, 32), random(32, 16), torch.zeros(16, 16)
    quiet(features.dot_of_types, (1,), a, b, out, 16, 16, 32, precision)
    torch.testing.assert_close(out, a @ b)


@pytest.mark.parametrize(("dtype", "name"), [(torch.float8_e4m3fn, "e4m3"), (torch.float8_e5m2, "e5m2")])
def test_scaled_dot(quiet: Launch, dtype: torch.dtype, name: str) -> None:
    a, b, out = random(32, 64).to(dtype), random(64, 32).to(dtype), torch.zeros(32, 32)
    a_scale, b_scale = (torch.randint(120, 134, (32, 2), dtype=torch.uint8) for _ in range(2))
    quiet(features.scaled_dot, (1,), a, a_scale, b, b_scale, out, 32, 32, 64, name)
    left, right = (torch.exp2(s.float() - 127).repeat_interleave(32, 1) for s in (a_scale, b_scale))
    torch.testing.assert_close(out, (a.float() * left) @ (b.float() * right.T), rtol=1e-4, atol=1e-3)


def test_join_split_interleave_and_transpose(quiet: Launch) -> None:
    x, out = random(8), torch.zeros(32)
    quiet(features.join_and_split, (1,), x, out, 8)
    assert torch.equal(out, torch.cat([x, x + 100, torch.stack([x, x + 100], 1).flatten()]))
    block, turned = random(4, 8), torch.zeros(8, 4)
    quiet(features.permute, (1,), block, turned, 4, 8)
    assert torch.equal(turned, block.T)


def test_math_functions(quiet: Launch) -> None:
    v, out = random(16).abs() + 0.1, torch.zeros(4, 16)
    quiet(features.math_functions, (1,), v, out, 16)
    expected = [
        v.exp() + v.log() + v.sqrt() + v.rsqrt(),
        v.sin() + v.cos() + v.erf() + v.exp2() + v.log2(),
        v.sigmoid() + v.floor() + v.ceil() + v,
        v * v + v + v.clamp(0.5, 1.5) + v.clamp(min=1) + v.clamp(max=1),
    ]
    torch.testing.assert_close(out, torch.stack(expected), rtol=1e-5, atol=1e-5)


def test_functions_of_libdevice(quiet: Launch) -> None:
    v, out = random(16).abs() + 0.1, torch.zeros(2, 16)
    quiet(features.library_functions, (1,), v, out, 16)
    round_to_type = (v + 0.5).floor()
    expected = [
        v.tanh() + v**1.5 + v.expm1() + v.log1p(),
        v.rsqrt() + v.erf() + torch.atan2(v, torch.tensor(2.0)) + round_to_type,
    ]
    torch.testing.assert_close(out, torch.stack(expected), rtol=1e-5, atol=1e-5)


def test_map_elementwise(quiet: Launch) -> None:
    x, out = torch.tensor([-2.0, 0.0, 3.0, -0.5]), torch.zeros(4)
    quiet(features.elementwise_by_scalar_function, (1,), x, out, 4)
    assert torch.equal(out, x.sign())


def test_random_numbers_are_uniform_normal_and_quiet(quiet: Launch) -> None:
    out = torch.zeros(2, 1024)
    quiet(features.random_numbers, (1,), out, 42, 1024)
    assert out[0].min() >= 0
    assert out[0].max() < 1
    assert abs(out[0].mean() - 0.5) < 0.05
    assert abs(out[1].std() - 1) < 0.1


def test_loop_variables_are_tensors(quiet: Launch) -> None:
    x, out = random(4, 8), torch.zeros(8)
    quiet(features.loop_variable_methods, (1,), x, out, 32, 8)
    torch.testing.assert_close(out, x.sum(0) + 1)


def test_builtin_max_and_min_work_on_blocks(quiet: Launch) -> None:
    x, y, out = random(8), random(8).flip(0), torch.zeros(8)
    quiet(features.builtin_extremes, (1,), x, y, out, 8)
    torch.testing.assert_close(out, (x - y).abs() + 8)


def test_integer_operations_follow_c(quiet: Launch) -> None:
    a = torch.tensor([7, -7, 7, -7, 2**31 - 1, -(2**31), 100, 0], dtype=torch.int32)
    b = torch.tensor([2, 2, -2, -2, 3, 7, 100, 5], dtype=torch.int32)
    out = torch.zeros(5, 8, dtype=torch.int32)
    quiet(features.integer_operations, (1,), a, b, out, 8)
    assert torch.equal(out[0], torch.div(a, b, rounding_mode="trunc"))
    assert torch.equal(out[1], torch.fmod(a, b))
    assert torch.equal(out[2], (a << 2) ^ (a >> 1) | (b & 3))
    assert torch.equal(out[3], torch.where(a > b, a, -b))
    high = [(x % 2**32) * (y % 2**32) >> 32 for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert [v % 2**32 for v in out[4].tolist()] == high


def test_scalars_have_the_types_that_a_launch_gives_them(quiet: Launch) -> None:
    out = torch.zeros(6, dtype=torch.float64)
    quiet(features.scalar_types, (1,), out, 0.5, 2**40, -3, True, None, 3)
    assert out.tolist() == [0.5, 2**40 + 1, -3, 3, 4, 1.5]


def test_constexprs_may_be_types_strings_and_functions(quiet: Launch) -> None:
    x, out = random(8), torch.zeros(8, dtype=torch.float16)
    quiet(features.typed_by_constexpr, (1,), x, out, tl.float16, "double", 8)
    assert torch.equal(out, (x * 2).half())
    squared = torch.zeros(8)
    quiet(features.applied, (1,), x, squared, features.multiply, 8)
    assert torch.equal(squared, x * x)


def test_grids_of_three_dimensions_and_swizzling(quiet: Launch) -> None:
    out = torch.zeros(12, dtype=torch.int32)
    quiet(features.grid_of_three, (2, 3, 2), out, 2, 3)
    assert out.tolist() == [x + 10 * y + 100 * z + 12000 for z in range(2) for y in range(3) for x in range(2)]
    order = torch.zeros(12, dtype=torch.int32)
    quiet(features.swizzled, (12,), order, 4, 3)
    assert sorted(order.tolist()) == list(range(12))


def test_deliberate_wrapping_is_no_overflow_of_an_address(quiet: Launch) -> None:
    keys, out = torch.arange(8, dtype=torch.int32) * 12345, torch.zeros(24, dtype=torch.int32)
    quiet(features.wrapping_hash, (1,), keys, out, 8, 16)
    assert out[8:].sum() == 8


def test_views_of_one_storage_stay_views(quiet: Launch) -> None:
    whole = torch.zeros(4, 8)
    inputs = (random(8), random(8) + 1)
    run = quiet(features.tuple_arguments, (1,), inputs, (whole[1], whole[3]), 8)
    assert torch.equal(whole[3], inputs[1] + 1)
    assert not whole[0].any()
    assert run.changed["outs[0]"] == run.changed["outs[1]"] == 8


def test_boolean_operators_work_element_by_element(quiet: Launch) -> None:
    x, out = random(8) + 10, torch.zeros(4, 8)
    quiet(features.boolean_operators, (1,), x, out, 6, 2, 8, True)
    inside = torch.tensor([False, False, True, True, True, True, False, False])
    assert torch.equal(out[0], torch.where(inside, x, 0))
    assert torch.equal(out[1].bool(), ~inside)
    assert torch.equal(out[2].bool(), inside)
    assert out[3, 0] == 5


def test_an_assert_holds_for_every_element(quiet: Launch) -> None:
    quiet(features.asserts, (1,), torch.ones(8), 8)
    with pytest.raises(RunError, match="all positive"):
        quiet(features.asserts, (1,), torch.arange(8.0), 8)
    with pytest.raises(RunError, match="static assertion failed: eight"):
        quiet(features.asserts, (1,), torch.ones(16), 16)


def test_print_arrives_once_per_program_and_static_print_once(quiet: Launch) -> None:
    run = quiet(features.prints, (2,), torch.tensor([2.5]))
    assert run.output == "pid (0, 0, 0) value 2.5\nonce\npid (1, 0, 0) value 2.5\n"


def test_a_block_cannot_decide_an_if(quiet: Launch) -> None:
    with pytest.raises(RunError, match=r"a block of shape \(8,\) cannot decide"):
        quiet(features.if_of_a_block, (1,), torch.ones(8), 8)


def test_chained_assignment_and_ternary(quiet: Launch) -> None:
    out = torch.zeros(3, dtype=torch.int32)
    quiet(features.chained_assignment_and_ternary, (1,), out, 5)
    assert out.tolist() == [11, 10, 10]
    quiet(features.chained_assignment_and_ternary, (1,), out, 2)
    assert out.tolist() == [5, 4, 5]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float16, torch.float32, torch.float64])
def test_atomic_add_of_types(quiet: Launch, dtype: torch.dtype) -> None:
    values, olds = torch.zeros(1, dtype=dtype), torch.zeros(4, dtype=dtype)
    quiet(features.typed_atomics, (4,), values, olds)
    assert values.item() == 10
    assert olds.tolist() == [0, 1, 3, 6]


def test_masked_atomics_change_only_active_lanes(quiet: Launch) -> None:
    x, out = torch.ones(8), torch.zeros(2)
    quiet(features.masked_atomics, (2,), x, out, 5, 8)
    assert out.tolist() == [6, 4]


@pytest.mark.skipif(version() >= (3, 9), reason="Triton 3.9 has no block pointers")
def test_block_pointers(quiet: Launch) -> None:
    x, out = random(5, 20), torch.zeros(5, 20)
    quiet(features.copy_by_block_pointer, (1,), x, out, 5, 20, 8)
    assert torch.equal(out, x + 1)
    with pytest.raises(OutOfBounds, match="load of x"):
        quiet(features.block_pointer_without_check, (1,), random(5, 8), torch.zeros(8, 8), 5, 8, 8)


def test_gather_and_scatter_by_descriptor(quiet: Launch) -> None:
    x, out = random(16, 16), torch.zeros(16, 16)
    rows = torch.tensor([3, 1, 0, 7, 9, 12, 15, 2], dtype=torch.int32)
    quiet(features.gather_by_descriptor, (1,), x, rows, out, 16, 16, 8, 16)
    expected = torch.zeros(16, 16)
    expected[rows.long()] = x[rows.long()] * 2
    assert torch.equal(out, expected)


@pytest.mark.skipif(version() < (3, 9), reason="atomic loads and stores came with Triton 3.9")
def test_a_flag_orders_two_programs(quiet: Launch) -> None:
    flag, data, out = (torch.zeros(1, dtype=torch.int32) for _ in range(3))
    quiet(features.atomic_flags, (2,), flag, data, out)
    assert out.item() == 7


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_high_half_of_products(quiet: Launch, dtype: torch.dtype) -> None:
    bits = 8 * dtype.itemsize
    a = torch.tensor([1, -1, 2 ** (bits - 2), -(2 ** (bits - 1)), 12345678, -7, 3, 0], dtype=dtype)
    b, out = a.flip(0) * 3 - 1, torch.zeros(8, dtype=dtype)
    quiet(features.high_products, (1,), a, b, out, 8)
    expected = [(x % 2**bits) * (y % 2**bits) >> bits for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert [value % 2**bits for value in out.tolist()] == expected


def test_print_in_hexadecimal(quiet: Launch) -> None:
    run = quiet(features.prints_hex, (1,), torch.tensor([255], dtype=torch.int32))
    assert "0xff" in run.output


def test_transposed_and_expanded_tensors(quiet: Launch) -> None:
    x, out = random(8, 4), torch.zeros(4, 8)
    quiet(features.transposed_copy, (1,), x.T, out, x.T.stride(0), x.T.stride(1), 4, 8)
    assert torch.equal(out, x.T)
    row = random(8)
    quiet(features.transposed_copy, (1,), row.expand(4, 8), out, 0, 1, 4, 8)
    assert torch.equal(out, row.expand(4, 8))


def test_reinterpreted_tensors(quiet: Launch) -> None:
    x, out = random(8).to(torch.float8_e5m2), torch.zeros(8)
    quiet(features.reinterpreted, (1,), triton.reinterpret(x.view(torch.uint8), tl.float8e5), out, 8)
    assert torch.equal(out, x.float())


def test_pointers_may_be_selected(quiet: Launch) -> None:
    a, b, out = random(8), random(8) + 5, torch.zeros(2, 8)
    quiet(features.pointer_selection, (1,), a, b, out, 8)
    assert torch.equal(out[0], torch.where(torch.arange(8) % 2 == 0, a, b))
    assert torch.equal(out[1], a)


def test_two_tensors_over_the_same_memory_stay_so(launch: Launch) -> None:
    memory = np.zeros(8, np.float32)
    first, second = torch.from_numpy(memory), torch.from_numpy(memory)
    run = launch(features.tuple_arguments, (1,), (random(8),), (first,), 8)
    assert run.changed["outs[0]"] == 8
    run = launch(features.pointer_selection, (1,), first, second, torch.zeros(16), 8)
    assert run.findings == ()
    run = launch(features.reinterpreted, (1,), first, second, 8)
    assert {finding.kind for finding in run.findings} == {"overlap"}


def test_empty_and_zero_dimensional_tensors(quiet: Launch) -> None:
    run = quiet(features.typed_atomics, (2,), torch.tensor(1.0), torch.zeros(2))
    assert run.changed == {"values": 1, "olds": 2}
    run = quiet(features.masked_atomics, (1,), torch.ones(8), torch.empty(0), 0, 8)
    assert run.changed == {"x": 0, "out": 0}


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.int8, [-127, 56, -1, 0, -1]),  # cvt saturates to 16 bits, and the low 8 are kept
        (torch.uint8, [129, 0, 255, 0, 255]),
        (torch.int16, [129, -200, 2**15 - 1, 0, 2**15 - 1]),
        (torch.int32, [129, -200, 2**31 - 1, 0, 2**31 - 1]),
        (torch.int64, [129, -200, 10**10, -(2**63), 2**63 - 1]),
    ],
)
def test_numbers_that_fit_no_integer_become_what_the_hardware_makes_of_them(
    quiet: Launch, dtype: torch.dtype, expected: list[int]
) -> None:
    x = torch.tensor([129.0, -200.0, 1e10, float("nan"), float("inf"), 0, 0, 0])
    out = torch.ones(8, dtype=dtype)
    quiet(features.to_integer, (1,), x, out, 8)
    assert out.tolist() == [*expected, 0, 0, 0]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint32, torch.int16, torch.bool])
def test_bits_are_inverted_in_every_integer(quiet: Launch, dtype: torch.dtype) -> None:
    x = torch.tensor([0, 1, 1, 0]).to(dtype)
    out = torch.zeros_like(x)
    quiet(features.complement, (1,), x, out, 4)
    expected = ~x.to(torch.int64) & torch.iinfo(dtype).max if str(dtype).startswith("torch.uint") else ~x
    assert out.tolist() == expected.tolist()
