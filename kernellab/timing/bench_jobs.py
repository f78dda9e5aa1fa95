"""The requests of a bench to the GPU worker and its answers, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from kernellab.checking.comparison import OutputDifference
from kernellab.gpu.ipc import BinaryLaunch, Memory, Tables
from kernellab.gpu.redzones import Damage
from kernellab.launch.arguments import ArgumentSpec, TensorSpec
from kernellab.timing.hooks import HookCalls

NO_GROUP = -1
"""The group of outputs unlike all groups that are kept; two outputs of this group may differ."""
NOT_COMPARED = -2
"""The group of outputs that were not compared: two launches of a config differ, or there is no room to keep any."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How launches are timed: singly or, with ``by_graph``, as the replay of a CUDA graph that holds one launch.

    ``warmup_ms`` and ``rep_ms`` limit the first measurement of a kernel; where None, the job sets its runs.
    """

    by_graph: bool = False
    warmup_ms: float | None = None
    rep_ms: float | None = None


PLAIN = Manner()
"""Each launch by itself, as often as the job asks for."""


@dataclass(frozen=True, slots=True)
class ExpectedOutput:
    """The expected value of an output: ``output`` is a view of the bench's memory, ``value`` one of the reference's.

    ``error`` is the view of its bounds, None where they follow from ``unit`` alone, as in `ExpectedValue`. An unwritten
    element counts as ``fill``, the initial value of all elements; None where the initial values differ.
    """

    name: str
    output: TensorSpec
    value: TensorSpec
    error: TensorSpec | None = None
    unit: float = 0.0
    fill: float | None = None


LaunchKey = tuple[str, tuple[int, int, int], tuple[tuple[str, ArgumentSpec], ...]]


@dataclass(frozen=True, slots=True)
class BenchKernel(BinaryLaunch):
    """A launch of a bench: ``hooks`` are pickled for another process; empty or None where there are none."""

    hooks: bytes | HookCalls | None = None

    @property
    def key(self) -> LaunchKey:
        """The identity of the launch in a bench: two configs of one binary may differ in a plain number."""
        return self.digest, self.grid, self.arguments


@dataclass(frozen=True, eq=False)
class Setup:
    """The memory that all launches of a bench share; two setups of one name are the same.

    ``read`` are indices of memories that the kernel may read. ``outputs`` are the views it may write, ``names`` their
    arguments; those at the indices in ``left_out`` are not compared. ``zeroed`` are views that are set to zero before
    each launch. ``expected`` is the reference, with its values in ``references``. ``tables`` are the addresses among
    the arguments; they have to point into this memory.
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
    """The needs of a bench that the worker can load before the first measurement.

    ``dtypes`` are those of the outputs to compare: torch's name and the bytes of an element. References, hooks, CUDA
    graphs, and some kinds of memory and outputs need torch: see `bench_setup.needs_torch`.
    """

    device: int
    dtypes: tuple[tuple[str, int], ...]
    needs_torch: bool = False


@dataclass(frozen=True, slots=True)
class MeasureJob:
    """Launch each kernel once, compare its outputs, then time it; stop after a failure that spoils the bench.

    ``references`` are the first launches of the groups of outputs so far: a bench that has lost a group repeats its
    launch. A kernel that takes ``loser_factor`` times the best before it is timed no further.
    """

    setup: Setup
    kernels: tuple[BenchKernel, ...]
    runs: int
    stop_above_ms: float | None
    references: tuple[BenchKernel, ...] = ()
    manner: Manner = PLAIN
    loser_factor: float = inf


@dataclass(frozen=True, slots=True)
class CompareJob:
    """Launch a kernel and keep its outputs; launch each of the others and report how its outputs differ."""

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


BenchJob = MeasureJob | CompareJob | RoundsJob


@dataclass(frozen=True, slots=True)
class LaunchTimes:
    """The times of the launches of one kernel, or its failure.

    ``group`` is the number of the group of equal outputs, in order of their first launches, or `NO_GROUP`, or
    `NOT_COMPARED`. With a reference, group 0 equals it; a launch of another one has a ``difference``, and is not timed.
    ``differing`` are the differences from the outputs of another kernel, for a `CompareJob`. ``fault`` and ``refusal``
    are messages of the driver. After a fault, the device is unusable in this process; after ``damages``, so is the
    memory of the bench. ``bad_hook`` says why a hook cannot be called here, ``no_room`` that copies do not fit on the
    device; ``note`` is for the user.
    """

    times_ms: tuple[float, ...] = ()
    group: int = 0
    difference: str = ""
    fault: str = ""
    refusal: str = ""
    damages: tuple[Damage, ...] = ()
    bad_hook: str = ""
    no_room: str = ""
    note: str = ""
    differing: tuple[OutputDifference, ...] = ()

    @property
    def is_last(self) -> bool:
        """Whether nothing more can be measured as it was asked for."""
        return bool(self.fault or self.damages or self.bad_hook or self.no_room)
