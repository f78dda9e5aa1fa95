"""An edited kernel, run again, and an old kernel at a new shape: a cell with the lab and without it, in turns.

Usage: python -m benchmarks.edit [--turns N] [--out FILE]
Each figure is the time from the begin of a cell until its launch has ended on the GPU. Of a pair of cells, one begins
with %%triton and the other does not; the order changes from turn to turn. An edit changes a constant of the kernel's
text, so that it is compiled anew. A new shape changes a constexpr, or an integer from divisible by 16 to odd, so that
the kernel is specialized anew. The lab's figure contains its trial launch, and without a GPU its interpreter.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import triton
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

RESULT = Path(__file__).parent / "results" / "edit.txt"

ADD = """@triton.jit
def add{name}(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y + {constant}, mask=mask)
"""
GATHER = """@triton.jit
def gather{name}(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    index = tl.load(index_ptr + offsets, mask=mask, other=0)
    tl.store(out_ptr + offsets, tl.load(x_ptr + index, mask=mask) + {constant}, mask=mask)
"""
MATMUL = """@triton.jit
def matmul{name}(a_ptr, b_ptr, c_ptr, n, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inner = tl.arange(0, 64)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, n, 64):
        a = tl.load(a_ptr + rows[:, None] * n + (k + inner)[None, :], mask=(k + inner)[None, :] < n, other=0.0)
        b = tl.load(b_ptr + (k + inner)[:, None] * n + columns[None, :], mask=(k + inner)[:, None] < n, other=0.0)
        total = tl.dot(a, b, total)
    mask = (rows[:, None] < n) & (columns[None, :] < n)
    tl.store(c_ptr + rows[:, None] * n + columns[None, :], total + {constant}, mask=mask)
"""


@dataclass(frozen=True, slots=True)
class Workload:
    """A kernel's text, the calls that launch it, and the size of its arguments."""

    text: str
    launch: str
    shapes: tuple[str, ...]
    limit: float


WORKLOADS = {
    "add": Workload(
        ADD,
        "add{name}[(triton.cdiv({n}, {block}),)](x, y, out, {n}, BLOCK={block})",
        ("1048576 1024", "1048577 1024", "1048576 512", "1048577 512", "1048576 256", "1048577 256"),
        1.3,
    ),
    "gather": Workload(
        GATHER,
        "gather{name}[(triton.cdiv({n}, {block}),)](x, index, out, {n}, BLOCK={block})",
        ("1048576 1024", "1048577 1024", "1048576 512", "1048577 512", "1048576 256", "1048577 256"),
        1.5,
    ),
    "matmul": Workload(
        MATMUL,
        "matmul{name}[(triton.cdiv({n}, {block}), triton.cdiv({n}, {block}))](a, b, c, {n}, BLOCK={block})",
        ("512 64", "511 64", "512 32", "511 32", "512 128", "511 128"),
        1.3,
    ),
}
NEW_SHAPE_MS = 3.0


@dataclass(frozen=True, slots=True)
class Pair:
    """One turn, in milliseconds: with the lab until the launch ended and until the card is shown, and without it."""

    lab: float
    card: float
    plain: float


class Cells:
    """A shell with the extension, and the cells of one workload that run in it."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell
        self.numbers = itertools.count(2)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self.wait = "torch.cuda.synchronize()" if device == "cuda" else "pass"
        values = {name: torch.ones(1048577, device=device) for name in ("x", "y", "out")}
        values["index"] = torch.randperm(1048577, device=device)
        values |= {name: torch.ones(512 * 512, device=device, dtype=torch.float16) for name in ("a", "b")}
        values["c"] = torch.zeros(512 * 512, device=device)
        shell.push(values)

    def run(self, cell: str, *, with_lab: bool) -> tuple[float, float]:
        """Run a cell; return the milliseconds until its launch has ended, and until it is done."""
        text = f"{'%%triton' if with_lab else ''}\n{cell}\n{self.wait}\nended = time.perf_counter()\n"
        with capture_output():
            begin = time.perf_counter()
            self.shell.run_cell(text, store_history=True).raise_error()
            done = time.perf_counter()
        return (self.shell.user_ns["ended"] - begin) * 1000, (done - begin) * 1000

    def pair(self, cells: dict[bool, str], turn: int) -> Pair:
        """Run the cell with the lab and the one without, the first of them by the turn's parity."""
        times = {}
        for with_lab in (True, False) if turn % 2 else (False, True):
            times[with_lab] = self.run(cells[with_lab], with_lab=with_lab)
        return Pair(*times[True], times[False][0])

    def edits(self, workload: Workload, turns: int) -> Iterator[Pair]:
        """Yield the times of a kernel whose text was edited."""
        n, block = workload.shapes[0].split()
        for turn in range(turns):
            cells = {}
            for with_lab in (True, False):
                text = workload.text.format(name="", constant=next(self.numbers))
                cells[with_lab] = f"{text}{workload.launch.format(name='', n=n, block=block)}"
            yield self.pair(cells, turn)

    def new_shapes(self, workload: Workload, turns: int) -> Iterator[Pair]:
        """Yield the times of a known kernel at shapes that it is specialized for anew."""
        for turn in range(turns):
            shape = turn % (len(workload.shapes) - 1)
            if shape == 0:
                self._define(workload)
            n, block = workload.shapes[1 + shape].split()
            launches = {
                with_lab: workload.launch.format(name="_lab" if with_lab else "_plain", n=n, block=block)
                for with_lab in (True, False)
            }
            yield self.pair(launches, turn)

    def _define(self, workload: Workload) -> None:
        n, block = workload.shapes[0].split()
        for with_lab in (True, False):
            name = "_lab" if with_lab else "_plain"
            text = workload.text.format(name=name, constant=next(self.numbers))
            self.run(f"{text}{workload.launch.format(name=name, n=n, block=block)}", with_lab=with_lab)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.edit")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    shell = InteractiveShell.instance()
    shell.run_cell("%load_ext kernellab").raise_error()
    shell.run_cell("import time, torch, triton, triton.language as tl").raise_error()
    cells = Cells(shell)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU, interpreter"
    lines = [
        f"{device}; Python {sys.version.split()[0]}, Triton {triton.__version__}, torch {torch.__version__}",
        f"medians of {given.turns} turns, ms, until the launch has ended",
        f"asked of an edit: at most 1.3 times plain, gather 1.5; of a new shape: at most {NEW_SHAPE_MS:.0f} ms more",
        f"{'':20}{'plain':>8}{'lab':>8}{'lab / plain':>13}{'more':>8}{'card':>8}",
    ]
    for name, workload in WORKLOADS.items():
        for label, turns in (("edited", cells.edits), ("new shape", cells.new_shapes)):
            list(turns(workload, 2))
            pairs = list(turns(workload, given.turns))
            lines.append(row(f"{name}, {label}", pairs))
            print(lines[-1], flush=True)
    text = "\n".join(lines) + "\n"
    print(text)
    given.out.write_text(text, encoding="utf-8")


def row(label: str, pairs: list[Pair]) -> str:
    plain, lab, card = (statistics.median(getattr(p, name) for p in pairs) for name in ("plain", "lab", "card"))
    ratio = statistics.median(pair.lab / pair.plain for pair in pairs)
    more = statistics.median(pair.lab - pair.plain for pair in pairs)
    return f"{label:20}{plain:8.1f}{lab:8.1f}{ratio:13.2f}{more:8.1f}{card:8.1f}"


if __name__ == "__main__":
    main()
