"""Which values of a kernel have which layout: read off its TTGIR, in which types tell it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from kernellab.display import Shown
from kernellab.errors import UsageError
from kernellab.ir.layouts import Encoding, Layout, RegisterLayout, encoding_in, encodings, layout_of
from kernellab.ir.lines import short_file, stage_lines

if TYPE_CHECKING:
    import pandas

_RESULT = re.compile(r"^\s*(%[\w-]+) = ([\w.]+)")
_TYPE = re.compile(r"(tensor|!ttg\.memdesc)<((?:\d+x)+)([^,<>]+(?:<[^<>]*>)?), (.*)$")
_BITS = re.compile(r"\d+")
_POINTER_BITS = 64


@dataclass(frozen=True, slots=True)
class LaidOutValue(Shown):
    """A value of TTGIR that lies in registers, in shared memory or in tensor memory.

    ``name`` is that in TTGIR (``%a_44``), ``operation`` what makes it. ``shape`` is that of one tile; of several
    buffers of memory, ``buffers`` tells how many there are. ``element`` is the type of an element; ``line`` is a
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
        """Who holds each element. Raises `UsageError` where neither Triton nor a rule tells."""
        return self.registers or layout_of(self.encoding, self.shape)

    @property
    def element_bits(self) -> int:
        """The width of an element; 64 of a pointer."""
        digits = _BITS.findall(self.element)
        return _POINTER_BITS if "ptr" in self.element else int(digits[0]) if digits else 32


@dataclass(frozen=True, slots=True)
class Layouts(Shown):
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
        found = next((each for each in self.values if each.name == f"%{name.removeprefix('%')}"), None)
        if found is None:
            known = ", ".join(each.name for each in self.values[:8])
            raise UsageError(f"{self.kernel} has no value {name!r} with a layout; there are {known}, ...")
        return found


Registers = Mapping[tuple[str, tuple[int, ...]], RegisterLayout]
"""How tiles lie in registers, by the words of an encoding and the shape."""


def layouts_of(kernel: str, target: str, ttgir: str, registers: Registers) -> Layouts:
    """Return the values of a module that have a layout; ``registers`` is what Triton says of it."""
    known = encodings(ttgir)
    found = _values(ttgir, known)
    return Layouts(
        kernel, target, tuple(replace(v, registers=registers.get((str(v.encoding), v.shape))) for v in found)
    )


def type_of(text: str, known: Mapping[str, Encoding]) -> tuple[str, tuple[int, ...], str, Encoding] | None:
    """Return where a type of TTGIR lies, its shape, its element and its layout; None where it has no whole tile's.

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
        made = _RESULT.match(line.text)
        if made is None or made[2].startswith("scf."):
            continue
        found = type_of(line.text.rpartition(" -> ")[2].rpartition(" : ")[2], known)
        if found is None:
            continue
        _, shape, element, encoding = found
        rank = _rank(encoding, len(shape))
        count = prod(shape[: len(shape) - rank])
        place, tile = line.place, shape[len(shape) - rank :]
        yield LaidOutValue(made[1], made[2], tile, element, encoding, place.line, short_file(place.file), count)


def _first(text: str) -> str:
    """Return the text up to the comma or bracket that ends the first parameter of a type."""
    depth = 0
    for at, letter in enumerate(text):
        if depth == 0 and letter in ",>":
            return text[:at]
        depth += (letter in "<{[(") - (letter in ">}])")
    return text


def _rank(encoding: Encoding, given: int) -> int:
    """Return how many axes a layout is of; memory has one more for several buffers."""
    order: Sequence[int] | None = encoding.fields.get("order")
    if "shared" in encoding.kind and order is not None:
        return min(given, len(order))
    if encoding.kind == "padded_shared":
        return len(encoding.fields["offset"][0])
    return min(given, 2) if encoding.kind in ("nvmma_shared", "tensor_memory_encoding") else given
