"""One tuning again and again, everything measured each time: who wins, how long it takes, and what more GPUs gain.

Usage: python -m benchmarks.tune_devices [WORKLOAD...] [--repeats N] [--devices N]. Needs a CUDA GPU, or N of them. With
more than one, tunings on the first and on all take turns; `sweep` among the workloads is one of long launches. Prints
a table and writes benchmarks/results/tune_devices.txt.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
import triton

import kernellab
from benchmarks.tune import await_workers, machine
from benchmarks.tune_kernels import WORKLOADS, Workload, workload
from benchmarks.tune_products import matmul

NAMES = ("sweep", "matmul", "attention", "softmax", "norm-in-place")
RESULT = Path(__file__).parent / "results" / "tune_devices.txt"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tune_devices")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"sweep, {', '.join(WORKLOADS)}")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--devices", type=int, default=1)
    given = parser.parse_args(arguments)
    lines = [f"$ python -m benchmarks.tune_devices {' '.join(arguments)}".rstrip(), machine()]
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, kernellab.Lab(store=folder) as lab:
        await_workers(lab)
        for name in given.workloads or NAMES:
            work = long_launches() if name == "sweep" else workload(name)
            lines.append(f"{name}: {repeated(lab, work, given.repeats, given.devices).text}")
            print(lines[-1], flush=True)
    RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")


def long_launches() -> Workload:
    """Return a product whose launches take milliseconds, so that measuring takes longer than compiling."""
    n = 16384
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.zeros(n, n, device="cuda", dtype=torch.float16)
    return Workload(
        matmul,
        (a, b, c, n, n, n),
        lambda meta: (triton.cdiv(n, meta["BM"]) * triton.cdiv(n, meta["BN"]),),
        lambda: {"c_ptr": a @ b},
    )


@dataclass(frozen=True, slots=True)
class Repeated:
    """What tunings of one workload found and took, in seconds: on one GPU, and with several."""

    winners: Sequence[str]
    ties: Sequence[set[str]]
    seconds: Sequence[float]
    shared_seconds: Sequence[float]
    shared_by: Sequence[int]
    notes: Sequence[str]

    @property
    def text(self) -> str:
        """It in one line, with the notes below."""
        pairs = [a in {b, *tied} for a in self.winners for b, tied in zip(self.winners, self.ties, strict=True)]
        most, count = Counter(self.winners).most_common(1)[0]
        found = [
            f"{median(self.seconds):.2f} s each",
            f"{most} won {count} of {len(self.winners)}",
            f"a winner won or tied in {sum(pairs) / len(pairs):.0%} of the others",
        ]
        if self.shared_seconds:
            shared = median(self.shared_seconds)
            found.append(
                f"devices {list(self.shared_by)}: {shared:.2f} s, {median(self.seconds) / shared:.2f} x as fast"
            )
        return "; ".join(found) + "".join(f"\n  {note}" for note in self.notes)


def repeated(lab: kernellab.Lab, work: Workload, count: int, devices: int) -> Repeated:
    """Tune a workload again and again, what compiles known: on one GPU and, by turns, with several."""

    def tune(**how: Any) -> tuple[float, Any]:
        begin = time.perf_counter()
        tuning = lab.tune(work.kernel, work.grid, *work.arguments, fresh=True, **how)
        return time.perf_counter() - begin, tuning

    tune()
    if devices > 1:
        tune(devices=range(devices))  # the other workers start
    alone, shared = [], []
    for _ in range(count):
        alone.append(tune())
        shared += [tune(devices=range(devices))] if devices > 1 else []
    return Repeated(
        winners=[each.rows[each.winner].config.text for _, each in alone],
        ties=[{each.rows[index].config.text for index in each.ties} for _, each in alone],
        seconds=[seconds for seconds, _ in alone],
        shared_seconds=[seconds for seconds, _ in shared],
        shared_by=sorted({index for _, each in shared for index in each.frame.attrs["device_index"].values()}),
        notes=sorted({note for _, each in shared for note in each.notes}),
    )


if __name__ == "__main__":
    main(sys.argv[1:])
