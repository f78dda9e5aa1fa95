"""Who holds what: the warp, lane and register of each element of a tile, or its place in shared or tensor memory.

Which values of a kernel have which layout is read off its TTGIR, whose types have it. A layout of registers is a
linear map over bits (Zhou et al., "Linear Layouts", https://arxiv.org/abs/2505.23819): each bit of the number of a
register, lane or warp moves the element by its basis, and moves combine by exclusive or. Which bases an encoding has,
Triton is asked (`kernellab._triton.tiles`). For memory it cannot be asked in each version, and for some encodings in
none; so the rules are here, those of `lib/Dialect/TritonGPU/IR/LinearLayoutConversions.cpp` in Triton, for one block.
A test compares them with Triton's own.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from kernellab.display import Displayable, Drawable
from kernellab.errors import UsageError
from kernellab.ir.graph import short_file
from kernellab.ir.lines import stage_lines

if TYPE_CHECKING:
    import pandas

Index = tuple[int, ...]
BANKS, BANK_BYTES = 32, 4


@dataclass(frozen=True, slots=True)
class Encoding:
    """A layout as TTGIR writes it: ``kind`` is ``blocked``, ``nvidia_mma``, ..., ``fields`` are its parameters."""

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return it in one line, in the words of TTGIR."""
        return f"{self.kind}({', '.join(f'{name}={_words(value)}' for name, value in self.fields.items())})"


@dataclass(frozen=True, slots=True)
class Holder:
    """The owner of an element: warp, lane, register; ``copies`` counts its registers in the block."""

    warp: int
    lane: int
    register: int
    copies: int = 1


@dataclass(frozen=True, slots=True)
class RegisterLayout:
    """How a tile lies in registers: the basis of each bit of a register's, a lane's and a warp's number."""

    shape: Index
    registers: tuple[Index, ...]
    lanes: tuple[Index, ...]
    warps: tuple[Index, ...]

    def holders(self) -> dict[Index, Holder]:
        """Return the owner of each element; of several, the one with the lowest numbers."""
        holders: dict[Index, Holder] = {}
        copies: dict[Index, int] = {}
        for warp, at_warp in _moves(self.warps, len(self.shape)):
            for lane, at_lane in _moves(self.lanes, len(self.shape), at_warp):
                for register, element in _moves(self.registers, len(self.shape), at_lane):
                    copies[element] = copies.get(element, 0) + 1
                    holders.setdefault(element, Holder(warp, lane, register))
        return {at: Holder(first.warp, first.lane, first.register, copies[at]) for at, first in holders.items()}


@dataclass(frozen=True, slots=True)
class MemoryLayout:
    """How a tile lies in shared memory: the place of each element, in elements from the start."""

    shape: Index
    places: Mapping[Index, int]

    def banks(self, element_bits: int) -> dict[Index, int]:
        """Return the bank of each element; shared memory has 32 banks of four bytes."""
        return {element: place * element_bits // (8 * BANK_BYTES) % BANKS for element, place in self.places.items()}


@dataclass(frozen=True, slots=True)
class TensorMemoryLayout:
    """How a tile lies in tensor memory: row and column of each element; a column is as wide as an element."""

    shape: Index
    places: Mapping[Index, tuple[int, int]]


Layout = RegisterLayout | MemoryLayout | TensorMemoryLayout


def layout_of(encoding: Encoding, shape: Sequence[int]) -> Layout:
    """Return the layout of a tile where the text of its encoding defines it.

    Raises:
        UsageError: there is no rule for the encoding, or a side is not a power of two.
    """
    if any(size <= 0 or size & (size - 1) for size in shape):
        raise UsageError(f"A tile of shape {list(shape)} has no layout; expected powers of two.")
    fields, sizes = encoding.fields, tuple(shape)
    if any(fields.get(name) for name in ("CGALayout", "block", "twoCTAs", "CTASplitM", "CTASplitN")):
        raise UsageError(f"{encoding}: layouts over several blocks (num_ctas > 1) are not drawn.")
    if encoding.kind in _MEMORY:
        return MemoryLayout(sizes, _MEMORY[encoding.kind](fields, sizes))
    if encoding.kind == "tensor_memory_encoding":
        return TensorMemoryLayout(sizes, _tensor_memory(fields, sizes))
    if encoding.kind == "linear":
        bases = ([tuple(basis) for basis in fields[kind]] for kind in ("register", "lane", "warp"))
        return RegisterLayout(sizes, *map(tuple, bases))
    raise UsageError(f"The layout {encoding} is not known to this version of Triton, and there is no rule for it here.")


def _moves(bases: Sequence[Index], rank: int, start: Index | None = None) -> Iterator[tuple[int, Index]]:
    """Yield each number that the bits of ``bases`` make, with where it leads."""
    places = [start or (0,) * rank]
    for basis in bases:
        places += [tuple(a ^ b for a, b in zip(place, basis, strict=True)) for place in places]
    yield from enumerate(places)


def _elements(shape: Index) -> Iterator[Index]:
    return itertools.product(*(range(size) for size in shape))


def _swizzle_places(fields: Mapping[str, Any], shape: Index, *, is_rotating: bool = False) -> dict[Index, int]:
    """Return the places of a swizzle; one that rotates starts each repetition of its phases at another one."""
    order, vector, per_phase, phases = fields["order"], fields["vec"], fields["perPhase"], fields["maxPhase"]
    inner = order[0]
    places = {}
    for element in _elements(shape):
        row = element[order[1]] if len(order) > 1 else 0
        phase = row // per_phase % phases
        if is_rotating:
            phase ^= row // (per_phase * phases) % phases
        moved = list(element)
        moved[inner] = (element[inner] // vector ^ phase) * vector % shape[inner] + element[inner] % vector
        places[element] = _place(moved, shape, order)
    return places


def _place(element: Sequence[int], shape: Sequence[int], order: Sequence[int]) -> int:
    place, stride = 0, 1
    for axis in order:
        place, stride = place + element[axis] * stride, stride * shape[axis]
    return place


def _nvmma(fields: Mapping[str, Any], shape: Index) -> dict[Index, int]:
    """Return the places that copies by TMA and products of tensor cores use: swizzled tiles of 8 rows."""
    bits, swizzle = fields["elementBitWidth"], fields["swizzlingByteWidth"]
    if len(shape) != 2 or fields.get("fp4Padded"):
        raise UsageError("Layouts of nvmma_shared are drawn for tiles of two axes, and without padding for fp4.")
    rows, columns = shape[::-1] if fields["transposed"] else shape
    wide = min(columns, swizzle * 8 // bits) if swizzle else columns
    vector, phases, per_phase = 128 // bits, max(1, swizzle // 16), max(1, 128 // max(swizzle, 16))
    places: dict[Index, int] = {}
    for row, column in _elements((rows, columns)):
        phase = row // per_phase % phases if swizzle else 0
        inside = (column % wide // vector ^ phase) * vector % wide + column % vector
        place = column // wide * rows * wide + row * wide + inside
        places[(column, row) if fields["transposed"] else (row, column)] = place
    return places


def _padded_places(fields: Mapping[str, Any], shape: Index) -> dict[Index, int]:
    if "order" in fields:
        places = {element: _place(element, shape, fields["order"]) for element in _elements(shape)}
    else:
        places = _shared_linear(fields, shape)
    paddings = fields["paddings"]
    return {index: place + sum(place // step * count for step, count in paddings) for index, place in places.items()}


def _shared_linear(fields: Mapping[str, Any], shape: Index) -> dict[Index, int]:
    return {element: place for place, element in _moves([tuple(offset) for offset in fields["offset"]], len(shape))}


def _tensor_memory(fields: Mapping[str, Any], shape: Index) -> dict[Index, tuple[int, int]]:
    """Return row and column of each element: instructions of 128 rows, or of 64, which fill 16 rows of each 32."""
    (rows, columns), stride, tall = shape, fields.get("colStride", 1), fields["blockM"]
    wide = min(fields["blockN"], columns)
    beside = 2 if tall == 64 and (rows > tall or columns > wide) else 1  # of 64 rows, two share the 32 of a warp
    down, across = (beside, 1) if rows > tall else (1, beside)
    repeats = max(1, rows // (tall * down))
    places: dict[Index, tuple[int, int]] = {}
    for row, column in _elements((rows, columns)):
        in_row, in_column = row % tall, column % wide
        half = row // tall % down + column // wide % across
        lane = in_row if tall != 64 else in_row // 16 * 32 + half * 16 + in_row % 16
        block = row // (tall * down) + column // (wide * across) * repeats
        places[row, column] = (lane, (block * wide + in_column) * stride)
    return places


_MEMORY: dict[str, Callable[[Mapping[str, Any], Index], dict[Index, int]]] = {
    "swizzled_shared": _swizzle_places,
    "amd_rotating_shared": partial(_swizzle_places, is_rotating=True),
    "nvmma_shared": _nvmma,
    "padded_shared": _padded_places,
    "shared_linear": _shared_linear,
}

_ALIAS = re.compile(r"^(#\w+) = (#ttn?g\.\w+<.*>)\s*$", re.MULTILINE)
_PART = re.compile(r"\s*(-?\d+|\w[\w.]*|#[\w.]+|[\[\]{}<>=,:+])")
_DIALECT = re.compile(r"#ttn?g\.(\w+)")


def encodings(ttgir: str) -> dict[str, Encoding]:
    """Return the layouts that a module names at its head, by their names (``#blocked``)."""
    encodings: dict[str, Encoding] = {}
    for name, text in _ALIAS.findall(ttgir):
        encodings[name] = encoding_in(text, encodings)
    return encodings


def encoding_in(text: str, known: Mapping[str, Encoding]) -> Encoding:
    """Return a layout as TTGIR writes it; ``known`` are those that have names.

    Of a layout whose parameters cannot be read, they are one text, so that there is no rule for it.

    Raises:
        UsageError: the text is not a layout.
    """
    try:
        value = _value(_PART.findall(text)[::-1], known)
    except (IndexError, KeyError, ValueError):
        dialect = _DIALECT.match(text)
        value = Encoding(dialect[1], {"text": text}) if dialect else None
    if not isinstance(value, Encoding):
        raise UsageError(f"{text!r} is not a layout; expected one of TTGIR, such as #ttg.blocked<{{...}}>.")
    return value


def _value(parts: list[str], known: Mapping[str, Encoding]) -> Any:
    """Read one value off the end of a reversed list of words."""
    part = parts.pop()
    if part == "[":
        return _list(parts, known)
    if part == "{":
        return _fields(parts, known, "}")
    if (dialect := _DIALECT.fullmatch(part)) is not None:
        parts.pop()
        return Encoding(dialect[1], _fields(parts, known, ">"))
    if part.startswith("#"):
        return known[part]
    return part == "true" if part in ("true", "false") else int(part)


def _list(parts: list[str], known: Mapping[str, Encoding]) -> tuple[Any, ...]:
    """Read up to the closing bracket; ``64:+8`` is a pair."""
    members: list[Any] = []
    while (part := parts.pop()) != "]":
        if part == ":":
            parts.pop()
            members[-1] = (members[-1], int(parts.pop()))
        elif part != ",":
            parts.append(part)
            members.append(_value(parts, known))
    return tuple(members)


def _fields(parts: list[str], known: Mapping[str, Encoding], end: str) -> dict[str, Any]:
    """Read what stands up to the bracket that ends a layout, or a part of one; braces around all of it say nothing."""
    fields: dict[str, Any] = {}
    while (part := parts.pop()) != end:
        if part == "[":
            fields["paddings"] = _list(parts, known)
        elif parts[-1] == "=":
            parts.pop()
            fields[part] = _value(parts, known)
    return fields


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}={_words(member)}' for name, member in value.items())}}}"
    return str(list(value)).replace("(", "[").replace(")", "]") if isinstance(value, tuple) else str(value)


_RESULT = re.compile(r"^\s*(%[\w-]+) = ([\w.]+)")
_TYPE = re.compile(r"(tensor|!ttg\.memdesc)<((?:\d+x)+)([^,<>]+(?:<[^<>]*>)?), (.*)$")
_BITS = re.compile(r"\d+")
_POINTER_BITS = 64


@dataclass(frozen=True, slots=True)
class LaidOutValue(Displayable):
    """A value of TTGIR that lies in registers, in shared memory or in tensor memory.

    ``name`` is that in TTGIR (``%a_44``), ``operation`` what makes it. ``shape`` is that of one tile; of several
    buffers of memory, ``buffers`` is their number. ``element`` is the type of an element; ``line`` is a
    source line, None where none is known. ``registers`` is what Triton says of a tile in registers.
    """

    name: str
    operation: str
    shape: tuple[int, ...]
    element: str
    encoding: Encoding
    line: int | None
    file: str
    buffers: int = 1
    registers: RegisterLayout | None = None

    @property
    def layout(self) -> Layout:
        """The holder of each element. Raises `UsageError` where neither Triton nor a rule defines it."""
        return self.registers or layout_of(self.encoding, self.shape)

    @property
    def element_bits(self) -> int:
        """The width of an element; 64 of a pointer."""
        digits = _BITS.findall(self.element)
        return _POINTER_BITS if "ptr" in self.element else int(digits[0]) if digits else 32


@dataclass(frozen=True, slots=True)
class Layouts(Drawable):
    """The values of a kernel that have a layout, in the order of its TTGIR; ``target`` is what it was compiled for."""

    kernel: str
    target: str
    values: tuple[LaidOutValue, ...]

    @property
    def frame(self) -> pandas.DataFrame:
        """A row for each value."""
        import pandas  # keeps `import kernellab` light

        rows = [
            (v.name, v.operation, v.line, list(v.shape), v.element, v.encoding.kind, str(v.encoding))
            for v in self.values
        ]
        return pandas.DataFrame(rows, columns=["value", "operation", "line", "shape", "element", "kind", "layout"])

    def __getitem__(self, name: str) -> LaidOutValue:
        """Return a value by its name in TTGIR, with or without ``%``.

        Raises:
            UsageError: there is no such value.
        """
        for value in self.values:
            if value.name == f"%{name.removeprefix('%')}":
                return value
        known = ", ".join(value.name for value in self.values[:8])
        raise UsageError(f"{self.kernel} has no value {name!r} with a layout; there are {known}, ...")


Registers = Mapping[tuple[str, tuple[int, ...]], RegisterLayout]
"""How tiles lie in registers, by the words of an encoding and the shape."""


def layouts_of(kernel: str, target: str, ttgir: str, registers: Registers) -> Layouts:
    """Return the values of a module that have a layout; ``registers`` is what Triton says of it."""
    values = _values(ttgir, encodings(ttgir))
    laid_out = (replace(value, registers=registers.get((str(value.encoding), value.shape))) for value in values)
    return Layouts(kernel, target, tuple(laid_out))


def type_of(text: str, known: Mapping[str, Encoding]) -> tuple[str, tuple[int, ...], str, Encoding] | None:
    """Return memory space, shape, element and layout of a TTGIR type; None without a whole tile.

    Where it lies is ``tensor`` or ``!ttg.memdesc``. A part of a tile lies where the whole one lies.
    """
    kind = _TYPE.search(text)
    if kind is None or (kind[1] != "tensor" and re.search(r", \d+x[\dx]*>", kind[4])):
        return None
    try:
        encoding = encoding_in(_first(kind[4]), known)
    except UsageError:
        return None
    return kind[1], tuple(int(size) for size in kind[2].split("x") if size), kind[3], encoding


def _values(ttgir: str, known: Mapping[str, Encoding]) -> Iterator[LaidOutValue]:
    for line in stage_lines("ttgir", ttgir):
        results = _RESULT.match(line.text)
        if results is None or results[2].startswith("scf."):
            continue
        values = type_of(line.text.rpartition(" -> ")[2].rpartition(" : ")[2], known)
        if values is None:
            continue
        _, shape, element, encoding = values
        rank = _rank(encoding, len(shape))
        count = prod(shape[: len(shape) - rank])
        place, tile = line.place, shape[len(shape) - rank :]
        yield LaidOutValue(results[1], results[2], tile, element, encoding, place.line, short_file(place.file), count)


def _first(text: str) -> str:
    """Return the text up to the comma or bracket that ends the first parameter of a type."""
    depth = 0
    for at, letter in enumerate(text):
        if depth == 0 and letter in ",>":
            return text[:at]
        depth += (letter in "<{[(") - (letter in ">}])")
    return text


def _rank(encoding: Encoding, given: int) -> int:
    """Return the rank of a layout; memory has one more axis for several buffers."""
    order: Sequence[int] | None = encoding.fields.get("order")
    if "shared" in encoding.kind and order is not None:
        return min(given, len(order))
    if encoding.kind == "padded_shared":
        return len(encoding.fields["offset"][0])
    return min(given, 2) if encoding.kind in ("nvmma_shared", "tensor_memory_encoding") else given
