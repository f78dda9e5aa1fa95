"""What a repeated launch on the CPU is asked to note, beyond what each is checked for, and what it then tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LaneFill:
    """A value for the masked lanes of the loads in a line, in place of what they would hold."""

    file: str
    line: int
    value: float


@dataclass(frozen=True, slots=True)
class Watch:
    """A wish to be told what a launch reads and who writes what; ``fill`` changes what some masked lanes hold."""

    fill: LaneFill | None = None


@dataclass(frozen=True, slots=True)
class MaskedLoad:
    """A load of ``argument`` some of whose lanes were masked off; ``has_other`` where it says what these hold."""

    argument: str
    file: str
    line: int
    has_other: bool


@dataclass(frozen=True, slots=True)
class ElementAccesses:
    """What a launch did with the elements of each argument, in their order.

    ``read`` holds a byte per element, 1 where some program read it; ``writers`` an int32 per element, 1 + the number
    of the program that last wrote it, 0 for none.
    """

    read: Mapping[str, bytes] = field(default_factory=dict)
    writers: Mapping[str, bytes] = field(default_factory=dict)
    masked: tuple[MaskedLoad, ...] = ()
