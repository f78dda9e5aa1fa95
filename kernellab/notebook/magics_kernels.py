"""The line magics over what is kept: list, load, remove, tag, export and compare kernels."""

from __future__ import annotations

from typing import Any

from IPython.core.magic import Magics, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from kernellab.benchmark.comparison import Comparison
from kernellab.export.write import KINDS, Exported
from kernellab.lab import Lab
from kernellab.notebook.parsing import parsed
from kernellab.registry import Listing, Loaded
from kernellab.registry.listing import key_of, labelled, remove, search, tag


@magics_class
class StoreMagics(Magics):  # type: ignore[misc]
    """``%triton_ls`` and its fellows."""

    def __init__(self, shell: Any, lab: Lab) -> None:
        super().__init__(shell)
        self.lab = lab

    @line_magic
    def triton_ls(self, line: str) -> Listing:
        """List the kernels that are kept: all, or those whose name, tags, notes or source contain the given text."""
        return search(self.lab.kernels, line.strip())

    @magic_arguments()
    @argument("kernel", help="A name, name@version or id; or a bundle that %%triton_export wrote.")
    @argument("--as", dest="name", help="Define it under this name.")
    @line_magic
    def triton_load(self, line: str) -> Loaded:
        """Define a kept kernel in this namespace again, with its helpers: %triton_load softmax@2."""
        given = parsed(self.triton_load, "%triton_load", line)
        return self.lab.load(given.kernel, self.shell.user_ns, name=given.name)

    @magic_arguments()
    @argument("kernel", nargs="+", help="name@version or id; or the name of a kernel that has one version.")
    @argument("--all", action="store_true", help="Delete all versions of the names.")
    @line_magic
    def triton_rm(self, line: str) -> Listing:
        """Delete versions with their history; shows what is left under their names."""
        given = parsed(self.triton_rm, "%triton_rm", line)
        return remove(self.lab.kernels, given.kernel, all_versions=given.all)

    @magic_arguments()
    @argument("kernel", help="A name, name@version or id.")
    @argument("tags", nargs="*", help="Tags to put on it.")
    @argument("--remove", action="store_true", help="Take the tags off.")
    @argument("--note", nargs="?", help='Keep a note with it: --note "slower on short rows".')
    @line_magic
    def triton_tag(self, line: str) -> Listing:
        """Put tags and notes on a kept kernel: %triton_tag softmax@2 good fp16."""
        given = parsed(self.triton_tag, "%triton_tag", line)
        tag(self.lab.kernels, given.kernel, given.tags, given.note, off=given.remove)
        return labelled(self.lab.kernels, given.kernel)

    @magic_arguments()
    @argument("kernel", help="A name, name@version or id.")
    @argument("--to", help="The file to write (NAME.py, NAME.html or NAME.zip in the current folder).")
    @argument("--as", dest="kind", help=f"One of: {', '.join(KINDS)}. By default, a module with all decorators.")
    @line_magic
    def triton_export(self, line: str) -> Exported:
        """Write a kept kernel as a file that needs nothing of the lab: %triton_export softmax --to softmax.py."""
        given = parsed(self.triton_export, "%triton_export", line)
        return self.lab.export(key_of(given.kernel), given.to, kind=given.kind)

    @magic_arguments()
    @argument("left", help="A name, name@version or id.")
    @argument("right", help="What it is compared with.")
    @line_magic
    def triton_diff(self, line: str) -> Comparison:
        """Compare two kept kernels on the same inputs: %triton_diff softmax@1 softmax@3."""
        given = parsed(self.triton_diff, "%triton_diff", line)
        return self.lab.compare(key_of(given.left), key_of(given.right))
