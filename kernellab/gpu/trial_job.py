"""The first launch of a specialization on a GPU, as plain data: what the GPU worker gets, and what it answers.

Memory travels as CUDA IPC handles, one per storage; two arguments that are views of one storage stay so.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kernellab.launch.arguments import ArgumentSpec, TensorSpec


@dataclass(frozen=True, slots=True)
class Memory:
    """One storage on the GPU.

    ``handle`` is an `IpcHandle`, or what ``torch.multiprocessing`` makes a tensor of; None stands for no memory.
    ``address`` is where it lies in its owner's process. ``is_mutated`` tells whether the kernel may write to it, and
    ``holds_addresses`` whether it takes addresses out of it, which a copy has to hold others of.
    """

    handle: Any
    size_bytes: int
    address: int
    is_mutated: bool
    holds_addresses: bool = False


@dataclass(frozen=True, slots=True)
class Tables:
    """The addresses among the arguments of a launch: ``views`` of its memories hold them, and ``numbers`` are them."""

    views: tuple[TensorSpec, ...] = ()
    numbers: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class WarmUp:
    """A device that a worker is to get ready for, its compute capability, (9, 0), and its UUID."""

    device: int
    capability: tuple[int, int]
    uuid: bytes


@dataclass(frozen=True, slots=True)
class TrialJob:
    """A launch of a compiled kernel.

    ``files`` are those of Triton's handle, name and path; ``constants`` the index paths of compile-time arguments.
    The dtypes of ``arguments`` are torch's names ("float32").
    """

    kernel: str
    files: tuple[tuple[str, str], ...]
    digest: str
    signature: tuple[tuple[str, Any], ...]
    constants: tuple[tuple[int, ...], ...]
    device: int
    grid: tuple[int, int, int]
    arguments: tuple[tuple[str, ArgumentSpec], ...]
    memories: tuple[Memory, ...]
    tables: Tables = Tables()


class Ending(StrEnum):
    """How a trial ended: well, without a launch, with a fault of the device, or with memory written out of bounds."""

    CLEAN = "clean"
    REFUSED = "refused"
    FAULT = "fault"
    DAMAGE = "damage"


class Placing(StrEnum):
    """Where the arguments lay: all copied, those that the kernel writes copied, or all in the notebook's own memory."""

    COPIES = "copies"
    WRITTEN_COPIES = "written copies"
    ORIGINALS = "originals"


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that a launch wrote outside its arguments.

    ``after`` is the index of the memory that ends before them, ``before`` of the one that begins behind them; they
    begin ``past_end_bytes`` after the one and end ``ahead_bytes`` before the other. Where both indices are the same,
    the bytes lie in that memory, which the kernel has no business to write to.
    """

    after: int | None
    before: int | None
    past_end_bytes: int
    ahead_bytes: int
    count: int


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """What came of a trial. ``message`` is the driver's; ``output`` what the kernel printed."""

    ending: Ending
    placing: Placing
    message: str = ""
    damages: tuple[Damage, ...] = ()
    output: str = ""
