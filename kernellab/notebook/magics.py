"""The magics: the cell magic %%triton and the line magics. Each parses, calls and returns."""

from __future__ import annotations

import ast
import inspect
import linecache
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from IPython.core.getipython import get_ipython
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments
from IPython.display import display

from kernellab.compile import STAGES
from kernellab.errors import KernellabError, UsageError, choice_message
from kernellab.export import DISPATCH_KINDS, kinds_help
from kernellab.notebook.expressions import key_of_text, launch_of_text, parse_options
from kernellab.notebook.lab_opening import LabOpening

if TYPE_CHECKING:
    from kernellab.benchmark.comparison import Comparison
    from kernellab.export.merging import Merged
    from kernellab.export.write import Exported
    from kernellab.inside.first_difference import FirstDifference
    from kernellab.lab import Lab
    from kernellab.registry import Listing, LoadedVersion

SHOWN = ("source", "graph", *STAGES)
_CELL_MAGIC = re.compile(r"get_ipython\(\)\.run_cell_magic\('triton', (?P<given>.*)\)\s*", re.DOTALL)
_CellText = tuple[int, None, list[str], str]
"""What linecache holds of a file: its length, no time of change, its lines and its name."""


_Answer = TypeVar("_Answer")


class LabMagics(Magics):  # type: ignore[misc]
    """Magics of one lab, which they wait for where they need it."""

    def __init__(self, shell: Any, opening: LabOpening) -> None:
        super().__init__(shell)
        self.opening = opening

    @property
    def lab(self) -> Lab:
        """The lab, once it is open; raises what opening it raised."""
        return self.opening.lab()

    def _of_launch(
        self, verb: Callable[..., _Answer], words: Sequence[str], example: str, options: Mapping[str, Any]
    ) -> _Answer:
        """Call a verb for a launch written as ``kernel[grid](arguments)``, or for the name of a kernel."""
        text = " ".join(words)
        if "[" not in text and len(words) > 1:
            raise UsageError(f"{text!r} is not a kernel; options come before it: {example}.")
        if "[" not in text and text:
            return verb(key_of_text(text), **options)
        launch = launch_of_text(text, self.shell.user_ns)
        return verb(launch.kernel, launch.grid, *launch.args, **{**launch.meta, **options})


def opening_of_shell() -> LabOpening | None:
    """Return the opening of the lab of the running shell's magics, or None."""
    shell = get_ipython()
    magics = None if shell is None else shell.magics_manager.registry.get("TritonMagics")
    return None if magics is None else magics.opening


def lab_of_shell() -> Lab | None:
    """Return the lab of the running shell's magics, once it is open; None without magics."""
    opening = opening_of_shell()
    return None if opening is None else opening.lab()


@magics_class
class TritonMagics(LabMagics):
    """``%%triton`` and its line magics."""

    def __init__(self, shell: Any, opening: LabOpening) -> None:
        super().__init__(shell, opening)
        self._cells: dict[str, _CellText] = {}

    @no_var_expand
    @magic_arguments()
    @argument("-n", "--name", help="Keep the cell's kernel under this name.")
    @argument("--target", help="Compile for this target, such as cuda:80 or hip:gfx942.")
    @argument("--show", help=f"Open the card on one of: {', '.join(SHOWN)}.")
    @argument("--no-run", dest="run", action="store_false", help="Compile launches, do not run them.")
    @argument("--args", nargs="?", help='Compile without a launch: --args "x, y, out, n, BLOCK=1024".')
    @argument(
        "--check",
        action="append",
        help='Compare the output with an expression: --check "x + y". It sees what there was before the launch. '
        'Of several kernels it is for the last whose output it fits, or for one: --check "add: x + y", once for each.',
    )
    @argument(
        "--timeout",
        dest="timeout_s",
        type=float,
        metavar="TIMEOUT",
        help="Seconds after which a launch on the CPU, or a first one, is stopped (60).",
    )
    @argument(
        "--no-isolate",
        dest="isolate",
        action="store_false",
        help="No trial launches: run first launches on the GPU in this process.",
    )
    @argument("--interpret", action="store_true", help="Run launches on the CPU, which checks every access.")
    @argument("--tune", action="store_true", help="Show how the configs of the autotuned kernels of the cell compare.")
    @argument(
        "--capture", metavar="NAME", help="Capture the cell's launches and torch operations as a program of this name."
    )
    @argument("--explore", action="store_true", help="Show sliders over the parameters of the cell's last launch.")
    @argument("--why", action="store_true", help="Show what limits each launch, and suggestions.")
    @argument("--values", action="store_true", help="Show what each line held in the first program of each launch.")
    @argument("-o", "--output", metavar="NAME", help="Bind the report to this name.")
    @argument("-q", "--quiet", action="store_true", help="Show no card.")
    @argument("--verbose", action="store_true", help="Show the whole compiler message of an error.")
    @cell_magic
    def triton(self, line: str, cell: str) -> None:
        """Run a cell of plain Triton: compile its kernels, run its launches, and show what they do."""
        __tracebackhide__ = True
        from kernellab.notebook.cell import run_without_loop  # needs Triton

        run = self.shell.loop_runner if _has_await(self.shell, cell) and not _is_loop_running() else run_without_loop
        run(self.run_async(line, cell))

    async def run_async(self, line: str, cell: str) -> None:
        """Run a cell with top-level ``await`` in the current event loop; see `await_triton_cell`."""
        __tracebackhide__ = True
        lab = self.lab  # once it is open, Triton is imported
        from kernellab.notebook.cell import CellOptions, require_checks, run_cell_async
        from kernellab.notebook.cell_predictions import PendingReport, show_pending_report

        options = CellOptions(**vars(parse_options(self.triton, "%%triton", line)))
        if options.show is not None and options.show not in SHOWN:
            raise UsageError(choice_message("--show", options.show, SHOWN))
        if options.output is not None and not options.output.isidentifier():
            raise UsageError(f"--output {options.output!r}: expected a name for the report, such as report.")
        cell = _without_magics(self.shell, cell)
        try:
            place = _register_cell(self.shell, cell, self._cells)
            show = PendingReport.complete if options.quiet else partial(show_pending_report, lab)
            compiler = self.shell.compile
            pending = await run_cell_async(lab, cell, self.shell.user_ns, place, options, display, compiler, show)
            report = show(pending)
        except KernellabError as exc:
            exc.verbose = options.verbose
            raise
        if options.output:
            self.shell.user_ns[options.output] = report
        require_checks(report)

    @magic_arguments()
    @argument("target", nargs="?", help="Target of the cells from now on, such as cuda:80, hip:gfx942 or h100.")
    @line_magic
    def triton_target(self, line: str) -> str:
        """Show the target that cells compile for, or set it: %triton_target cuda:80, or %triton_target h200."""
        options = parse_options(self.triton_target, "%triton_target", line)
        if options.target:
            self.lab.use_target(options.target)
        session = self.lab.session()
        return f"{session.target} ({session.model})" if session.model else str(session.target)


def _register_cell(shell: Any, cell: str, cells: dict[str, _CellText]) -> str:
    """Return the cell's file name, ``In[5]``, registered with linecache and IPython's tracebacks.

    Earlier ones are made known again: Inductor clears linecache, and kernels take classes and lambdas from there.
    """
    for known, text_of_known in cells.items():
        linecache.cache.setdefault(known, text_of_known)
    number = max(len(shell.user_ns.get("In", [""])) - 1, 0)
    text = f"\n{cell}"
    entry = (len(text), None, text.splitlines(keepends=True))
    file = f"In[{number}]"
    while file in linecache.cache and linecache.cache[file][:3] != entry:
        file += "'"  # a cell that runs without history has no number of its own
    linecache.cache[file] = cells[file] = (*entry, file)
    # Private, and optional: without it, a traceback says "File In[5]:3" and not "Cell In[5], line 3".
    getattr(shell.compile, "_filename_map", {})[file] = number
    return file


def _without_magics(shell: Any, cell: str) -> str:
    """Return the cell with line magics as calls; empty lines at the top, which IPython drops, are kept."""
    lines = cell.splitlines()
    empty = next((i for i, line in enumerate(lines) if line.strip()), len(lines))
    return "\n" * empty + str(shell.transform_cell(cell))


def await_triton_cell(shell: Any, lines: list[str]) -> list[str]:
    """Return the code of a cell; a ``%%triton`` cell with top-level ``await`` becomes an awaited call.

    IPython then runs it in its event loop, as it does other such cells; a magic that is called cannot wait there.
    """
    text = "".join(lines)
    call = _CELL_MAGIC.fullmatch(text)
    if call is None or not shell.autoawait:
        return lines
    line, cell = ast.literal_eval(f"({call['given']})")
    magics = "get_ipython().magics_manager.registry['TritonMagics']"
    return [f"await {magics}.run_async({line!r}, {cell!r})\n"] if _has_await(shell, cell) else lines


def _has_await(shell: Any, cell: str) -> bool:
    """Whether a cell has a top-level ``await``."""
    try:
        code = compile(shell.transform_cell(cell), "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except (SyntaxError, ValueError):
        return False
    return bool(code.co_flags & inspect.CO_COROUTINE)


def _is_loop_running() -> bool:
    import asyncio  # which a shell without a loop has not loaded

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@magics_class
class StoreMagics(LabMagics):
    """``%triton_ls`` and the other magics of the store."""

    @magic_arguments()
    @argument("text", nargs="*", help="Text to find in names, tags, notes and source.")
    @argument("--name", help="A pattern of names: --name softmax*.")
    @argument("--status", help="What became of them, such as launched, failed or never; completion has them all.")
    @argument("--notebook", help="A part of the name of the notebook that defined them.")
    @argument("--since", help="Used since then: --since 7d, or a date such as 2026-11-22.")
    @argument("--all", dest="every", action="store_true", help="Show all, not the latest 20.")
    @line_magic
    def triton_ls(self, line: str) -> Listing:
        """List the kept kernels, the latest used first: all, or those with a text in name, tags, notes or source."""
        from kernellab.registry.listing import search

        options = vars(parse_options(self.triton_ls, "%triton_ls", line))
        return search(self.lab.kernels.store, " ".join(options.pop("text")), **options)

    @magic_arguments()
    @argument("kernel", help="A name, name@version or id; or a bundle that %%triton_export wrote.")
    @argument("--as", dest="name", help="Define it under this name.")
    @line_magic
    def triton_load(self, line: str) -> LoadedVersion:
        """Define a kept kernel in this namespace again, with its helpers: %triton_load softmax@2."""
        options = parse_options(self.triton_load, "%triton_load", line)
        return self.lab.load(options.kernel, self.shell.user_ns, name=options.name)

    @magic_arguments()
    @argument("kernel", nargs="+", help="name@version or id; or the name of a kernel that has one version.")
    @argument("--all", action="store_true", help="Delete all versions of the names.")
    @line_magic
    def triton_rm(self, line: str) -> Listing:
        """Delete versions with their history; shows what is left under their names."""
        from kernellab.registry.listing import remove

        options = parse_options(self.triton_rm, "%triton_rm", line)
        return remove(self.lab.kernels, options.kernel, all_versions=options.all)

    @magic_arguments()
    @argument("kernel", help="A name, name@version or id.")
    @argument("tags", nargs="*", help="Tags to put on it.")
    @argument("--remove", action="store_true", help="Take the tags off.")
    @argument("--note", nargs="?", help='Keep a note with it: --note "slower on short rows".')
    @line_magic
    def triton_tag(self, line: str) -> Listing:
        """Put tags and notes on a kept kernel: %triton_tag softmax@2 good fp16."""
        from kernellab.registry.listing import listing_of_version, tag

        options = parse_options(self.triton_tag, "%triton_tag", line)
        tag(self.lab.kernels, options.kernel, options.tags, options.note, off=options.remove)
        return listing_of_version(self.lab.kernels, options.kernel)

    @magic_arguments()
    @argument("kernel", help="A name, name@version or id; or a variable that holds what tuning over sizes returned.")
    @argument("--to", help="The file; by default, NAME with the ending of the kind, which replaces only exports.")
    @argument(
        "--as",
        dest="kind",
        help=f"{kinds_help()}. Of a dispatch: {', '.join(DISPATCH_KINDS)}.",
    )
    @argument("--targets", nargs="+", default=(), help="The targets of binaries: cuda:80 cuda:90.")
    @line_magic
    def triton_export(self, line: str) -> Exported:
        """Write a kept kernel as a file that needs nothing of the lab: %triton_export softmax --to softmax.py."""
        from kernellab.tune.dispatch.exporting import export_source  # needs Triton

        options = parse_options(self.triton_export, "%triton_export", line)
        source = export_source(options.kernel, options.kind, self.shell.user_ns)
        return self.lab.export(source, options.to, kind=options.kind, targets=options.targets)

    @magic_arguments()
    @argument("path", help="The folder of a store, its file, or what lab.export_measurements wrote.")
    @line_magic
    def triton_merge(self, line: str) -> Merged:
        """Merge kernels and measurements of another store, and show conflicts: %triton_merge ~/colleague/store."""
        options = parse_options(self.triton_merge, "%triton_merge", line)
        return self.lab.merge(options.path)

    @magic_arguments()
    @argument("left", help="A name, name@version or id.")
    @argument("right", help="The version to compare with.")
    @argument("--values", action="store_true", help="Find the first line whose values differ, on the CPU.")
    @line_magic
    def triton_diff(self, line: str) -> Comparison | FirstDifference:
        """Compare two kept kernels on the same inputs: %triton_diff softmax@1 softmax@3."""
        options = parse_options(self.triton_diff, "%triton_diff", line)
        if options.values:
            return self.lab.first_difference(key_of_text(options.left), key_of_text(options.right))
        return self.lab.compare(key_of_text(options.left), key_of_text(options.right))
