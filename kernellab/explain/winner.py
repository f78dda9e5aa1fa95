"""Why the winner of a tuning wins: the parameter that decides, and what the configs without its value lack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_LEAST_RATIO = 1.03
_LEAST_CHANGE = 1.15


@dataclass(frozen=True, slots=True)
class TimedConfig:
    """A config that was timed: its values by name, and what it needs; None where that is not known."""

    values: Mapping[str, Any]
    time_ms: float
    registers: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None
    occupancy: float | None = None


def why_it_wins(winner: TimedConfig, others: Sequence[TimedConfig]) -> str:
    """Return a sentence on why a config is faster than others: what decides, and how these differ; "" if nothing does.

    For each parameter, the best config with another value of it is compared with the winner; the parameter whose best
    other value is slowest decides.
    """
    rivals = {name: rival for name in winner.values if (rival := _rival(winner, others, name)) is not None}
    if not rivals:
        return ""
    name = max(rivals, key=lambda each: rivals[each].time_ms)
    rival = rivals[name]
    ratio = rival.time_ms / winner.time_ms
    if ratio < _LEAST_RATIO:
        return "No parameter decides: for each, another value comes within 3 % of the winner."
    value, other = winner.values[name], rival.values[name]
    differences = ", ".join(_differences(winner, rival))
    reason = f": it {differences}" if differences else "; registers, spills and occupancy are about the same"
    return f"{name}={value} decides: with {other} it is at best {ratio:.2f} times slower{reason}."


def _rival(winner: TimedConfig, others: Sequence[TimedConfig], name: str) -> TimedConfig | None:
    """Return the fastest config with another value of a parameter."""
    known = [each for each in others if name in each.values and each.values[name] != winner.values[name]]
    return min(known, key=lambda each: each.time_ms, default=None)


def _differences(winner: TimedConfig, rival: TimedConfig) -> list[str]:
    """Return what is worse about a rival, in words."""
    found = []
    if (rival.spill_bytes or 0) > (winner.spill_bytes or 0):
        found.append(f"spills {rival.spill_bytes:,} bytes per thread (the winner {winner.spill_bytes or 0:,})")
    if rival.occupancy and winner.occupancy and winner.occupancy > _LEAST_CHANGE * rival.occupancy:
        found.append(f"keeps {rival.occupancy:.0%} of the warps resident (the winner {winner.occupancy:.0%})")
    if rival.shared_bytes and winner.shared_bytes and winner.shared_bytes > _LEAST_CHANGE * rival.shared_bytes:
        found.append(f"keeps {rival.shared_bytes:,} bytes in shared memory (the winner {winner.shared_bytes:,})")
    if rival.registers and winner.registers and rival.registers > _LEAST_CHANGE * winner.registers:
        found.append(f"takes {rival.registers} registers per thread (the winner {winner.registers})")
    return [each.replace("%", " %") for each in found]
