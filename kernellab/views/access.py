"""Which operations of a graph touch memory, and whose, for the views to mark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kernellab.ir.effects import Access, Effects
from kernellab.ir.graph import Graph
from kernellab.ir.operations import MEMORY
from kernellab.views.diagram import Kind

VERBS = {Access.READ: "reads", Access.WRITE: "writes", Access.ATOMIC: "updates atomically"}
KINDS = {Access.READ: Kind.READ, Access.WRITE: Kind.WRITE, Access.ATOMIC: Kind.ATOMIC}
_STRENGTH = (Access.READ, Access.WRITE, Access.ATOMIC)


@dataclass(frozen=True, slots=True)
class Touch:
    """What one operation does to memory: per kind of access the arguments, () where the effects do not name them."""

    arguments: Mapping[Access, tuple[str, ...]]
    unknown: str = ""

    @property
    def kind(self) -> Kind:
        """The kind of box: the strongest access decides."""
        done = [access for access in _STRENGTH if access in self.arguments]
        return KINDS[done[-1]] if done else Kind.UNKNOWN

    def words(self) -> str:
        """Return for instance ``reads x_ptr · writes out_ptr``."""
        parts = [
            f"{VERBS[access]} {', '.join(self.arguments[access])}".rstrip()
            for access in _STRENGTH
            if access in self.arguments
        ]
        return " · ".join([*parts, *(["unknown memory"] if self.unknown else [])])


def touches(graph: Graph, effects: Effects | None) -> Mapping[int, Touch]:
    """Return what each operation does, by its index.

    Without effects, or for an operation that they do not list, its name tells the kind of access, not the argument.
    """
    arguments: dict[int, dict[Access, dict[str, None]]] = defaultdict(lambda: defaultdict(dict))
    unknown: dict[int, str] = {}
    for site in effects.sites if effects else ():
        arguments[site.index][site.kind][site.argument] = None
    for gap in effects.unknown if effects else ():
        unknown[gap.index] = gap.reason
        if gap.kind is not None:
            _ = arguments[gap.index][gap.kind]
    for operation in graph.operations:
        if operation.name in MEMORY and operation.index not in arguments:
            _ = arguments[operation.index][MEMORY[operation.name].access]
    return {
        index: Touch({kind: tuple(names) for kind, names in arguments.get(index, {}).items()}, unknown.get(index, ""))
        for index in sorted({*arguments, *unknown})
    }


def merged(parts: Iterable[Touch]) -> Touch | None:
    """Return what several operations do together, or None where they touch nothing."""
    together: dict[Access, dict[str, None]] = defaultdict(dict)
    reasons: dict[str, None] = {}
    some = False
    for touch in parts:
        some = True
        for kind, names in touch.arguments.items():
            together[kind].update(dict.fromkeys(names))
        if touch.unknown:
            reasons[touch.unknown] = None
    if not some:
        return None
    return Touch({kind: tuple(names) for kind, names in together.items()}, "; ".join(reasons))
