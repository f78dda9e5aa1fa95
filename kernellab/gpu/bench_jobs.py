"""Timing on a GPU, as plain data: what a bench is set up with, what it is asked, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass

from kernellab.gpu.flight import Damage, Memory
from kernellab.packed import ArgumentSpec, TensorSpec

NO_GROUP = -1


@dataclass(frozen=True, slots=True)
class BenchKernel:
    """A launch of one compiled kernel: the files of Triton's handle, the arguments, the grid."""

    files: tuple[tuple[str, str], ...]
    digest: str
    signature: tuple[tuple[str, object], ...]
    constants: tuple[tuple[int, ...], ...]
    grid: tuple[int, int, int]
    arguments: tuple[tuple[str, ArgumentSpec], ...]


@dataclass(frozen=True, eq=False)
class Setup:
    """The memory that all launches of a bench share; two setups of one name are the same.

    ``read`` are indices of memories that the kernel may read, ``outputs`` the views it may write, by name order of the
    arguments; ``zeroed`` are views that are set to zero before each launch.
    """

    name: str
    device: int
    memories: tuple[Memory, ...]
    read: frozenset[int]
    outputs: tuple[TensorSpec, ...]
    zeroed: tuple[TensorSpec, ...] = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Setup) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


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


@dataclass(frozen=True, slots=True)
class RoundsJob:
    """Time kernels in turns; ``warm`` leaves the L2 as the launch before left it."""

    setup: Setup
    kernels: tuple[BenchKernel, ...]
    rounds: int
    warm: bool = False


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of one kernel. ``group`` is that of its outputs, or `NO_GROUP` where they are like none that is kept.

    ``fault`` and ``refusal`` are the driver's words. After a fault, the process can do nothing more on the device;
    after ``damages``, the memory of the bench is spoilt. ``note`` says why outputs were not compared.
    """

    times_ms: tuple[float, ...] = ()
    group: int = 0
    fault: str = ""
    refusal: str = ""
    damages: tuple[Damage, ...] = ()
    note: str = ""
