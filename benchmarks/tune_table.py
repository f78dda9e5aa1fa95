"""The figures of tunings as one table, with ratios, and what is asked of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.tune_kernels import LOADED_VALUES_DECIDE, WORKLOADS

LONG_LIST = 32
FROM_LAB, FROM_READY, FROM_READY_MATMUL = 5.0, 6.0, 10.0
WARM_S, WARM_LOADED_S = 0.1, 1.5
PICK, ERROR = 1.01, 0.02
HEAD = ("kernel", "configs", "lab", "ready", "warm", "start", "triton", "warm", "inductor", "warm")
RATIOS = ("from lab", "ready", "warm tr", "warm in")
PICKS = ("pick", "ready", "triton", "inductor", "best")

Found = Mapping[str, Mapping[str, Any]]


def table(lines: Iterable[Mapping[str, Any]]) -> str:
    """Return the table of what lines of JSON have: seconds, then how much faster the lab is, then the picks."""
    by_name: dict[str, dict[str, Mapping[str, Any]]] = {}
    machines: dict[str, None] = {}
    for line in lines:
        by_name.setdefault(line["workload"], {})[line["what"]] = line
        machines.update(dict.fromkeys(filter(None, [line.get("machine")])))
    names = [name for name in WORKLOADS if name in by_name]
    rows = [(*HEAD, *RATIOS, *PICKS), *(_row(name, by_name[name]) for name in names)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    text = [*machines, *("  ".join(map(str.rjust, row, widths)).rstrip() for row in rows)]
    missed = [f"MISSED {name}: {goal}" for name in names for goal in _missed(name, by_name[name])]
    notes = [
        f"note {name}: {note}"
        for name in names
        for note in dict.fromkeys(by_name[name].get("lab", {}).get("notes", ()))
    ]
    failed = [
        f"failed {name} {what}: {line['failed']}"
        for name in names
        for what, line in by_name[name].items()
        if "failed" in line
    ]
    return "\n".join([*text, "", *(missed or ["every goal that has figures is met"]), *failed, *notes])


def _row(name: str, found: Found) -> tuple[str, ...]:
    judged = found.get("judged", {})
    picks = judged.get("picks", {})
    what = ("lab", "lab ready", "lab warm", None, "triton", "triton warm", "inductor", "inductor warm")
    seconds = [_start(found) if each is None else _seconds(found, each) for each in what]
    ratios = [("lab", "triton"), ("lab ready", "triton"), ("lab warm", "triton warm"), ("lab warm", "inductor warm")]
    return (
        name,
        str(judged.get("count", "")),
        *(_number(each, ".2f") for each in seconds),
        *(_number(_ratio(found, own, other), ".1f", " x") for own, other in ratios),
        *(_number(picks.get(each), ".3f") for each in ("lab", "lab ready", "triton", "inductor")),
        _number(judged.get("best_ms"), ".4f", " ms"),
    )


def _missed(name: str, found: Found) -> list[str]:
    """Return what is asked of a workload and was not reached; of what has no figure, nothing."""
    is_long = found.get("judged", {}).get("count", 0) >= LONG_LIST
    least = FROM_LAB if is_long else 1.0
    ready = FROM_READY_MATMUL if name == "matmul" else FROM_READY
    warm = WARM_LOADED_S if name in LOADED_VALUES_DECIDE else WARM_S
    goals = [
        (f"from Lab() {least:g} x triton", _below(_ratio(found, "lab", "triton"), least)),
        (f"from ready {ready:g} x triton", _below(_ratio(found, "lab ready", "triton"), ready)),
        (f"warm {warm:g} s", _above(_seconds(found, "lab warm"), warm)),
        ("warm faster than triton", _below(_ratio(found, "lab warm", "triton warm"), 1.0)),
        ("warm faster than inductor", _below(_ratio(found, "lab warm", "inductor warm"), 1.0)),
    ]
    picks = found.get("judged", {}).get("picks", {})
    goals += [(f"pick of {what} within {PICK:g}", _above(picks.get(what), PICK)) for what in ("lab", "lab ready")]
    goals += [
        (f"outputs of {what} within {ERROR:.0%}", _above(line.get("error"), ERROR)) for what, line in found.items()
    ]
    return [goal for goal, is_missed in goals if is_missed]


def _below(value: float | None, least: float) -> bool:
    return value is not None and value < least


def _above(value: float | None, most: float) -> bool:
    return value is not None and not value <= most


def _seconds(found: Found, what: str) -> float | None:
    return found.get(what, {}).get("seconds")


def _start(found: Found) -> float | None:
    return found.get("lab ready", {}).get("start")


def _ratio(found: Found, own: str, other: str) -> float | None:
    ours, theirs = _seconds(found, own), _seconds(found, other)
    return None if ours is None or theirs is None else theirs / ours


def _number(value: float | None, how: str, unit: str = "") -> str:
    return "-" if value is None else f"{value:{how}}{unit}"
