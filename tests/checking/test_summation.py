"""How far a sum may be off: kernels pass in the orders that they add in, and those that lose terms do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.checking.comparison import Check, compare, error_text
from kernellab.checking.reference import Reference, check_of, reference_of
from kernellab.errors import KernellabError
from tests.labs import lab_fixture

MILLION = 1_000_000
Array = Any


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


TERMS: dict[str, Callable[[int], Array]] = {
    "uniform": lambda n: generator().random(n) + 0.75,
    "normal": lambda n: generator().standard_normal(n),
    "squares": lambda n: generator().standard_normal(n) ** 2,
    "sorted": lambda n: np.sort(generator().standard_normal(n)),
    "constant": lambda n: np.full(n, 0.1),
    "few values": lambda n: generator().integers(0, 10, n) / 10,
    "masked constant": lambda n: generator().integers(0, 2, n) * 0.1,
    "line": lambda n: np.linspace(-1, 1, n),
    "alternating": lambda n: np.where(np.arange(n) % 2, 5, -5) + generator().standard_normal(n),
    "long tail": lambda n: generator().lognormal(0, 3, n),
    "spikes": lambda n: np.concatenate([[1e4], generator().standard_normal(n - 2), [-1e4]]),
}
FORMATS = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def terms_of(kind: str, count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.from_numpy(TERMS[kind](count)).to(dtype)


def in_order(x: Array) -> Array:
    return np.add.accumulate(x, dtype=np.float32)[-1]


def in_tree(x: Array) -> Array:
    while x.shape[0] > 1:
        x = x[: len(x) // 2] + x[len(x) // 2 :]
    return x[0]


def blocks_of(x: Array, size: int) -> Array:
    return np.concatenate([x, np.zeros(-len(x) % size, np.float32)]).reshape(-1, size)


def orders(x: torch.Tensor) -> Iterator[tuple[str, float]]:
    """Yield the sum in float32 in orders of kernels: loops, lanes, blocks of a tree that are added up or atomically."""
    values = x.float().numpy()
    if len(values) <= 1 << 16:
        yield "one by one", in_order(values)
        yield "backwards", in_order(values[::-1])
        yield "shuffled", in_order(generator().permutation(values))
    for size in (16, 32, 128, 1024, 4096):
        if size < len(values):
            blocks = blocks_of(values, size)
            yield f"{size} lanes", in_tree(np.add.accumulate(blocks, 0, dtype=np.float32)[-1])
            sums = in_tree(blocks.T)
            yield f"blocks of {size}", in_order(sums)
            yield f"blocks of {size}, shuffled", in_order(generator().permutation(sums))


def reference_for(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> Reference:
    return reference_of(check_of(lambda x: function(x)), {"x": x})  # noqa: PLW0108 - torch's own tell no parameters


def checked(reference: Reference, got: torch.Tensor) -> Check:
    (check,) = compare("reference", reference.of({"out": got}), {"out": got})
    return check


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("kind", TERMS)
def test_a_sum_passes_in_each_order_of_kernels(kind: str, dtype: str) -> None:
    for count in (2, 65, 1000, 1 << 16, MILLION if dtype == "float32" else 100_000):
        x = terms_of(kind, count, FORMATS[dtype])
        reference = reference_for(lambda x: x.sum(), x)
        for name, total in orders(x):
            check = checked(reference, torch.tensor(total, dtype=torch.float32))
            assert check.equal, (count, name, check)


@pytest.mark.parametrize("kind", TERMS)
def test_running_sums_pass_in_loops_and_in_blocks(kind: str) -> None:
    x = terms_of(kind, 1 << 14)
    reference = reference_for(lambda x: x.cumsum(0), x)
    for size in (1, 64, 1024):
        blocks = blocks_of(x.numpy(), size)
        inner = np.add.accumulate(blocks, 1, dtype=np.float32)
        carried = np.add.accumulate(inner[:, -1], dtype=np.float32)
        got = inner + np.concatenate([[np.float32(0)], carried[:-1]])[:, None]
        check = checked(reference, torch.from_numpy(got.reshape(-1)[: x.numel()].copy()))
        assert check.equal, (size, check)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["uniform", "normal", "squares", "spikes"])
def test_a_long_sum_that_loses_four_hundred_terms_is_wrong(kind: str) -> None:
    x = terms_of(kind, MILLION)
    reference = reference_for(lambda x: x.sum(), x)
    for lost in (slice(0, 400), slice(500_000, 500_400), slice(MILLION - 400, MILLION)):
        kept = x.double()
        rest = kept.sum() - kept[lost].sum()
        assert not checked(reference, rest.float()).equal


@pytest.mark.slow
@pytest.mark.parametrize("function", [torch.mean, torch.sum, lambda x: (x * x).sum(), lambda x: torch.dot(x, x)])
def test_what_follows_from_a_long_sum_is_as_narrow(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = terms_of("uniform", MILLION)
    reference = reference_for(function, x)
    assert checked(reference, function(x.double()).float()).equal
    assert not checked(reference, function(x.double().index_fill(0, torch.arange(400), 0)).float()).equal


def test_sums_of_rows_and_columns_lose_no_term() -> None:
    x = torch.rand(4096, 64, generator=torch.Generator().manual_seed(0)) + 0.5
    for dim, count in ((0, 4096), (1, 64)):
        reference = reference_for(lambda x, dim=dim: x.sum(dim), x)  # type: ignore[misc]
        rows = x.movedim(dim, 0).numpy()
        assert checked(reference, torch.from_numpy(np.add.accumulate(rows, 0, dtype=np.float32)[-1].copy())).equal
        assert not checked(reference, x.double().narrow(dim, 1, count - 1).sum(dim).float()).equal


def test_a_product_over_a_long_dimension_that_loses_a_block_is_wrong() -> None:
    a, b = (terms_of("normal", 8 << 17, torch.bfloat16).view(8, -1), torch.randn(1 << 17, 4).bfloat16())
    reference = reference_of(check_of(lambda a, b: a.float() @ b.float()), {"a": a, "b": b})
    exact = a.double() @ b.double()
    assert checked(reference, exact.float()).equal
    lost = a[:, :1024].double() @ b[:1024].double()
    assert not checked(reference, (exact - lost).float()).equal


def test_integers_add_up_without_an_error_while_the_accumulator_holds_them() -> None:
    ones = torch.ones(1 << 20)
    assert checked(reference_for(lambda x: x.sum(), ones), torch.tensor(float(1 << 20))).equal
    assert not checked(reference_for(lambda x: x.sum(), ones), torch.tensor(float((1 << 20) - 2))).equal
    many = torch.full((1 << 20,), 17.0)
    off = torch.tensor(float((17 << 20) - 2))
    assert checked(reference_for(lambda x: x.sum(), many), off).equal


@pytest.mark.slow
def test_a_wide_tolerance_stands_beside_the_verdict_and_a_narrow_one_does_not() -> None:
    x = terms_of("uniform", MILLION)
    reference = reference_for(lambda x: x.sum(), x)
    check = checked(reference, x.double().sum().float())
    assert check.wide == pytest.approx(check.tolerance / float(x.double().sum()))
    share = f"({100 * check.wide:.2g} % of the largest element)"
    assert error_text([check]).endswith(f"; wide tolerance: {check.tolerance:.2g} {share}")
    narrow = checked(reference_for(lambda x: x + 1, x), x + 1)
    assert f"; wide tolerance of {check.argument}: " in error_text([check, narrow])
    assert not narrow.wide
    assert error_text([narrow]) == f"max error {narrow.max_error:.2g}"


@triton.jit
def sum_in_blocks(x_ptr, out_ptr, n, last, BLOCK: tl.constexpr):
    lanes = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        lanes += tl.load(x_ptr + at, mask=at < last, other=0.0)
    tl.store(out_ptr, tl.sum(lanes, 0))


@triton.jit
def sum_atomically(x_ptr, out_ptr, n, last, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + at, mask=at < last, other=0.0).to(tl.float32), 0))


lab = lab_fixture("cuda:90", "function")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize(("kernel", "programs"), [(sum_in_blocks, 1), (sum_atomically, 25)])
def test_a_kernel_that_sums_in_blocks_passes_and_one_without_its_tail_does_not(
    lab: kernellab.Lab, kernel: Any, programs: int, dtype: str
) -> None:
    count, block = 100_000, 4096
    x, out = terms_of("uniform", count, FORMATS[dtype]), torch.zeros(1)
    lab.run(kernel, (programs,), x, out, count, count, BLOCK=block, check=lambda x_ptr: x_ptr.float().sum())
    out.zero_()
    with pytest.raises(KernellabError, match=r"out_ptr of .* differs"):
        lab.run(
            kernel, (programs,), x, out, count, count // block * block, BLOCK=block,
            check=lambda x_ptr: x_ptr.float().sum(),
        )  # fmt: skip
