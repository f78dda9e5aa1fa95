"""What `%%triton` adds to compiling and running vector add, with warm workers.

Each repetition runs a cell whose kernel was never seen before. The cell's report says how long the compiler and the
launch themselves took; whatever the cell took beyond the two is added: parsing, binding, specializing, the way to the
workers and back, effects, the side table, and the card. A second row runs the same cell again, for which nothing is
compiled.

The shell is one of a notebook (`benchmarks.notebook_shell`): without a GPU, its card shows first without the predicted
time, and is replaced when that is there, which ends the cell. Both are timed; the goal is for what shows first.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
import triton
from IPython.core.interactiveshell import InteractiveShell

import kernellab
from benchmarks.notebook_shell import notebook_shell, run_cell

RESULT = Path(__file__).parent / "results" / "magic.txt"
REPETITIONS = 20
GOAL_MS = 100

CELL = """%%triton -o report
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y + {constant}, mask=mask)

add_kernel[(4,)](x, y, out, 1000, BLOCK=256)
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """One cell, in milliseconds: until its card shows and until it ends, and what compiler and launch took of that.

    ``is_replaced`` says whether the card showed first without its predicted time.
    """

    card_ms: float
    cell_ms: float
    compile_ms: float
    run_ms: float
    is_replaced: bool

    @property
    def added_ms(self) -> float:
        return self.card_ms - self.compile_ms - self.run_ms

    @property
    def added_at_end_ms(self) -> float:
        return self.cell_ms - self.compile_ms - self.run_ms


def main() -> None:
    shell = warm_shell()
    new = [sample(shell, number) for number in range(1, REPETITIONS + 1)]
    again = [sample(shell, REPETITIONS, compiled=False) for _ in range(REPETITIONS)]
    text = "\n".join([*heading(shell), row("new kernel", new), row("same cell again", again), ""])
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


def warm_shell() -> InteractiveShell:
    """Return a shell that has run one cell, so that workers, Triton and Graphviz are loaded."""
    shell = notebook_shell()
    shell.run_cell("%load_ext kernellab").raise_error()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shell.push({name: torch.ones(1000, device=device) for name in ("x", "y", "out")})
    sample(shell, 0)
    return shell


def sample(shell: InteractiveShell, constant: int, *, compiled: bool = True) -> Sample:
    ran = run_cell(shell, CELL.format(constant=constant))
    kernel = shell.user_ns["report"].kernels[0]
    compile_ms = kernel.compiled.seconds * 1000 if compiled else 0.0
    return Sample(ran.shown_s * 1000, ran.end_s * 1000, compile_ms, kernel.run.seconds * 1000, ran.updates > 0)


def heading(shell: InteractiveShell) -> list[str]:
    kernel = shell.user_ns["report"].kernels[0]
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{platform.machine()} CPU, interpreter"
    versions = f"triton {triton.__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    columns = f"{'card':>8}{'cell':>8}{'compile':>9}{'run':>7}{'added':>8}{'worst':>8}{'at end':>8}{'worst':>8}"
    return [
        f"%%triton on vector add, target {kernel.compiled.target}, {device}",
        f"{versions}, kernellab {kernellab.__version__}",
        f"medians of {REPETITIONS} cells, ms; goal: added until the card shows < {GOAL_MS} ms",
        f"{'':16}{columns}  replaced",
    ]


def row(label: str, samples: list[Sample]) -> str:
    def median(name: str) -> str:
        return f"{statistics.median(getattr(sample, name) for sample in samples):8.1f}"

    def worst(name: str) -> str:
        return f"{max(getattr(sample, name) for sample in samples):8.1f}"

    times = f"{median('card_ms')}{median('cell_ms')} {median('compile_ms')}{median('run_ms')[1:]}"
    added = "".join(median(name) + worst(name) for name in ("added_ms", "added_at_end_ms"))
    return f"{label:16}{times}{added}{sum(sample.is_replaced for sample in samples):4} of {len(samples)}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["KERNELLAB_STORE"] = folder
        main()
