"""Proposed spaces: the kind of a kernel, the role of each constexpr, and configs that compute what the launch does."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.errors import UsageError
from kernellab.target import parse_target
from kernellab.timing.config import Config
from kernellab.timing.launches import Launches
from kernellab.tune.proposal import MOST_CONFIGS, KernelKind, ProposedSpace
from kernellab.tune.proposing import call_without, propose_space
from kernellab.tune.roles import RoleKind
from tests.labs import shared_lab
from tests.tables import every
from tests.tune.proposed_cases import ProposedCase, over, proposed_cases, row_softmax, scale

TARGET = parse_target("cuda:90")
CASES = proposed_cases()
N = 1000
X, OUT = torch.ones(N), torch.zeros(N)

pytestmark = pytest.mark.slow  # every proposal compiles a launch for each constexpr


@pytest.fixture(scope="module")
def lab() -> Iterator[kernellab.Lab]:
    with shared_lab("cuda:90", ":memory:") as lab:
        yield lab


def propose(lab: kernellab.Lab, kernel: Any, grid: Any, *args: Any, **meta: Any) -> ProposedSpace:
    return propose_space(lab.compiler, Launches(kernel, grid, args, meta, TARGET))[1]


@cache
def space_of(lab: kernellab.Lab, name: str) -> tuple[Launches, ProposedSpace]:
    case = CASES[name]
    launches = Launches(case.kernel, case.grid, (), {**case.arguments, **case.meta}, TARGET)
    return propose_space(lab.compiler, launches)


def role(space: ProposedSpace, name: str) -> Any:
    return next(role for role in space.roles if role.name == name)


@pytest.mark.parametrize("name", CASES)
def test_the_kind_of_a_kernel_and_the_roles_of_its_constexprs_are_read(lab: kernellab.Lab, name: str) -> None:
    case, (_, space) = CASES[name], space_of(lab, name)
    assert space.kind is case.kind
    assert {role.name: role.kind for role in space.roles} == case.roles


@pytest.mark.parametrize("name", CASES)
def test_the_launched_config_comes_first_and_only_what_may_vary_does(lab: kernellab.Lab, name: str) -> None:
    case, (free, space) = CASES[name], space_of(lab, name)
    varying = {role for role, kind in case.roles.items() if kind is not RoleKind.FIXED}
    first = space.configs[0]
    assert dict(first.parameters) == {role: case.meta[role] for role in varying}
    assert (first.num_warps, first.num_stages) == (4, 3)
    assert 1 < len(space.configs) <= MOST_CONFIGS
    assert len(set(space.configs)) == len(space.configs)
    assert set(space.configs) <= set(space.possible)
    assert not varying & free.meta.keys()
    assert all({name for name, _ in config.parameters} == varying for config in space.possible)
    assert all(min(free.of(config).grid) > 0 for config in space.configs)


@pytest.mark.parametrize("name", every(3, CASES))
@pytest.mark.parametrize("most", every(2, [3, 9]))  # the smallest, the largest, and as many in between
def test_other_configs_compute_what_the_launched_one_does(lab: kernellab.Lab, name: str, most: int) -> None:
    case, (_, space) = CASES[name], space_of(lab, name)
    parameters = sorted({config.parameters for config in space.configs})
    last = len(parameters) - 1
    for place in sorted({last * part // (most - 1) for part in range(most)}):
        run_and_compare(lab, case, dict(parameters[place]))


def run_and_compare(lab: kernellab.Lab, case: ProposedCase, values: dict[str, int]) -> None:
    arguments = {n: v.clone() if isinstance(v, torch.Tensor) else v for n, v in case.arguments.items()}
    lab.run(case.kernel, case.grid, **arguments, **{**case.meta, **values}, interpret=True)
    for output, wanted in case.expected.items():
        torch.testing.assert_close(
            arguments[output], wanted, rtol=2e-2, atol=2e-2, msg=lambda text: f"{values}: {text}"
        )


def test_the_sizes_of_arguments_are_the_extents_of_blocks(lab: kernellab.Lab) -> None:
    space = space_of(lab, "grouped matmul")[1]
    sizes = {role.name: (role.size, role.extent) for role in space.roles if role.is_block}
    assert sizes == {"BLOCK_M": ("m", 70), "BLOCK_N": ("n", 90), "BLOCK_K": ("k", 50)}
    assert [role.dimensions for role in space.roles if role.is_block] == [{"M"}, {"N"}, {"K"}]


def test_blocks_of_an_elementwise_kernel_range_around_a_thousand(lab: kernellab.Lab) -> None:
    n = 1 << 22
    x = torch.empty(n)
    space = propose(lab, scale, over("n", "BLOCK"), x, x, n, BLOCK=1024, EVEN=False, num_warps=8)
    assert space.notes[0] == "Proposed for an elementwise kernel: BLOCK 256 to 4096, num_warps 1 to 32."
    assert space.configs[0] == Config((("BLOCK", 1024),), num_warps=8)


def test_unmasked_blocks_divide_what_they_cover(lab: kernellab.Lab) -> None:
    n = 3 << 10
    x = torch.ones(n)
    space = propose(lab, scale, over("n", "BLOCK"), x, x, n, BLOCK=256, EVEN=True)
    assert not role(space, "BLOCK").masked
    assert {config.values["BLOCK"] for config in space.possible} == {64, 128, 256, 512, 1024}


def test_a_fixed_grid_keeps_the_blocks_and_says_so(lab: kernellab.Lab) -> None:
    space = propose(lab, scale, (4,), X, OUT, N, BLOCK=256, EVEN=False)
    assert all(not config.parameters for config in space.possible)
    assert len({config.num_warps for config in space.configs}) > 2
    example = 'lambda meta: (triton.cdiv(n, meta["BLOCK"]),)'
    assert f"The grid is fixed: pass a function of meta to vary BLOCK, such as {example}." in space.notes


def test_a_fixed_grid_under_two_blocks_comes_without_an_example(lab: kernellab.Lab) -> None:
    case = proposed_cases()["unmasked matmul"]
    grid = case.grid({**case.arguments, **case.meta})
    (note,) = (note for note in propose(lab, case.kernel, grid, **case.arguments, **case.meta).notes if "fixed" in note)
    assert note == "The grid is fixed: pass a function of meta to vary BM, BN."


def test_a_fixed_grid_of_an_attention_leaves_the_blocks_of_its_loop_to_vary(lab: kernellab.Lab) -> None:
    case = proposed_cases()["attention"]
    grid = case.grid({**case.arguments, **case.meta})
    space = propose(lab, case.kernel, grid, **case.arguments, **case.meta)
    assert {config.values["BLOCK_K"] for config in space.configs} > {16, 32}
    assert all("BLOCK_Q" not in config.values for config in space.configs)
    assert any("The grid is fixed: pass a function of meta to vary BLOCK_Q" in note for note in space.notes)


def test_a_grid_function_that_ignores_the_block_keeps_it(lab: kernellab.Lab) -> None:
    assert role(propose(lab, scale, lambda meta: (4,), X, OUT, N, 256, False), "BLOCK").kind is RoleKind.FIXED


def test_a_grid_that_rounds_down_gets_no_block_that_it_leaves_a_rest_of(lab: kernellab.Lab) -> None:
    x = torch.ones(1536)
    space = propose(lab, scale, lambda meta: (meta["n"] // meta["BLOCK"],), x, x, 1536, BLOCK=256, EVEN=False)
    assert {config.values["BLOCK"] for config in space.possible} >= {128, 256, 512}
    assert all(1536 % config.values["BLOCK"] == 0 for config in space.possible)


def test_a_grid_that_rounds_up_gets_blocks_that_leave_a_rest(lab: kernellab.Lab) -> None:
    x = torch.ones(1536)
    space = propose(lab, scale, over("n", "BLOCK"), x, x, 1536, BLOCK=256, EVEN=False)
    assert {config.values["BLOCK"] for config in space.possible} >= {128, 256, 512, 1024}


def test_a_grid_function_that_refuses_other_values_keeps_the_block(lab: kernellab.Lab) -> None:
    def grid(meta: dict[str, int]) -> tuple[int]:
        assert meta["BLOCK"] == 250 + 6, "256 alone"
        return (4,)

    stays = role(propose(lab, scale, grid, X, OUT, N, BLOCK=256, EVEN=False), "BLOCK")
    assert stays.kind is RoleKind.FIXED
    assert stays.reason == "BLOCK=512 is refused: AssertionError: 256 alone"


@triton.jit
def sum_of_blocks(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + tl.program_id(0), tl.sum(tl.load(x_ptr + i, mask=i < n, other=0.0)))


@triton.jit
def scan_of_blocks(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.cumsum(tl.load(x_ptr + i, mask=i < n, other=0.0), 0), mask=i < n)


@triton.jit
def scan_in_rounds(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        tl.store(out_ptr + i, tl.cumsum(tl.load(x_ptr + i, mask=i < n, other=0.0), 0), mask=i < n)


@triton.jit
def square(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Add what a vector differs from itself by, in tiles: one side by programs, the other in a loop."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        y = tl.load(x_ptr + j, mask=j < n, other=0.0)
        total += tl.sum(tl.where(j[None, :] < n, x[:, None] - y[None, :], 0.0), axis=1)
    tl.store(out_ptr + i, total, mask=i < n)


@triton.jit
def scale_of_blocks(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Divide each block by its largest element."""
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i, mask=i < n, other=0.0)
        tl.store(out_ptr + i, x / tl.max(x), mask=i < n)


@triton.jit
def factor_of_blocks(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Scale each block by a factor of its own."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    factor = tl.load(out_ptr + tl.program_id(0))
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) * factor, mask=i < n)


@triton.jit
def factor_of_rounds(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for step in range(tl.cdiv(n, BLOCK)):
        i = step * BLOCK + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + i, mask=i < n, other=0.0) * tl.load(out_ptr + step)
    tl.store(out_ptr, tl.sum(total))


@triton.jit
def mean_of_block(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.atomic_add(out_ptr, tl.sum(x) / BLOCK)


@triton.jit
def pages(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    page = tl.load(out_ptr + tl.program_id(0)).to(tl.int32)
    i = page * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2, mask=i < n)


@triton.jit
def interleaved(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK) * tl.num_programs(0) + tl.program_id(0)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2, mask=i < n)


@triton.jit
def unrolled(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    for step in tl.static_range(BLOCK):
        at = tl.program_id(0) * BLOCK + step
        tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


@triton.jit
def heads(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    batch, head = tl.program_id(0) // BLOCK, tl.program_id(0) % BLOCK
    tl.store(out_ptr + batch, tl.load(x_ptr + head))


@triton.jit
def factor_of_groups(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Scale the elements of each group of 128, of which a block holds a part."""
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + i, mask=i < n, other=0.0) * tl.load(out_ptr + start // 128)
    tl.store(out_ptr, tl.sum(total))


@triton.jit
def factor_of_programs(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    first = tl.program_id(0) * BLOCK
    i = first + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) * tl.load(out_ptr + first // 128), mask=i < n)


@triton.jit
def pointer_of_rounds(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + i, mask=i < n, other=0.0) * tl.load(out_ptr)
        out_ptr += 1
    tl.store(x_ptr, tl.sum(total))


@triton.jit
def share_of_programs(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) / tl.num_programs(0), mask=i < n)


UNREADABLE = {
    sum_of_blocks: "what is stored is a result for each block",
    scan_of_blocks: "each block is scanned by itself",
    scan_in_rounds: "each block is scanned by itself",
    square: "the size of blocks of programs and of blocks of a loop",
    scale_of_blocks: "what is stored is a result for each block",
    factor_of_blocks: "with another value the ids of the programs mean something else",
    factor_of_rounds: "the start of a block says where something else lies, too",
    factor_of_groups: "the start of a block says where something else lies, too",
    factor_of_programs: "the start of a block says where something else lies, too",
    pointer_of_rounds: "its loop moves an index by something else than the block",
    share_of_programs: "a number that the kernel computes with",
    mean_of_block: "a number that the kernel computes with",
    pages: "where its blocks start is not known before the launch",
    interleaved: "a program holds that many elements at once",
    unrolled: "another value changes the operations of the kernel",
    heads: "a number that the kernel computes with",
}


@pytest.mark.parametrize("kernel", UNREADABLE, ids=lambda kernel: kernel.__name__)
def test_a_block_whose_size_matters_stays_with_its_reason(lab: kernellab.Lab, kernel: Any) -> None:
    space = propose(lab, kernel, over("n", "BLOCK"), X, OUT, N, BLOCK=64)
    assert role(space, "BLOCK").kind is RoleKind.FIXED
    assert UNREADABLE[kernel] in role(space, "BLOCK").reason
    assert all(not config.parameters for config in space.possible)
    note = f"Not varied: BLOCK=64 ({role(space, 'BLOCK').reason}). configs= gives values of your own."
    assert note in space.notes


@triton.jit
def typed(x_ptr, out_ptr, n, DTYPE: tl.constexpr, NAME: tl.constexpr, UNUSED: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if NAME == "double":
        tl.store(out_ptr + i, (2 * tl.load(x_ptr + i, mask=i < n)).to(DTYPE), mask=i < n)


def test_values_that_are_no_sizes_stay(lab: kernellab.Lab) -> None:
    space = propose(lab, typed, over("n", "BLOCK"), X, OUT, N, tl.float32, "double", 7, BLOCK=128)
    assert role(space, "BLOCK").kind is RoleKind.PROGRAMS
    reasons = {role.name: role.reason for role in space.roles if role.kind is RoleKind.FIXED}
    assert reasons == {
        "DTYPE": "no positive integer",
        "NAME": "no positive integer",
        "UNUSED": "this launch does not use it",
    }


def test_an_integer_argument_of_one_is_no_constexpr_of_the_space(lab: kernellab.Lab) -> None:
    space = propose(lab, scale, over("n", "BLOCK"), X[:1], OUT[:1], 1, BLOCK=128, EVEN=False)
    assert [role.name for role in space.roles] == ["BLOCK", "EVEN"]


def test_what_heuristics_set_stays(lab: kernellab.Lab) -> None:
    kernel = triton.heuristics({"BLOCK": lambda named: 256, "num_warps": lambda named: 2})(row_softmax)
    x = torch.ones(70, 200)
    space = propose(lab, kernel, (70,), x, x, 200)
    assert role(space, "BLOCK").reason == "set by @triton.heuristics"
    assert {config.num_warps for config in space.configs} <= {2}


def test_a_launch_without_a_needed_value_asks_for_it(lab: kernellab.Lab) -> None:
    with pytest.raises(UsageError, match=r"scale has no configs; pass configs=.* or call it with BLOCK, EVEN: from a"):
        propose(lab, scale, over("n", "BLOCK"), X, OUT, N)


def test_a_space_for_searches_holds_exactly_the_possible_configs(lab: kernellab.Lab) -> None:
    proposed = space_of(lab, "transpose")[1]
    assert set(proposed.space) == set(proposed.possible)


def test_positional_values_leave_a_call() -> None:
    launches = call_without(Launches(scale, (1,), (X, OUT, N, 64), {"EVEN": False, "num_warps": 8}, TARGET), {"BLOCK"})
    assert launches.args == (X, OUT, N)
    assert launches.meta == {"EVEN": False, "num_warps": 8}


def test_amd_gets_warps_of_64_threads(lab: kernellab.Lab) -> None:
    target = parse_target("hip:gfx942")
    launches = Launches(scale, over("n", "BLOCK"), (X, OUT, N), {"BLOCK": 256, "EVEN": False}, target)
    _, space = propose_space(lab.compiler, launches)
    assert space.kind is KernelKind.ELEMENTWISE
    assert max(config.num_warps or 0 for config in space.configs) <= 16
    assert all({name for name, _ in config.parameters} == {"BLOCK"} for config in space.configs)
