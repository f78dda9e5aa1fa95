"""The dataflow of a graph in words: values that flow into and out of regions, memory accesses, names."""

from __future__ import annotations

import linecache
import re
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from kernellab.ir.effects import REACHED, Effects
from kernellab.ir.graph import Graph, Location, Operation, Value, joins, place_of, short_file
from kernellab.ir.operations import MEMORY, TERMINATORS, Access
from kernellab.views.elements import shorten
from kernellab.views.graph.diagram import BoxKind

BRANCHES = frozenset({"cf.br", "cf.cond_br"})
YIELDS = TERMINATORS - BRANCHES - {"ub.unreachable"}  # what a region hands on: it has no box of its own
FOLDED = frozenset({"tt.reduce", "tt.scan", "tt.map_elementwise"})
_FOR_BOUNDS = 3  # scf.for: lower bound, upper bound and step stand before the initial values


@dataclass(frozen=True, slots=True)
class Inflow:
    """A possible value of a join; ``back`` marks one of the previous iteration."""

    value: int
    back: bool


def inflows(graph: Graph) -> Mapping[int, tuple[Inflow, ...]]:
    """Return the inflows of every join. A loop counts as entered, so its results come from its body alone."""
    incoming: dict[int, dict[Inflow, None]] = defaultdict(dict)
    for operation in graph.operations:
        if operation.name not in FOLDED:
            for target, source, back in joins(graph, operation):
                incoming[target][Inflow(source, back)] = None
    return {target: tuple(sources) for target, sources in incoming.items()}


IsEnd = Callable[[int], bool]


def origins(
    graph: Graph, joins: Mapping[int, tuple[Inflow, ...]], consumer: Operation | Value, value: int, is_end: IsEnd
) -> tuple[Inflow, ...]:
    """Follow joins back from a value to those that ``is_end`` accepts or that are not joins.

    An origin is ``back`` when the consumer gets it from an earlier iteration of a loop that it stands in itself.
    """
    home = {None, *(owner.index for owner in graph.owners(consumer.block))}  # None for the function
    sources: dict[int, bool] = {}
    seen: set[int] = set()

    def follow(current: int, back: bool) -> None:
        if current not in joins or is_end(current):
            sources[current] = sources.get(current, True) and back
            return
        if current not in seen:
            seen.add(current)
            loop = graph.regions[graph.blocks[graph.values[current].block].region].owner
            for inflow in joins[current]:
                follow(inflow.value, back or (inflow.back and loop in home))

    follow(value, False)
    return tuple(Inflow(origin, back) for origin, back in sources.items())


def direct_operands(graph: Graph, operation: Operation) -> tuple[int, ...]:
    """Return the operands that an operation uses itself, without those that it only hands to a block."""
    if operation.name == "scf.for":
        return operation.operands[:_FOR_BOUNDS]
    if operation.name == "cf.cond_br":
        return operation.operands[:1]
    if operation.name == "scf.while":
        return graph.end(graph.bodies(operation)[0]).operands[:1]
    return () if operation.name == "cf.br" else operation.operands


def controlled_operations(graph: Graph, operation: Operation) -> Iterator[Operation]:
    """Yield the first operation of each block that an operation may run.

    A ``for`` is left out: its variable already leads into its block.
    """
    if operation.name in FOLDED or operation.name == "scf.for":
        return
    if operation.name in BRANCHES:
        blocks = [graph.blocks[block] for block in operation.successors]
    else:
        blocks = graph.bodies(operation)[operation.name == "scf.while" :]  # the condition of a while runs anyway
    for block in blocks:
        operations = (graph.operations[index] for index in block.operations)
        yield from islice((inner for inner in operations if inner.name not in (*YIELDS, "arith.constant")), 1)


def is_folded(graph: Graph, block: int) -> bool:
    """True for the combine function of a reduction or scan, which is drawn as one box."""
    owner = graph.regions[graph.blocks[block].region].owner
    return owner is not None and graph.operations[owner].name in FOLDED


_VERBS = {Access.READ: "reads", Access.WRITE: "writes", Access.ATOMIC: "updates atomically"}


@dataclass(frozen=True, slots=True)
class MemoryTouch:
    """Memory accesses of one operation: arguments by kind, () where the effects name none."""

    arguments: Mapping[Access, tuple[str, ...]]
    unknown: str = ""

    @property
    def kind(self) -> BoxKind:
        """The kind of box: the strongest access decides."""
        accesses = [access for access in Access if access in self.arguments]  # the strongest is the last
        return BoxKind(accesses[-1].value) if accesses else BoxKind.UNKNOWN

    def words(self) -> str:
        """Return for instance ``reads x_ptr · writes out_ptr``."""
        parts = [
            f"{verb} {', '.join(self.arguments[access])}".rstrip()
            for access, verb in _VERBS.items()
            if access in self.arguments
        ]
        return " · ".join([*parts, *(["unknown memory"] if self.unknown else [])])


def touches(graph: Graph, effects: Effects | None) -> Mapping[int, MemoryTouch]:
    """Return the memory accesses of each operation, by its index.

    Without effects, or for an operation that they do not list, its name says the kind of access, not the argument.
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
        index: MemoryTouch(_as_tuples(arguments.get(index, {})), unknown.get(index, ""))
        for index in sorted({*arguments, *unknown})
    }


def merge_touches(parts: Iterable[MemoryTouch]) -> MemoryTouch | None:
    """Join the memory accesses of several operations; None without any."""
    touched = list(parts)
    if not touched:
        return None
    together: dict[Access, dict[str, None]] = defaultdict(dict)
    for touch in touched:
        for kind, names in touch.arguments.items():
            together[kind].update(dict.fromkeys(names))
    reasons = dict.fromkeys(touch.unknown for touch in touched if touch.unknown)
    return MemoryTouch(_as_tuples(together), "; ".join(reasons))


def _as_tuples(names_of: Mapping[Access, Iterable[str]]) -> dict[Access, tuple[str, ...]]:
    return {kind: tuple(names) for kind, names in names_of.items()}


_DENSE = re.compile(r"dense<(.*)>")
_HEX_FLOATS = {"f16": "<e", "f32": "<f", "f64": "<d"}
_DETAILS = ("predicate", "axis", "atomic_rmw_op", "order")


def short_type(value: Value) -> str:
    """Return ``128x64 f32`` for a tensor, ``*f32`` for a pointer, ``f32`` for a scalar."""
    element = re.sub(r"!tt\.ptr<([^<>,]*)(?:, \d+)?>", r"*\1", value.element).removeprefix("!tt.")
    return f"{'x'.join(map(str, value.shape))} {element}".lstrip()


def constant_text(operation: Operation, element: str) -> str:
    """Return the value of an ``arith.constant`` as a person writes it: ``0``, ``-inf``, ``True``."""
    text = operation.attribute("value", "?")
    dense = _DENSE.match(text)
    text = (dense[1] if dense else text).partition(" : ")[0].strip()
    if text.startswith("0x") and element in _HEX_FLOATS:
        form = _HEX_FLOATS[element]
        number = struct.unpack(form, int(text, 16).to_bytes(struct.calcsize(form), "little"))[0]
        return f"{number:g}"
    if text in ("true", "false"):
        return text.capitalize()
    try:
        return text if re.fullmatch(r"-?\d+", text) else f"{float(text):g}"
    except ValueError:
        return shorten(text, 12)


def constants(graph: Graph) -> Mapping[int, str]:
    """Return the text of every constant by the value that holds it."""
    return {
        operation.results[0]: constant_text(operation, graph.values[operation.results[0]].element)
        for operation in graph.operations
        if operation.name == "arith.constant" and operation.results
    }


def operation_title(graph: Graph, operation: Operation, known: Mapping[int, str], touch: MemoryTouch | None) -> str:
    """Return ``addi 1024`` or ``load x_ptr``: the name without its dialect, constants and what matters of the rest."""
    parts = [operation.name.rpartition(".")[2]]
    attributes = dict(operation.attributes)
    if operation.name == "tt.make_range" and {"start", "end"} <= attributes.keys():
        parts.append(f"{_bare(attributes['start'])}..{_bare(attributes['end'])}")
    combined = combiner(graph, operation)
    parts += [f"{combined},"] if combined else []
    parts += [f"axis {_bare(attributes['axis'])}"] if operation.regions and "axis" in attributes else []
    parts += [plain_name(_bare(attributes["callee"]))] if "callee" in attributes else []
    parts += [_bare(attributes[name]) for name in _DETAILS if name in attributes and not operation.regions]
    if touch is None and not operation.regions:
        parts += [known[operand] for operand in operation.operands if operand in known]
    if touch is not None:
        named = [[name for name in names if not name.startswith(REACHED)] for names in touch.arguments.values()]
        parts += [", ".join(names) for names in named if names]
        parts += ["?"] if touch.unknown else []
    return shorten(" ".join(parts), 40)


def _bare(attribute: str) -> str:
    """Return an attribute without its type: ``8 : i32`` is 8, ``array<i32: 1, 0>`` is 1, 0."""
    array = re.fullmatch(r"array<\w+: (.*)>", attribute)
    return array[1] if array else attribute.partition(" : ")[0].strip('"@ ')


def plain_name(symbol: str) -> str:
    """Return the name of a helper as the user wrote it, without its module and the types of its arguments."""
    written = re.match(r"(?:\w+\.)*?(\w+?)__", symbol)
    return written[1] if written else symbol


def value_words(value: Value) -> str:
    """Return ``offs: tensor<1024xi32>``, without the name where the source gives none."""
    return f"{value.name}: {value.type}" if value.name else value.type


def operation_tip(graph: Graph, operation: Operation, touch: MemoryTouch | None, source: SourceText) -> str:
    """Return the tooltip of an operation: name, results, memory effect, source line."""
    attributes = ", ".join(f"{name}={value}" for name, value in operation.attributes)
    lines = [operation.name + (f"  {{{shorten(attributes, 100)}}}" if attributes else "")]
    lines += [value_words(graph.values[result]) for result in operation.results]
    if touch is not None:
        lines.append(touch.words())
        lines += [touch.unknown] if touch.unknown else []
    place = place_of(operation.location)
    lines.append(": ".join(part for part in (source.words(place), source.line(place)) if part))
    return "\n".join(line for line in lines if line)


def combiner(graph: Graph, operation: Operation) -> str:
    """Return the operation of a reduction or scan: ``addf``, ``maxnumf``; "" for others."""
    if operation.name not in FOLDED:
        return ""
    names = [
        graph.operations[index].name.rpartition(".")[2]
        for region in operation.regions
        for block in graph.regions[region].blocks
        for index in graph.blocks[block].operations[:-1]
    ]
    return "+".join(names) if len(names) <= 2 else ""


def loop_variable(graph: Graph, operation: Operation, source: SourceText) -> str:
    """Return the name of the variable of an ``scf.for``, from the IR or from the source line."""
    block = graph.blocks[graph.regions[operation.regions[0]].blocks[0]]
    named = graph.values[block.arguments[0]].name
    written = re.match(r"for\s+(\w+)\s+in\b", source.line(place_of(operation.location)))
    return named or (written[1] if written else "")


@dataclass(frozen=True, slots=True)
class SourceText:
    """The text of source lines: ``own`` for lines of ``file``, what Python can still read for all others."""

    file: str | None
    own: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str, first_line: int, file: str | None) -> SourceText:
        """Return the text of a kernel, which starts at ``first_line`` of a file."""
        return cls(file, {first_line + at: line for at, line in enumerate(text.splitlines())})

    def line(self, place: Location) -> str:
        """Return the stripped text of a line, or "" where there is none."""
        if place.file is None or place.line is None:
            return ""
        if self.is_own(place) and place.line in self.own:
            return self.own[place.line].strip()
        return linecache.getline(place.file, place.line).strip()

    def is_own(self, place: Location) -> bool:
        """True for a place in ``file``; some stages have only the last part of a path."""
        return place.file == self.file or (bool(place.file) and place.file == short_file(self.file))

    def other(self, place: Location) -> str:
        """Return the last part of the path of a place outside ``file``, "" for one inside it or nowhere."""
        return "" if place.file is None or self.is_own(place) else short_file(place.file)

    def words(self, place: Location) -> str:
        """Return ``line 12``, ``line 12 of other.py``, or "" where the line is not known."""
        if place.line is None:
            return ""
        other = self.other(place)
        return f"line {place.line} of {other}" if other else f"line {place.line}"
