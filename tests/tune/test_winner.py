from __future__ import annotations

from typing import Any

from kernellab.measure.config import Config
from kernellab.measure.outcomes import Status
from kernellab.tune.result import Row, why_it_wins


def config(warps: int, block: int, time_ms: float, **more: Any) -> Row:
    return Row(Config.of({"num_warps": warps, "BLOCK": block}), Status.OK, time_ms=time_ms, **more)


def test_the_parameter_whose_other_values_are_slowest_decides() -> None:
    others = [config(4, 64, 1.05), config(8, 128, 1.8), config(4, 128, 1.9)]
    assert why_it_wins(config(8, 64, 1.0), others).startswith(
        "BLOCK=64 decides: with 128 it is at best 1.80 times slower"
    )


def test_spills_and_occupancy_are_the_reason_where_they_differ() -> None:
    rival = config(4, 64, 2.0, spill_bytes=512, occupancy=0.25)
    said = why_it_wins(config(8, 64, 1.0, spill_bytes=0, occupancy=0.5), [rival])
    assert "spills 512 bytes per thread" in said
    assert "25 % of the warps resident (the winner 50 %)" in said


def test_no_parameter_decides_where_all_are_level() -> None:
    assert why_it_wins(config(8, 64, 1.0), [config(4, 64, 1.01)]).startswith("No parameter decides")


def test_one_config_alone_has_no_reason() -> None:
    assert why_it_wins(config(8, 64, 1.0), []) == ""
    assert why_it_wins(config(8, 64, 1.0), [config(8, 64, 2.0)]) == ""
