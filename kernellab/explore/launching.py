"""A point of a panel as a launch: which values are the kernel's sizes, which its config, and which grid they have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernellab._triton.kernel import Kernel
from kernellab.explore.controls import GRID, OPTIONS, label_of
from kernellab.explore.history import Point
from kernellab.launch.grid import checked_grid
from kernellab.measure.config import Config
from kernellab.measure.launches import Launches
from kernellab.target import Target


@dataclass(frozen=True, slots=True)
class Request:
    """A point as the tuner would see it: a config for the launches of some sizes.

    ``key`` tells apart the launches of one panel, ``sizes`` the points that compute the same.
    """

    launches: Launches
    config: Config
    key: tuple[Any, ...]
    sizes: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Requests:
    """Makes requests of points. ``fixed`` are the arguments and options that no control has."""

    kernel: Kernel
    grid: Any
    fixed: Mapping[str, Any]
    parameters: frozenset[str]
    constexprs: frozenset[str]
    has_hooks: bool = False
    _launches: dict[tuple[Any, ...], Launches] = field(default_factory=dict)

    def of(self, point: Point, target: Target) -> Request:
        """Return the request of a point; nothing of it is looked at yet."""
        own = {name: value for name, value in point.values if name in self.constexprs or name in OPTIONS}
        extents = {name: value for name, value in point.values if name in GRID}
        arguments = {name: value for name, value in point.values if name not in own and name not in extents}
        key = (str(target), tuple(arguments.items()), tuple(extents.items()))
        if key not in self._launches:
            meta = {**self.fixed, **arguments}
            launches = Launches(self.kernel, self._grid(extents), (), meta, target, has_hooks=self.has_hooks)
            self._launches[key] = launches
        config = Config.of(own)
        options = {name: self.fixed[name] for name in config.options if name in self.fixed and name not in own}
        return Request(self._launches[key], config.with_values(options), key, self._sizes(point))

    def _sizes(self, point: Point) -> tuple[tuple[str, str], ...]:
        """Return the values that say what is computed: sizes, switches and types, but no blocks, options and grids."""
        return tuple(
            (name, label_of(value))
            for name, value in point.values
            if name in self.parameters and not (name in self.constexprs and type(value) is int)
        )

    def _grid(self, extents: Mapping[str, int]) -> Any:
        """Return the grid with the extents that have controls of their own; of plain extents, plain extents."""

        def changed(given: Any) -> tuple[int, ...]:
            known = checked_grid(given, "the kernel")
            return tuple(extents.get(name, extent) for name, extent in zip(GRID, known, strict=True))

        if not extents:
            return self.grid
        return (lambda meta: changed(self.grid(meta))) if callable(self.grid) else changed(self.grid)
