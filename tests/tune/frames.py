"""Tunings with written-down times, for views."""

from __future__ import annotations

import itertools
from dataclasses import replace

from kernellab.checking.comparison import OutputDifference
from kernellab.store.columns import Status
from kernellab.timing.config import Config
from kernellab.tune.agreement import disagreement_note
from kernellab.tune.result import WITHOUT_GPU, Agreement, Row, Tuning

PROVENANCE = {"device": "NVIDIA H200", "target": "cuda:90", "triton": "3.6.0"}


def row(config: Config, time_ms: float | None, status: Status = Status.OK, reason: str = "") -> Row:
    found = Row(config, status, reason, compile_s=0.4, registers=64, spill_bytes=0, shared_bytes=8192, occupancy=0.5)
    if time_ms is None:
        return found
    low_ms, high_ms = time_ms * 0.98, time_ms * 1.03
    return replace(found, time_ms=time_ms, low_ms=low_ms, high_ms=high_ms, samples=16, gbps=100 / time_ms)


def small_tuning() -> Tuning:
    """Return four configs: a winner, a tie, a loser, and one that cannot run."""
    configs = [Config.of({"BLOCK": block, "num_warps": warps}) for block in (64, 128) for warps in (4, 8)]
    reason = "it needs 294,912 bytes of shared memory per block and cuda:90 has 232,448"
    rows = (
        replace(row(configs[0], 1.02), standing="tied", tuning="one"),
        replace(row(configs[1], 1.01), standing="winner", tuning="one", cold_ms=1.01, warm_ms=0.9),
        row(configs[2], 2.5),
        row(configs[3], None, Status.CANNOT_RUN, reason),
    )
    return _tuning(rows, 1, (0,))


def large_tuning() -> Tuning:
    """Return 400 configs over four parameters, a tenth of which fail."""
    grid = itertools.product((16, 32, 64, 128, 256), (16, 32, 64, 128, 256), (1, 2, 4, 8), (1, 2, 3, 4))
    rows = []
    for i, (m, n, warps, stages) in enumerate(grid):
        config = Config.of({"BLOCK_M": m, "BLOCK_N": n, "num_warps": warps, "num_stages": stages})
        time_ms = 0.3 + 40 / (m * n) ** 0.5 / stages**0.2 + abs(m * n / 8192 - warps) / 20
        failed = i % 10 == 9
        status = Status.COMPILE_ERROR if i % 20 == 19 else Status.FAULT
        rows.append(row(config, None, status, "illegal memory access") if failed else row(config, time_ms))
    good = [i for i, each in enumerate(rows) if each.time_ms is not None]
    order = sorted(good, key=lambda i: rows[i].time_ms or 0.0)
    return _tuning(tuple(rows), order[0], tuple(order[1:3]))


def untimed_tuning() -> Tuning:
    """Return what a machine without a GPU gives."""
    configs = [Config.of({"BLOCK": block}) for block in (64, 128)]
    rows = tuple(row(config, None, Status.NOT_TIMED, "not measured: there is no GPU") for config in configs)
    found = _tuning(rows, 0, ())
    return replace(found, provenance={**PROVENANCE, "device": None}, notes=(WITHOUT_GPU,))


def divided_tuning(*, has_majority: bool, count: int = 5) -> Tuning:
    """Return configs in three groups of equal outputs, or more of one each; the fastest differs from most, if any."""
    rows = [row(Config.of({"BLOCK": 2**i, "num_warps": 4}), 1.0 + i / 4) for i in range(count)]
    groups = (
        [[2, 3, 4, *range(5, count)], [0], [1]] if has_majority else [[2, 3], [0], [1], *([i] for i in range(4, count))]
    )
    scratch = OutputDifference("scratch", 30, 64, 2.5)
    tail = OutputDifference("tail", 1, 8, None)
    pairs = {(0, 1): (scratch,), (0, 2): (scratch, tail), (1, 2): (tail,)}
    if has_majority:
        rows[:2] = [replace(each, status=Status.DIFFERS, reason=f"{scratch.text}, from most") for each in rows[:2]]
    agreement = Agreement(tuple(tuple(rows[i].config for i in group) for group in groups), has_majority, True, pairs)
    found = _tuning(tuple(rows), 2 if has_majority else 0, ())
    return replace(found, agreement=agreement, notes=(disagreement_note(agreement),))


def _tuning(rows: tuple[Row, ...], winner: int, ties: tuple[int, ...]) -> Tuning:
    return Tuning(
        kernel="matmul",
        rows=rows,
        configs=tuple(each.config.to_triton() for each in rows),
        winner=winner,
        ties=ties,
        seconds=2.3,
        from_cache=False,
        provenance=PROVENANCE,
    )
