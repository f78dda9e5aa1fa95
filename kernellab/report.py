"""What a cell shows of its kernels: plain data, for a card, a table or a summary line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernellab.compile import Compiled
from kernellab.ir.effects import Access
from kernellab.run import Run


@dataclass(frozen=True, slots=True)
class Check:
    """An output compared with a reference.

    ``expression`` is the reference as the user wrote it, ``argument`` the output; ``max_error`` is the largest absolute
    difference, ``tolerance`` the one allowed for the dtype, ``mismatched`` how many of ``elements`` exceed it.
    """

    expression: str
    argument: str
    equal: bool
    max_error: float
    tolerance: float
    mismatched: int
    elements: int


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
    check: Check | None = None
    config: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CellReport:
    """All that one cell did. ``hints`` tell how to go on, for instance how to launch a kernel it only defines."""

    kernels: tuple[KernelReport, ...]
    hints: tuple[str, ...] = ()
    show: str | None = None
