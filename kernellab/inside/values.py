"""The values that the lines of a kernel held in some programs of a launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kernellab.compile.argument_values import ArgumentValue
from kernellab.display import HOOK, Drawable
from kernellab.errors import UsageError, choice_message
from kernellab.ir.graph import Graph
from kernellab.launch.arguments import TRITON_NAMES
from kernellab.launch.recorded_values import NonFiniteEvent, Program, RecordedValue
from kernellab.workers.forks_and_interrupts import import_uninterrupted

if TYPE_CHECKING:
    import pandas
    import torch
    from matplotlib.figure import Figure

_FRAME_COLUMNS = (
    *("program", "line", "function", "name", "kind", "iteration", "shape", "dtype"),
    *("min", "max", "mean", "nan", "inf", "zeros", "masked", "argument"),
)


@dataclass(frozen=True)
class Values(Drawable):
    """The values of ``programs`` of a launch, in the order of execution.

    ``source`` is the text of the kernel from ``first_line`` of ``file`` on, and ``helpers`` the same of what it calls:
    (file, first line, text). ``where`` is ``interpreter`` or ``gpu``; ``notes`` say what was sampled or left out, and
    ``failure`` why the program stopped early. ``values["acc", 23, 5]`` is the tensor of a name, line and iteration.
    ``build_graph`` makes the dataflow graph of the kernel's TTIR, which may compile it.
    """

    kernel: str
    grid: tuple[int, int, int]
    programs: tuple[Program, ...]
    file: str
    first_line: int
    source: str
    values: tuple[RecordedValue, ...]
    where: str
    arguments: Mapping[str, ArgumentValue] = field(default_factory=dict)
    helpers: tuple[tuple[str, int, str], ...] = ()
    notes: tuple[str, ...] = ()
    failure: str | None = None
    events: tuple[NonFiniteEvent, ...] = field(default=(), repr=False)
    build_graph: Callable[[], Graph] | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        lines = len({value.line for value in self.values})
        return f"<Values of {self.kernel}: {len(self.values):,} in {lines} lines of {len(self.programs)} programs>"

    @cached_property
    def frame(self) -> pandas.DataFrame:
        """A row per value, in the order of execution."""
        pd = import_uninterrupted("pandas")
        frame = pd.DataFrame([_row(value) for value in self.values], columns=list(_FRAME_COLUMNS))
        return frame.astype({"line": "Int64", "min": "float64", "max": "float64", "mean": "float64"})

    @property
    def texts(self) -> list[tuple[str, int, str]]:
        """File, first line and text of the kernel, then of each helper."""
        return [(self.file, self.first_line, self.source), *self.helpers]

    def line_text(self, value: RecordedValue) -> str:
        """The text of a value's line, "" where none of `texts` has it."""
        for file, first_line, text in self.texts:
            lines = text.splitlines()
            if file == value.file and 0 <= value.line - first_line < len(lines):
                return lines[value.line - first_line].strip()
        return ""

    def at(self, line: int) -> tuple[RecordedValue, ...]:
        """The values of a line, in the order of execution.

        Raises:
            UsageError: no value was recorded in that line; the message lists the lines that have some.
        """
        values = tuple(value for value in self.values if value.line == line)
        if not values:
            lines = ", ".join(map(str, sorted({value.line for value in self.values})))
            raise UsageError(f"Line {line} of {self.kernel} has no values; lines with some: {lines or 'none'}.")
        return values

    def find(
        self,
        name: str,
        line: int | None = None,
        iteration: int | Sequence[int] | None = None,
        program: Program | None = None,
    ) -> RecordedValue:
        """The value of a name: the first of a line, an iteration and a program, where these are named.

        An ``iteration`` is the number of the innermost loop, or the numbers of all, outermost first. A store or an
        atomic goes by the name of its argument.

        Raises:
            UsageError: there is no such value; the message says what there is.
        """
        named = [value for value in self.values if name in {value.name, None if value.name else value.argument}]
        if not named:
            names = sorted({value.name or value.argument or "" for value in self.values} - {""})
            raise UsageError(choice_message("name", name, tuple(names)))
        chosen = [value for value in named if line in (None, value.line)]
        if not chosen:
            lines = ", ".join(map(str, sorted({value.line for value in named})))
            raise UsageError(f"{name} has no value in line {line}; lines with some: {lines}.")
        chosen = [value for value in chosen if program in (None, value.program)]
        if not chosen:
            raise UsageError(f"Program {program} was not recorded; recorded: {', '.join(map(str, self.programs))}.")
        matching = [value for value in chosen if _is_iteration(value, iteration)]
        if not matching:
            first, last = chosen[0].iteration, chosen[-1].iteration
            raise UsageError(f"{name} has no value in iteration {iteration}; recorded: {first} to {last}.")
        return matching[0]

    def plot(  # type: ignore[override] # a tile, by the arguments of `find`
        self,
        name: str | None = None,
        line: int | None = None,
        iteration: int | Sequence[int] | None = None,
        program: Program | None = None,
        *,
        dark: bool = False,
    ) -> Figure:
        """Draw the tile of a value as a matplotlib figure, by default that of the last; the arguments are `find`'s."""
        return HOOK.views.figure_of(self, "tile", dark=dark, name=name, line=line, iteration=iteration, program=program)

    def __getitem__(self, key: str | tuple[Any, ...]) -> torch.Tensor:
        """The tensor of ``name``, ``name, line`` or ``name, line, iteration``; see `find`."""
        parts = (key,) if isinstance(key, str) else key
        if not 1 <= len(parts) <= 4:
            raise UsageError(f"values[{key!r}]: expected a name, a line, an iteration and a program, in this order.")
        return tensor_of(self.find(*parts))


def tensor_of(value: RecordedValue) -> torch.Tensor:
    """A recorded tile as a tensor of its dtype; pointers are int64 element numbers of their argument."""
    import torch

    data = torch.from_numpy(value.data.copy())
    dtype = TORCH_NAMES.get(value.dtype)
    return data if dtype is None else data.to(getattr(torch, dtype))


TORCH_NAMES = {short: name for name, short in TRITON_NAMES.items() if short.startswith(("bf", "fp8"))}
"""The formats that NumPy lacks, whose tiles are float32, by their names in torch."""


def _is_iteration(value: RecordedValue, iteration: int | Sequence[int] | None) -> bool:
    if iteration is None:
        return True
    if isinstance(iteration, int):
        return value.iteration[-1:] == (iteration,)
    return value.iteration == tuple(iteration)


def _row(value: RecordedValue) -> tuple[Any, ...]:
    figures = value.summary
    place = (value.program, value.line, value.function, value.name, value.kind.value, value.iteration)
    counts = (figures.nan, figures.inf, figures.zeros, figures.masked)
    return (*place, value.shape, value.dtype, figures.min, figures.max, figures.mean, *counts, value.argument)
