"""Loads and stores that are narrow because an argument is not divisible by 16.

Triton compiles a kernel again for arguments that are, and then moves up to 16 bytes by one instruction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernellab.compile.types import Compiled
from kernellab.explain.alignment import width_limits
from kernellab.ir.effects import access_bytes
from kernellab.ir.graph import Operation, place_of
from kernellab.ir.instructions import InstructionKind, LineProfile, profiles_of
from kernellab.ir.lines import stage_lines
from kernellab.ir.operations import Access

_WIDEST_BYTES = 16
_KINDS = {"tt.load": Access.READ, "tt.store": Access.WRITE}
_INSTRUCTIONS = {
    Access.READ: (InstructionKind.LOAD, InstructionKind.ASYNC_COPY),
    Access.WRITE: (InstructionKind.STORE,),
}


@dataclass(frozen=True, slots=True)
class NarrowAccess:
    """A load or store that moves ``width_bytes`` per thread and instruction, where ``possible_bytes`` would fit."""

    kind: Access
    line: int | None
    width_bytes: int
    possible_bytes: int


def narrow_accesses(compiled: Compiled, arguments: Mapping[str, Any]) -> Mapping[str, tuple[NarrowAccess, ...]]:
    """Return the narrow loads and stores of an NVIDIA kernel, by each argument that keeps them so.

    An access counts if its instructions in the PTX are narrower than a thread's part of the tile, and if nothing else
    than arguments that are not known to be divisible by 16 stands against wider ones.
    """
    if compiled.target.backend != "cuda" or "ptx" not in compiled.stages:
        return {}
    profiles = profiles_of("ptx", stage_lines("ptx", compiled.ptx))
    accesses_by_argument: dict[str, dict[NarrowAccess, None]] = {}
    for operation in compiled.graph.operations:
        place = place_of(operation.location)
        profile = profiles.get((place.file, place.line))
        if operation.name not in _KINDS or profile is None:
            continue
        access = _narrow_access(compiled, operation, profile)
        if access is not None:
            for name in _limiting_arguments(compiled, operation, access, arguments):
                accesses_by_argument.setdefault(name, {})[access] = None
    return {name: tuple(accesses) for name, accesses in accesses_by_argument.items()}


def _narrow_access(compiled: Compiled, operation: Operation, profile: LineProfile) -> NarrowAccess | None:
    """Return the access of an operation if its narrowest instruction moves less than fits, else None."""
    kind = _KINDS[operation.name]
    widths = [instruction.bytes for wanted in _INSTRUCTIONS[kind] for instruction, _ in profile.of(wanted)]
    owned = access_bytes(compiled.graph, operation) // compiled.resources.threads
    possible = min(_WIDEST_BYTES, 1 << (owned.bit_length() - 1)) if owned else 0
    if not widths or min(widths) >= possible:
        return None
    return NarrowAccess(kind, place_of(operation.location).line, min(widths), possible)


def _limiting_arguments(
    compiled: Compiled, operation: Operation, access: NarrowAccess, arguments: Mapping[str, Any]
) -> frozenset[str]:
    """Return the arguments that keep an access narrow; none where anything else would, too."""
    element = compiled.graph.values[operation.operands[0]].pointee_bytes or 1
    elements = access.possible_bytes // element
    sources = {limit.source for limit in width_limits(compiled, operation, elements, arguments)}
    names = sources & set(compiled.graph.kernel.parameters)
    if names != sources or width_limits(compiled, operation, elements, arguments, assumed=names):
        return frozenset()
    return frozenset(names)
