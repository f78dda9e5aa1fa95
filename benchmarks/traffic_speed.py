"""How long the traffic of a launch takes beside one checked run of it: the kernels of the tests, warm, best of five.

Usage: python -m benchmarks.traffic_speed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import kernellab
from tests.kernels.cases import all_cases


def best(call: Callable[[], Any]) -> float:
    """Return the seconds of the fastest of five calls."""
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def main() -> None:
    ratios = []
    with kernellab.Lab("cuda:90", store=":memory:") as lab:
        for case in all_cases().values():
            given = case.fresh_arguments().values()
            traced = best(lambda case=case, given=given: lab.traffic(case.kernel, case.grid, *given, **case.meta))
            checked = best(lambda case=case, given=given: lab.run(case.kernel, case.grid, *given, **case.meta))
            ratios.append(traced / checked)
            times = f"traffic {1e3 * traced:7.1f} ms, checked run {1e3 * checked:7.1f} ms"
            sys.stdout.write(f"{case.name:<32} {times}, {ratios[-1]:.2f} x\n")
    sys.stdout.write(f"largest {max(ratios):.2f} x, median {sorted(ratios)[len(ratios) // 2]:.2f} x\n")


if __name__ == "__main__":
    main()
