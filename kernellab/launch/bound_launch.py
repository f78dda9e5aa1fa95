"""One launch of a bound kernel, on its way through the runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernellab.compile.types import Compiled
from kernellab.launch.grids import Grid3
from kernellab.launch.run import Run
from kernellab.launch.value_samples import ValueSample

if TYPE_CHECKING:
    from kernellab._triton.bound import BoundKernel


@dataclass(slots=True)
class BoundLaunch:
    """A launch as the user asked for it, then as it was compiled, then as it ran.

    ``given_grid`` is the user's: extents, or a function of the arguments by name. ``handle`` (Triton's), ``compiled``
    and ``arguments`` (by name, with defaults) are set once it is compiled, ``grid`` once that is evaluated. ``before``
    samples what the arguments held that the launch reads and changes.
    """

    kernel: BoundKernel
    args: tuple[Any, ...]
    meta: Mapping[str, Any]
    given_grid: Any
    handle: Any = None
    compiled: Compiled = field(init=False)
    arguments: Mapping[str, Any] = field(init=False)
    grid: Grid3 = field(init=False)
    before: Mapping[str, ValueSample] = field(default_factory=dict)
    run: Run | None = None
    are_hooks_called: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """The options of the call, such as ``num_warps``."""
        return {name: value for name, value in self.meta.items() if name not in self.kernel.arg_names}

    def call_hooks(self) -> None:
        """Call the kernel's pre-run hooks, once."""
        if not self.are_hooks_called:
            self.are_hooks_called = True
            self.kernel.call_hooks(self.args, dict(self.meta))
