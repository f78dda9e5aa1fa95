"""What a cell shows of its kernels: plain data, for a card, a table or a summary line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kernellab.compile.types import Compiled, Parameter
from kernellab.ir.effects import Access, Effects
from kernellab.launch.run import Run
from kernellab.measure.comparison import Check


@dataclass(frozen=True, slots=True)
class ArgumentReport:
    """One row of the card.

    ``lines`` maps each kind of access to the source lines that perform it; an empty mapping means untouched, None that
    the argument names no memory. ``changed`` of ``elements`` changed in the last run; None without a run.
    """

    name: str
    type: str
    specialization: str
    lines: Mapping[Access, tuple[int, ...]] | None
    changed: int | None = None
    elements: int | None = None


@dataclass(frozen=True, slots=True)
class KernelReport:
    """One specialization of one kernel, as launched (or only compiled) by a cell.

    ``label`` is the name and version, ``softmax@2``; ``source`` the text of the kernel and ``first_line`` the line of
    its cell or file at which that starts; ``launches`` how often the cell launched it, ``grid`` the last grid.
    ``config`` is the chosen config of an autotuned kernel, in words, or "". ``notes`` are sentences for the user.
    """

    label: str
    source: str
    file: str
    first_line: int
    compiled: Compiled
    arguments: tuple[ArgumentReport, ...]
    launches: int
    grid: tuple[int, int, int] | None
    run: Run | None
    checks: tuple[Check, ...] = ()
    config: str = ""
    notes: tuple[str, ...] = ()

    @property
    def check(self) -> Check | None:
        """The check to look at first: one that failed, else the first."""
        return min(self.checks, key=lambda check: check.equal, default=None)


@dataclass(frozen=True, slots=True)
class CellReport:
    """All that one cell did. ``hints`` tell how to go on, for instance how to launch a kernel it only defines."""

    kernels: tuple[KernelReport, ...]
    hints: tuple[str, ...] = ()
    show: str | None = None


def argument_reports(compiled: Compiled, elements: Mapping[str, int], run: Run | None) -> tuple[ArgumentReport, ...]:
    """Return the rows of the card; each member of a tuple that holds memory has a row of its own.

    ``elements`` maps each argument that holds memory to its number of elements.
    """
    return tuple(row for parameter in compiled.parameters for row in _rows(parameter, compiled.effects, elements, run))


def _rows(
    parameter: Parameter, effects: Effects, elements: Mapping[str, int], run: Run | None
) -> Iterator[ArgumentReport]:
    members = [name for name in effects.arguments if name == parameter.name or name.startswith(f"{parameter.name}[")]
    if parameter.name not in members:
        yield ArgumentReport(parameter.name, parameter.type, parameter.specialization, None)
    for name in members:
        plain = name == parameter.name
        yield ArgumentReport(
            name=name,
            type=parameter.type if plain else "member",
            specialization=parameter.specialization if plain else "",
            lines=_lines(effects, name),
            changed=run.changed.get(name) if run is not None else None,
            elements=elements.get(name),
        )


def _lines(effects: Effects, argument: str) -> Mapping[Access, tuple[int, ...]]:
    found: dict[Access, set[int]] = {}
    for site in effects.sites:
        if site.argument == argument:
            found.setdefault(site.kind, set()).update(() if site.line is None else (site.line,))
    return {kind: tuple(sorted(found[kind])) for kind in Access if kind in found}
