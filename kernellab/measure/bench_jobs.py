"""Timing on a GPU, as plain data: what a bench is set up with, what it is asked, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernellab.gpu.trial_job import Damage, Memory, Tables
from kernellab.launch.arguments import ArgumentSpec, TensorSpec
from kernellab.measure.comparison import OutputDifference

NO_GROUP = -1
"""The group of outputs that are like none that is kept: two of these may be equal, or not."""
NOT_COMPARED = -2
"""The group of outputs that say nothing: two launches of one config differ, or there is no room to keep any."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How launches are timed: each by itself or, with ``by_graph``, as the replay of a CUDA graph that holds it.

    ``warmup_ms`` and ``rep_ms`` bound the first measurement of a kernel, None leaves its runs to the job.
    """

    by_graph: bool = False
    warmup_ms: float | None = None
    rep_ms: float | None = None


PLAIN = Manner()
"""Each launch by itself, as often as the job says."""


@dataclass(frozen=True, slots=True)
class ExpectedOutput:
    """What an output is to hold: ``output`` is a view of the bench's memory, ``value`` one of the reference's.

    ``error`` is the view of its bounds, None where it has none but those that follow from ``unit``, as a `Value`. An
    element that no launch wrote counts as ``fill``, which all elements held before; None where they held different
    values.
    """

    name: str
    output: TensorSpec
    value: TensorSpec
    error: TensorSpec | None = None
    unit: float = 0.0
    fill: float | None = None


LaunchKey = tuple[str, tuple[int, int, int], tuple[tuple[str, ArgumentSpec], ...]]


@dataclass(frozen=True, slots=True)
class BenchKernel:
    """A launch of one compiled kernel: the files of Triton's handle, the arguments, the grid.

    ``hooks`` are its `HookCalls`, pickled, or empty.
    """

    files: tuple[tuple[str, str], ...]
    digest: str
    signature: tuple[tuple[str, object], ...]
    constants: tuple[tuple[int, ...], ...]
    grid: tuple[int, int, int]
    arguments: tuple[tuple[str, ArgumentSpec], ...]
    hooks: bytes = b""

    @property
    def key(self) -> LaunchKey:
        """What tells the launch from others of a bench: two configs may differ in a number that is no constexpr."""
        return self.digest, self.grid, self.arguments


@dataclass(frozen=True, eq=False)
class Setup:
    """The memory that all launches of a bench share; two setups of one name are the same.

    ``read`` are indices of memories that the kernel may read, ``outputs`` the views it may write, by name order of the
    arguments; ``zeroed`` are views that are set to zero before each launch. ``expected`` is the reference, whose values
    lie in ``references``. ``tables`` are the addresses among the arguments, which have to point into this memory.
    ``names`` are the arguments that ``outputs`` belong to; those at the places in ``left_out`` are not compared.
    """

    name: str
    device: int
    memories: tuple[Memory, ...]
    read: frozenset[int]
    outputs: tuple[TensorSpec, ...]
    zeroed: tuple[TensorSpec, ...] = ()
    expected: tuple[ExpectedOutput, ...] = ()
    references: tuple[Memory, ...] = ()
    tables: Tables = field(default_factory=Tables)
    names: tuple[str, ...] = ()
    left_out: frozenset[int] = frozenset()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Setup) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True, slots=True)
class Readiness:
    """What measuring on a device will need.

    Outputs of these dtypes, by torch's names for them and the bytes of an element, are to be compared. What
    ``needs_torch`` are references, hooks, CUDA graphs, memory and outputs of some kinds: see `bench_setup.needs_torch`.
    """

    device: int
    dtypes: tuple[tuple[str, int], ...]
    needs_torch: bool = False


@dataclass(frozen=True, slots=True)
class MeasureJob:
    """Launch once, compare the outputs, then time.

    ``references`` are launches that gave the groups of outputs so far: a bench that has lost them makes them again.
    """

    setup: Setup
    kernel: BenchKernel
    runs: int
    stop_above_ms: float | None
    references: tuple[BenchKernel, ...] = ()
    manner: Manner = PLAIN


@dataclass(frozen=True, slots=True)
class BatchJob:
    """Several kernels, measured one after the other until one of them leaves a bench that is good for nothing more.

    The runs of a kernel are cut short where it takes ``loser_factor`` times the best before it.
    """

    jobs: tuple[MeasureJob, ...]
    loser_factor: float


@dataclass(frozen=True, slots=True)
class CompareJob:
    """Launch a kernel once and keep its outputs; then launch others once each, and tell how theirs differ."""

    setup: Setup
    kernel: BenchKernel
    others: tuple[BenchKernel, ...]


@dataclass(frozen=True, slots=True)
class RoundsJob:
    """Time kernels in turns; ``warm`` leaves the L2 as the launch before left it."""

    setup: Setup
    kernels: tuple[BenchKernel, ...]
    rounds: int
    warm: bool = False
    by_graph: bool = False


@dataclass(frozen=True, slots=True)
class BenchTiming:
    """The times of one kernel. ``group`` is that of its outputs, or `NO_GROUP` where they are like none that is kept,
    or `NOT_COMPARED`. ``differing`` is how its outputs differ from those of another kernel, for a `CompareJob`.

    ``fault`` and ``refusal`` are the driver's words. After a fault, the process can do nothing more on the device;
    after ``damages``, the memory of the bench is spoilt. ``difference`` says how outputs differ from the reference, in
    which case nothing was timed; ``bad_hook`` why a hook cannot be called here, ``no_room`` that copies do not fit on
    the device; ``note`` is what the user should know.
    """

    times_ms: tuple[float, ...] = ()
    group: int = 0
    fault: str = ""
    refusal: str = ""
    damages: tuple[Damage, ...] = ()
    difference: str = ""
    bad_hook: str = ""
    no_room: str = ""
    note: str = ""
    differing: tuple[OutputDifference, ...] = ()

    @property
    def is_last(self) -> bool:
        """Whether nothing more can be measured as it was asked for."""
        return bool(self.fault or self.damages or self.bad_hook or self.no_room)
