"""`tune(exact=True)`: configs that compute something else are wrong, those that round otherwise are not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.store.columns import Status
from tests.labs import shared_lab


@pytest.fixture(scope="module")
def lab() -> Iterator[kernellab.Lab]:
    with shared_lab(store=":memory:") as lab:
        yield lab


@triton.jit
def sum_of_whole_blocks(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, n // BLOCK * BLOCK, BLOCK):
        total += tl.sum(tl.load(x + row * n + start + tl.arange(0, BLOCK)), 0)
    tl.store(out + row, total)


CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (16, 32, 64) for warps in (2, 4)]


def test_configs_that_lose_a_term_are_wrong_and_never_compiled(lab: kernellab.Lab) -> None:
    x = torch.randn(2, 96)  # not a multiple of 64
    x[:, 64:] *= 1e-9
    tuning = lab.tune(sum_of_whole_blocks, (2,), x, torch.zeros(2), 96, configs=CONFIGS, exact=True)
    by_block = {dict(row.config.parameters)["BLOCK"]: row for row in tuning.rows}
    assert {block for block, row in by_block.items() if row.status is Status.WRONG} == {64}
    assert "computes something else than BLOCK=16" in by_block[64].reason
    assert "out: 2 of 2 elements" in by_block[64].reason
    assert by_block[64].compile_s is None
    assert dict(tuning.rows[tuning.winner].config.parameters)["BLOCK"] != 64  # type: ignore[index]
    assert any("6 of 6 configs compared" in note for note in tuning.notes)


def test_without_it_the_same_config_stays(lab: kernellab.Lab) -> None:
    x = torch.randn(2, 96)
    tuning = lab.tune(sum_of_whole_blocks, (2,), x, torch.zeros(2), 96, configs=CONFIGS)
    assert not any(row.status is Status.WRONG for row in tuning.rows)
