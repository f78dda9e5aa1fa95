"""Larger kernels run, agree with torch, and raise no false alarm."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kernellab.launch.run import Run
from tests.interpreter import workloads

Launch = Callable[..., Run]


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.slow
def test_grouped_products_by_tables_of_addresses(launch: Launch) -> None:
    sizes = [(20, 16, 32), (40, 33, 17), (16, 16, 16)]
    a = tuple(random(m, k, dtype=torch.float16, seed=i) for i, (m, _, k) in enumerate(sizes))
    b = tuple(random(k, n, dtype=torch.float16, seed=9 + i) for i, (_, n, k) in enumerate(sizes))
    c = tuple(torch.zeros(m, n, dtype=torch.float16) for m, n, _ in sizes)
    tables = [torch.tensor([tensor.data_ptr() for tensor in group]) for group in (a, b, c)]
    shapes = torch.tensor(sizes, dtype=torch.int32)
    run = launch(workloads.grouped_products, (4,), *tables, shapes, 3, (*a, *b, *c), 16, 4)
    assert run.findings == ()
    for left, right, product in zip(a, b, c, strict=True):
        torch.testing.assert_close(product, (left.float() @ right.float()).half(), rtol=1e-2, atol=1e-2)


def test_a_persistent_product_by_descriptors(launch: Launch) -> None:
    a, b = random(48, 64, dtype=torch.bfloat16), random(64, 40, dtype=torch.bfloat16, seed=1)
    c = torch.zeros(48, 40, dtype=torch.bfloat16)
    run = launch(workloads.persistent_product, (3,), a, b, c, 48, 40, 64, 16, 3)
    assert run.findings == ()
    torch.testing.assert_close(c, a @ b, rtol=2e-2, atol=2e-2)


def test_a_product_split_over_programs(launch: Launch) -> None:
    a, b, c = random(16, 64), random(64, 16, seed=1), torch.zeros(16, 16)
    run = launch(workloads.split_product, (4,), a, b, c, 16, 64, 16)
    assert run.findings == ()
    torch.testing.assert_close(c, a @ b, rtol=1e-4, atol=1e-4)


def test_partial_sums_under_locks(launch: Launch) -> None:
    dy, dw = random(12, 32), torch.zeros(4, 32)
    locks, counts = torch.zeros(4, dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    run = launch(workloads.locked_gradients, (12,), dy, dw, locks, counts, 12, 4, 32, uninitialised=("dw",))
    assert run.findings == ()
    torch.testing.assert_close(dw.sum(0), dy.sum(0), rtol=1e-4, atol=1e-4)


def test_a_scan_chained_over_programs(launch: Launch) -> None:
    x, out = random(8 * 16), torch.zeros(8 * 16)
    run = launch(workloads.chained_scan, (8,), x, out, torch.zeros(8, dtype=torch.int32), torch.zeros(8), 16)
    assert run.findings == ()
    torch.testing.assert_close(out, x.cumsum(0), rtol=1e-4, atol=1e-4)


def test_named_tuples_of_numbers(launch: Launch) -> None:
    x, out = random(8, 4), torch.zeros(4, 8)
    run = launch(workloads.strided_by_tuple, (1,), x, out, workloads.Strides(1, 4), (4, 7), 4, 8)
    assert run.findings == ()
    assert torch.equal(out[:, :7], x.T[:, :7])
    assert not out[:, 7].any()
