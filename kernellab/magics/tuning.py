"""The line magic that tunes a kernel."""

from __future__ import annotations

import argparse
from typing import Any

from IPython.core.magic import Magics, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from kernellab.lab import Lab
from kernellab.tune.expression import evaluated, launch_of_text
from kernellab.tune.result import Tuning


@magics_class
class TuneMagics(Magics):  # type: ignore[misc]
    """``%triton_tune``."""

    def __init__(self, shell: Any, lab: Lab) -> None:
        super().__init__(shell)
        self.lab = lab

    @no_var_expand
    @magic_arguments()
    @argument("--configs", default="None", help="The configs: the name of a list of triton.Config, or of a Space.")
    @argument("--timeout", type=float, default=10.0, help="Seconds after which a config is stopped (10).")
    @argument("--budget", type=float, help="Seconds after which the best so far is taken.")
    @argument("--fresh", action="store_true", help="Measure again what the store knows.")
    @argument("launch", nargs=argparse.REMAINDER, help="kernel[grid](arguments)")
    @line_magic
    def triton_tune(self, line: str) -> Tuning:
        """Find the fastest config of a kernel and launch it once: %triton_tune softmax[grid](x, out, n)."""
        given, names = parse_argstring(self.triton_tune, line), self.shell.user_ns
        launch = launch_of_text(" ".join(given.launch), names)
        configs = evaluated(given.configs, given.configs, names)
        own = {"configs": configs, "timeout_s": given.timeout, "budget_s": given.budget, "fresh": given.fresh}
        return self.lab.tune(launch.kernel, launch.grid, *launch.args, **{**launch.meta, **own})
