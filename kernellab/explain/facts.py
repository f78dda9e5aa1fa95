"""What is known of a launch before anybody asks why it takes so long: plain numbers, from traffic, binary and clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

SECTOR_BYTES = 32
WARP_THREADS = 32
WIDEST_BYTES = 16  # of one instruction of one thread

AccessKind = Literal["load", "store", "atomic"]


@dataclass(frozen=True, slots=True)
class DeviceRates:
    """What a device can do at best: bytes and operations per second, as measured on it or from a table.

    ``tflops`` are those of the tensor cores by the kind of number, and of ordinary units as ``fp32`` and ``fp64``.
    ``latency_s`` is that of memory, ``launch_s`` what an empty launch takes. ``name`` is that of the model.
    """

    name: str
    multiprocessors: int
    clock_hz: float
    memory_gbps: float
    l2_gbps: float
    l2_bytes: int
    tflops: Mapping[str, float]
    latency_s: float = 0.8e-6
    launch_s: float = 2.5e-6
    is_measured: bool = False


@dataclass(frozen=True, slots=True)
class AccessFacts:
    """All that one source line does to one argument in global memory, summed over the launch.

    ``bytes`` are those that threads ask for, ``sectors`` what is moved of 32 bytes each, ``ideal_sectors`` what would
    do; ``requests`` counts instructions of warps. ``touched_bytes`` are those of the argument that any line reads, or
    writes, each once; None if not known.
    ``width_bytes`` is what one thread moves at a time, ``owned_bytes`` what of the tile falls to one thread.
    ``lanes_off`` is the share of the tile that a mask switches off, ``trips`` how often a program executes the line.
    ``is_async`` tells that it is copied to shared memory while the program goes on; ``is_replicated`` that several
    threads do the same. ``element_bytes`` is the size of an element, ``tile_bytes`` that of what one execution moves.
    ``lane_step_bytes`` is how far the addresses of neighbouring threads lie apart, None if not known; ``axes`` are
    those of the grid that the addresses depend on. ``argument_bytes`` is the size of the argument.
    """

    line: int | None
    operation: AccessKind
    argument: str
    bytes: float
    sectors: float
    ideal_sectors: float
    requests: float
    touched_bytes: float | None = None
    width_bytes: int = 0
    owned_bytes: int = 0
    lanes_off: float = 0.0
    trips: float = 1.0
    is_async: bool = False
    is_replicated: bool = False
    element_bytes: int = 4
    tile_bytes: float = 0.0
    in_loop: bool = False
    lane_step_bytes: float | None = None
    axes: frozenset[int] = frozenset()
    argument_bytes: float | None = None

    @property
    def efficiency(self) -> float:
        """The share of the moved bytes that is used, from 0 to 1."""
        return min(1.0, self.ideal_sectors / self.sectors) if self.sectors else 1.0

    @property
    def possible_bytes(self) -> int:
        """What one thread could move at a time if its neighbouring elements were known to lie together."""
        return min(WIDEST_BYTES, 1 << (self.owned_bytes.bit_length() - 1)) if self.owned_bytes else 0

    @property
    def is_split(self) -> bool:
        """Whether sectors are moved again only since a thread takes its neighbouring elements piece by piece.

        The pieces of a sector come out of the L1 then, which has just fetched it.
        """
        if self.sectors <= 1.15 * self.ideal_sectors:
            return True
        if self.lane_step_bytes is None or not self.width_bytes or self._leaves_gaps:
            return False
        return self.width_bytes < self.lane_step_bytes <= self.owned_bytes

    @property
    def _leaves_gaps(self) -> bool:
        """Whether much of the argument is touched by nobody, so that no other piece of a sector is wanted."""
        known = self.argument_bytes is not None and self.touched_bytes is not None
        return known and (self.touched_bytes or 0.0) < 0.6 * (self.argument_bytes or 0.0)

    @property
    def moved_bytes(self) -> float:
        """What of the sectors comes out of the L2."""
        return (self.ideal_sectors if self.is_split else self.sectors) * SECTOR_BYTES


def is_repeated(group: Sequence[AccessFacts]) -> bool:
    """Tell whether several lines load the same elements: about as many bytes each, few of them for the first time."""
    if len({each.line for each in group}) < 2:
        return False
    sizes = [each.bytes for each in group]
    touched = max((each.touched_bytes or 0.0) for each in group)
    return min(sizes) > 0.7 * max(sizes) and sum(sizes) > 1.7 * (touched or sum(sizes))


@dataclass(frozen=True, slots=True)
class SharedFacts:
    """What one source line does to shared memory: turns of its banks, and how many would do."""

    line: int | None
    operation: AccessKind
    wavefronts: float
    ideal_wavefronts: float


@dataclass(frozen=True, slots=True)
class DotFacts:
    """The matrix products of one line: the kind of numbers, operations, tile; and how they are computed.

    ``was_narrower`` names a narrower kind that both operands were converted from.
    """

    line: int | None
    kind: str
    flops: float
    on_tensor_cores: bool
    tile: tuple[int, int, int]
    trips: float = 1.0
    was_narrower: str = ""
    in_loop: bool = False


@dataclass(frozen=True, slots=True)
class LineFacts:
    """The instructions of one source line: those of warps in the whole launch, and of them the slow ones by kind.

    ``slow`` counts warp instructions of double precision (``fp64``), special functions (``special``) and local memory
    (``spill``). ``words`` name what is written there and expensive: ``fp64``, ``division``, ``pow``, ...
    """

    line: int | None
    instructions: float
    slow: Mapping[str, float] = field(default_factory=dict)
    words: frozenset[str] = frozenset()
    trips: float = 1.0

    def scaled(self, factor: float) -> LineFacts:
        """Return the line with so many times the instructions."""
        slow = {kind: count * factor for kind, count in self.slow.items()}
        return replace(self, instructions=self.instructions * factor, slow=slow)


@dataclass(frozen=True, slots=True)
class ReductionFacts:
    """A reduction over the threads of a program: how often each program makes it, and between how many warps.

    ``as_product`` tells that it sums products of two broadcast tiles, which is what a dot computes; then ``flops``
    counts them. ``accumulates`` tells that its result is added up from round to round.
    """

    line: int | None
    trips: float
    warps: int
    in_loop: bool
    as_product: bool = False
    flops: float = 0.0
    accumulates: bool = False


@dataclass(frozen=True, slots=True)
class AtomicFacts:
    """The atomics of one line: how many lanes update, and how many addresses they fall on, None if not known."""

    line: int | None
    argument: str
    updates: float
    addresses: float | None


@dataclass(frozen=True, slots=True)
class Facts:
    """One launch of one compiled kernel.

    ``programs`` of ``warps`` warps each; ``resident`` programs fit on a multiprocessor, bounded by ``limiter``.
    ``stages`` is num_stages. ``has_traffic`` tells that sectors and wavefronts were worked out; without, an access
    counts as ideal. ``time_s`` was measured, None without a GPU. ``stalls`` are the shares of samples by reason, and
    ``line_shares`` those by line, where there is a profile. ``unknown`` says what is not known, in sentences.
    """

    kernel: str
    target: str
    device: DeviceRates
    programs: int
    warps: int
    resident: int
    grid: tuple[int, int, int] = (1, 1, 1)
    limiter: str = ""
    stages: int = 1
    registers: int | None = None
    spill_bytes: int = 0
    shared_bytes: int = 0
    accesses: tuple[AccessFacts, ...] = ()
    shared: tuple[SharedFacts, ...] = ()
    dots: tuple[DotFacts, ...] = ()
    lines: tuple[LineFacts, ...] = ()
    reductions: tuple[ReductionFacts, ...] = ()
    atomics: tuple[AtomicFacts, ...] = ()
    footprint_bytes: float = 0.0
    dram_bytes: float | None = None
    loop_trips: float = 0.0
    has_traffic: bool = False
    time_s: float | None = None
    stalls: Mapping[str, float] = field(default_factory=dict)
    line_shares: Mapping[int, float] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()

    @property
    def slots(self) -> int:
        """How many programs run at a time."""
        return max(1, self.device.multiprocessors * self.resident)

    @property
    def busy(self) -> int:
        """How many multiprocessors have anything to do."""
        return max(1, min(self.device.multiprocessors, self.programs))
