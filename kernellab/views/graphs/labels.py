"""The words on the boxes of a graph, shortened, and the source lines that they come from."""

from __future__ import annotations

import linecache
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from kernellab.ir.effects import REACHED
from kernellab.ir.graph import Graph, Location, Operation, Value, place_of, short_file
from kernellab.views.graphs.dataflow import FOLDED, MemoryTouch
from kernellab.views.wording import shortened

_DENSE = re.compile(r"dense<(.*)>")
_HEX_FLOATS = {"f16": "<e", "f32": "<f", "f64": "<d"}
_DETAILS = ("predicate", "axis", "atomic_rmw_op", "order")


def short_type(value: Value) -> str:
    """Return ``128x64 f32`` for a tensor, ``*f32`` for a pointer, ``f32`` for a scalar."""
    element = re.sub(r"!tt\.ptr<([^<>,]*)(?:, \d+)?>", r"*\1", value.element).removeprefix("!tt.")
    return " ".join([*(["x".join(map(str, value.shape))] if value.shape else []), element])


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
        return text if len(text) <= 12 else text[:11] + "…"


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
    return shortened(" ".join(parts), 40)


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
    """Return what hovering over an operation tells: its name, results, memory effect and source line."""
    attributes = ", ".join(f"{name}={value}" for name, value in operation.attributes)
    lines = [operation.name + (f"  {{{shortened(attributes, 100)}}}" if attributes else "")]
    lines += [value_words(graph.values[result]) for result in operation.results]
    if touch is not None:
        lines.append(touch.words())
        lines += [touch.unknown] if touch.unknown else []
    place = place_of(operation.location)
    lines.append(": ".join(part for part in (source.words(place), source.line(place)) if part))
    return "\n".join(line for line in lines if line)


def combiner(graph: Graph, operation: Operation) -> str:
    """Return what a reduction or scan combines with: ``addf``, ``maxnumf``; "" for any other operation."""
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
        """Return whether a place is in ``file``; some stages know only the last part of a path."""
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
