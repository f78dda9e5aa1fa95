"""Whether loaded values within known intervals can lead an access out of its argument."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.ir.affine import Interval
from kernellab.ir.containment import ArgumentMemory, KnownLaunch, NotContained, deciding_loads, require_contained

N, ROWS, COLS = 1000, 50, 70
GRID = (8, 1, 1)


@triton.jit
def gather(x_ptr, idx_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    index = tl.load(idx_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.load(x_ptr + index, mask=mask), mask=mask)


@triton.jit
def gather_of_padded(x_ptr, idx_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(idx_ptr + offsets, mask=offsets < n, other=0)
    tl.store(out_ptr + offsets, tl.load(x_ptr + index), mask=offsets < n)


@triton.jit
def gather_with_another_mask(x_ptr, idx_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(idx_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, tl.load(x_ptr + index, mask=offsets < n + 5), mask=offsets < n)


@triton.jit
def gather_without_a_mask(x_ptr, idx_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(idx_ptr + offsets)
    tl.store(out_ptr + offsets, tl.load(x_ptr + index, mask=offsets < n), mask=offsets < n)


@triton.jit
def gather_from_the_end(x_ptr, idx_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    index = tl.load(idx_ptr + offsets, mask=mask)
    index = tl.where(index < 0, index + n, index)
    tl.store(out_ptr + offsets, tl.load(x_ptr + index, mask=mask), mask=mask)


@triton.jit
def gather_of_good_ones(x_ptr, idx_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    index = tl.load(idx_ptr + offsets, mask=mask, other=-1)
    x = tl.load(x_ptr + index, mask=(index >= 0) & (index < n), other=0.0)
    tl.store(out_ptr + offsets, x, mask=mask)


@triton.jit
def gather_or_zero(x_ptr, idx_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    index = tl.load(idx_ptr + offsets, mask=mask, other=-1)
    x = tl.load(x_ptr + index, mask=(index >= 0) | (index < n), other=0.0)
    tl.store(out_ptr + offsets, x, mask=mask)


@triton.jit
def scatter_add(x_ptr, idx_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    index = tl.load(idx_ptr + offsets, mask=mask)
    tl.atomic_add(out_ptr + index, tl.load(x_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def hashed(x_ptr, idx_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    key = tl.load(idx_ptr + offsets, mask=mask)
    slot = (key * 40503) ^ (key >> 7)
    tl.store(out_ptr + slot, key, mask=mask)


@triton.jit
def hashed_to_slots(x_ptr, idx_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    key = tl.load(idx_ptr + offsets, mask=mask)
    slot = ((key * 40503) ^ (key >> 7)) & 511
    tl.store(out_ptr + slot, key, mask=mask)


@triton.jit
def embedding(x_ptr, idx_ptr, out_ptr, n, stride, BLOCK: tl.constexpr):
    row = tl.load(idx_ptr + tl.program_id(0))
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + columns, mask=columns < n)
    tl.store(out_ptr + tl.program_id(0) * stride + columns, x, mask=columns < n)


@triton.jit
def embedding_tiles(x_ptr, idx_ptr, out_ptr, n, stride, BLOCK: tl.constexpr):
    rows = tl.arange(0, 8)
    index = tl.load(idx_ptr + rows)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        mask = (rows[:, None] < 7) & (columns[None, :] < n)
        x = tl.load(x_ptr + index[:, None] * stride + columns[None, :], mask=mask)
        tl.store(out_ptr + rows[:, None] * stride + columns[None, :], x, mask=mask)


@triton.jit
def embedding_with_the_wrong_mask(x_ptr, idx_ptr, out_ptr, n, stride, BLOCK: tl.constexpr):
    rows = tl.arange(0, BLOCK)
    index = tl.load(idx_ptr + tl.program_id(0))
    columns = tl.arange(0, BLOCK)
    mask = (rows[:, None] < n) & (columns[None, :] < BLOCK)
    tl.store(out_ptr + index * stride + rows[:, None] * 0 + columns[None, :], 0.0, mask=mask)


@triton.jit
def cross_entropy(x_ptr, idx_ptr, out_ptr, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    logits = tl.load(x_ptr + row * stride + columns, mask=columns < n, other=-float("inf"))
    target = tl.load(idx_ptr + row)
    if target != -100:
        picked = tl.load(x_ptr + row * stride + target)
        tl.store(out_ptr + row, tl.log(tl.sum(tl.exp(logits))) - picked)
    else:
        tl.store(out_ptr + row, 0.0)


@triton.jit
def cross_entropy_of_good_ones(x_ptr, idx_ptr, out_ptr, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    target = tl.load(idx_ptr + row)
    if target < 0:
        return
    if target >= n:
        return
    tl.store(out_ptr + row, tl.load(x_ptr + row * stride + target))


@triton.jit
def segment_sum(x_ptr, idx_ptr, out_ptr, n, BLOCK: tl.constexpr):
    segment = tl.program_id(0)
    start, end = tl.load(idx_ptr + segment), tl.load(idx_ptr + segment + 1)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for at in range(start, end, BLOCK):
        offsets = at + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + offsets, mask=offsets < end, other=0.0)
    tl.store(out_ptr + segment, tl.sum(total))


@triton.jit
def segment_sum_without_a_mask(x_ptr, idx_ptr, out_ptr, n, BLOCK: tl.constexpr):
    segment = tl.program_id(0)
    start, end = tl.load(idx_ptr + segment), tl.load(idx_ptr + segment + 1)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for at in range(start, end, BLOCK):
        total += tl.load(x_ptr + at + tl.arange(0, BLOCK))
    tl.store(out_ptr + segment, tl.sum(total))


@triton.jit
def indirect_matmul(x_ptr, idx_ptr, out_ptr, n, stride, K, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * 16 + tl.arange(0, 16)
    index = tl.load(idx_ptr + rows, mask=rows < n, other=0)
    inner = tl.arange(0, 16)
    a_ptrs = x_ptr + index[:, None] * stride + inner[None, :]
    total = tl.zeros((16, 16), dtype=tl.float32)
    for k in range(tl.cdiv(K, 16)):
        a = tl.load(a_ptrs, mask=inner[None, :] < K - k * 16, other=0.0)
        total = tl.dot(a, a, total)
        a_ptrs += 16
    tl.store(out_ptr + tl.arange(0, 16)[:, None] * 16 + inner[None, :], total)


@triton.jit
def paged(x_ptr, idx_ptr, lens_ptr, out_ptr, stride, pages, BLOCK: tl.constexpr):
    sequence = tl.program_id(0)
    length = tl.load(lens_ptr + sequence)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for page in range(tl.cdiv(length, BLOCK)):
        number = tl.load(idx_ptr + sequence * pages + page)
        slots = tl.arange(0, BLOCK)
        total += tl.load(x_ptr + number * stride + slots, mask=page * BLOCK + slots < length, other=0.0)
    tl.store(out_ptr + sequence, tl.sum(total))


@triton.jit
def spin_lock(x_ptr, idx_ptr, out_ptr, n, BLOCK: tl.constexpr):
    while tl.atomic_cas(idx_ptr, 0, 1) == 1:
        pass
    tl.store(out_ptr, tl.load(out_ptr) + 1.0)
    tl.atomic_xchg(idx_ptr, 0)


@triton.jit
def chased(x_ptr, idx_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0)
    for _ in range(5):
        at = tl.load(idx_ptr + at)
    tl.store(out_ptr + at, 1.0)


@triton.jit
def ticketed(x_ptr, idx_ptr, out_ptr, n, BLOCK: tl.constexpr):
    tl.store(out_ptr + tl.atomic_add(idx_ptr, 1), 1.0)


@triton.jit
def masked_by_floats(x_ptr, idx_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, x, mask=(offsets < n) & (x > 0))


@triton.jit
def clamped_floats(x_ptr, idx_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    bucket = tl.minimum(tl.maximum((x * 10).to(tl.int32), 0), 9)
    tl.atomic_add(out_ptr + bucket, 1.0, mask=offsets < n)


@triton.jit
def floats_as_places(x_ptr, idx_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.atomic_add(out_ptr + x.to(tl.int32), 1.0, mask=offsets < n)


@triton.jit
def promised(x_ptr, idx_ptr, out_ptr, n, BLOCK: tl.constexpr):
    start = tl.multiple_of(tl.load(idx_ptr + tl.program_id(0)), 16)
    tl.store(out_ptr + start + tl.arange(0, BLOCK), 1.0)


@triton.jit
def while_loaded(x_ptr, idx_ptr, out_ptr, n, BLOCK: tl.constexpr):
    left = tl.load(idx_ptr + tl.program_id(0))
    while left > 0:
        left -= 1
    tl.store(out_ptr, left)


@triton.jit
def largest(x_ptr, idx_ptr, out_ptr, n, BLOCK: tl.constexpr):
    index = tl.load(idx_ptr + tl.arange(0, BLOCK))
    tl.store(out_ptr + tl.max(index, 0), 1.0)


@triton.jit
def largest_of_masked(x_ptr, idx_ptr, out_ptr, n, BLOCK: tl.constexpr):
    index = tl.load(idx_ptr + tl.arange(0, BLOCK), mask=tl.arange(0, BLOCK) < n)
    tl.store(out_ptr + tl.max(index, 0), 1.0)


@triton.jit
def wrapping(x_ptr, idx_ptr, out_ptr, n, BLOCK: tl.constexpr):
    index = tl.load(idx_ptr + tl.program_id(0))
    tl.store(out_ptr + (index + 2147483647) // 2147483646, 1.0)  # the sum wraps around


@triton.jit
def gathered_from_a_tile(x_ptr, idx_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    found = tl.gather(tl.load(x_ptr + offsets), tl.load(idx_ptr + offsets), axis=0)
    tl.store(out_ptr + offsets, found)


@triton.jit
def transposed(x_ptr, idx_ptr, out_ptr, n, stride, BLOCK: tl.constexpr):
    rows, columns = tl.arange(0, 16), tl.arange(0, 32)
    mask = (rows[:, None] < 9) & (columns[None, :] < n)
    places = tl.load(idx_ptr + rows)[:, None] * stride + columns[None, :]
    tl.store(out_ptr + tl.trans(places), 0.0, mask=tl.trans(mask))


@triton.jit
def transposed_under_another_mask(x_ptr, idx_ptr, out_ptr, n, stride, BLOCK: tl.constexpr):
    rows, columns = tl.arange(0, 32), tl.arange(0, 32)
    mask = (rows[:, None] < 30) & (columns[None, :] < n)
    places = tl.load(idx_ptr + rows)[:, None] * stride + columns[None, :]
    tl.store(out_ptr + tl.trans(places), 0.0, mask=mask)


@dataclass(frozen=True)
class Case:
    """A kernel, what it is launched on, and in which words it is not known; "" where it is shown."""

    kernel: Any
    expected: str
    held: Interval = (0, N - 1)
    x: int = N
    idx: int = N
    out: int = N
    numbers: Mapping[str, int] = field(default_factory=dict)
    block: int = 128
    lens: Interval = (0, 0)


OUTSIDE_X, OUTSIDE_IDX, OUTSIDE_OUT = (f"may lie outside {name}_ptr" for name in ("x", "idx", "out"))
ROW = {"n": COLS, "stride": COLS}
MATRIX = ROWS * COLS
PAGED = {"stride": 16, "pages": 8}
CASES = [
    Case(gather, ""),
    Case(gather, OUTSIDE_X, held=(-1, N - 1)),
    Case(gather, OUTSIDE_X, held=(0, N)),
    Case(gather_of_padded, ""),
    Case(gather_of_padded, OUTSIDE_X, held=(1, N)),
    Case(gather_with_another_mask, "what a mask left out"),
    Case(gather_without_a_mask, OUTSIDE_X),  # the indices past the end of theirs are none
    Case(gather_without_a_mask, "", idx=1024),
    Case(gather_from_the_end, "", held=(-N, N - 1)),
    Case(gather_from_the_end, OUTSIDE_X, held=(-N - 1, N - 1)),
    Case(gather_of_good_ones, "", held=(-(2**31), 2**31 - 1)),
    Case(gather_or_zero, OUTSIDE_X, held=(-1, N)),
    Case(scatter_add, "", out=10, held=(0, 9)),
    Case(scatter_add, OUTSIDE_OUT, out=10, held=(0, 10)),
    Case(hashed, OUTSIDE_OUT),
    Case(hashed_to_slots, "", out=512, held=(-(2**31), 2**31 - 1)),
    Case(hashed_to_slots, OUTSIDE_OUT, out=511),
    Case(embedding, "", x=MATRIX, out=MATRIX, held=(0, ROWS - 1), numbers=ROW),
    Case(embedding, OUTSIDE_X, x=MATRIX - 1, out=MATRIX, held=(0, ROWS - 1), numbers=ROW),
    Case(embedding, OUTSIDE_X, x=MATRIX, out=MATRIX, held=(0, ROWS), numbers=ROW),
    Case(embedding_tiles, "", x=MATRIX, out=MATRIX, held=(0, ROWS - 1), numbers=ROW, block=32),
    Case(embedding_tiles, OUTSIDE_X, x=MATRIX - 1, out=MATRIX, held=(0, ROWS - 1), numbers=ROW, block=32),
    Case(embedding_with_the_wrong_mask, OUTSIDE_OUT, out=MATRIX, held=(0, ROWS - 1), numbers=ROW),
    Case(cross_entropy, "", x=MATRIX, held=(0, COLS - 1), numbers=ROW),
    Case(cross_entropy, OUTSIDE_X, x=MATRIX, held=(-100, COLS - 1), numbers=ROW),
    Case(cross_entropy_of_good_ones, "", x=8 * COLS, held=(-(2**31), 2**31 - 1), numbers=ROW),
    Case(cross_entropy_of_good_ones, OUTSIDE_X, x=8 * COLS - 1, held=(0, COLS), numbers=ROW),
    Case(segment_sum, "", held=(0, N)),
    Case(segment_sum, OUTSIDE_X, held=(0, N + 1)),
    Case(segment_sum, OUTSIDE_X, held=(-1, N)),
    Case(segment_sum, "a loop may take", held=(0, 2**31 - 1), x=2**31),
    Case(segment_sum_without_a_mask, OUTSIDE_X, held=(0, N)),
    Case(segment_sum_without_a_mask, "", held=(0, N), x=N + 127),
    Case(indirect_matmul, "", x=MATRIX, held=(0, ROWS - 1), numbers={**ROW, "K": COLS}),
    Case(indirect_matmul, OUTSIDE_X, x=MATRIX, held=(0, ROWS), numbers={**ROW, "K": COLS}),
    Case(paged, "", x=20 * 16, held=(0, 19), numbers=PAGED, block=16, lens=(0, 128)),
    Case(paged, OUTSIDE_X, x=20 * 16, held=(0, 20), numbers=PAGED, block=16, lens=(0, 128)),
    Case(paged, OUTSIDE_IDX, x=20 * 16, held=(0, 19), idx=64, numbers=PAGED, block=16, lens=(0, 129)),
    Case(spin_lock, "decide when a loop ends"),
    Case(chased, ""),
    Case(chased, OUTSIDE_IDX, held=(0, N)),
    Case(ticketed, OUTSIDE_OUT),
    Case(masked_by_floats, ""),
    Case(clamped_floats, "", out=10),
    Case(clamped_floats, OUTSIDE_OUT, out=9),
    Case(floats_as_places, OUTSIDE_OUT),
    Case(promised, "promises something"),
    Case(while_loaded, "decide when a loop ends"),
    Case(largest, ""),
    Case(largest_of_masked, OUTSIDE_OUT),
    Case(gathered_from_a_tile, "", held=(0, 127)),
    Case(gathered_from_a_tile, "outside the tensor", held=(0, 128)),
    Case(transposed, "", out=10 * 25, held=(0, 9), numbers={"n": 25, "stride": 25}),
    Case(transposed, OUTSIDE_OUT, out=10 * 25 - 1, held=(0, 9), numbers={"n": 25, "stride": 25}),
    Case(transposed_under_another_mask, OUTSIDE_OUT, out=10 * 25, held=(0, 9), numbers={"n": 25, "stride": 25}),
    Case(wrapping, OUTSIDE_OUT, held=(0, 1), out=2),
]


def given_of(case: Case) -> KnownLaunch:
    sizes = {"x_ptr": case.x, "idx_ptr": case.idx, "out_ptr": case.out, "lens_ptr": 8}
    extents = {name: ArgumentMemory(0, 4 * size, 4 * size, 4) for name, size in sizes.items()}
    return KnownLaunch(GRID, {"n": N, **case.numbers}, extents, {"idx_ptr": case.held, "lens_ptr": case.lens})


def graph_of(lab: kernellab.Lab, case: Case) -> Any:
    x, integers = torch.zeros(4), torch.zeros(4, dtype=torch.int32)
    tensors = {"x_ptr": x, "idx_ptr": integers, "out_ptr": x, "lens_ptr": integers}
    values = {**tensors, "n": N, **case.numbers, "BLOCK": case.block}
    return lab.graph(case.kernel, **{name: values[name] for name in case.kernel.arg_names})


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kernel.__name__}-{case.held}-{case.x}-{case.out}")
def test_an_access_stays_in_its_argument_or_is_not_known_to(lab: kernellab.Lab, case: Case) -> None:
    graph = graph_of(lab, case)
    if case.expected:
        with pytest.raises(NotContained, match=case.expected):
            require_contained(graph, given_of(case))
    else:
        require_contained(graph, given_of(case))


def test_values_that_only_go_to_memory_decide_nothing(lab: kernellab.Lab) -> None:
    graph = graph_of(lab, Case(scatter_add, ""))
    (load,) = deciding_loads(graph)
    assert graph.operations[load].location.line == scatter_add.starting_line_number + 4
