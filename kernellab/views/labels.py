"""The words on the boxes of a graph: operations, types and constants, shortened."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping

from kernellab.ir.graph import Graph, Location, Operation, Value
from kernellab.views.access import Touch

_DENSE = re.compile(r"dense<(.*)>")
_HEX_FLOATS = {"f16": "<e", "f32": "<f", "f64": "<d"}
_DETAILS = ("predicate", "axis", "atomic_rmw_op", "callee", "order")


def short_type(value: Value) -> str:
    """Return ``128x64 f32`` for a tensor, ``*f32`` for a pointer, ``f32`` for a scalar."""
    element = re.sub(r"!tt\.ptr<([^<>,]*)(?:, \d+)?>", r"*\1", value.element).removeprefix("!tt.")
    return " ".join([*(["x".join(map(str, value.shape))] if value.shape else []), element])


def constant_text(operation: Operation, element: str) -> str:
    """Return the value of an ``arith.constant`` as a person writes it: ``0``, ``-inf``, ``True``."""
    text = dict(operation.attributes).get("value", "?")
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


def operation_title(operation: Operation, known: Mapping[int, str], touch: Touch | None) -> str:
    """Return ``addi 1024`` or ``load x_ptr``: the name without its dialect, constants and what matters of the rest."""
    parts = [operation.name.rpartition(".")[2]]
    attributes = dict(operation.attributes)
    if operation.name == "tt.make_range" and {"start", "end"} <= attributes.keys():
        parts.append(f"{_bare(attributes['start'])}..{_bare(attributes['end'])}")
    parts += [_bare(attributes[name]) for name in _DETAILS if name in attributes and not attributes[name].isspace()]
    if touch is None:
        parts += [known[operand] for operand in operation.operands if operand in known]
    else:
        parts += [", ".join(names) for names in touch.arguments.values() if names]
        parts += ["?"] if touch.unknown else []
    return shortened(" ".join(parts), 40)


def _bare(attribute: str) -> str:
    return attribute.partition(" : ")[0].strip('"@ ')


def shortened(text: str, limit: int) -> str:
    """Return the text, cut with an ellipsis where it is longer than ``limit`` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def place_words(location: Location) -> str:
    """Return ``line 12``, or "" where the line is not known."""
    return "" if location.line is None else f"line {location.line}"


def value_words(value: Value) -> str:
    """Return ``offs: tensor<1024xi32>``, without the name where the source gives none."""
    return f"{value.name}: {value.type}" if value.name else value.type


def operation_tip(graph: Graph, operation: Operation, touch: Touch | None, text: str = "") -> str:
    """Return what hovering over an operation tells: its name, results, memory effect and source line."""
    attributes = ", ".join(f"{name}={value}" for name, value in operation.attributes)
    lines = [operation.name + (f"  {{{shortened(attributes, 100)}}}" if attributes else "")]
    lines += [value_words(graph.values[result]) for result in operation.results]
    if touch is not None:
        lines.append(touch.words())
        lines += [touch.unknown] if touch.unknown else []
    place = place_words(operation.location)
    if place:
        lines.append(f"{place}: {text.strip()}" if text.strip() else place)
    return "\n".join(lines)
