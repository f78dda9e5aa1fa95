"""The result of `lab.traffic`: a row per access, a row per argument, and the unknown parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from kernellab.display import Drawable
from kernellab.explain.traffic.accesses import MemorySpace, WarpExample
from kernellab.explain.traffic.arithmetic import Array
from kernellab.explain.traffic.execution import AccessOperation
from kernellab.workers.forks_and_interrupts import cached_property, import_uninterrupted

if TYPE_CHECKING:
    import pandas


DESCRIPTOR = "tensor descriptor"
"""The argument of the accesses that set up a descriptor."""


@dataclass(frozen=True, slots=True)
class TrafficRow:
    """One access of the source, summed over the launch.

    A request is one instruction of one warp. In global memory it moves ``sectors`` of 32 bytes, and ``ideal_sectors``
    would hold the used bytes; ``bytes`` are 32 per sector, ``bytes_used`` those that threads asked for, each once per
    request, and ``efficiency`` is the share of ``ideal_sectors`` in ``sectors``. Shared memory serves a request in
    ``wavefronts``; ``conflicts`` are the additional ones due to bank conflicts, ``bytes`` 128 per wavefront, and
    ``efficiency`` is the share of wavefronts without conflicts. A copy from global to shared memory is one row, that of
    its argument, with the wavefronts of its writes. ``lanes_off`` is the share of masked threads in the warps that
    accessed memory. ``argument`` is None in shared memory. ``example`` is the request with most sectors of the first
    program.

    ``lane_bytes`` are those of the active threads, each thread's own, and ``reached_bytes`` with those of the masked
    threads of all warps that came there; both are 0 of boxes of tensor maps. ``runs`` is how often programs came there.
    """

    line: int | None
    file: str | None
    operation: AccessOperation
    space: MemorySpace
    argument: str | None
    requests: int
    sectors: int
    ideal_sectors: int
    wavefronts: int
    conflicts: int
    bytes: int
    bytes_used: int
    efficiency: float | None
    lanes_off: float
    instruction: str
    calls: tuple[tuple[str | None, int | None], ...] = ()
    example: WarpExample | None = None
    lane_bytes: float = 0.0
    reached_bytes: float = 0.0
    runs: float = 0.0


@dataclass(frozen=True, slots=True)
class ArgumentTraffic:
    """The accesses of a launch to one argument; known only where all programs were counted.

    ``never_read`` and ``never_written`` count elements of the view; the first is None of an output that nothing reads,
    the second of an input. ``read_bytes`` and ``written_bytes`` count a byte once per request of a warp,
    ``reads_per_element`` is the average over elements that are read. ``footprint_bytes`` counts each sector once,
    ``wave_bytes`` once for every wave of programs that touches it: the HBM traffic if the L2 keeps nothing between
    waves.
    ``programs`` has a row for each of the first programs and a column for each part of the argument: 1 where it reads,
    2 where it writes, 3 for both.
    """

    argument: str
    elements: int
    is_read: bool
    is_written: bool
    never_read: int | None
    never_written: int | None
    read_bytes: int
    written_bytes: int
    reads_per_element: float | None
    footprint_bytes: int
    wave_bytes: int
    waves: int
    programs: Array = field(repr=False)


@dataclass(frozen=True, slots=True)
class LineRuns:
    """How often a source line runs: its PTX ``instructions``, and how many of them all warps execute together.

    ``of_longest`` is how many the warps of the longest program execute.
    Instructions that decide no traffic, in branches and loops of their own, are left out: they are not followed.
    ``runs`` is how often programs run the line: its most executed instruction; None where some are left out.
    """

    line: int | None
    file: str | None
    calls: tuple[tuple[str | None, int | None], ...]
    instructions: int
    executed: float
    of_longest: float = 0.0
    runs: float | None = None


@dataclass(frozen=True, slots=True)
class UnknownTraffic:
    """Traffic that is unknown: the line, if there is one, and the reason."""

    line: int | None
    reason: str

    def __str__(self) -> str:
        return self.reason if self.line is None else f"line {self.line}: {self.reason}"


_HIDDEN = {"calls", "example", "lane_bytes", "reached_bytes", "runs"}


@dataclass(frozen=True)
class Traffic(Drawable):
    """The memory traffic of a launch. ``share`` is the counted part of its programs.

    A part consists of the first, the last and random programs, and counts are scaled. ``notes`` are remarks on the
    figures, ``line_runs`` the executed PTX instructions by line. With ``may_miss_longest``, programs may differ in
    length, and one that was not looked at may be the longest.
    """

    kernel: str
    target: str
    grid: tuple[int, int, int]
    rows: tuple[TrafficRow, ...]
    arguments: tuple[ArgumentTraffic, ...]
    unknown: tuple[UnknownTraffic, ...]
    share: float
    wave_programs: int
    notes: tuple[str, ...] = ()
    line_runs: tuple[LineRuns, ...] = field(default=(), repr=False)
    may_miss_longest: bool = False

    @property
    def is_known(self) -> bool:
        """Whether any program was counted; if not, ``unknown`` has the reason."""
        return self.share > 0 or not self.unknown

    def __repr__(self) -> str:
        if not self.is_known:
            return f"<Traffic of {self.kernel} on {self.target}: unknown, {self.unknown[0].reason}>"
        moved = sum(row.bytes for row in self.rows if row.space == "global")
        used = sum(row.bytes_used for row in self.rows if row.space == "global")
        share = f", {used / moved:.0%} of them used" if moved else ""
        unknown = f", {len(self.unknown)} unknown" if self.unknown else ""
        return f"<Traffic of {self.kernel} on {self.target}: {moved:,} bytes{share}{unknown}>"

    @cached_property
    def frame(self) -> pandas.DataFrame:
        """A row per access, by line."""
        return _frame(TrafficRow, self.rows, _HIDDEN, {"efficiency": "float64", "line": "Int64"})

    @cached_property
    def argument_frame(self) -> pandas.DataFrame:
        """A row per argument; empty where only a part of the programs was counted."""
        return _frame(ArgumentTraffic, self.arguments, {"programs"}, {"never_read": "Int64", "never_written": "Int64"})


def _frame(kind: Any, rows: Sequence[Any], hidden: set[str], types: Mapping[str, str]) -> pandas.DataFrame:
    pd = import_uninterrupted("pandas")

    names = [field.name for field in fields(kind) if field.name not in hidden]
    return pd.DataFrame([[getattr(row, name) for name in names] for row in rows], columns=names).astype(dict(types))
