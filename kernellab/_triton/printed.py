"""Reads attributes, branch successors and locations from the printed form of a Triton module.

The bindings have no attribute enumeration, no branch successors and no location for an operation without results.
The printed form has all three. It is read line by line: MLIR prints one operation per line, a region opens with a
line that ends in ``{`` and closes with one that starts with ``}``.

See https://mlir.llvm.org/docs/LangRef/ for the grammar, and the ``assemblyFormat`` of each operation for its words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from kernellab.ir.graph import Location
from kernellab.ir.lines import LocationTable

_OPERATION = re.compile(r'(?:%[^=]*?= )?"?([A-Za-z_][\w$.]*)"?')
_LABEL = re.compile(r"\^(\w+)")
_KEYWORD = re.compile(r"\b([a-zA-Z_]\w*) = ([\w.]+)")
_SYMBOL = re.compile(r'@("(?:[^"\\]|\\.)*"|[\w$.-]+)')
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_ESCAPE = re.compile(r"\\([0-9A-F]{2}|\\)")
_BRACE = re.compile(r'"[^"]*"|[{}]')
_SEPARATOR = re.compile(r'"[^"]*"|[<\[({>\])},]')
_OPENING, _CLOSING = frozenset("<[({"), frozenset(">])}")

# The attributes printed as plain words before the first operand, in order.
_LEADING_WORDS = {
    "arith.cmpi": ("predicate",),
    "arith.cmpf": ("predicate",),
    "tt.get_program_id": ("axis",),
    "tt.get_num_programs": ("axis",),
    "tt.atomic_rmw": ("atomic_rmw_op", "sem", "scope"),
    "tt.atomic_cas": ("sem", "scope"),
    "tt.descriptor_reduce": ("kind",),
}
_REGION = re.compile(r"(?:default|partition\d+\(.*) ?\{$")  # of a `ttg.warp_specialize`, printed below it
_LITERAL = {"arith.constant": "value", "tt.elementwise_inline_asm": "asm_string", "tt.print": "prefix"}
_FREE_FORM = {"tt.func", "scf.for", "scf.while", "scf.if", "scf.condition"}


@dataclass(slots=True)
class PrintedOperation:
    """One printed operation. ``labels`` are the block labels of its regions, in order, one tuple per region."""

    name: str
    depth: int
    text: str
    labels: list[list[str]] = field(default_factory=list)
    closing: str = ""

    @property
    def successors(self) -> tuple[str, ...]:
        """The labels that a branch goes to, in order; none for any other operation."""
        return tuple(_LABEL.findall(self.text)) if self.name.startswith("cf.") else ()


@dataclass(frozen=True, slots=True)
class PrintedModule:
    """The operations of a module in the order of the print, without the module itself, and its locations."""

    operations: tuple[PrintedOperation, ...]
    locations: LocationTable

    def location(self, operation: PrintedOperation) -> Location:
        """The location that is printed at the end of an operation."""
        text = operation.closing or operation.text
        start = text.rfind(" loc(")
        return self.locations.resolve(text[start + 5 : text.rfind(")")]) if start >= 0 else Location()


def read_printed(text: str) -> PrintedModule:
    """The operations and the location table of a printed module."""
    operations: list[PrintedOperation] = []
    aliases: dict[str, str] = {}
    opened: list[PrintedOperation] = []
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("#"):
            name, _, value = line.partition(" = ")
            aliases[name] = value.removeprefix("loc(").removesuffix(")")
        elif line.startswith("^"):
            label = _LABEL.match(line)
            opened[-1].labels[-1].append(label[1] if label else "")
        elif line.startswith("}") and line.endswith("{"):
            opened[-1].labels.append([])
        elif line.startswith("}"):
            opened.pop().closing = line
        elif _REGION.match(line):
            operation = next(operation for operation in reversed(operations) if operation.depth == len(opened))
            operation.labels.append([])
            opened.append(operation)
        elif line:
            operation = _operation_of(line, len(opened))
            operations.append(operation)
            if line.endswith("{"):
                operation.labels.append([])
                opened.append(operation)
    return PrintedModule(tuple(operation for operation in operations if operation.depth), LocationTable(aliases))


def _operation_of(line: str, depth: int) -> PrintedOperation:
    match = _OPERATION.match(line)
    if match is None:
        raise ValueError(f"printed IR: {line!r} is not an operation; expected a name after the results.")
    return PrintedOperation(match[1], depth, line[match.end() :])


def attributes_of(operation: PrintedOperation) -> tuple[tuple[str, str], ...]:
    """The attributes of an operation, sorted by name, with their values as they are printed."""
    attributes: dict[str, str] = {}
    text = operation.text.rpartition(" loc(")[0] or operation.text
    if operation.labels:
        text = text.rstrip("{( ")
    if "@" in text and (symbol := _SYMBOL.search(text)):
        attributes["sym_name" if operation.name == "tt.func" else "callee"] = symbol[1].strip('"')
    if operation.name in _LITERAL:
        attributes[_LITERAL[operation.name]] = _literal(operation.name, text)
    elif operation.name not in _FREE_FORM:
        attributes.update(_words(operation.name, text))
    if "{" in text and operation.name != "tt.func":
        attributes.update(_dictionaries(text))
    if "{" in operation.closing:
        attributes.update(_dictionaries(operation.closing))
    return tuple(sorted(attributes.items()))


def _literal(name: str, text: str) -> str:
    string = _STRING.search(text)
    if name != "arith.constant" and string is not None:
        return _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] != "\\" else "\\", string[0][1:-1])
    return text.rpartition(" : ")[0].strip() or text.strip()


def _words(name: str, text: str) -> Iterator[tuple[str, str]]:
    body = text.partition(" : ")[0].partition("{")[0]
    if name in _LEADING_WORDS:
        leading = body.partition("%")[0].replace(",", " ").split()
        yield from zip(_LEADING_WORDS[name], leading, strict=False)
    if "=" in body:
        yield from _KEYWORD.findall(body)


def _dictionaries(text: str) -> Iterator[tuple[str, str]]:
    """Yield the entries of every ``{...}`` of a line, at any place outside strings.

    MLIR prints a quote inside a string as its code, so that every quote opens or closes one.
    """
    depth = start = 0
    for brace in _BRACE.finditer(text):
        if brace[0] == "{":
            depth += 1
            start = brace.end() if depth == 1 else start
        elif brace[0] == "}":
            depth -= 1
            if depth == 0:
                for part in _split(text[start : brace.start()]):
                    name, equals, value = part.partition(" = ")
                    yield name.strip(), value.strip() if equals else "unit"


def _split(body: str) -> Iterator[str]:
    """Yield the parts of ``body`` between commas outside strings and brackets."""
    depth = start = 0
    for separator in _SEPARATOR.finditer(body):
        if separator[0] in _OPENING:
            depth += 1
        elif separator[0] in _CLOSING:
            depth -= 1
        elif separator[0] == "," and depth == 0:
            yield body[start : separator.start()]
            start = separator.end()
    if body[start:].strip():
        yield body[start:]
