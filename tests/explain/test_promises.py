"""The least speedup of a finding is one that its fix reaches: as the model predicts it, and as it was measured.

The explanations of the flawed kernels agree with themselves, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

import kernellab
from kernellab.explain.causes import Cause
from kernellab.explain.devices import named_device
from kernellab.explain.explanation import explain_facts
from kernellab.explain.facts import Facts
from kernellab.explain.model import times_of
from tests.explain import advised
from tests.explain.invariants import require_agreement
from tests.explain.planted import KernelCall
from tests.explain.planted_compute import (
    COMPUTE_PAIRS,
    EXACT,
    FAST,
    HALF,
    SINGLE,
    factors,
    product,
    row_matrix,
    rows,
    softmax_row,
    tiled,
)
from tests.explain.planted_memory import MEMORY_PAIRS, softmax_in_passes, strided_table, table_of

pytestmark = pytest.mark.slow
Inputs = Mapping[str, Any]
MEASURED = Path(__file__).parents[2] / "benchmarks" / "results" / "planted.txt"
_ROW = re.compile(r"^(.{38})\w+\??\s+\S+\s+([\d.]+) (?:in|OUT)\s+([\d,.]+) us")


@dataclass(frozen=True, slots=True)
class Fix:
    """A kernel with a flaw, and the same work without it; the fixed launch does ``work`` times as much."""

    name: str
    cause: Cause
    slow: KernelCall
    fixed: KernelCall
    inputs: Callable[[], Inputs]
    work: Callable[[Inputs], float] = lambda inputs: 1.0


def row_per_thread(size: int, columns: int) -> Fix:
    """A sum of rows by a thread each, and by tiles of rows and columns."""
    count = size // columns

    def inputs() -> Inputs:
        return {"x": torch.zeros(count, columns), "y": torch.zeros(count), "COLUMNS": columns, "BLOCK": 128}

    def call(kernel: Any, **meta: Any) -> KernelCall:
        return KernelCall(kernel, lambda i: (count // 128,), meta)

    slow, fixed = call(advised.sums_by_thread), call(advised.sums_by_tile, PART=min(columns, 32))
    return Fix(f"a row of {columns} of {size} per thread", Cause.UNCOALESCED, slow, fixed, inputs)


def long_rows(count: int, columns: int, block: int, *, as_softmax: bool) -> Fix:
    """Rows that no block holds, read in passes and in fewer of them."""
    kernels = (softmax_in_passes, advised.softmax_online)
    if not as_softmax:
        kernels = (advised.variances_in_passes, advised.variances_in_one_pass)
    names = ("x_ptr", "out_ptr") if as_softmax else ("x", "y")

    def inputs() -> Inputs:
        out = torch.zeros(count, columns if as_softmax else 1)
        return {names[0]: torch.zeros(count, columns), names[1]: out, "columns": columns}

    slow, fixed = (KernelCall(kernel, lambda i: (count,), {"BLOCK": block}) for kernel in kernels)
    name = f"{'softmax' if as_softmax else 'variances'} of {count} x {columns} by {block}"
    return Fix(name, Cause.REREAD, slow, fixed, inputs)


def exact_product(m: int, n: int, k: int) -> Fix:
    """A product of fp32, exact and as tf32 with the same tile."""
    slow, fixed = (tiled(product, 64, 64, 32, **precision) for precision in (EXACT, FAST))
    inputs = factors(SINGLE, m, n, k)
    name = f"exact product {m} x {n} x {k}"
    return Fix(name, Cause.NO_TENSOR_CORES, slow, fixed, lambda: inputs(True, "cpu"))


def tiles_in_waves(m: int, n: int, k: int) -> Fix:
    """A product whose tiles fill a part of their last wave, and one with halved tiles."""
    slow = tiled(product, 128, 128, 64, num_warps=8, **FAST)
    fixed = tiled(product, 64, 128, 64, num_warps=4, **FAST)
    inputs = factors(HALF, m, n, k)
    return Fix(f"tiles of {m} x {n} x {k}", Cause.LAST_WAVE, slow, fixed, lambda: inputs(True, "cpu"))


def gathers(programs: int) -> Fix:
    """A gather whose lanes take turns at one bank, and one of the elements that each thread owns."""
    pair = next(pair for pair in MEMORY_PAIRS if pair.slow.kernel is strided_table)

    def inputs() -> Inputs:
        return {**table_of(conflicting=True)(False, "cpu"), "x_ptr": torch.zeros(1024 * programs)}

    return Fix(f"gather by {programs} programs", Cause.CONFLICTS, pair.slow, pair.fixed, inputs)


def wide_blocks(columns: int, block: int, smaller: int) -> Fix:
    """A softmax of rows in blocks that are several times as wide, and in the smallest that hold them."""
    slow, fixed = (KernelCall(softmax_row, rows, {"BLOCK": size, "num_warps": 4}) for size in (block, smaller))
    inputs = row_matrix(65536, columns)
    return Fix(f"rows of {columns} in blocks of {block}", Cause.MASKED, slow, fixed, lambda: inputs(True, "cpu"))


QUICK = (
    row_per_thread(1 << 22, 256),
    long_rows(264, 1 << 16, 2048, as_softmax=True),
    tiles_in_waves(1536, 1536, 512),
    gathers(528),
)
FIXES = (
    *(row_per_thread(1 << size, columns) for size, columns in ((24, 64), (24, 512), (22, 1024), (26, 256))),
    *(long_rows(count, 1 << 16, 1024, as_softmax=kind) for count in (264, 8192) for kind in (True, False)),
    *(exact_product(*sides) for sides in ((2048, 2048, 2048), (4096, 4096, 1024), (512, 512, 4096))),
    *(
        tiles_in_waves(*sides)
        for sides in ((1536, 1536, 2048), (2048, 1280, 4096), (1792, 1792, 4096), (2176, 2048, 4096))
    ),
    *(wide_blocks(*sizes) for sizes in ((260, 1024, 512), (300, 4096, 512), (520, 2048, 1024))),
    *(gathers(programs) for programs in (64, 16384)),
    *(
        Fix(pair.name, pair.causes[0], pair.slow, pair.fixed, lambda pair=pair: pair.inputs(True, "cpu"), pair.work)
        for pair in (*MEMORY_PAIRS, *COMPUTE_PAIRS)
    ),
)


@pytest.mark.parametrize(
    "fix", [*QUICK, *(pytest.param(fix, marks=pytest.mark.exhaustive) for fix in FIXES)], ids=lambda fix: fix.name
)
def test_the_least_speedup_is_one_that_the_fixed_kernel_reaches(lab: kernellab.Lab, fix: Fix) -> None:
    inputs = fix.inputs()
    grid, arguments = fix.slow.of(inputs)
    why = lab.explain(fix.slow.kernel, grid, **arguments)
    require_agreement(why)
    slow = why.facts
    grid, arguments = fix.fixed.of(inputs)
    fixed = lab.predict(fix.fixed.kernel, grid, **arguments).facts
    assert fixed is not None
    for device in ("h100", "h200"):
        before, after = (replace(facts, device=named_device(device).rates) for facts in (slow, fixed))
        reached = fix.work(inputs) * times_of(before).total / times_of(after).total
        promised = least_speedups(before)
        assert promised.get(fix.cause, 1.0) <= reached, device
        assert fix not in QUICK or fix.cause in promised
    for time_s, gain in measured(fix.name):
        assert least_speedups(replace(slow, device=named_device("h200").rates, time_s=time_s)).get(fix.cause, 1) <= gain


def least_speedups(facts: Facts) -> dict[Cause, float]:
    return {finding.cause: finding.gain[0] for finding in explain_facts(facts).findings}


def measured(name: str) -> Iterator[tuple[float, float]]:
    """Yield the seconds that the slow half of a planted pair took on an H200, and the gain of its fixed half."""
    for line in MEASURED.read_text(encoding="utf-8").splitlines():
        row = _ROW.match(line)
        if row and row[1].strip() == name:
            yield float(row[3].replace(",", "")) * 1e-6, float(row[2])


def test_the_measured_gains_of_most_pairs_are_known() -> None:
    names = [pair.name for pair in (*MEMORY_PAIRS, *COMPUTE_PAIRS)]
    assert sum(1 for name in names if list(measured(name))) > 0.9 * len(names)
