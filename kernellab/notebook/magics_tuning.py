"""The line magic that tunes a kernel."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from IPython.core.magic import Magics, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments

from kernellab.errors import UsageError
from kernellab.lab import Lab
from kernellab.measure.reference import check_in
from kernellab.notebook.expressions import evaluated, launch_of_text
from kernellab.notebook.parsing import parsed
from kernellab.tune.result import Tuning
from kernellab.tune.search import SEARCHES


@magics_class
class TuneMagics(Magics):  # type: ignore[misc]
    """``%triton_tune``."""

    def __init__(self, shell: Any, lab: Lab) -> None:
        super().__init__(shell)
        self.lab = lab

    @no_var_expand
    @magic_arguments()
    @argument("--configs", default="None", help="A list of triton.Config or a Space, by name; or how many to try.")
    @argument("--limit", type=int, help="How many configs are measured at most.")
    @argument("--search", choices=SEARCHES, default="exhaustive", help="How configs are chosen (exhaustive).")
    @argument("--timeout", type=float, default=10.0, help="Seconds after which a config is stopped (10).")
    @argument("--budget", type=float, help="Seconds after which the best so far is taken.")
    @argument("--check", help='What the outputs are to hold: --check "torch.softmax(x, 1)".')
    @argument("--devices", help="The GPUs that measure, by number: --devices 0,1.")
    @argument("--fresh", action="store_true", help="Measure again what the store knows.")
    @argument("launch", nargs=argparse.REMAINDER, help="kernel[grid](arguments)")
    @line_magic
    def triton_tune(self, line: str) -> Tuning:
        """Find the fastest config of a kernel and launch it once: %triton_tune softmax[grid](x, out, n)."""
        given, names = parsed(self.triton_tune, "%triton_tune", line), self.shell.user_ns
        launch = launch_of_text(" ".join(given.launch), names)
        return self.lab.tune(launch.kernel, launch.grid, *launch.args, **{**launch.meta, **_options(given, names)})


def _options(given: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `Lab.tune`, evaluated in the user's namespace."""
    how = "--configs \"[triton.Config({'BLOCK': 64})]\""
    configs, limit = evaluated(given.configs, given.configs, names, "--configs", how), given.limit
    if isinstance(configs, int):
        configs, limit = None, configs
    return {
        "configs": configs,
        "budget_configs": limit,
        "search": given.search,
        "timeout_s": given.timeout,
        "budget_s": given.budget,
        "check": None if given.check is None else check_in(given.check, names),
        "devices": None if given.devices is None else _devices(given.devices),
        "fresh": given.fresh,
    }


def _devices(text: str) -> list[int]:
    """Return the numbers of a list such as ``0,1``."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as exc:
        raise UsageError(f"--devices is {text!r}; expected GPU numbers, such as 0,1.") from exc
