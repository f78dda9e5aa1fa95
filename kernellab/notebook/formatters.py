"""What a shell shows of each result type.

Results show themselves anywhere (`kernellab.display`); a shell that has loaded the extension knows more: the number of
its cell, and whose live progress a result replaces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from IPython import get_ipython

from kernellab.compile.types import Compiled
from kernellab.display import Bundle
from kernellab.views.bundles import BUNDLES, compiled_bundle

_CONFIG = ("triton.runtime.autotuner", "Config")  # by name: loading the extension loads no Triton


class _CompiledBundle:
    """Shows compiled kernels. It counts them by cell, since the explorers of one page must not share names."""

    def __init__(self) -> None:
        self._cell, self._shown = 0, 0

    def __call__(self, compiled: Compiled) -> Bundle:
        shell = get_ipython()
        cell = shell.execution_count if shell else 0
        self._shown = self._shown + 1 if cell == self._cell else 1
        self._cell = cell
        return compiled_bundle(compiled, uid=f"{cell}.{self._shown}")


def register_formatters(shell: Any, on_show: Callable[[Any], None] = lambda result: None) -> None:
    """Let the shell show every result type of the lab; ``on_show`` is told what is about to be shown."""
    bundles: dict[type, Callable[[Any], Bundle]] = {**BUNDLES, Compiled: _CompiledBundle()}
    for kind, bundle in bundles.items():
        shell.display_formatter.mimebundle_formatter.for_type(kind, _formatter(bundle, on_show))
    shell.display_formatter.formatters["text/plain"].for_type_by_name(*_CONFIG, _pretty_config)


def unregister_formatters(shell: Any) -> None:
    """Take the formatters away again."""
    for kind in BUNDLES:
        shell.display_formatter.mimebundle_formatter.pop(kind, None)
    shell.display_formatter.formatters["text/plain"].pop(".".join(_CONFIG), None)


def _pretty_config(config: Any, printer: Any, cycle: bool) -> None:
    """Print a `triton.Config` as it is written, in the place of its address, which Triton gives it."""
    options = {name: value for name, value in vars(config).items() if name != "kwargs" and value is not None}
    if options.get("num_ctas") == 1:
        del options["num_ctas"]
    words = [repr(config.kwargs), *(f"{name}={getattr(v, '__name__', repr(v))}" for name, v in options.items())]
    printer.text(f"triton.Config({', '.join(words)})")


def _formatter(bundle: Callable[[Any], Bundle], on_show: Callable[[Any], None]) -> Callable[..., Bundle]:
    def formatted(result: Any, include: object = None, exclude: object = None) -> Bundle:
        on_show(result)
        return bundle(result)

    return formatted
