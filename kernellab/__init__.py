"""Write, understand, tune and keep Triton GPU kernels without leaving the notebook.

In a notebook: ``%load_ext kernellab``, then cells that begin with ``%%triton``; ``%triton`` lists what there is. In a
program: `Lab`. The classes of its results are here, too.
"""

from __future__ import annotations

import importlib
import sys
from functools import partial as _partial
from typing import TYPE_CHECKING, Any

from kernellab import errors
from kernellab.display import HOOK as _HOOK
from kernellab.errors import KernellabError

if TYPE_CHECKING:
    from kernellab._triton.tiles import gluon_tile as gluon_tile
    from kernellab.benchmark.comparison import Comparison as Comparison
    from kernellab.benchmark.result import Benchmark as Benchmark
    from kernellab.capture.block import Capture as Capture
    from kernellab.capture.captured_function import CapturedFunction as CapturedFunction
    from kernellab.capture.program import Program as Program
    from kernellab.compile.types import Compiled as Compiled
    from kernellab.explain.explanation import Explanation as Explanation
    from kernellab.explain.prediction import Prediction as Prediction
    from kernellab.explain.profile import Profile as Profile
    from kernellab.explain.traffic.result import Traffic as Traffic
    from kernellab.export.frames import read_frame as read_frame
    from kernellab.export.frames import save_frame as save_frame
    from kernellab.export.merging import Merged as Merged
    from kernellab.export.write import Exported as Exported
    from kernellab.harvest.result import Harvest as Harvest
    from kernellab.inside.equivalence import Equivalence as Equivalence
    from kernellab.inside.first_difference import FirstDifference as FirstDifference
    from kernellab.inside.timeline import Timeline as Timeline
    from kernellab.inside.values import Values as Values
    from kernellab.ir.effects import Effects as Effects
    from kernellab.ir.graph import Graph as Graph
    from kernellab.ir.layouts import Layouts as Layouts
    from kernellab.judge.judging import judge as judge
    from kernellab.judge.verdict import Verdict as Verdict
    from kernellab.lab import Lab as Lab
    from kernellab.launch.run import Run as Run
    from kernellab.registry.listing import Listing as Listing
    from kernellab.registry.listing import LoadedVersion as LoadedVersion
    from kernellab.registry.regressions import Regressions as Regressions
    from kernellab.target import Target as Target
    from kernellab.timing.provenance import Ceilings as Ceilings
    from kernellab.tune.dispatch.result import Dispatch as Dispatch
    from kernellab.tune.result import Tuning as Tuning
    from kernellab.upgrade.gate_result import GateResult as GateResult
    from kernellab.upgrade.result import Upgrade as Upgrade
    from kernellab.views.panels import Panel as Panel
    from kernellab.views.widgets import explorer as explorer
    from kernellab.views.widgets import graph_view as graph_view
    from kernellab.views.widgets import values_view as values_view

__version__ = "0.1.0"
_LAZY = {
    "gluon_tile": "kernellab._triton.tiles",
    "Comparison": "kernellab.benchmark.comparison",
    "Benchmark": "kernellab.benchmark.result",
    "Capture": "kernellab.capture.block",
    "CapturedFunction": "kernellab.capture.captured_function",
    "Program": "kernellab.capture.program",
    "Compiled": "kernellab.compile.types",
    "Explanation": "kernellab.explain.explanation",
    "Prediction": "kernellab.explain.prediction",
    "Profile": "kernellab.explain.profile",
    "Harvest": "kernellab.harvest.result",
    "Equivalence": "kernellab.inside.equivalence",
    "FirstDifference": "kernellab.inside.first_difference",
    "Timeline": "kernellab.inside.timeline",
    "Values": "kernellab.inside.values",
    "Traffic": "kernellab.explain.traffic.result",
    "read_frame": "kernellab.export.frames",
    "save_frame": "kernellab.export.frames",
    "Merged": "kernellab.export.merging",
    "Exported": "kernellab.export.write",
    "Effects": "kernellab.ir.effects",
    "Graph": "kernellab.ir.graph",
    "Layouts": "kernellab.ir.layouts",
    "Verdict": "kernellab.judge.verdict",
    "Lab": "kernellab.lab",
    "Run": "kernellab.launch.run",
    "Listing": "kernellab.registry.listing",
    "LoadedVersion": "kernellab.registry.listing",
    "Regressions": "kernellab.registry.regressions",
    "Target": "kernellab.target",
    "Ceilings": "kernellab.timing.provenance",
    "Dispatch": "kernellab.tune.dispatch.result",
    "Tuning": "kernellab.tune.result",
    "GateResult": "kernellab.upgrade.gate_result",
    "Upgrade": "kernellab.upgrade.result",
    "Panel": "kernellab.views.panels",
    "values_view": "kernellab.views.widgets",
    "explorer": "kernellab.views.widgets",
    "graph_view": "kernellab.views.widgets",
}
__all__ = list(_LAZY)
__all__ += ["KernellabError", "__version__", "current_lab", "errors", "judge"]


_HOOK.install(*(_partial(importlib.import_module, f"kernellab.views.{name}") for name in ("bundles", "rendering")))


def current_lab() -> Lab:
    """Return the lab of this notebook.

    Raises:
        UsageError: the extension is not loaded, or this is a script, which makes its own with ``kernellab.Lab()``.
    """
    magics = sys.modules.get("kernellab.notebook.magics")
    lab: Lab | None = None if magics is None else magics.lab_of_shell()
    if lab is None:
        raise errors.UsageError(
            "No current lab: run %load_ext kernellab in a notebook, or write lab = kernellab.Lab() in a script."
        )
    return lab


def load_ipython_extension(shell: Any) -> None:
    """Load the extension: called by ``%load_ext kernellab``."""
    importlib.import_module("kernellab.notebook.extension").load_ipython_extension(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Unload the extension: called by ``%unload_ext kernellab``."""
    importlib.import_module("kernellab.notebook.extension").unload_ipython_extension(shell)


def __getattr__(name: str) -> Any:
    """Import what the lab offers only when it is asked for, so that ``import kernellab`` stays light."""
    if name == "judge":  # the module is the verb
        return importlib.import_module("kernellab.judge")
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'kernellab' has no attribute {name!r}", name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    """Return the public names, for completion."""
    return sorted(__all__)
