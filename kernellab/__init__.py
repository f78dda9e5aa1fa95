"""Write, understand, tune and keep Triton GPU kernels without leaving the notebook.

In a notebook: ``%load_ext kernellab``, then cells that begin with ``%%triton``. In a program: `Lab`. The classes of
what its verbs give are offered here, too.
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
    from kernellab.benchmark.comparison import Comparison
    from kernellab.benchmark.result import Benchmark
    from kernellab.capture.block import Capture
    from kernellab.capture.captured_function import CapturedFunction
    from kernellab.capture.program import Program
    from kernellab.compile.types import Compiled
    from kernellab.explain.explanation import Explanation
    from kernellab.explain.profile import Profile
    from kernellab.explain.traffic.result import Traffic
    from kernellab.export.frames import read_frame, save_frame
    from kernellab.export.merging import Merged
    from kernellab.export.write import Exported
    from kernellab.ir.effects import Effects
    from kernellab.ir.graph import Graph
    from kernellab.ir.layouts import Layouts
    from kernellab.lab import Lab
    from kernellab.launch.run import Run
    from kernellab.registry.listing import Listing, LoadedVersion
    from kernellab.registry.regressions import Regressions
    from kernellab.target import Target
    from kernellab.timing.provenance import Ceilings
    from kernellab.tune.dispatch.result import Dispatch
    from kernellab.tune.result import Tuning
    from kernellab.views.panels import Panel
    from kernellab.views.widgets import explorer, graph_view

__version__ = "0.1.0"
__all__ = [
    "Benchmark",
    "Capture",
    "CapturedFunction",
    "Ceilings",
    "Comparison",
    "Compiled",
    "Dispatch",
    "Effects",
    "Explanation",
    "Exported",
    "Graph",
    "KernellabError",
    "Lab",
    "Layouts",
    "Listing",
    "LoadedVersion",
    "Merged",
    "Panel",
    "Profile",
    "Program",
    "Regressions",
    "Run",
    "Target",
    "Traffic",
    "Tuning",
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
    "Benchmark": "kernellab.benchmark.result",
    "Capture": "kernellab.capture.block",
    "CapturedFunction": "kernellab.capture.captured_function",
    "Ceilings": "kernellab.timing.provenance",
    "Comparison": "kernellab.benchmark.comparison",
    "Compiled": "kernellab.compile.types",
    "Dispatch": "kernellab.tune.dispatch.result",
    "Effects": "kernellab.ir.effects",
    "Explanation": "kernellab.explain.explanation",
    "Exported": "kernellab.export.write",
    "Graph": "kernellab.ir.graph",
    "Lab": "kernellab.lab",
    "Layouts": "kernellab.ir.layouts",
    "Listing": "kernellab.registry.listing",
    "LoadedVersion": "kernellab.registry.listing",
    "Merged": "kernellab.export.merging",
    "Panel": "kernellab.views.panels",
    "Profile": "kernellab.explain.profile",
    "Program": "kernellab.capture.program",
    "Regressions": "kernellab.registry.regressions",
    "Run": "kernellab.launch.run",
    "Target": "kernellab.target",
    "Traffic": "kernellab.explain.traffic.result",
    "Tuning": "kernellab.tune.result",
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
