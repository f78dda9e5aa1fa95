"""One launch as a bound kernel was asked for it, on its way through the runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernellab._triton.kernel import BoundJit
from kernellab.launch.calls import CheckedGrid, Grid3, GridErrors
from kernellab.launch.value_samples import ValueSample


@dataclass(slots=True)
class LaunchCall:
    """A launch as a bound kernel was asked for it, and whether the kernel's own hooks were called for it.

    ``before`` samples what arguments held that it reads and changes.
    """

    kernel: BoundJit
    args: tuple[Any, ...]
    meta: dict[str, Any]
    grid: CheckedGrid
    are_hooks_called: bool = False
    before: Mapping[str, ValueSample] = field(default_factory=dict)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments by parameter name, defaults included."""
        arguments = {**dict(zip(self.kernel.arg_names, self.args, strict=False)), **self.meta}
        defaults = {p.name: p.default for p in self.kernel.params if p.has_default}
        return {name: arguments.get(name, defaults.get(name)) for name in self.kernel.arg_names}


def evaluated_grid(call: LaunchCall, arguments: Mapping[str, Any]) -> Grid3:
    """Return the extents of the grid, which is evaluated once: whoever launches gets these."""
    __tracebackhide__ = True
    with GridErrors():
        call.grid.grid = extents = call.grid(arguments)
    return extents
