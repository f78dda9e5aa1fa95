"""Which configs of a tuning count without a reference: right kernels whose contents differ, and lists of wrong ones.

Usage: python -m benchmarks.agreement. Needs a CUDA GPU. No right config may be kept from winning where no strict
majority agrees, and every wrong one must be told; the last column is the winner's time over that of the fastest right
config as they were screened, which a final may put right.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import triton

import kernellab
from tests.tune.agreement_kernels import RIGHT, WRONG

RESULT = Path(__file__).parent / "results" / "agreement.txt"


def main() -> None:
    lines = [f"{torch.cuda.get_device_name()}, triton {triton.__version__}, torch {torch.__version__}"]
    with kernellab.Lab(store=":memory:") as lab:
        for case in (*RIGHT, *WRONG):
            tuning = lab.tune(case.kernel, case.grid, *case.arguments("cuda"), configs=case.configs)
            frame = tuning.frame
            right = frame if case in RIGHT else frame[[group == 0 for group in case.groups]]
            counts = ", ".join(f"{count} {status}" for status, count in frame.status.value_counts().items())
            share = frame.time_ms[tuning.winner] / right.time_ms.min()
            lines.append(
                f"{case.name:<28} {len(frame):>3} configs: {counts:<20} winner {share:.3f} x the fastest right"
            )
    text = "\n".join(lines) + "\n"
    RESULT.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
