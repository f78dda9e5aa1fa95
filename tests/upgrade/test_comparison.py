from __future__ import annotations

from typing import Any

import pytest

from kernellab.store import AccessSummary, ProductSummary, Snapshot
from kernellab.upgrade.comparison import ReasonKind, predicted_ratio, reasons_between
from tests.upgrade.stores import snapshot


def access(
    width: int = 16, requests: float = 100.0, sectors: float = 400.0, line: int | None = 3, *, is_async: bool = False
) -> AccessSummary:
    return AccessSummary(line, "load", "x_ptr", width, is_async, requests, sectors)


def product(unit: str = "wgmma", kind: str = "fp16", line: int = 5) -> ProductSummary:
    return ProductSummary(line, kind, unit, 1e9)


def kinds(before: Snapshot, after: Snapshot) -> set[ReasonKind]:
    return {reason.kind for reason in reasons_between(before, after)}


WORSE: dict[str, tuple[dict[str, Any], dict[str, Any], ReasonKind]] = {
    "spills": ({}, {"spill_bytes": 4}, ReasonKind.SPILLS),
    "registers over a step": (
        {"registers": 64, "resident": 8, "occupancy": 0.5},
        {"registers": 72, "resident": 7, "occupancy": 0.4375, "limiter": "registers"},
        ReasonKind.REGISTERS,
    ),
    "shared memory over a step": (
        {"shared_bytes": 32768, "resident": 6, "occupancy": 0.375},
        {"shared_bytes": 98304, "resident": 2, "occupancy": 0.125, "limiter": "shared memory"},
        ReasonKind.OCCUPANCY,
    ),
    "narrower": ({"accesses": (access(),)}, {"accesses": (access(4, 400.0),)}, ReasonKind.WIDTH),
    "more requests": ({"accesses": (access(),)}, {"accesses": (access(16, 110.0),)}, ReasonKind.REQUESTS),
    "more sectors": ({"accesses": (access(),)}, {"accesses": (access(sectors=800.0),)}, ReasonKind.SECTORS),
    "copies that wait": ({"accesses": (access(is_async=True),)}, {"accesses": (access(),)}, ReasonKind.ASYNC),
    "mma for wgmma": ({"products": (product(),)}, {"products": (product("mma"),)}, ReasonKind.TENSOR),
    "no tensor cores": ({"products": (product("mma"),)}, {"products": (product(""),)}, ReasonKind.TENSOR),
    "a wider type": ({"products": (product(),)}, {"products": (product(kind="tf32"),)}, ReasonKind.PRECISION),
    "bank conflicts": ({}, {"wavefronts": 2000.0, "terms": {"shared memory": 0.06}}, ReasonKind.WAVEFRONTS),
    "predicted, by other loops": (
        {"loop_code": {"LDG": 4, "FADD": 96}},
        {"loop_code": {"LDG": 8, "FADD": 96}, "predicted_ms": 0.2},
        ReasonKind.PREDICTED,
    ),
    "predicted": ({}, {"predicted_ms": 0.109}, ReasonKind.PREDICTED),
    "TMA is gone": ({"instructions": {"all": 9, "TMA": 2}}, {"instructions": {"all": 9}}, ReasonKind.ASYNC),
    "matrix instructions of AMD": (
        {"instructions": {"all": 9, "mfma": 2}}, {"instructions": {"all": 9}}, ReasonKind.TENSOR
    ),
    "narrower, by the assembly alone": (
        {}, {"instructions": {"all": 46, "loads, 4 B wide": 8}}, ReasonKind.WIDTH
    ),
    "it does not compile": ({}, {"failure": "ptxas refused it"}, ReasonKind.FAILURE),
}  # fmt: skip


@pytest.mark.parametrize("name", WORSE)
def test_what_became_worse_is_named_and_its_opposite_is_not(name: str) -> None:
    before, after, kind = WORSE[name]
    assert kinds(snapshot(**before), snapshot(**after)) == {kind}
    assert kinds(snapshot(**after), snapshot(**before)) == set()


HARMLESS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing": ({}, {}),
    "a prediction for the same loops": (
        {"loop_code": {"LDG": 4, "FADD": 96}},
        {"loop_code": {"LDG": 4, "FADD": 96, "UIADD3": 9, "BRA": 1}, "predicted_ms": 0.2},
    ),
    "spills, but for a few bytes": ({"spill_bytes": 304}, {"spill_bytes": 320}),
    "a few registers": ({}, {"registers": 40}),
    "a few instructions": ({}, {"instructions": {"all": 46, "loads, 16 B wide": 2}}),
    "a little slower by the model": ({}, {"predicted_ms": 0.107}),
    "lower occupancy of a grid that does not need it": (
        {"resident": 8, "programs_per_sm": 1.9},
        {"resident": 2, "programs_per_sm": 1.9, "occupancy": 0.2},
    ),
    "wavefronts that take no time": ({}, {"wavefronts": 2000.0, "terms": {"shared memory": 0.0515}}),
    "accesses by other lines": ({"accesses": (access(line=3),)}, {"accesses": (access(line=4),)}),
    "TMA for cp.async": ({"instructions": {"all": 9, "cp.async, 16 B wide": 2}}, {"instructions": {"TMA": 2}}),
    "it did not compile before": ({"failure": "no"}, {"failure": "no"}),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_costs_nothing_is_no_reason(name: str) -> None:
    before, after = HARMLESS[name]
    assert kinds(snapshot(**before), snapshot(**after)) == set()


def test_a_reason_has_both_figures_and_the_line() -> None:
    (reason,) = reasons_between(snapshot(accesses=(access(),)), snapshot(accesses=(access(4, 400.0),)))
    assert str(reason) == "line 3: load of x_ptr 16 -> 4 bytes wide per thread, 4x the requests"


def test_accesses_are_compared_by_argument_where_their_lines_moved() -> None:
    (reason,) = reasons_between(snapshot(accesses=(access(line=3),)), snapshot(accesses=(access(4, 400.0, line=9),)))
    assert (reason.kind, reason.line) == (ReasonKind.WIDTH, None)


def test_a_narrow_access_among_wide_ones_of_an_argument_is_found() -> None:
    wide, narrow = access(line=3), access(4, 400.0, line=4)
    assert ReasonKind.WIDTH in kinds(snapshot(accesses=(wide, access(line=4))), snapshot(accesses=(wide, narrow)))


def test_what_was_not_kept_is_not_compared() -> None:
    kept = Snapshot("3.0.0", registers=32, spill_bytes=0, occupancy=1.0)
    assert kinds(kept, snapshot()) == set()
    assert kinds(kept, snapshot(spill_bytes=8)) == {ReasonKind.SPILLS}


def test_times_for_another_device_or_without_traffic_are_not_compared() -> None:
    assert predicted_ratio(snapshot(), snapshot(predicted_ms=0.2)) == pytest.approx(2.0)
    assert predicted_ratio(snapshot(device="A100"), snapshot(predicted_ms=0.2)) is None
    assert predicted_ratio(snapshot(wavefronts=None), snapshot(predicted_ms=0.2)) is None
