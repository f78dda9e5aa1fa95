"""A constexpr that indices or data are computed with stays; one that only says where blocks start may vary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.target import parse_target
from kernellab.timing.launches import Launches
from kernellab.tune.proposing import propose_space
from kernellab.tune.roles import COMPUTES, MOVES, Role, RoleKind
from tests.labs import shared_lab
from tests.tune.proposed_cases import over

TARGET = parse_target("cuda:90")
N = 1024
X, OUT = torch.ones(N), torch.zeros(N)

pytestmark = pytest.mark.slow  # every proposal compiles a launch for each constexpr


@pytest.fixture(scope="module")
def lab() -> Iterator[kernellab.Lab]:
    with shared_lab("cuda:90", ":memory:") as lab:
        yield lab


def role_of_size(lab: kernellab.Lab, kernel: Any, grid: Any = None, **meta: int) -> Role:
    given = {"SIZE": 64, **meta}
    launches = Launches(kernel, grid or over("n", "BLOCK" if meta else "SIZE"), (X, OUT, N), given, TARGET)
    return next(role for role in propose_space(lab.compiler, launches)[1].roles if role.name == "SIZE")


@triton.jit
def scale_by_groups(x_ptr, out_ptr, n, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """Scale each group of SIZE elements by a factor of its own."""
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) * tl.load(out_ptr + i // SIZE, mask=i < n), mask=i < n)


@triton.jit
def add_periodic(x_ptr, out_ptr, n, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) + tl.load(out_ptr + i % SIZE), mask=i < n)


@triton.jit
def copy_strided(x_ptr, out_ptr, n, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i * SIZE, mask=i * SIZE < n), mask=i < n)


@triton.jit
def copy_rows(x_ptr, out_ptr, n, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """Copy the first elements of rows of SIZE elements."""
    i = tl.program_id(0) * SIZE + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


@triton.jit
def copy_shifted(x_ptr, out_ptr, n, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + SIZE + i, mask=i + SIZE < n), mask=i < n)


@triton.jit
def bound_by_size(x_ptr, out_ptr, n, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < SIZE)


@triton.jit
def pair_rounds_with_programs(x_ptr, out_ptr, n, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """Store the sum of a program's own elements where the programs in their other order say."""
    programs = tl.num_programs(0)
    place = tl.program_id(0) % SIZE * (programs // SIZE) + tl.program_id(0) // SIZE
    total = 0.0
    for j in range(BLOCK):
        total += tl.load(x_ptr + tl.program_id(0) * BLOCK + j)
    tl.store(out_ptr + place, total)


@triton.jit
def store_program_in_order(x_ptr, out_ptr, n, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0) % SIZE * (tl.num_programs(0) // SIZE) + tl.program_id(0) // SIZE
    tl.store(out_ptr + place, tl.program_id(0).to(tl.float32))


NUMBERS = [
    *(scale_by_groups, add_periodic, copy_strided, copy_rows, copy_shifted, bound_by_size),
    *(pair_rounds_with_programs, store_program_in_order),
]


@pytest.mark.parametrize("kernel", NUMBERS, ids=lambda kernel: kernel.__name__)
def test_a_number_that_decides_what_is_touched_is_no_block_and_no_order(lab: kernellab.Lab, kernel: Any) -> None:
    size = 2 if kernel in {pair_rounds_with_programs, store_program_in_order} else 64
    found = role_of_size(lab, kernel, SIZE=size, BLOCK=128)
    assert (found.kind, found.reason) == (RoleKind.FIXED, COMPUTES)


@triton.jit
def factor_of_each_block(x_ptr, out_ptr, n, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) * tl.load(out_ptr + i // SIZE, mask=i < n), mask=i < n)


@triton.jit
def transpose_blocks(x_ptr, out_ptr, n, SIZE: tl.constexpr):
    """Store element by element with a stride of as many elements as there are blocks."""
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(out_ptr + i * tl.cdiv(n, SIZE) % n, tl.load(x_ptr + i, mask=i < n), mask=i < n)


@triton.jit
def scale_within_blocks(x_ptr, out_ptr, n, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) * tl.load(x_ptr + i % SIZE), mask=i < n)


@triton.jit
def first_blocks(x_ptr, out_ptr, n, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=(i < n) & (i < 4 * SIZE))


@triton.jit
def store_size(x_ptr, out_ptr, n, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(out_ptr + i, tl.full((SIZE,), SIZE, tl.int32), mask=i < n)


@triton.jit
def scale_integers(x_ptr, out_ptr, n, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n).to(tl.int32) * SIZE, mask=i < n)


@triton.jit
def add_to_integers(x_ptr, out_ptr, n, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n).to(tl.int32) + SIZE, mask=i < n)


COMPUTING = [
    *(factor_of_each_block, transpose_blocks, scale_within_blocks, first_blocks, store_size, scale_integers),
    add_to_integers,
]


@pytest.mark.parametrize("kernel", COMPUTING, ids=lambda kernel: kernel.__name__)
def test_a_block_whose_size_indices_or_data_are_computed_with_stays(lab: kernellab.Lab, kernel: Any) -> None:
    found = role_of_size(lab, kernel)
    assert (found.kind, found.reason) == (RoleKind.FIXED, COMPUTES)


@triton.jit
def add_next_block(x_ptr, out_ptr, n, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    later = tl.load(x_ptr + i + SIZE, mask=i + SIZE < n, other=0.0)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) + later, mask=i < n)


@triton.jit
def first_halves(x_ptr, out_ptr, n, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE // 2)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


@triton.jit
def every_other_round(x_ptr, out_ptr, n, SIZE: tl.constexpr):
    for start in range(0, n, 2 * SIZE):
        i = start + tl.arange(0, SIZE)
        tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


@triton.jit
def behind_blocks(x_ptr, out_ptr, n, SIZE: tl.constexpr):
    """Store behind as many elements as there are blocks."""
    out_ptr += tl.cdiv(n, SIZE)
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n - 512)


MOVING = [add_next_block, first_halves, every_other_round, behind_blocks]


@pytest.mark.parametrize("kernel", MOVING, ids=lambda kernel: kernel.__name__)
def test_a_block_that_leaves_gaps_or_moves_something_else_stays(lab: kernellab.Lab, kernel: Any) -> None:
    found = role_of_size(lab, kernel)
    assert found.kind is RoleKind.FIXED
    assert found.reason in {COMPUTES, MOVES}


@triton.jit
def two_blocks(x_ptr, out_ptr, n, SIZE: tl.constexpr):
    i = tl.program_id(0) * (2 * SIZE) + tl.arange(0, SIZE)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)
    tl.store(out_ptr + i + SIZE, tl.load(x_ptr + i + SIZE, mask=i + SIZE < n), mask=i + SIZE < n)


@triton.jit
def moved_block(x_ptr, out_ptr, n, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    for _ in range(tl.cdiv(n, SIZE)):
        tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)
        i += SIZE


def test_a_program_with_two_blocks_covers_the_same_with_others(lab: kernellab.Lab) -> None:
    def grid(meta: dict[str, int]) -> tuple[int]:
        return (triton.cdiv(meta["n"], 2 * meta["SIZE"]),)

    assert role_of_size(lab, two_blocks, grid).kind is RoleKind.PROGRAMS


def test_an_index_that_moves_to_the_next_round_belongs_to_a_block(lab: kernellab.Lab) -> None:
    assert role_of_size(lab, moved_block, (1,)).kind is RoleKind.LOOP
