"""The cell magic ``%%triton``, and ``%triton_target``."""

from __future__ import annotations

import linecache
from typing import Any

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments
from IPython.display import display

from kernellab.errors import KernellabError, UsageError, choice_message
from kernellab.lab import Lab
from kernellab.notebook.cell import CellOptions, require_checks, run_cell
from kernellab.notebook.parsing import parsed
from kernellab.views.report import CellReport

STAGES = ("source", "graph", "ttir", "ttgir", "llir", "ptx", "amdgcn", "sass")


@magics_class
class TritonMagics(Magics):  # type: ignore[misc]
    """``%%triton`` and its line magics."""

    def __init__(self, shell: Any, lab: Lab) -> None:
        super().__init__(shell)
        self.lab = lab

    @no_var_expand
    @magic_arguments()
    @argument("-n", "--name", help="Enter the cell's kernel under this name.")
    @argument("--target", help="Compile for this target, such as cuda:80 or hip:gfx942.")
    @argument("--show", help=f"Open the card on one of: {', '.join(STAGES)}.")
    @argument("--no-run", action="store_true", help="Compile launches, do not run them.")
    @argument("--args", nargs="?", help='Compile without a launch: --args "x, y, out, n, BLOCK=1024".')
    @argument("--check", help='Compare the output with an expression: --check "x + y".')
    @argument("--timeout", type=float, help="Seconds after which a launch on the CPU, or a first one, is stopped (60).")
    @argument("--no-isolate", action="store_true", help="Do not try first launches on the GPU in another process.")
    @argument("--interpret", action="store_true", help="Run launches on the CPU, which checks every access.")
    @argument("--tune", action="store_true", help="Show how the configs of the autotuned kernels of the cell compare.")
    @argument("--capture", metavar="NAME", help="Bind the cell's launches and operations of torch, as a program.")
    @argument("--explore", action="store_true", help="Show sliders over the parameters of the cell's last launch.")
    @argument("-o", "--output", metavar="NAME", help="Bind the report to this name.")
    @argument("-q", "--quiet", action="store_true", help="Show no card.")
    @argument("--verbose", action="store_true", help="Show the whole compiler message of an error.")
    @cell_magic
    def triton(self, line: str, cell: str) -> None:
        """Run a cell of plain Triton: compile its kernels, run its launches, and show what they do."""
        __tracebackhide__ = True
        given = parsed(self.triton, "%%triton", line)
        cell = _without_magics(self.shell, cell)
        try:
            place = _register_cell(self.shell, cell)
            report = run_cell(self.lab, cell, self.shell.user_ns, place, _options(given), display)
        except KernellabError as exc:
            exc.verbose = given.verbose
            raise
        _deliver(self.shell, report, given)

    @line_magic
    def triton_target(self, line: str) -> str:
        """Show the target that cells compile for, or set it: %triton_target cuda:80."""
        if line.strip():
            self.lab.use_target(line)
        return str(self.lab.target)


def _options(given: Any) -> CellOptions:
    if given.show is not None and given.show not in STAGES:
        raise UsageError(choice_message("--show", given.show, STAGES))
    if given.timeout is not None and not given.timeout > 0:
        raise UsageError(f"--timeout is {given.timeout:g}; expected a positive number of seconds.")
    if given.output is not None and not given.output.isidentifier():
        raise UsageError(f"--output {given.output!r}: expected a name for the report, such as report.")
    return CellOptions(
        name=given.name,
        target=given.target,
        show=given.show,
        run=not given.no_run,
        args=given.args,
        check=given.check,
        timeout_s=given.timeout,
        isolate=not given.no_isolate,
        interpret=given.interpret,
        tune=given.tune,
        explore=given.explore,
        capture=given.capture,
    )


def _register_cell(shell: Any, cell: str) -> str:
    """Return the cell's name, ``In[5]``, known to linecache and to IPython's tracebacks."""
    number = max(len(shell.user_ns.get("In", [""])) - 1, 0)
    text = f"\n{cell}"
    entry = (len(text), None, text.splitlines(keepends=True))
    file = f"In[{number}]"
    while file in linecache.cache and linecache.cache[file][:3] != entry:
        file += "'"  # a cell that runs without history has no number of its own
    linecache.cache[file] = (*entry, file)
    # Private, and optional: without it, a traceback says "File In[5]:3" and not "Cell In[5], line 3".
    getattr(shell.compile, "_filename_map", {})[file] = number
    return file


def _without_magics(shell: Any, cell: str) -> str:
    """Return the cell with its line magics as calls; IPython drops empty lines at the top, which keep their numbers."""
    lines = cell.splitlines()
    empty = next((i for i, line in enumerate(lines) if line.strip()), len(lines))
    return "\n" * empty + str(shell.transform_cell(cell))


def _deliver(shell: Any, report: CellReport, given: Any) -> None:
    if given.output:
        shell.user_ns[given.output] = report
    if not given.quiet:
        display(report)
    require_checks(report)
