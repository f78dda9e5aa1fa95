"""How many files of the package its functions are entered in: for a cell, a tuning of two configs, and a slider move.

Run as ``python -m benchmarks.files_entered``, without a GPU. A file counts when a function of it is called during the
action, in any thread of the notebook's own process; what runs in worker processes is not seen, and imports do not
count. Each action is done a second time in a session, on a kernel that was not seen before, so that nothing is loaded.
"""

from __future__ import annotations

import inspect
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import triton
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import kernellab
from benchmarks.magic import CELL
from tests.kernels.elementwise import add_kernel
from tests.kernels.softmax import softmax_kernel

RESULT = Path(__file__).parent / "results" / "files_entered.txt"
PACKAGE = Path(kernellab.__file__).parent
GOALS = {"a %%triton cell to its card": 40, "a tuning of two configs": 30, "a slider move": 24}


class Entered:
    """Collects, while it is on, the files of the package in which a function is entered."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.is_on = False

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        is_function = code.co_flags & inspect.CO_OPTIMIZED  # neither the body of a module nor that of a class
        if self.is_on and event == "call" and is_function and code.co_filename.startswith(f"{PACKAGE}{os.sep}"):
            self.files.add(Path(code.co_filename).relative_to(PACKAGE).as_posix())

    def during(self, action: Callable[[], Any]) -> list[str]:
        """Return the files that an action enters."""
        self.files, self.is_on = set(), True
        try:
            action()
        finally:
            self.is_on = False
        return sorted(self.files)


def main() -> None:
    entered = Entered()
    threading.setprofile(entered)
    sys.setprofile(entered)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["KERNELLAB_STORE"] = folder
        found = {"a %%triton cell to its card": cell(entered)}
        with kernellab.Lab(store=":memory:") as lab:
            found["a tuning of two configs"] = tuning(entered, lab)
            found["a slider move"] = slider(entered, lab)
    sys.setprofile(None)
    lines = [
        f"Python {sys.version.split()[0]}, Triton {triton.__version__}, torch {torch.__version__}; no GPU",
        f"files in which a function is entered, of {len(list(PACKAGE.rglob('*.py')))}; in the notebook's process",
        "",
        *(f"{name:<30} {len(files):>3}   goal: {GOALS[name]} at most" for name, files in found.items()),
    ]
    for name, files in found.items():
        lines += ["", f"{name}:", *(f"  {file}" for file in files)]
    text = "\n".join(lines) + "\n"
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


def cell(entered: Entered) -> list[str]:
    """Run two cells in a shell, and count for the second, its card in HTML and in text included."""
    shell = InteractiveShell.instance()
    with capture_output():
        shell.run_cell("%load_ext kernellab").raise_error()
        shell.push({name: torch.ones(1000) for name in ("x", "y", "out")})
        shell.run_cell(CELL.format(constant=1), store_history=True).raise_error()
        return entered.during(lambda: shell.run_cell(CELL.format(constant=2), store_history=True).raise_error())


def tuning(entered: Entered, lab: kernellab.Lab) -> list[str]:
    """Tune two kernels, and count for the second."""
    configs = [triton.Config({}, num_warps=warps) for warps in (4, 8)]
    x = torch.rand(64, 100)
    shape = (x, torch.empty_like(x), 100, 100, 64, 100)
    lab.tune(add_kernel, (4,), x, x, torch.empty_like(x), 6400, BLOCK=2048, configs=configs)
    return entered.during(lambda: lab.tune(softmax_kernel, (64,), *shape, BLOCK=128, configs=configs))


def slider(entered: Entered, lab: kernellab.Lab) -> list[str]:
    """Move the slider of a panel three times, and count for the last, which compiles and runs a new point."""
    x = torch.rand(1000)
    grid = lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)  # noqa: E731
    panel = lab.explore(add_kernel, grid, x, x, torch.empty_like(x), 1000, BLOCK=[64, 128, 256], num_warps=[4])
    panel.set(BLOCK=128).wait()
    return entered.during(lambda: panel.set(BLOCK=256).wait())


if __name__ == "__main__":
    main()
