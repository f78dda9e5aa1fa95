"""What commands that compile nothing take beyond the start of Python, measured in turns."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RESULT = Path(__file__).parent / "results" / "cli.txt"
ROUNDS = 7
GOAL_MS = 500
KERNEL = """import torch, triton, triton.language as tl


@triton.jit
def double_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, 2 * tl.load(x_ptr + offsets))


def arguments(n=4096, device="cpu"):
    x = torch.rand(n, device=device)
    return (n // 1024,), (x, torch.empty_like(x)), {"BLOCK": 1024}
"""
CALLS = (
    ("--help",),
    ("--version",),
    ("ls", "--store", "store"),
    ("ls", "--json", "--store", "store"),
    ("export", "double_kernel", "--store", "store"),
    ("explain", "double.py", "--store", "store"),
    ("export", "double_kernel", "--as", "report", "--store", "store"),
)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "double.py").write_text(KERNEL, encoding="utf-8")
        for words in (("run", "double.py", "--store", "store"), ("explain", "double.py", "--store", "store")):
            seconds_of([sys.executable, "-m", "kernellab", *words], folder)
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            **{f"kernellab {' '.join(words)}": [sys.executable, "-m", "kernellab", *words] for words in CALLS},
        }
        taken: dict[str, list[tuple[float, float]]] = {label: [] for label in commands}
        for _ in range(ROUNDS):
            for label, command in commands.items():
                taken[label].append(seconds_of(command, folder))
    medians = {label: [statistics.median(each) * 1000 for each in zip(*taken[label], strict=True)] for label in taken}
    start, start_cpu = medians["python -c pass"]
    lines = [
        f"medians of {ROUNDS} rounds in turns, ms beyond python -c pass; goal: < {GOAL_MS} ms",
        f"{'':56} clock    CPU",
    ]
    lines += [
        f"{label.replace(' --store store', ''):56} {clock - start:5.0f} {cpu - start_cpu:6.0f}"
        for label, (clock, cpu) in medians.items()
    ]
    text = "\n".join(lines) + "\n"
    RESULT.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


def seconds_of(command: list[str], folder: Path) -> tuple[float, float]:
    """Run a command; return its seconds by the clock, and on the processor, where other processes count less."""
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - start, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
