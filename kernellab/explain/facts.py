"""The facts of a launch that rules and the model of time read: plain numbers from traffic, binary and clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from kernellab.target import SECTOR_BYTES

WARP_THREADS = 32
MOST_WARPS = 32  # of a program, since it has 1024 threads at most
WIDEST_BYTES = 16  # of one instruction of one thread
_DENSE = 0.6  # useful share of sectors; below it, the rest counts as gaps

AccessKind = Literal["load", "store", "atomic"]


@dataclass(frozen=True, slots=True)
class DeviceRates:
    """The peak rates of a device: bytes and operations per second, measured on it or from a data sheet.

    ``tflops`` are those of the tensor cores by element type, and of ordinary units as ``fp32`` and ``fp64``.
    ``latency_s`` is the latency of memory, ``launch_s`` the time of an empty launch, 0 where it is unknown,
    ``name`` the model's.
    """

    name: str
    multiprocessors: int
    clock_hz: float
    memory_gbps: float
    l2_gbps: float
    l2_bytes: int
    tflops: Mapping[str, float]
    latency_s: float = 0.8e-6
    launch_s: float = 3.96e-6
    is_measured: bool = False


@dataclass(frozen=True, slots=True)
class WidthLimit:
    """A reason why a thread cannot move its neighbouring elements by one wide instruction.

    The compiler cannot prove that the base address, the offset or the mask (``part``) is a multiple of enough elements.
    ``source`` is the value behind it, the name if it is an argument, with its ``value`` in this launch.
    """

    part: Literal["base", "offset", "mask"]
    source: str
    value: int | None = None


def widest_access(owned_bytes: int) -> int:
    """Return the bytes of the widest instruction for a thread's part of a tile."""
    return min(WIDEST_BYTES, 1 << (owned_bytes.bit_length() - 1)) if owned_bytes else 0


@dataclass(frozen=True, slots=True)
class AccessFacts:
    """The accesses of one source line to one argument in global memory, over the launch; None stands for unknown.

    ``bytes`` are those of the elements that programs ask for, ``sectors`` the transferred ones of 32 bytes,
    ``ideal_sectors`` the fewest possible, ``requests`` the instructions of warps; these are ``copies`` times as many
    where so many threads load the same element. ``touched_bytes`` are those of the argument that any line reads, or
    writes, each once. ``width_bytes`` is the width of one thread's access, ``owned_bytes`` a thread's part of the tile,
    whose size is ``tile_bytes``. ``lanes_off`` is the share of the tile that a mask switches off, ``trips`` how often a
    program executes the line, a guess without ``knows_trips``. ``is_async`` is True for asynchronous copies to shared
    memory, ``is_replicated`` if several threads access the same element. ``lane_step_bytes`` is the distance between
    the addresses of neighbouring threads; ``axes`` are the grid axes that the addresses depend on. ``argument_bytes``
    is the size of the argument, ``sector_bytes`` that of all its touched sectors. ``limits`` are the
    reasons for a narrow access.
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
    knows_trips: bool = True
    is_async: bool = False
    is_replicated: bool = False
    copies: float = 1.0
    element_bytes: int = 4
    tile_bytes: float = 0.0
    in_loop: bool = False
    lane_step_bytes: float | None = None
    axes: frozenset[int] = frozenset()
    argument_bytes: float | None = None
    sector_bytes: float | None = None
    limits: tuple[WidthLimit, ...] | None = None

    @property
    def efficiency(self) -> float:
        """The useful share of the transferred bytes, from 0 to 1."""
        return min(1.0, self.ideal_sectors / self.sectors) if self.sectors else 1.0

    @property
    def possible_bytes(self) -> int:
        """The widest access of one thread, in bytes, if its neighbouring elements were known to be contiguous."""
        return widest_access(self.owned_bytes)

    @property
    def is_narrow(self) -> bool:
        """Whether a thread moves its neighbouring elements by more instructions than needed."""
        is_waiting = self.operation != "atomic" and not self.is_async
        return is_waiting and 0 < self.width_bytes < self.possible_bytes

    @property
    def is_split(self) -> bool:
        """Whether extra sectors come only from narrow or misaligned pieces of neighbouring elements.

        The L1 then serves the later pieces of a sector.
        """
        if self.sectors <= 1.15 * self.ideal_sectors:
            return True
        if self.lane_step_bytes is None or not self.width_bytes or self.leaves_gaps:
            return False
        return self.width_bytes <= self.lane_step_bytes <= self.owned_bytes

    @property
    def leaves_gaps(self) -> bool:
        """Whether no thread uses much of the sectors, so that their other parts are never needed.

        Without the sectors of the whole launch, the size of the argument is used.
        """
        whole = self.argument_bytes if self.sector_bytes is None else self.sector_bytes
        return None not in (whole, self.touched_bytes) and (self.touched_bytes or 0.0) < _DENSE * (whole or 0.0)

    @property
    def has_lone_sectors(self) -> bool:
        """Whether neighbouring threads access different sectors and no thread needs the rest of them."""
        return self.leaves_gaps and (self.lane_step_bytes or 0.0) >= SECTOR_BYTES

    @property
    def moved_bytes(self) -> float:
        """The bytes of the sectors that come from the L2."""
        return (self.ideal_sectors if self.is_split else self.sectors) * SECTOR_BYTES

    def scaled_by(self, factor: float) -> AccessFacts:
        """Return the access with ``factor`` times the requests."""
        names = ("bytes", "sectors", "ideal_sectors", "requests")
        return replace(self, **{name: getattr(self, name) * factor for name in names})

    @property
    def fetched_bytes(self) -> float:
        """The bytes of the sectors that come to the L2 if it keeps none of them: one copy serves all threads."""
        return self.moved_bytes / self.copies


def is_repeated(group: Sequence[AccessFacts]) -> bool:
    """Whether several lines load the same elements: equally many bytes, few of them for the first time."""
    if len({access.line for access in group}) < 2:
        return False
    sizes = [access.bytes for access in group]
    touched = max((access.touched_bytes or 0.0) for access in group)
    return min(sizes) > 0.7 * max(sizes) and sum(sizes) > 1.7 * (touched or sum(sizes))


@dataclass(frozen=True, slots=True)
class SharedFacts:
    """The accesses of one source line to shared memory: wavefronts, and those needed without bank conflicts.

    ``requests`` are the instructions of warps, 0 where they were not counted.
    """

    line: int | None
    operation: AccessKind
    wavefronts: float
    ideal_wavefronts: float
    requests: float = 0.0

    def scaled_by(self, factor: float) -> SharedFacts:
        """Return the access with ``factor`` times the requests."""
        names = ("wavefronts", "ideal_wavefronts", "requests")
        return replace(self, **{name: getattr(self, name) * factor for name in names})


@dataclass(frozen=True, slots=True)
class DotFacts:
    """The matrix products of one line: element type, operations, tile, and the units that compute them.

    ``was_narrower`` names a narrower kind that both operands were converted from; ``unit`` names the instructions of
    the tensor cores: ``mma``, ``wgmma``, ...
    """

    line: int | None
    kind: str
    flops: float
    on_tensor_cores: bool
    tile: tuple[int, int, int]
    was_narrower: str = ""
    in_loop: bool = False
    unit: str = ""


@dataclass(frozen=True, slots=True)
class LineFacts:
    """The instructions of one source line, counted by warp over the launch, and the slow ones among them by kind.

    ``slow`` counts warp instructions of double precision (``fp64``), special functions (``special``), local memory
    (``spill``), conversions (``conversion``), shuffles (``shuffle``) and barriers (``barrier``). ``words`` name the
    expensive operations of the source: ``fp64``, ``division``, ``pow``, ... ``trips`` is how often a program executes
    the line, a guess without ``knows_trips``; ``runs`` is how often the warps run each of its machine instructions,
    which ptxas unrolled ``copies`` times. Of all warps, one after the other, ``cycles`` are those in which they run the
    line, ``spill_cycles`` those in which they wait for spilled registers; ``load_waits`` and ``atomic_waits`` are how
    often they wait for loads and for results of atomics, and ``spilled_bytes`` goes to and from local memory.
    """

    line: int | None
    instructions: float
    slow: Mapping[str, float] = field(default_factory=dict)
    words: frozenset[str] = frozenset()
    trips: float = 1.0
    knows_trips: bool = True
    in_loop: bool = False
    runs: float = 1.0
    copies: float = 1.0
    cycles: float = 0.0
    spill_cycles: float = 0.0
    load_waits: float = 0.0
    atomic_waits: float = 0.0
    spilled_bytes: float = 0.0

    def scaled_by(self, factor: float) -> LineFacts:
        """Return the line with ``factor`` times the instructions."""
        slow = {kind: count * factor for kind, count in self.slow.items()}
        names = ("instructions", "runs", "cycles", "spill_cycles", "load_waits", "atomic_waits", "spilled_bytes")
        return replace(self, slow=slow, **{name: getattr(self, name) * factor for name in names})


@dataclass(frozen=True, slots=True)
class ReductionFacts:
    """A reduction over the threads of a program, and how often each program runs it: a guess without ``knows_trips``.

    ``as_product`` is True if it sums the products of two broadcast tiles, as a dot does; ``flops`` counts them.
    ``accumulates`` is True if its result is added to a loop-carried value, ``is_unrolled`` if a loop around it may be
    unrolled, so that its instructions run less often than it does. ``load_lines`` have the loads that run as often.
    """

    line: int | None
    trips: float
    in_loop: bool
    as_product: bool = False
    flops: float = 0.0
    accumulates: bool = False
    knows_trips: bool = True
    is_unrolled: bool = False
    load_lines: frozenset[int | None] = frozenset()


@dataclass(frozen=True, slots=True)
class AtomicFacts:
    """The atomics of one line: the updates of all lanes, and their distinct addresses, None if not known.

    ``is_lock`` is True of a compare-and-swap that a loop repeats until it succeeds; its updates are those that do.
    Without ``knows_updates`` they are a guess, or include masked lanes.
    """

    line: int | None
    argument: str
    updates: float
    addresses: float | None
    is_lock: bool = False
    knows_updates: bool = True

    @property
    def updates_per_address(self) -> float:
        """The updates of one address."""
        return self.updates / max(1.0, self.addresses or self.updates)


@dataclass(frozen=True, slots=True)
class Facts:
    """One launch of one compiled kernel.

    ``programs`` of ``warps`` warps each; ``resident`` programs fit on an SM, bounded by ``limiter``.
    ``stages`` is num_stages, ``loop_stages`` the most that ``tl.range`` sets for a loop, 0 without any. ``has_traffic``
    is True if sectors and wavefronts were counted; else an access counts as ideal. ``time_s`` was measured, None
    without a GPU. ``stalls`` are the shares of samples by reason, ``line_shares`` those by line, empty without a
    profile. ``longest`` is how often the longest program executes each line, over the mean of all programs; empty where
    they are alike. ``unknown`` are sentences about missing facts.
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
    loop_stages: int = 0
    registers: int | None = None
    spill_bytes: int = 0
    accesses: tuple[AccessFacts, ...] = ()
    shared: tuple[SharedFacts, ...] = ()
    dots: tuple[DotFacts, ...] = ()
    lines: tuple[LineFacts, ...] = ()
    reductions: tuple[ReductionFacts, ...] = ()
    atomics: tuple[AtomicFacts, ...] = ()
    footprint_bytes: float = 0.0
    dram_bytes: float | None = None
    loop_trips: float = 0.0
    single_waits: float = 1.0
    atomic_waits: float = 0.0
    has_traffic: bool = False
    time_s: float | None = None
    stalls: Mapping[str, float] = field(default_factory=dict)
    line_shares: Mapping[int, float] = field(default_factory=dict)
    longest: Mapping[int | None, float] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()

    @property
    def is_predictable(self) -> bool:
        """Whether the model knows the instructions of the target: those of NVIDIA's."""
        return not self.target.startswith("hip:")

    @property
    def has_time(self) -> bool:
        """Whether the launch was measured, or its time can be estimated."""
        return self.time_s is not None or self.is_predictable

    @property
    def slots(self) -> int:
        """The number of programs that run at a time."""
        return max(1, self.device.multiprocessors * self.resident)

    @property
    def busy_multiprocessors(self) -> int:
        """The number of SMs that have a program."""
        return max(1, min(self.device.multiprocessors, self.programs))


MAY_MISS_LONGEST = "Programs may differ in length, and not all were looked at: a longer one would take more time."


def unknown_sentences(facts: Facts, why_no_traffic: str) -> tuple[str, ...]:
    """Return sentences about what is not known of a launch; ``why_no_traffic`` is the reason for missing traffic."""
    sentences = list(facts.unknown)
    if not facts.has_traffic:
        why = f" ({why_no_traffic})" if why_no_traffic else ""
        sentences.append(f"Addresses are unknown{why}: all accesses count as coalesced, without bank conflicts.")
    return tuple(dict.fromkeys(sentences))
