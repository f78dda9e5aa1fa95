"""`tune(exact=True)` and `tune(bitwise=True)`: configs that compute something else, and those that round otherwise."""

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


@pytest.mark.slow
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


@pytest.mark.slow
def test_without_it_the_same_config_stays(lab: kernellab.Lab) -> None:
    x = torch.randn(2, 96)
    tuning = lab.tune(sum_of_whole_blocks, (2,), x, torch.zeros(2), 96, configs=CONFIGS)
    assert not any(row.status is Status.WRONG for row in tuning.rows)


@triton.jit
def sum_of_blocks(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x + row * n + columns, mask=columns < n, other=0.0), 0)
    tl.store(out + row, total)


@pytest.mark.slow
def test_configs_that_only_round_otherwise_are_not_wrong_and_have_classes_by_bits(lab: kernellab.Lab) -> None:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(64, 100, generator=generator)
    tuning = lab.tune(
        sum_of_blocks, (64,), x, torch.zeros(64), 100, configs=CONFIGS[:2] + CONFIGS[4:], exact=True, bitwise=True
    )
    assert not any(row.status is Status.WRONG for row in tuning.rows)
    bits = {dict(row.config.parameters)["BLOCK"]: row.bits for row in tuning.rows}
    assert bits == {16: "A", 64: "B"}
    assert tuning.frame["bits"].tolist() == ["A", "A", "B", "B"]
    assert "bits" in tuning._repr_mimebundle_()["text/html"]
    assert any("leave the bits of class A, of 2 classes on the CPU" in note for note in tuning.notes)


@pytest.mark.slow
def test_the_winner_is_of_the_largest_class(lab: kernellab.Lab) -> None:
    x = torch.randn(64, 100, generator=torch.Generator().manual_seed(3))
    configs = [CONFIGS[0], *CONFIGS[4:]]  # one config of 16, two of 64
    tuning = lab.tune(sum_of_blocks, (64,), x, torch.zeros(64), 100, configs=configs, bitwise=True)
    assert tuning.winner is not None
    assert tuning.rows[tuning.winner].bits == "B"
    assert any("2 of 3 configs leave the bits of class B" in note for note in tuning.notes)


@pytest.mark.slow
def test_without_it_there_are_no_classes(lab: kernellab.Lab) -> None:
    tuning = lab.tune(sum_of_blocks, (64,), torch.randn(64, 100), torch.zeros(64), 100, configs=CONFIGS)
    assert tuning.frame["bits"].isna().all()
