"""What a kernel does to the memory of each of its arguments."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from kernellab.display import Drawable
from kernellab.ir.dataflow import Analysis, Touch, refuse_recursion
from kernellab.ir.graph import Graph, Location, LocationRows, Operation, locations_of_rows
from kernellab.ir.operations import MEMORY, Access
from kernellab.ir.provenance import Alternative, OpaqueAddress, Origin, Origins, argument_in, arguments_of

_BITS = re.compile(r"(?:!tt\.ptr<)?[a-z]+(\d+)")
REACHED = "memory reached through "
"""What stands before the name of an argument in the name of the memory that its values are addresses of."""


@dataclass(frozen=True, slots=True)
class Site:
    """One operation that touches one argument, or memory that is reached through one: ``memory reached through ptrs``.

    ``operation`` is the name of the operation and ``index`` its index in the graph. ``masked`` says whether a mask
    can switch it off lane by lane, ``conditional`` whether it stands in a branch or loop that may not be entered.
    """

    argument: str
    kind: Access
    operation: str
    index: int
    location: Location
    masked: bool
    conditional: bool

    @property
    def line(self) -> int | None:
        """The line in the user's source, None where it is not known."""
        return self.location.line

    def goes_to(self, name: str | None) -> bool:
        """Whether this may access the memory of a name; of any, for None."""
        return name is None or name == self.argument or (self.is_reached and name.startswith(f"{self.argument}["))

    @property
    def is_reached(self) -> bool:
        """Whether this is memory that is reached through an argument."""
        return self.argument.startswith(REACHED)


@dataclass(frozen=True, slots=True)
class UnknownEffect:
    """An operation that touches memory outside the arguments, or one that the tables do not know.

    ``kind`` is None for an operation that is not known; ``arguments`` are those whose addresses flow into it.
    """

    kind: Access | None
    operation: str
    index: int
    location: Location
    reason: str
    arguments: frozenset[str] = frozenset()
    through: frozenset[str] = frozenset()
    is_nested: bool = False
    is_lost: bool = False

    @property
    def line(self) -> int | None:
        """The line in the user's source, None where it is not known."""
        return self.location.line


@dataclass(frozen=True, slots=True)
class Effects(Drawable):
    """The memory effects of a kernel on its arguments, by name; ``outs[1]`` for the member of a tuple.

    ``arguments`` are all that name memory, touched or not. ``unknown`` is empty when the answer is complete.
    ``aliases`` are groups of arguments that were the same tensor. Memory that is reached through an argument has sites
    under a name of its own, and stays unknown: which tensors it is, the arguments' among them, only a launch can show.
    """

    arguments: tuple[str, ...]
    sites: tuple[Site, ...]
    unknown: tuple[UnknownEffect, ...] = ()
    aliases: tuple[frozenset[str], ...] = ()

    @property
    def reads(self) -> frozenset[str]:
        """Arguments that a load may read."""
        return self._arguments_by_kind(Access.READ)

    @property
    def writes(self) -> frozenset[str]:
        """Arguments that a store may write."""
        return self._arguments_by_kind(Access.WRITE)

    @property
    def atomics(self) -> frozenset[str]:
        """Arguments that an atomic operation may read and write."""
        return self._arguments_by_kind(Access.ATOMIC)

    @property
    def mutated(self) -> frozenset[str]:
        """The arguments with memory that may change: written or atomically updated."""
        return self.writes | self.atomics

    @property
    def through(self) -> frozenset[str]:
        """The arguments that hold addresses which the kernel dereferences."""
        return frozenset[str]().union(*(effect.through for effect in self.unknown))

    @property
    def is_followed(self) -> bool:
        """Whether all unknown effects go through arguments that hold addresses."""
        return all(effect.through for effect in self.unknown)

    @property
    def lost(self) -> str | None:
        """The first access with an address that is unknown before the launch, in words, or None."""
        lines = [f"{effect.operation} in line {effect.line}" for effect in self.unknown if effect.is_lost]
        return f"the address of {lines[0]} cannot be followed to the memory that it is in" if lines else None

    def reached_through(self, *kinds: Access) -> frozenset[str]:
        """Return the arguments with stored addresses that are accessed in one of these ways."""
        names = {site.argument for site in self.sites if site.kind in kinds and site.is_reached}
        return frozenset(name.removeprefix(REACHED) for name in names)

    def touching(self, argument: str) -> frozenset[int]:
        """Return the operations that touch an argument, by their indices in the graph."""
        return frozenset(site.index for site in self.sites if site.argument == argument)

    def _arguments_by_kind(self, kind: Access) -> frozenset[str]:
        return frozenset(site.argument for site in self.sites if site.kind is kind).intersection(self.arguments)


NO_EFFECTS = Effects((), ())
"""What is known of a kernel that was not analysed, or that touches nothing."""


def effects_of(graph: Graph) -> Effects:
    """Return the memory effects of a graph's kernel, by argument.

    The answer holds for every launch with the types and constants of this graph. An argument that is reported may
    stay untouched in one run (a branch not taken, a mask that is all false); one that is not reported is never
    touched, unless ``unknown`` names an operation whose address could not be traced to an argument.

    Raises:
        EffectsError: a function of the kernel calls itself.
    """
    refuse_recursion(graph)
    touches = Analysis(graph).kernel().touches
    function = graph.kernel
    pointers = [graph.values[value].is_pointer for value in function.arguments]
    named = [name for name, is_pointer in zip(function.parameters, pointers, strict=True) if is_pointer]
    origins = _origins(graph, touches)
    return Effects(
        arguments=tuple(dict.fromkeys(named)),
        sites=_sites(graph, touches, origins),
        unknown=_unknown_effects(graph, touches, origins),
    )


def _origins(graph: Graph, touches: Sequence[Touch]) -> dict[int, Origin]:
    """Return the origin of each address that is computed from integers, by operation."""
    stray = {touch.operation for touch in touches if touch.access is not None and _is_number(touch.target)}
    if not stray:
        return {}
    targets: dict[int, set[Alternative]] = defaultdict(set)
    for touch in touches:
        targets[touch.operation].add(touch.target)
    origins = Origins(graph, targets)
    return {index: origins.of(graph.operations[index]) for index in stray}


def _is_number(target: Alternative) -> bool:
    return not target.arguments if isinstance(target, OpaqueAddress) else target == ()


def _sites(graph: Graph, touches: Sequence[Touch], origins: dict[int, Origin]) -> tuple[Site, ...]:
    """Return one site per operation, kind and argument; certain if some call of it is certain."""
    sites: dict[tuple[int, bool, int, Access], Site] = {}
    for touch in touches:
        if touch.access is None:
            continue
        argument = argument_in(touch.target)
        is_reached = argument is None and _is_number(touch.target)
        known = origins[touch.operation].roots if is_reached else () if argument is None else (argument,)
        operation = graph.operations[touch.operation]
        for parameter in known:
            key = (touch.operation, is_reached, parameter, touch.access)
            name = REACHED * is_reached + graph.kernel.parameters[parameter]
            place = (operation.name, operation.index, operation.location)
            site = Site(name, touch.access, *place, touch.masked, touch.conditional)
            if (other := sites.get(key)) is not None:
                masked, conditional = other.masked and site.masked, other.conditional and site.conditional
                site = replace(site, masked=masked, conditional=conditional)
            sites[key] = site
    return tuple(sites[key] for key in sorted(sites))


def _unknown_effects(graph: Graph, touches: Sequence[Touch], origins: dict[int, Origin]) -> tuple[UnknownEffect, ...]:
    effects: dict[tuple[int, str, str], UnknownEffect] = {}
    for touch in touches:
        if touch.access is not None and argument_in(touch.target) is not None:
            continue
        operation = graph.operations[touch.operation]
        names = frozenset(graph.kernel.parameters[index] for index in arguments_of([frozenset({touch.target})]))
        is_number = touch.access is not None and _is_number(touch.target)
        origin = origins[touch.operation] if is_number else Origin()
        through = frozenset(graph.kernel.parameters[index] for index in origin.roots)
        reason = _reason(graph, touch, through)
        place = (operation.name, operation.index, operation.location)
        effects[touch.operation, str(touch.access), reason] = UnknownEffect(
            touch.access, *place, reason, names, through, origin.is_nested, origin.is_lost
        )
    return tuple(effects[key] for key in sorted(effects))


def _reason(graph: Graph, touch: Touch, through: frozenset[str]) -> str:
    target = touch.target
    if through:
        return f"the address is an integer that derives from no argument: {REACHED}{', '.join(sorted(through))}"
    if touch.access is None and isinstance(target, OpaqueAddress):
        return target.reason
    if isinstance(target, OpaqueAddress):
        line = graph.operations[target.operation].location.line
        return f"the address cannot be traced: {target.reason}" + (f" (line {line})" if line else "")
    if target == ():
        return "the address is an integer that derives from no argument"
    return "the address is made up of " + ", ".join(sorted({graph.kernel.parameters[index] for index, _ in target}))


def access_bytes(graph: Graph, operation: Operation) -> int:
    """Return the bytes that an operation moves to or from memory when no lane is masked; 0 for one that moves none."""
    row = MEMORY.get(operation.name)
    if row is None:
        return 0
    moved = operation.results[0] if row.value is None and operation.results else operation.operands[row.value or 0]
    bits = _BITS.match(graph.values[operation.operands[0]].element)
    return math.prod(graph.values[moved].shape) * max(1, int(bits[1]) // 8 if bits else 8)


@cache
def _analysis() -> str:
    """Return a hash of the text of this room, the version of the analysis."""
    texts = (path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    return hashlib.sha256(b"\0".join(texts)).hexdigest()


def effects_to_json(effects: Effects) -> str:
    """Write effects as JSON that needs no graph to be read."""
    locations = LocationRows()
    sites = [
        (s.argument, s.kind, s.operation, s.index, locations.position(s.location), s.masked, s.conditional)
        for s in effects.sites
    ]
    unknown = [
        (
            *(u.kind, u.operation, u.index, locations.position(u.location), u.reason),
            *(sorted(u.arguments), sorted(u.through), u.is_nested, u.is_lost),
        )
        for u in effects.unknown
    ]
    document = {"analysis": _analysis(), "arguments": effects.arguments, "sites": sites, "unknown": unknown}
    return json.dumps({**document, "locations": locations.rows})


def effects_from_json(text: str) -> Effects | None:
    """Return the effects that `effects_to_json` wrote, None if another analysis did."""
    data = json.loads(text)
    if data["analysis"] != _analysis():
        return None
    locations = locations_of_rows(data["locations"])
    return Effects(
        arguments=tuple(data["arguments"]),
        sites=tuple(
            Site(argument, Access(kind), operation, index, locations[at], *flags)
            for argument, kind, operation, index, at, *flags in data["sites"]
        ),
        unknown=tuple(
            UnknownEffect(
                *(kind and Access(kind), operation, index, locations[at], reason),
                *(frozenset(arguments), frozenset(through), *flags),
            )
            for kind, operation, index, at, reason, arguments, through, *flags in data["unknown"]
        ),
    )


def union_of(effects: Sequence[Effects]) -> Effects:
    """Return the effects of a kernel that may run in any of several forms, such as the configs of an autotuner.

    Sites that differ only in the index of their operation are one site; the index is that of the first form.
    """
    sites: dict[tuple[object, ...], Site] = {}
    unknown: dict[tuple[object, ...], UnknownEffect] = {}
    for form in effects:
        for site in form.sites:
            key = (site.argument, site.kind, site.operation, site.location, site.masked, site.conditional)
            sites.setdefault(key, site)
        for effect in form.unknown:
            unknown.setdefault((effect.kind, effect.operation, effect.location, effect.reason), effect)
    return Effects(
        arguments=tuple(dict.fromkeys(name for form in effects for name in form.arguments)),
        sites=tuple(sites.values()),
        unknown=tuple(unknown.values()),
        aliases=tuple(dict.fromkeys(group for form in effects for group in form.aliases)),
    )


def with_aliases(effects: Effects, memory: Sequence[tuple[str, object]]) -> Effects:
    """Return ``effects`` with the groups of arguments that were the same tensor.

    ``memory`` pairs the name of an argument with what identifies its memory, such as the address of its data.
    """
    groups: dict[object, list[str]] = {}
    for name, identity in memory:
        if name in effects.arguments:
            groups.setdefault(identity, []).append(name)
    return replace(effects, aliases=tuple(frozenset(group) for group in groups.values() if len(group) > 1))
