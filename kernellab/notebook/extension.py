"""The IPython extension: magics, completion of their options, and a formatter per result type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernellab.lab import Lab
from kernellab.notebook.completion import complete_options
from kernellab.notebook.formatters import register_formatters, unregister_formatters
from kernellab.notebook.live import progress_of
from kernellab.notebook.magics import BenchMagics, StoreMagics, TritonMagics, TuneMagics, WhyMagics, lab_of_shell

MAGICS = (TritonMagics, StoreMagics, TuneMagics, BenchMagics, WhyMagics)


def load_ipython_extension(shell: Any) -> None:
    """Register the magics, their completion and the formatters, and start the workers."""
    lab = lab_of_shell() or Lab()
    shell.register_magics(*(kind(shell, lab) for kind in MAGICS))
    if complete_options not in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.append(complete_options)
    live = progress_of(shell)
    register_formatters(shell, live.replaced_by)
    if lab.settings.progress:
        lab.launches.report_to(live)
    _take_over(shell.user_ns, lab)
    lab.start()


def _take_over(namespace: Mapping[str, Any], lab: Lab) -> None:
    """Bind the kernels of a closed lab, which ``%reload_ext`` leaves behind; cells would not see their launches."""
    from kernellab._triton.bound import bind_in_place, is_bound

    for value in list(namespace.values()):
        if is_bound(value) and value.runtime.is_closed:
            bind_in_place(value, lab.launches)
            lab.kernels.add(value)


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
