"""How far a kernel may be from a reference: right ones pass, and wrong ones do not, over what is computed and in what.

What stands for a kernel is a function of torch that rounds as one does: in another order, and in shorter formats.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from kernellab.checking import error_rules
from kernellab.checking.bounds import evaluate_with_bounds
from kernellab.checking.comparison import Check, compare
from kernellab.checking.reference import check_of, expression_in, reference_of

Function = Callable[..., torch.Tensor]
ROWS = 8
FORMATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def made(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def check(reference: Function, kernel: Function, *inputs: torch.Tensor) -> Check:
    names = "abcdef"[: len(inputs)]
    arguments = dict(zip(names, inputs, strict=True))
    got = kernel(*inputs)
    computed = eval(f"lambda {', '.join(names)}: reference({', '.join(names)})", {"reference": reference})
    (found,) = compare("reference", reference_of(check_of(computed), arguments).of({"out": got}), {"out": got})
    return found


def wide(x: torch.Tensor) -> torch.Tensor:
    """The format that a kernel adds up in."""
    return x.double() if x.dtype == torch.float64 else x.float()


def forwards(x: torch.Tensor) -> torch.Tensor:
    """The sum of each row, one term after the other."""
    return wide(x).cumsum(1)[:, -1]


def blocks(x: torch.Tensor) -> torch.Tensor:
    return sum((part.sum(1) for part in wide(x).split(128, 1)), torch.zeros(()))


def tf32(x: torch.Tensor) -> torch.Tensor:
    """Numbers cut to ten bits, as the tensor cores take float32."""
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)


def cut(x: torch.Tensor) -> torch.Tensor:
    return tf32(x) if x.dtype == torch.float32 else x


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A product in steps, as a kernel takes it."""
    found = torch.zeros(a.shape[0], b.shape[1], dtype=wide(a).dtype)
    for left, right in zip(a.split(32, 1), b.split(32, 0), strict=True):
        found = found + wide(left) @ wide(right)
    return found


def of_scores(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, keys: int) -> torch.Tensor:
    """Attention over the first keys, with probabilities in the format of the values."""
    scores = wide(q) @ wide(k[:keys]).T * 0.125
    powers = (scores - scores.amax(1, keepdim=True)).exp()
    return (wide(powers.to(v.dtype)) @ wide(v[:keys]) / powers.sum(1, keepdim=True)).to(v.dtype)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.T * 0.125, -1) @ v


def normalized(x: torch.Tensor, terms: int) -> torch.Tensor:
    """Layer norm in one pass: the variance from the mean of squares."""
    taken = wide(x[:, :terms])
    mean = taken.mean(1, keepdim=True)
    variance = (taken * taken).mean(1, keepdim=True) - mean * mean
    return ((wide(x) - mean) * torch.rsqrt(variance + 1e-5)).to(x.dtype)


def layer_norm(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[1:])


RIGHT: dict[str, tuple[Function, Function, tuple[tuple[int, ...], ...]]] = {
    "copied": (lambda x: x, lambda x: x.clone(), ((ROWS, 999),)),
    "scaled": (lambda x: x * 3, lambda x: x + x + x, ((ROWS, 999),)),
    "added": (lambda x, y: x + y, lambda x, y: (wide(x) + wide(y)).to(x.dtype), ((ROWS, 999), (ROWS, 999))),
    "row sums": (lambda x: x.sum(1), blocks, ((ROWS, 4096),)),
    "row sums forwards": (lambda x: x.sum(1), lambda x: forwards(x).to(x.dtype), ((ROWS, 4096),)),
    "means": (lambda x: x.abs().mean(1), lambda x: (forwards(x.abs()) / 4096).to(x.dtype), ((ROWS, 4096),)),
    "running sums": (lambda x: x.cumsum(1), lambda x: wide(x).cumsum(1), ((ROWS, 999),)),
    "product": (torch.matmul, product, ((64, 4096), (4096, 32))),
    "product of cut operands": (torch.matmul, lambda a, b: product(cut(a), cut(b)), ((64, 4096), (4096, 32))),
    "softmax": (
        lambda x: torch.softmax(x, 1),
        lambda x: ((y := torch.exp2(wide(x) * math.log2(math.e))) / y.sum(1, keepdim=True)).to(x.dtype),
        ((ROWS, 1000),),
    ),
    "attention": (attention, lambda q, k, v: of_scores(q, k, v, 128), ((64, 64), (128, 64), (128, 64))),
    "attention of cut operands": (
        attention,
        lambda q, k, v: of_scores(cut(q), cut(k), cut(v), 128),
        ((64, 64), (128, 64), (128, 64)),
    ),
    "layer norm": (layer_norm, lambda x: normalized(x, 1000), ((ROWS, 1000),)),
    "silu": (torch.nn.functional.silu, lambda x: (wide(x) * torch.sigmoid(wide(x))).to(x.dtype), ((ROWS, 999),)),
    "squared distance": (
        lambda x, y: ((x - y) ** 2).sum(1),
        lambda x, y: forwards((wide(x) - wide(y)) ** 2),
        ((ROWS, 1000), (ROWS, 1000)),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FORMATS, ids=str)
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_kernel_passes(name: str, dtype: torch.dtype) -> None:
    reference, kernel, shapes = RIGHT[name]
    inputs = [made(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes)]
    found = check(reference, kernel, *inputs)
    assert found.equal, found


def zeroed(x: torch.Tensor, *place: Any) -> torch.Tensor:
    out = x.clone()
    out[place] = 0
    return out


def without_largest(x: torch.Tensor) -> torch.Tensor:
    """The rows without their largest term."""
    return wide(x).scatter(1, x.abs().float().argmax(1, keepdim=True), 0)


def tiles_transposed(x: torch.Tensor) -> torch.Tensor:
    out = x.clone()
    out[:16, :16] = x[:16, :16].T
    return out


WRONG: dict[str, tuple[Function, Function, tuple[tuple[int, ...], ...]]] = {
    "one element lost": (lambda x: x * 3, lambda x: zeroed(x * 3, 2, 500), ((ROWS, 999),)),
    "one element of another place": (lambda x: x, lambda x: x.roll(1, 1), ((ROWS, 999),)),
    "tail not written": (lambda x: x + 1, lambda x: zeroed(x + 1, slice(None), slice(960, None)), ((ROWS, 999),)),
    "tail of a sum": (lambda x: x.sum(1), lambda x: wide(x[:, :960]).sum(1), ((ROWS, 1000),)),
    "largest term of a sum": (lambda x: x.sum(1), lambda x: without_largest(x).sum(1), ((ROWS, 512),)),
    "term too many": (
        lambda x: x.abs().sum(1),
        lambda x: wide(x.abs()).sum(1) + wide(x)[:, 0].abs() + 1,
        ((ROWS, 64),),
    ),
    "tile of a product transposed": (
        torch.matmul,
        lambda a, b: tiles_transposed(product(a, b)),
        ((64, 512), (512, 64)),
    ),
    "block of a product missing": (torch.matmul, lambda a, b: product(a[:, :-32], b[:-32]), ((64, 4096), (4096, 64))),
    "tail of a product missing": (torch.matmul, lambda a, b: product(a[:, :480], b[:480]), ((64, 500), (500, 64))),
    "operands swapped": (lambda x, y: x - y, lambda x, y: y - x, ((ROWS, 999), (ROWS, 999))),
    "block of keys missing": (attention, lambda q, k, v: of_scores(q, k, v, 96), ((64, 64), (128, 64), (128, 64))),
    "tail of a norm": (layer_norm, lambda x: normalized(x, 896), ((ROWS, 1000),)),
    "softmax over padding": (
        lambda x: torch.softmax(x, 1),
        lambda x: ((y := wide(x).exp()) / (y.sum(1, keepdim=True) + 240)).to(x.dtype),
        ((ROWS, 1000),),
    ),
    "wrong scale": (attention, lambda q, k, v: of_scores(q * 1.25, k, v, 128), ((64, 64), (128, 64), (128, 64))),
    "running sum restarted": (
        lambda x: x.cumsum(1),
        lambda x: torch.cat([part.cumsum(1) for part in wide(x).split(512, 1)], 1),
        ((ROWS, 1000),),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FORMATS, ids=str)
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_does_not(name: str, dtype: torch.dtype) -> None:
    reference, kernel, shapes = WRONG[name]
    inputs = [made(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes)]
    assert not check(reference, kernel, *inputs).equal


FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_float8_operands_are_exact_and_their_sums_are_short(dtype: torch.dtype) -> None:
    a, b = made(64, 1024, dtype=dtype), made(1024, 64, dtype=dtype, seed=1)
    assert check(torch.matmul, lambda a, b: (a.float() @ b.float()).bfloat16(), a, b).equal
    assert not check(torch.matmul, lambda a, b: (a.float()[:, :-64] @ b.float()[:-64]).bfloat16(), a, b).equal
    assert not check(torch.matmul, lambda a, b: (a.float() @ b.float().roll(1, 1)).bfloat16(), a, b).equal


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_a_float8_output_is_rounded_once(dtype: torch.dtype) -> None:
    x = made(ROWS, 999, dtype=torch.float32)
    assert check(lambda x: x * 2, lambda x: (x * 2).to(dtype), x).equal
    assert not check(lambda x: x * 2, lambda x: (x * 2.6).to(dtype), x).equal


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64, torch.uint8], ids=str)
def test_integers_are_exact(dtype: torch.dtype) -> None:
    x = torch.randint(0, 100, (ROWS, 999), generator=torch.Generator().manual_seed(0)).to(dtype)
    assert check(lambda x: x + 1, lambda x: x + 1, x).equal
    assert not check(lambda x: x + 1, lambda x: x + 1 + (torch.arange(999) == 5).to(dtype), x).equal
    assert check(lambda x: x.sum(1), lambda x: x.to(torch.int32).sum(1, dtype=torch.int32), x).equal
    assert not check(lambda x: x.sum(1), lambda x: x.to(torch.int32)[:, :-7].sum(1, dtype=torch.int32), x).equal


def test_truth_values_may_flip_only_where_rounding_decides() -> None:
    x, y = made(ROWS, 999, dtype=torch.float32), made(ROWS, 999, dtype=torch.float32, seed=1)
    assert check(lambda x, y: x > y, lambda x, y: x > y, x, y).equal
    assert not check(lambda x, y: x > y, lambda x, y: x < y, x, y).equal
    third = torch.full((1, 4), 1 / 3)
    assert check(lambda x: x * 3 > 1, lambda x: torch.zeros(1, 4, dtype=torch.bool), third).equal
    assert check(lambda x: x * 3 > 1, lambda x: torch.ones(1, 4, dtype=torch.bool), third).equal


def test_quantized_values_may_be_off_by_one_only_beside_a_half() -> None:
    def quantized(x: torch.Tensor) -> torch.Tensor:
        return (x / x.abs().amax(1, keepdim=True) * 127).round().to(torch.int8)

    x = made(ROWS, 999, dtype=torch.float32)
    assert check(quantized, lambda x: (x * (127 / x.abs().amax(1, keepdim=True))).round().to(torch.int8), x).equal
    assert not check(quantized, lambda x: quantized(x) + (torch.arange(999) == 7).to(torch.int8), x).equal


def test_cancellation_is_allowed_for_where_it_happens() -> None:
    x = made(ROWS, 999, dtype=torch.float32)
    assert check(lambda x: (x + 1e4) - 1e4, lambda x: (x + 1e4) - 1e4, x).equal
    assert not check(lambda x: x + 1 - 1, lambda x: (x + 1e4) - 1e4, x).equal


def test_a_loop_over_views_written_in_place_keeps_its_bounds() -> None:
    def looped(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(a.shape[0], b.shape[1])
        for row in range(0, a.shape[0], 16):
            out[row : row + 16] += a[row : row + 16] @ b
        out[0, 0] = 5
        return out

    def kernel(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        found = product(cut(a), cut(b))
        found[0, 0] = 5
        return found

    a, b = made(64, 1024, dtype=torch.float32), made(1024, 32, dtype=torch.float32, seed=1)
    assert check(looped, kernel, a, b).equal
    assert not check(
        looped, lambda a, b: kernel(a, b) + 1e-5 * (torch.arange(32) == 0) * (torch.arange(64) == 0)[:, None], a, b
    ).equal


def test_gradients_and_buffers_of_another_format_are_followed() -> None:
    def gradient(x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
        taken = x.detach().requires_grad_()
        (found,) = torch.autograd.grad(layer_norm(taken), taken, dy)
        return found.float()

    x, dy = made(ROWS, 256, dtype=torch.float32), made(ROWS, 256, dtype=torch.float32, seed=1)
    right = gradient(x.double(), dy.double())
    assert check(gradient, lambda x, dy: right, x, dy).equal
    assert not check(gradient, lambda x, dy: right * 1.001, x, dy).equal


def test_what_leaves_torch_is_compared_by_a_share_of_the_largest() -> None:
    def through_numpy(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.sort(x.numpy(), axis=1))

    x = made(ROWS, 999, dtype=torch.float32)
    assert check(through_numpy, lambda x: x.sort(1).values * (1 + 1e-5), x).equal
    assert not check(through_numpy, lambda x: x, x).equal


THROUGH_NUMPY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "numpy": lambda x: torch.from_numpy(x.numpy() + 8),
    "asarray": lambda x: torch.from_numpy(np.asarray(x) + 8),
    "view": lambda x: torch.from_numpy(x.view(-1).numpy() + 8),
    "detach": lambda x: torch.from_numpy(x.detach().numpy() + 8),
    "computed": lambda x: torch.from_numpy((x + 8).numpy()),
    "list": lambda x: torch.tensor([value + 8 for value in x.tolist()]),
    "dlpack of numpy": lambda x: torch.from_numpy(np.from_dlpack(x) + 8),
    "dlpack": lambda x: torch.from_dlpack(x) + 8,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32], ids=str)
@pytest.mark.parametrize("name", THROUGH_NUMPY)
def test_a_reference_may_leave_torch_from_a_parameter_or_a_tensor_of_its_own(name: str, dtype: torch.dtype) -> None:
    x, function = torch.arange(100).to(dtype), THROUGH_NUMPY[name]
    for given in (function, lambda: function(x)):
        (found,) = compare("reference", reference_of(check_of(given), {"x": x}).of({"out": x}), {"out": x + 8})
        assert found.equal, found


def test_what_was_computed_before_is_as_inexact_in_float64_as_in_float32_in_a_function_and_by_name() -> None:
    x = made(96, 1000, dtype=torch.float32)
    before, in_turn = x.double().sum(0), torch.zeros(1000)
    for row in x:
        in_turn = in_turn + row
    arguments = {"x": x, "out": in_turn}
    given = {
        "float64": expression_in("before", {"before": before}),
        "float32": expression_in("before", {"before": before.float()}),
        "a function": check_of(lambda x: before),
        "a function that converts": check_of(lambda x: before.float()),
    }
    for name, function in given.items():
        (right,) = compare(name, reference_of(function, arguments).of({"out": in_turn}), {"out": in_turn})
        assert right.equal, name
        off = in_turn + 0.01 * in_turn.abs().max()
        assert not compare(name, reference_of(function, arguments).of({"out": off}), {"out": off})[0].equal, name


def test_a_constant_of_a_function_is_exact() -> None:
    x = made(64, 64, dtype=torch.float32)
    reference = reference_of(check_of(lambda x: x * torch.tensor([0.5, 2.0] * 32)), {"x": x})
    right = x * torch.tensor([0.5, 2.0] * 32)
    assert compare("check", reference.of({"out": right}), {"out": right})[0].equal
    assert not compare("check", reference.of({"out": right * 1.0001}), {"out": right * 1.0001})[0].equal


COUNTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum of floats": lambda x: torch.nn.functional.one_hot(x.long(), 64).float().sum(0).int(),
    "histc": lambda x: torch.histc(x.float(), bins=64, min=0, max=64).int(),
    "bincount": lambda x: torch.bincount(x, minlength=64).int(),
}


@pytest.mark.parametrize("name", COUNTS)
def test_a_count_that_lacks_one_is_wrong(name: str) -> None:
    x = torch.randint(0, 64, (10_000,), dtype=torch.int32, generator=torch.Generator().manual_seed(0))
    right = torch.bincount(x, minlength=64).int()
    values = reference_of(check_of(COUNTS[name]), {"x": x}).of({"out": right})
    assert compare(name, values, {"out": right})[0].equal
    assert not compare(name, values, {"out": right - torch.eye(64, dtype=torch.int32)[0]})[0].equal


def test_infinities_and_masked_rows_have_bounds_as_others_have() -> None:
    def masked(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x.masked_fill(torch.ones(x.shape).triu(1).bool(), float("-inf")), -1)

    x = made(64, 64, dtype=torch.float32)
    assert check(masked, masked, x).equal
    assert not check(masked, lambda x: torch.softmax(x, -1), x).equal


INDEX = torch.arange(64).remainder(7)
WITH_RULES: dict[str, Function] = {
    "sum": lambda x: x.sum(1),
    "mean": lambda x: x.mean(1),
    "cumsum": lambda x: x.cumsum(1),
    "var": lambda x: x.var(1),
    "std": lambda x: x.std(1),
    "var_mean": lambda x: torch.var_mean(x, 1)[0],
    "std_mean": lambda x: torch.std_mean(x, 1)[0],
    "mm": lambda x: x @ x.T,
    "bmm": lambda x: x.view(8, 8, 64) @ x.view(8, 64, 8),
    "convolution": lambda x: torch.nn.functional.conv1d(x.view(1, 64, 64), x.view(64, 64, 1)),
    "index_add": lambda x: torch.zeros_like(x).index_add(0, INDEX, x),
    "scatter_add": lambda x: torch.zeros_like(x).scatter_add(0, INDEX.expand(64, 64), x),
    "_to_copy": lambda x: x.to(torch.bfloat16),
    "convert_element_type": lambda x: torch.ops.prims.convert_element_type(x, torch.bfloat16),
    "empty_strided": lambda x: torch.empty_strided((4,), (1,)).fill_(1.0),
    "amax": lambda x: x.amax(1),
    "amin": lambda x: x.amin(1),
    "max": lambda x: x.max(1).values,
    "min": lambda x: x.min(1).values,
    "sort": lambda x: x.sort(1).values,
    "topk": lambda x: x.topk(4, 1).values,
    "cummax": lambda x: x.cummax(1).values,
    "cummin": lambda x: x.cummin(1).values,
    "kthvalue": lambda x: x.kthvalue(3, 1).values,
    "median": lambda x: x.median(1).values,
}


def test_every_operation_with_a_rule_of_its_own_is_tried_below() -> None:
    assert set(WITH_RULES) == error_rules._RULES.keys() | error_rules._EXTREMES


@pytest.mark.parametrize("name", WITH_RULES)
@pytest.mark.parametrize("is_exact", [True, False])
def test_the_rule_of_an_operation_takes_operands_with_and_without_errors(name: str, is_exact: bool) -> None:
    x, function = made(64, 64, dtype=torch.float32), WITH_RULES[name]
    value = evaluate_with_bounds(lambda track: function(track(x) if is_exact else track(x).exp()), widens=True)
    assert value.error is not None
    torch.testing.assert_close(value.value.float(), function(x if is_exact else x.exp()).float(), atol=0.2, rtol=1e-2)


def test_an_operation_that_has_no_rule_is_one_sum_over_its_operands() -> None:
    a, b = made(16, 16, dtype=torch.float32) + 8 * torch.eye(16), made(16, 4, dtype=torch.float32, seed=1)
    assert check(torch.linalg.solve, torch.linalg.solve, a, b).equal
    assert not check(torch.linalg.solve, lambda a, b: torch.linalg.solve(a.T, b), a, b).equal


def test_values_that_were_computed_before_are_not_taken_for_exact() -> None:
    x = torch.rand(1000, generator=torch.Generator().manual_seed(0)) + 0.5
    before = torch.exp(torch.log(x) * 3)
    arguments = {"x": x, "out": x**3}
    for text in ("before", "before.clone()", "before + 0"):
        values = reference_of(expression_in(text, {"before": before, "x": x}), arguments).of({"out": x**3})
        assert compare(text, values, {"out": x**3})[0].equal
        assert not compare(text, values, {"out": (x**3).index_fill(0, torch.tensor([7]), 0)})[0].equal
    given = reference_of(check_of(before), arguments).of({"out": x**3})
    assert compare("check", given, {"out": x**3})[0].equal


def test_an_argument_that_is_its_own_reference_is_exact() -> None:
    x = torch.rand(100) + 1
    values = reference_of(expression_in("x", {"x": x}), {"x": x, "out": x}).of({"out": x})
    assert compare("x", values, {"out": x.clone()})[0].equal
    assert not compare("x", values, {"out": x * (1 + 2**-20)})[0].equal


def test_a_reference_may_need_more_of_a_tensor_than_its_values() -> None:
    leaf = torch.rand(50, requires_grad=True)
    names = {"leaf": leaf, "loss": (leaf**2).sum(), "kept": {leaf: torch.ones(50)}}
    for text, want in (
        ("torch.autograd.grad(loss, leaf, retain_graph=True)", 2 * leaf.detach()),
        ("kept[leaf]", torch.ones(50)),
    ):
        values = reference_of(expression_in(text, {**names, "torch": torch}), {"x": leaf}).of({"out": want})
        assert compare(text, values, {"out": want})[0].equal
        assert not compare(text, values, {"out": want + 0.01})[0].equal


@pytest.mark.slow
def test_a_scan_may_round_otherwise_than_the_loop_that_it_stands_for() -> None:
    decay, addend = made(64, 50, dtype=torch.float32).sigmoid(), made(64, 50, dtype=torch.float32, seed=1)

    def loop(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        states = [b[:, 0]]
        for step in range(1, b.shape[1]):
            states.append(a[:, step] * states[-1] + b[:, step])
        return torch.stack(states, 1)

    def doubling(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a, b, step = a.clone(), b.clone(), 1
        while step < b.shape[1]:
            b = torch.cat([b[:, :step], a[:, step:] * b[:, :-step] + b[:, step:]], 1)
            a = torch.cat([a[:, :step], a[:, step:] * a[:, :-step]], 1)
            step *= 2
        return b

    assert check(loop, doubling, decay, addend).equal
    assert not check(loop, lambda a, b: loop(a, b.index_fill(1, torch.tensor([7]), 0)), decay, addend).equal
