"""A checked run on the CPU as data: what the interpreter gets, what it finds and answers; and any run's result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kernellab.launch.arguments import Launch
from kernellab.source import Binding, Closure
from kernellab.target import MULTIPROCESSORS
from kernellab.workers.worker import Failure


class FindingKind(StrEnum):
    """What a checked run can find."""

    OUT_OF_BOUNDS = "out_of_bounds"
    OUTSIDE_VIEW = "outside_view"
    UNINITIALISED_READ = "uninitialised_read"
    RACE = "race"
    ADDRESS_OVERFLOW = "address_overflow"
    OVERLAP = "overlap"


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a checked run saw. ``program`` is a program id (x, y, z); ``line`` a line of ``file``."""

    kind: FindingKind
    severity: Severity
    argument: str | None
    file: str | None
    line: int | None
    program: tuple[int, int, int]
    detail: str


@dataclass(frozen=True, slots=True)
class InterpretJob:
    """A launch together with the kernel and the values of its constexprs, as the interpreter worker gets it.

    ``warps`` of a program, if they are known, and ``multiprocessors`` are what kernels can ask the device for.
    """

    closure: Closure
    launch: Launch
    constants: tuple[tuple[str, Binding], ...] = ()
    warps: int | None = None
    multiprocessors: int = MULTIPROCESSORS


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a launch in a worker.

    ``written`` are the indices of the storages that were stored to. With a ``failure`` the memory counts for nothing;
    ``strays`` are addresses in no argument that the kernel went to.
    """

    seconds: float
    findings: tuple[Finding, ...] = ()
    output: str = ""
    notes: tuple[str, ...] = ()
    written: frozenset[int] = field(default_factory=frozenset)
    failure: Failure | None = None
    strays: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """One launch that ended well.

    ``seconds`` is the time of the launch itself, ``changed`` the number of elements that changed, per argument that
    holds memory (0 where nothing did); ``where`` is ``"interpreter"`` or ``"gpu"``. ``output`` is what the kernel
    printed. ``notes`` are remarks on how it was run ("bf16 arithmetic is rounded after each operation").
    """

    kernel: str
    grid: tuple[int, int, int]
    seconds: float
    changed: Mapping[str, int]
    findings: tuple[Finding, ...]
    where: str
    output: str = ""
    notes: tuple[str, ...] = ()
