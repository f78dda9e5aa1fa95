"""Kernels exported as binaries and launched in a process without Triton: the bits, and what a launch costs the host.

Usage: python -m benchmarks.export_binaries. Needs a CUDA GPU, under 120 s. Twenty kernels of the test suite are
launched by plain Triton, exported, and launched again from their cubins in one process that cannot import Triton. Then
a small kernel is launched in turns by Triton and from its binary. Prints how many have the same bits, and writes
benchmarks/results/export_binaries.txt.
"""

from __future__ import annotations

import importlib
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import triton

import kernellab
from tests.export.binary_cases import export_launch, run_without_triton, special_cases, suite_cases

RESULT = Path(__file__).parent / "results" / "export_binaries.txt"
KERNELS = 20


def main() -> None:
    """Export, launch without Triton, compare; then time the host."""
    begin = time.perf_counter()
    capability = torch.cuda.get_device_capability()[0]
    special = {name: case for name, case in special_cases().items() if case.least <= capability}
    cases = dict([*special.items(), *suite_cases().items()][:KERNELS])
    with kernellab.Lab(store=":memory:") as lab, tempfile.TemporaryDirectory() as temporary:
        folders = [Path(temporary) / name for name in cases]
        for (name, case), folder in zip(cases.items(), folders, strict=True):
            export_launch(lab, name, case, folder)
        result = run_without_triton(folders)
        if result.returncode:
            sys.exit(result.stderr)
        same = json.loads(result.stdout)["same"]
        versions = f"Triton {triton.__version__}, torch {torch.__version__}, Python {platform.python_version()}"
        lines = [
            f"{torch.cuda.get_device_name()}, {versions}",
            f"{len(same)} of {len(cases)} kernels have the same bits from cubins in a process without Triton",
            *(f"differs: {name}" for name in cases if name not in same),
            *host_lines(Path(temporary) / "cooperative"),
            f"{time.perf_counter() - begin:.0f} s in all",
        ]
    text = "\n".join(lines) + "\n"
    print(text, end="")
    RESULT.write_text(text)


def host_lines(folder: Path) -> list[str]:
    """Return what a launch costs the host, by Triton and from a binary, in turns."""
    case = special_cases()["cooperative"]
    given = {n: v.cuda() if isinstance(v, torch.Tensor) else v for n, v in case.arguments.items()}
    sys.path.insert(0, str(folder))
    name = case.kernel.__name__
    binary = getattr(importlib.import_module(name), name)
    kernels = {"by Triton": case.kernel, "from the binary": binary}
    times_us: dict[str, list[float]] = {way: [] for way in kernels}
    for _ in range(15):
        for way, kernel in kernels.items():
            times_us[way].append(host_us(lambda kernel=kernel: kernel[case.grid](**given, **case.meta)))
    return [f"host time of a launch {way}: {statistics.median(values):.1f} us" for way, values in times_us.items()]


def host_us(launch: Callable[[], object], count: int = 200) -> float:
    """Return the time of a launch on the host in microseconds."""
    launch()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        launch()
    passed = time.perf_counter() - begin
    torch.cuda.synchronize()
    return passed / count * 1e6


if __name__ == "__main__":
    main()
