"""What the hardware counts of a launch, by Nsight Compute: a file that launches it, run as a child under ``ncu``."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

from kernellab.explain.profile.result import Counters
from kernellab.explain.profile.sampling import Refused, remedy

_PEAK = ".avg.pct_of_peak_sustained_elapsed"
_DRAM, _L2, _MULTIPROCESSOR = f"dram__throughput{_PEAK}", f"lts__throughput{_PEAK}", f"sm__throughput{_PEAK}"
# Architectures name their tensor pipes differently; what one lacks, it reports as n/a.
_TENSOR = tuple(
    f"sm__{name}{_PEAK}"
    for name in ("pipe_tensor_cycles_active", "pipe_tensor_op_hmma_cycles_active", "inst_executed_pipe_tensor")
)
_BYTES = ("dram__bytes_read.sum", "dram__bytes_write.sum")
_TIME = "gpu__time_duration.sum"
METRICS = (_DRAM, _L2, _MULTIPROCESSOR, *_TENSOR, *_BYTES, _TIME)
_LAUNCHES = 3
_PLACES = ("ncu", "/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/ncu")
_MISSING = (
    "There is no Nsight Compute here; install it (the package nsight-compute of CUDA), so that ncu is on the path."
)

Values = Mapping[str, Sequence[float]]


def counters_of(file: Path, kernel: str, timeout_s: float) -> Counters:
    """Return what is counted of the first launches of ``kernel`` by a Python file that makes them.

    Raises:
        Refused: there is no ``ncu``, or the driver keeps its counters to itself.
    """
    ncu = next((path for place in _PLACES if (path := shutil.which(place))), None)
    if ncu is None:
        raise Refused(_MISSING)
    try:
        done = subprocess.run(
            command(ncu, file, kernel), capture_output=True, text=True, check=False, timeout=timeout_s
        )
    except subprocess.TimeoutExpired as exc:
        raise Refused(f"Nsight Compute did not end within {timeout_s:g} s; allow it more by timeout_s.") from exc
    values = values_of(done.stdout)
    if not values:
        raise Refused(_reason(f"{done.stdout}\n{done.stderr}"))
    return counters_from(values)


def command(ncu: str, file: Path, kernel: str) -> list[str]:
    """Return the command line that counts; the clocks stay as they are."""
    options = ["--csv", "--print-units", "base", "--clock-control", "none", "--metrics", ",".join(METRICS)]
    chosen = ["-k", f"regex:^({re.escape(kernel)})$", "-c", str(_LAUNCHES)]
    return [ncu, *options, *chosen, sys.executable, str(file)]


def values_of(text: str) -> Values:
    """Return the values of each metric, one per launch, from what ``ncu --csv`` prints; n/a is left out."""
    found: dict[str, list[float]] = {}
    for row in _rows(text):
        try:
            value = float(row["Metric Value"].replace(",", ""))
        except (KeyError, ValueError):
            continue
        found.setdefault(row.get("Metric Name") or "", []).append(value)
    return found


def _rows(text: str) -> Iterator[dict[str, str]]:
    lines = text.splitlines()
    start = next((at for at, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    return csv.DictReader(lines[start:])


def counters_from(values: Values) -> Counters:
    """Return the counters that metrics stand for: the median over the launches."""
    tensor = [share for name in _TENSOR if (share := _share(values, name)) is not None]
    moved = [median(values[name]) for name in _BYTES if values.get(name)]
    return Counters(
        dram=_share(values, _DRAM),
        l2=_share(values, _L2),
        tensor=max(tensor, default=None),
        multiprocessor=_share(values, _MULTIPROCESSOR),
        dram_bytes=int(sum(moved)) if moved else None,
        seconds=median(values[_TIME]) / 1e9 if values.get(_TIME) else None,
    )


def _share(values: Values, name: str) -> float | None:
    return median(values[name]) / 100 if values.get(name) else None


def _reason(printed: str) -> str:
    if "ERR_NVGPUCTRPERM" in printed:
        return remedy("INSUFFICIENT_PRIVILEGES")
    told = [line.strip(" =") for line in printed.splitlines() if "==ERROR==" in line or "Error" in line]
    return f"Nsight Compute counted nothing: {told[-1] if told else 'it saw no launch of the kernel'}."
