"""Which values of a kernel have which layout: read off its TTGIR, in which types tell it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernellab.display import Shown
from kernellab.errors import UsageError
from kernellab.ir.layouts import Encoding, Layout, encoding_in, encoding_of, encodings, layout_of
from kernellab.ir.lines import short_file, stage_lines

if TYPE_CHECKING:
    import pandas

_RESULT = re.compile(r"^\s*(%[\w-]+) = ([\w.]+)")
_TYPE = re.compile(r"(tensor|!ttg\.memdesc)<((?:\d+x)+)([^,<>]+(?:<[^<>]*>)?), (.*)$")
_BITS = re.compile(r"\d+")
_POINTER_BITS = 64


@dataclass(frozen=True, slots=True)
class LaidOutValue(Shown):
    """A value of TTGIR that lies in registers or in shared memory.

    ``name`` is that in TTGIR (``%a_44``), ``operation`` what makes it. ``shape`` is that of one tile; of several
    buffers of shared memory, ``buffers`` tells how many there are. ``element`` is the type of an element; ``line`` is a
    source line, None where none is known.
    """

    name: str
    operation: str
    shape: tuple[int, ...]
    element: str
    encoding: Encoding
    line: int | None
    file: str
    buffers: int = 1

    @property
    def layout(self) -> Layout:
        """Who holds each element. Raises `UsageError` where there is no rule for the encoding."""
        return layout_of(self.encoding, self.shape)

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


def gluon_tile(layout: Any, shape: Sequence[int], element: str = "f32") -> LaidOutValue:
    """Return a tile in a layout of Gluon, to look at: `gluon_tile(gl.BlockedLayout(...), [64, 64])`.

    Raises:
        UsageError: the layout is none that can be drawn.
    """
    return LaidOutValue("tile", type(layout).__name__, tuple(shape), element, encoding_of(layout), None, "")


def layouts_in(kernel: str, target: str, ttgir: str) -> Layouts:
    """Return the values of a module that have a layout."""
    known = encodings(ttgir)
    return Layouts(kernel, target, tuple(_values(ttgir, known)))


def _values(ttgir: str, known: Mapping[str, Encoding]) -> Iterator[LaidOutValue]:
    for line in stage_lines("ttgir", ttgir):
        made = _RESULT.match(line.text)
        if made is None or made[2].startswith("scf."):
            continue
        kind = _TYPE.search(line.text.rpartition(" -> ")[2].rpartition(" : ")[2])
        if kind is not None:
            yield from _value(made, kind, known, line.place.line, short_file(line.place.file))


def _value(
    made: re.Match[str], kind: re.Match[str], known: Mapping[str, Encoding], line: int | None, file: str
) -> Iterator[LaidOutValue]:
    """Yield the value of a line; none where its layout is no map of one tile: parts of others, and unknown ones."""
    where, sizes, element, rest = kind.groups()
    shape = tuple(int(size) for size in sizes.split("x") if size)
    if where != "tensor" and re.search(r", \d+x[\dx]*>", rest):
        return  # a part of a tile lies where the whole one lies
    try:
        encoding = encoding_in(_first(rest), known)
    except UsageError:
        return
    rank = _rank(encoding, len(shape))
    buffers = 1
    for size in shape[: len(shape) - rank]:
        buffers *= size
    yield LaidOutValue(made[1], made[2], shape[len(shape) - rank :], element, encoding, line, file, buffers)


def _first(text: str) -> str:
    """Return the text up to the comma or bracket that ends the first parameter of a type."""
    depth = 0
    for at, letter in enumerate(text):
        if depth == 0 and letter in ",>":
            return text[:at]
        depth += (letter in "<{[(") - (letter in ">}])")
    return text


def _rank(encoding: Encoding, given: int) -> int:
    """Return how many axes a layout is of; shared memory has one more for several buffers."""
    order: Sequence[int] | None = encoding.fields.get("order")
    if encoding.kind in ("swizzled_shared", "padded_shared") and order is not None:
        return min(given, len(order))
    return min(given, 2) if encoding.kind == "nvmma_shared" else given
