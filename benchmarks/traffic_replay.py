"""The recorded launches of `traffic_truth` once more, without a GPU: what is counted here beside what a GPU counted.

Usage: python -m benchmarks.traffic_replay [RECORD]; prints every figure that differs, and the shares that agree.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.traffic_launch import TrafficLaunch
from benchmarks.traffic_launches import traffic_launches
from benchmarks.traffic_truth import RECORD, unpacked
from kernellab.explain.traffic.accesses import Trace
from kernellab.explain.traffic.launch import rows_of, trace_launch
from kernellab.explain.traffic.parameters import RuntimeArgument, bind_arguments
from kernellab.explain.traffic.result import TrafficRow
from kernellab.ir.ptx import ptx_kernel

_OPERATIONS = {"load": ("ld",), "store": ("st",), "atomic": ("atom", "red")}
_GLOBAL = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"
_SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a launch: counted here, and by the GPU."""

    launch: str
    what: str
    counted: int
    recorded: int


def replayed(launch: TrafficLaunch, recorded: Mapping[str, Any]) -> Trace:
    """Return what the PTX that was recorded for a launch touches."""
    kernel = ptx_kernel(unpacked(recorded["ptx"]).decode())
    grid = (*launch.grid, 1, 1)[:3]
    return trace_launch(bind_arguments(kernel, grid, _given(launch, recorded["addresses"])))


def _given(launch: TrafficLaunch, addresses: list[int | None]) -> list[RuntimeArgument]:
    """Return the arguments that have a parameter: no constexpr, and no integer that is 1."""
    found = []
    for parameter, value, address in zip(launch.kernel.params, launch.arguments, addresses, strict=False):
        if isinstance(value, torch.Tensor):
            found.append(RuntimeArgument(parameter.name, "*", value, address))
        elif hasattr(value, "block_shape"):
            found.append(RuntimeArgument(parameter.name, "tensordesc", value, address))
        elif not parameter.is_constexpr and not (value == 1 and isinstance(value, int)):
            found.append(RuntimeArgument(parameter.name, "fp32" if isinstance(value, float) else "i32", value))
    return found


def figures(launch: TrafficLaunch, recorded: Mapping[str, Any]) -> Iterator[Figure]:
    """Yield all figures that are compared."""
    rows = rows_of(replayed(launch, recorded))
    counters = recorded["counters"]
    through_lsu = [row for row in rows if "bulk" not in row.instruction]
    for operation, names in _OPERATIONS.items():
        for what in ("requests", "sectors"):
            counted = sum(getattr(row, what) for row in _of(through_lsu, operation, "global"))
            yield Figure(
                launch.name,
                f"{operation} {what}",
                counted,
                int(sum(counters.get(_GLOBAL.format(what, name), 0) for name in names)),
            )
    for operation, name in (("load", "ld"), ("store", "st")):
        shared = _of(rows, operation, "shared")
        counted = sum(row.wavefronts for row in shared)
        yield Figure(launch.name, f"shared {operation} wavefronts", counted, int(counters[_SHARED.format(name)]))
        conflicts = sum(row.conflicts for row in shared)
        yield Figure(launch.name, f"shared {operation} conflicts", conflicts, int(counters[_CONFLICTS.format(name)]))


def _of(rows: list[TrafficRow] | tuple[TrafficRow, ...], operation: str, space: str) -> list[TrafficRow]:
    return [row for row in rows if (row.operation, row.space) == (operation, space)]


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else RECORD
    content = json.loads(path.read_text(encoding="utf-8"))
    total, missed = 0, {"requests": set(), "sectors": set(), "wavefronts": set(), "conflicts": set()}
    for launch in traffic_launches():
        recorded = content["launches"].get(launch.name)
        if recorded is None or "counters" not in recorded:
            continue
        total += 1
        for figure in figures(launch, recorded):
            if figure.counted != figure.recorded:
                missed[figure.what.split()[-1]].add(launch.name)
                sys.stdout.write(f"{launch.name:<34} {figure.what:<24} {figure.counted:>8} {figure.recorded:>8}\n")
    shares = ", ".join(f"{what} {1 - len(names) / total:.1%}" for what, names in missed.items())
    sys.stdout.write(f"{total} launches on {content['device']}, Triton {content['triton']}; equal: {shares}\n")


if __name__ == "__main__":
    main()
