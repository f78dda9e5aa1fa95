"""The IPython extension: magics, completion of their options, and a formatter per result type."""

from __future__ import annotations

from typing import Any

import kernellab
from kernellab.formatters import register_formatters, unregister_formatters
from kernellab.lab import Lab
from kernellab.live import progress_of
from kernellab.magics.benchmarks import BenchMagics
from kernellab.magics.cells import TritonMagics
from kernellab.magics.completion import complete_options
from kernellab.magics.keeping import StoreMagics
from kernellab.magics.tuning import TuneMagics

MAGICS = (TritonMagics, StoreMagics, TuneMagics, BenchMagics)


def load_ipython_extension(shell: Any) -> None:
    """Register the magics, their completion and the formatters, and start the workers."""
    lab = kernellab.current_lab() or Lab()
    shell.register_magics(*(kind(shell, lab) for kind in MAGICS))
    if complete_options not in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.append(complete_options)
    live = progress_of(shell)
    register_formatters(shell, live.replaced_by)
    if lab.settings.progress:
        lab.launches.report_to(live)
    lab.start()


def unload_ipython_extension(shell: Any) -> None:
    """Take the magics away again and stop the workers."""
    for kind in ("cell", "line"):
        for name in (name for magics in MAGICS for name in magics.magics[kind]):
            shell.magics_manager.magics[kind].pop(name, None)
    if complete_options in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.remove(complete_options)
    unregister_formatters(shell)
    magics = shell.magics_manager.registry.pop("TritonMagics", None)
    if magics is not None:
        magics.lab.close()
