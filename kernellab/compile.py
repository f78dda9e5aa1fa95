"""Compiling a kernel: the result types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernellab.ir.effects import Effects
from kernellab.ir.graph import Graph
from kernellab.target import Target


@dataclass(frozen=True, slots=True)
class Resources:
    """What one block of a compiled kernel needs, and whether the target has it.

    A field is None where the tools cannot tell (AMD's registers). ``spill_bytes`` is what a loaded kernel reports
    (``n_spills`` x 4), ``stack_bytes`` comes from the binary, ``shared_bytes`` is static plus dynamic shared memory.
    ``occupancy`` is the theoretical share of resident warps, from 0 to 1, and ``limiter`` what bounds it:
    ``registers``, ``shared memory``, ``threads`` or ``blocks``. Where ``fits`` is False, ``why_not`` gives the number
    and the limit.
    """

    registers: int | None
    spill_bytes: int | None
    stack_bytes: int | None
    shared_bytes: int
    threads: int
    occupancy: float | None
    limiter: str | None
    fits: bool
    why_not: str | None = None


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a specialized kernel.

    ``type`` is Triton's: ``*fp32``, ``i32``, ``constexpr``, ``tensordesc<fp16[16, 32]>``. ``specialization`` says in
    words what Triton assumed of the argument: ``divisible by 16``, ``1``, the value of a constexpr, or "".
    """

    name: str
    type: str
    specialization: str


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel compiled for one target with one specialization and one set of options.

    ``stages`` maps the name of each textual stage (``ttir``, ``ttgir``, ``llir``, ``ptx`` or ``amdgcn``) to its text,
    ``stage_seconds`` to its compile time; ``binary`` is the cubin or hsaco. ``files`` maps the file names that
    Triton gives these to their contents, metadata included, from which the loaded kernel is made. ``seconds`` is the
    time of the compile that made it, ``from_cache`` whether that was an earlier one.
    """

    kernel: str
    target: Target
    parameters: tuple[Parameter, ...]
    options: Mapping[str, object]
    stages: Mapping[str, str]
    binary: bytes
    resources: Resources
    seconds: float
    stage_seconds: Mapping[str, float]
    graph: Graph
    effects: Effects
    files: Mapping[str, bytes]
    from_cache: bool = False

    @property
    def ttir(self) -> str:
        return self.stages["ttir"]

    @property
    def ttgir(self) -> str:
        return self.stages["ttgir"]

    @property
    def llir(self) -> str:
        return self.stages["llir"]

    @property
    def ptx(self) -> str:
        return self.stages["ptx"]

    @property
    def amdgcn(self) -> str:
        return self.stages["amdgcn"]
