"""Write, understand, tune and keep Triton GPU kernels without leaving the notebook.

In a notebook: ``%load_ext kernellab``, then cells that begin with ``%%triton``. In a program: `Lab`.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from kernellab import errors
from kernellab.display import HOOK as _HOOK
from kernellab.errors import KernellabError

if TYPE_CHECKING:
    from kernellab._triton.tiles import gluon_tile
    from kernellab.export.frames import read_frame, save_frame
    from kernellab.lab import Lab
    from kernellab.views.widgets import explorer, graph_view

__version__ = "0.1.0"
__all__ = [
    "KernellabError",
    "Lab",
    "__version__",
    "current_lab",
    "errors",
    "explorer",
    "gluon_tile",
    "graph_view",
    "read_frame",
    "save_frame",
]

_LAZY = {
    "Lab": "kernellab.lab",
    "explorer": "kernellab.views.widgets",
    "gluon_tile": "kernellab._triton.tiles",
    "graph_view": "kernellab.views.widgets",
    "read_frame": "kernellab.export.frames",
    "save_frame": "kernellab.export.frames",
}


_HOOK.install(lambda: importlib.import_module("kernellab.views.bundles").bundle_of)


def current_lab() -> Lab | None:
    """Return the lab that ``%load_ext kernellab`` made for this shell, or None where the extension is not loaded."""
    magics = sys.modules.get("kernellab.notebook.magics")
    return None if magics is None else magics.lab_of_shell()


def load_ipython_extension(shell: Any) -> None:
    """Load the extension: called by ``%load_ext kernellab``."""
    importlib.import_module("kernellab.notebook.extension").load_ipython_extension(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Unload the extension: called by ``%unload_ext kernellab``."""
    importlib.import_module("kernellab.notebook.extension").unload_ipython_extension(shell)


def __getattr__(name: str) -> Any:
    """Import what the lab offers only when it is asked for, so that ``import kernellab`` stays light."""
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'kernellab' has no attribute {name!r}")
