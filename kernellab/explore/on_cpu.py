"""Points without a GPU: the interpreter runs them, on copies, within bounds of programs, memory and time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from kernellab.compile.types import Compiled
from kernellab.explore.history import Verdict
from kernellab.explore.launching import Request, Verdicts, outputs_of
from kernellab.launch.grid import Grid3
from kernellab.launch.memory import size_bytes
from kernellab.launch.poison import poison
from kernellab.launch.reached import Copies
from kernellab.launch.run import Run
from kernellab.launch.runtime import Interpret
from kernellab.measure.launches import KernelLaunch

PROGRAMS_AT_MOST = 512
BYTES_AT_MOST = 256 << 20
SECONDS_AT_MOST = 10.0


@dataclass(frozen=True, slots=True)
class Ran:
    """What the interpreter did at a point; ``run`` is None where it did not run, for the reason in the verdict."""

    run: Run | None
    verdict: Verdict


@dataclass(slots=True)
class Interpreted:
    """Runs points in the interpreter, each distinct computation once: options and target change nothing of it.

    ``inputs`` are the arguments that the panel was made with, as copies of its own; ``zeroed`` names those that are set
    to zero before each launch.
    """

    interpret: Interpret
    inputs: Mapping[str, Any]
    verdicts: Verdicts
    zeroed: tuple[str, ...] = ()
    _ran: dict[Any, Ran] = field(default_factory=dict)

    def run(self, request: Request, launch: KernelLaunch, compiled: Compiled, text: str) -> Ran:
        """Return what the interpreter does.

        Raises:
            KernellabError: the kernel fails, or does not end in time.
        """
        key = (request.key[1:], request.config.parameters)
        if key not in self._ran:
            self._ran[key] = self._fresh(request, launch, compiled, text)
        return self._ran[key]

    def _fresh(self, request: Request, launch: KernelLaunch, compiled: Compiled, text: str) -> Ran:
        held = size_bytes(self.inputs)
        if held > BYTES_AT_MOST:
            return Ran(None, Verdict(None, f"not run: the arguments hold {held / 1e6:,.0f} MB, too much for here"))
        if 0 in launch.grid:
            return Ran(None, Verdict(None, "not run: the grid is empty"))
        copies = Copies({**launch.arguments, **self.inputs}, compiled.effects, "cpu")
        arguments = copies.arguments
        for name in self.zeroed:
            if arguments.get(name) is not None:
                arguments[name].zero_()
        poisoned = poison(arguments, compiled.effects, copies=True)
        grid = bounded(launch.grid)
        run = self.interpret(launch.function, arguments, grid, SECONDS_AT_MOST, effects=compiled.effects)
        if grid != launch.grid:
            ran, programs = prod(grid), prod(launch.grid)
            return Ran(run, Verdict(None, f"not compared: {ran:,} of {programs:,} programs ran"))
        before = {**launch.arguments, **self.inputs}
        outputs = outputs_of(copies)
        return Ran(run, self.verdicts.verdict(request.sizes, text, before, outputs, poisoned))


def bounded(grid: Grid3, most: int = PROGRAMS_AT_MOST) -> Grid3:
    """Return the grid with so few programs that they run while somebody waits."""
    x = min(grid[0], most)
    y = min(grid[1], max(1, most // x))
    return x, y, min(grid[2], max(1, most // (x * y)))
