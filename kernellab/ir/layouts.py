"""Who holds what: from the encodings of TTGIR to the warp, lane and register of each element, or its place in memory.

A layout of registers is a linear map over bits (Zhou et al., "Linear Layouts", https://arxiv.org/abs/2505.23819): each
bit of the number of a register, lane or warp moves the element by its basis, and moves combine by exclusive or. The
rules for each encoding are those of `lib/Dialect/TritonGPU/IR/LinearLayoutConversions.cpp` in Triton, for one block; a
test compares them with Triton's own.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernellab.errors import UsageError

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
    """Who holds an element: a register of a lane of a warp; ``copies`` counts how many registers of the block do."""

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
        """Return who holds each element; of several the one with the lowest numbers."""
        found: dict[Index, Holder] = {}
        copies: dict[Index, int] = {}
        for warp, at_warp in _moves(self.warps, len(self.shape)):
            for lane, at_lane in _moves(self.lanes, len(self.shape), at_warp):
                for register, element in _moves(self.registers, len(self.shape), at_lane):
                    copies[element] = copies.get(element, 0) + 1
                    found.setdefault(element, Holder(warp, lane, register))
        return {each: Holder(holder.warp, holder.lane, holder.register, copies[each]) for each, holder in found.items()}


@dataclass(frozen=True, slots=True)
class MemoryLayout:
    """How a tile lies in shared memory: the place of each element, in elements from the start."""

    shape: Index
    places: Mapping[Index, int]

    def banks(self, element_bits: int) -> dict[Index, int]:
        """Return the bank of each element, of which shared memory has 32, four bytes wide each."""
        return {each: place * element_bits // (8 * BANK_BYTES) % BANKS for each, place in self.places.items()}


Layout = RegisterLayout | MemoryLayout


def layout_of(encoding: Encoding, shape: Sequence[int]) -> Layout:
    """Return how a tile of a shape lies.

    Raises:
        UsageError: there is no rule for the encoding, or a side is no power of two.
    """
    if any(size <= 0 or size & (size - 1) for size in shape):
        raise UsageError(f"A tile of shape {list(shape)} has no layout; expected powers of two.")
    if encoding.fields.get("CGALayout") or encoding.fields.get("block"):
        raise UsageError(f"{encoding}: layouts over several blocks (num_ctas > 1) are not drawn.")
    if encoding.kind in _MEMORY:
        return MemoryLayout(tuple(shape), _MEMORY[encoding.kind](encoding.fields, tuple(shape)))
    return _bits(encoding, tuple(shape)).layout()


def _moves(bases: Sequence[Index], rank: int, start: Index | None = None) -> Iterator[tuple[int, Index]]:
    """Yield each number that the bits of ``bases`` make, with where it leads."""
    places = [start or (0,) * rank]
    for basis in bases:
        places += [tuple(a ^ b for a, b in zip(place, basis, strict=True)) for place in places]
    yield from enumerate(places)


class _Bits:
    """Bases under construction; ``sizes`` is how far they reach along each axis."""

    def __init__(self, shape: Index) -> None:
        self.shape = shape
        self.sizes = [1] * len(shape)
        self.bases: dict[str, list[Index]] = {"register": [], "lane": [], "warp": []}

    def grow(self, kind: str, axis: int, count: int) -> None:
        """Let the next bits of a kind go along an axis, beyond what is there: ``count`` of them, a power of two."""
        for _ in range(count.bit_length() - 1):
            self.bases[kind].append(tuple(self.sizes[axis] * (at == axis) for at in range(len(self.shape))))
            self.sizes[axis] *= 2

    def repeat(self, kind: str, count: int) -> None:
        """Let the next bits of a kind lead nowhere: all of them hold the same."""
        self.bases[kind] += [(0,) * len(self.shape)] * (count.bit_length() - 1)

    def fit(self, order: Sequence[int]) -> _Bits:
        """Reach the whole shape by more registers, the axes in order; what leads beyond it leads nowhere."""
        for axis in order:
            if self.sizes[axis] < self.shape[axis]:
                self.grow("register", axis, self.shape[axis] // self.sizes[axis])
        for bases in self.bases.values():
            bases[:] = [tuple(b if b < n else 0 for b, n in zip(basis, self.shape, strict=True)) for basis in bases]
        return self

    def layout(self) -> RegisterLayout:
        return RegisterLayout(self.shape, *(tuple(self.bases[kind]) for kind in ("register", "lane", "warp")))


def _bits(encoding: Encoding, shape: Index) -> _Bits:
    build = _REGISTERS.get(encoding.kind)
    if build is None:
        known = ", ".join(sorted({*_REGISTERS, *_MEMORY}))
        raise UsageError(f"There is no rule for the layout {encoding}; expected one of {known}.")
    return build(encoding.fields, shape)


def _blocked(fields: Mapping[str, Any], shape: Index) -> _Bits:
    bits, order = _Bits(shape), fields["order"]
    for kind, name in (("register", "sizePerThread"), ("lane", "threadsPerWarp"), ("warp", "warpsPerCTA")):
        for axis in order:
            bits.grow(kind, axis, fields[name][axis])
    return bits.fit(order)


def _linear(fields: Mapping[str, Any], shape: Index) -> _Bits:
    bits = _Bits(shape)
    bits.bases = {kind: [tuple(basis) for basis in fields[kind]] for kind in bits.bases}
    bits.sizes = list(shape)
    return bits


def _slice(fields: Mapping[str, Any], shape: Index) -> _Bits:
    dim = fields["dim"]
    whole = _bits(fields["parent"], (*shape[:dim], 1, *shape[dim:]))
    bits = _Bits(shape)
    bits.sizes = list(shape)
    for kind, bases in whole.bases.items():
        kept = [(*basis[:dim], *basis[dim + 1 :]) for basis in bases]
        bits.bases[kind] = [basis for basis in kept if any(basis)] if kind == "register" else kept
    return bits


def _mma_tile(bits: _Bits, tile: Sequence[int], width: int, order: Sequence[int]) -> None:
    """Take one instruction: a ``tile`` of which a lane has ``width`` neighbours along the first axis of ``order``."""
    inner, outer = order[0], order[1]
    bits.grow("register", inner, width)
    bits.grow("lane", inner, 4)
    bits.grow("lane", outer, 8)
    bits.grow("register", outer, tile[outer] // 8)
    bits.grow("register", inner, tile[inner] // (width * 4))


def _mma(fields: Mapping[str, Any], shape: Index) -> _Bits:
    rank, is_hopper = len(shape), fields["versionMajor"] == 3
    if fields["versionMajor"] not in (2, 3):
        raise UsageError(f"There is no rule for tensor cores of version {fields['versionMajor']}; expected 2 or 3.")
    tile = fields["instrShape"]
    tile = [*[1] * (rank - 2), tile[0], tile[1]] if is_hopper else tile[-rank:]
    bits, rows = _Bits(shape), _row_major(rank)
    _mma_tile(bits, tile, 2, rows)
    for axis in _row_major(rank, is_row_major=not is_hopper):
        bits.grow("warp", axis, fields["warpsPerCTA"][axis])
    return bits.fit(rows)


def _matrix_core_side(fields: Mapping[str, Any]) -> int:
    """Return the side of the square product of an instruction of AMD's matrix cores: 32 or 16."""
    sides, tiles = fields["instrShape"][:2], fields.get("tilesPerWarp") or ()
    if tuple(sides) not in ((32, 32), (16, 16)) or any(tile != 1 for tile in tiles):
        raise UsageError(f"There is no rule for matrix cores with {dict(fields)}; expected 32 x 32 or 16 x 16.")
    return int(sides[0])


def _mfma(fields: Mapping[str, Any], shape: Index) -> _Bits:
    bits, side, rows = _Bits(shape), _matrix_core_side(fields), _row_major(len(shape))
    along, across = rows[:2] if fields["isTransposed"] else rows[1::-1]
    bits.grow("register", along, 4)
    bits.grow("lane", across, side)
    bits.grow("lane", along, 64 // side)
    bits.grow("register", along, side * side // 256)
    for axis in rows:
        bits.grow("warp", axis, fields["warpsPerCTA"][axis])
    return bits.fit(rows)


def _mfma_operand(fields: Mapping[str, Any], shape: Index, axis: int) -> _Bits:
    """Return an operand of AMD's matrix cores; ``axis`` is summed over."""
    parent: Mapping[str, Any] = fields["parent"].fields
    bits, side, order = _Bits(shape), _matrix_core_side(parent), _operand_order(len(shape), fields["opIdx"])
    bits.grow("register", axis, fields["kWidth"])
    bits.grow("lane", order[1], side)
    bits.grow("lane", axis, 64 // side)
    _shared_by_all(bits, "warp", parent["warpsPerCTA"], _row_major(len(shape)), axis)
    return bits.fit(order)


def _dot_operand(fields: Mapping[str, Any], shape: Index) -> _Bits:
    parent: Encoding = fields["parent"]
    rank = len(shape)
    axis = rank - 1 if fields["opIdx"] == 0 else rank - 2  # that is summed over
    if parent.kind == "blocked":
        return _fused_operand(parent.fields, shape, axis)
    if parent.kind == "amd_mfma":
        return _mfma_operand(fields, shape, axis)
    if parent.kind != "nvidia_mma" or parent.fields["versionMajor"] not in (2, 3):
        raise UsageError(f"There is no rule for operands of {parent}.")
    width, order = fields["kWidth"], _operand_order(rank, fields["opIdx"])
    tile = [1] * rank
    tile[axis] = width * 8
    tile[2 * rank - 3 - axis] = 16 if fields["opIdx"] == 0 else 8
    bits = _Bits(shape)
    _mma_tile(bits, tile, width, order)
    is_row_major = parent.fields["versionMajor"] == 2
    _shared_by_all(bits, "warp", parent.fields["warpsPerCTA"], _row_major(rank, is_row_major=is_row_major), axis)
    return bits.fit(order)


def _fused_operand(parent: Mapping[str, Any], shape: Index, axis: int) -> _Bits:
    """Return an operand of a product without tensor cores: a thread has all that its elements are summed over."""
    bits, order = _Bits(shape), parent["order"]
    sizes = list(parent["sizePerThread"])
    sizes[axis] = shape[axis]
    for each in order:
        bits.grow("register", each, sizes[each])
    _shared_by_all(bits, "lane", parent["threadsPerWarp"], order, axis)
    _shared_by_all(bits, "warp", parent["warpsPerCTA"], order, axis)
    return bits.fit(order)


def _shared_by_all(bits: _Bits, kind: str, counts: Sequence[int], order: Sequence[int], axis: int) -> None:
    for each in order:
        if each == axis:
            bits.repeat(kind, counts[each])
        else:
            bits.grow(kind, each, counts[each])


def _row_major(rank: int, *, is_row_major: bool = True) -> list[int]:
    """Return the axes from the one whose elements are neighbours; of a batch, the batch is last."""
    order = list(range(rank))[::-1]
    if not is_row_major:
        order[0], order[1] = order[1], order[0]
    return order


def _operand_order(rank: int, operand: int) -> list[int]:
    return _row_major(rank, is_row_major=operand == 0)


def _elements(shape: Index) -> Iterator[Index]:
    return itertools.product(*(range(size) for size in shape))


def _swizzled(fields: Mapping[str, Any], shape: Index) -> dict[Index, int]:
    order, vector = fields["order"], fields["vec"]
    inner = order[0]
    found = {}
    for element in _elements(shape):
        row = element[order[1]] if len(order) > 1 else 0
        phase = row // fields["perPhase"] % fields["maxPhase"]
        moved = list(element)
        moved[inner] = (element[inner] // vector ^ phase) * vector % shape[inner] + element[inner] % vector
        found[element] = _place(moved, shape, order)
    return found


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
    found: dict[Index, int] = {}
    for row, column in _elements((rows, columns)):
        phase = row // per_phase % phases if swizzle else 0
        inside = (column % wide // vector ^ phase) * vector % wide + column % vector
        place = column // wide * rows * wide + row * wide + inside
        found[(column, row) if fields["transposed"] else (row, column)] = place
    return found


def _padded(fields: Mapping[str, Any], shape: Index) -> dict[Index, int]:
    if "order" not in fields:
        raise UsageError("Layouts of padded_shared are drawn where they have an order; this one has bases.")
    found = {}
    for element in _elements(shape):
        place = _place(element, shape, fields["order"])
        found[element] = place + sum(place // interval * padding for interval, padding in fields["paddings"])
    return found


def _shared_linear(fields: Mapping[str, Any], shape: Index) -> dict[Index, int]:
    return {element: place for place, element in _moves([tuple(each) for each in fields["offset"]], len(shape))}


_REGISTERS = {
    "blocked": _blocked,
    "linear": _linear,
    "slice": _slice,
    "nvidia_mma": _mma,
    "amd_mfma": _mfma,
    "dot_op": _dot_operand,
}
_MEMORY = {
    "swizzled_shared": _swizzled,
    "nvmma_shared": _nvmma,
    "padded_shared": _padded,
    "shared_linear": _shared_linear,
}

# The classes of triton.experimental.gluon.language, by name, since older versions of Triton lack some: the kind of
# each, and its attributes by the names that TTGIR has for them.
_GLUON: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "BlockedLayout": (
        "blocked",
        {
            "sizePerThread": "size_per_thread",
            "threadsPerWarp": "threads_per_warp",
            "warpsPerCTA": "warps_per_cta",
            "order": "order",
        },
    ),
    "SliceLayout": ("slice", {"dim": "dim", "parent": "parent"}),
    "DistributedLinearLayout": (
        "linear",
        {"register": "reg_bases", "lane": "lane_bases", "warp": "warp_bases", "block": "block_bases"},
    ),
    "DotOperandLayout": ("dot_op", {"opIdx": "operand_index", "parent": "parent", "kWidth": "k_width"}),
    "NVMMADistributedLayout": (
        "nvidia_mma",
        {"version": "version", "warpsPerCTA": "warps_per_cta", "instrShape": "instr_shape"},
    ),
    "AMDMFMALayout": (
        "amd_mfma",
        {
            "warpsPerCTA": "warps_per_cta",
            "instrShape": "instr_shape",
            "isTransposed": "transposed",
            "tilesPerWarp": "tiles_per_warp",
        },
    ),
    "SwizzledSharedLayout": (
        "swizzled_shared",
        {"vec": "vec", "perPhase": "per_phase", "maxPhase": "max_phase", "order": "order"},
    ),
    "NVMMASharedLayout": (
        "nvmma_shared",
        {
            "swizzlingByteWidth": "swizzle_byte_width",
            "transposed": "transposed",
            "elementBitWidth": "element_bitwidth",
            "fp4Padded": "fp4_padded",
        },
    ),
    "SharedLinearLayout": ("shared_linear", {"offset": "offset_bases", "block": "block_bases"}),
}


def encoding_of(layout: Any) -> Encoding:
    """Return a layout of Gluon (`gl.BlockedLayout(...)`) as TTGIR writes it.

    Raises:
        UsageError: it is none of those that there are rules for.
    """
    known = _GLUON.get(type(layout).__name__)
    if known is None:
        raise UsageError(f"{layout!r} is no layout of Gluon that can be drawn; expected one of {', '.join(_GLUON)}.")
    kind, names = known
    fields = {name: _plain(getattr(layout, attribute)) for name, attribute in names.items()}
    if "version" in fields:
        fields["versionMajor"], fields["versionMinor"] = fields.pop("version")
    return Encoding(kind, fields)


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(map(_plain, value))
    return encoding_of(value) if type(value).__name__ in _GLUON else value


_ALIAS = re.compile(r"^(#\w+) = (#ttg\.\w+<.*>)\s*$", re.MULTILINE)
_PART = re.compile(r"\s*(-?\d+|\w[\w.]*|#[\w.]+|[\[\]{}<>=,:+])")


def encodings(ttgir: str) -> dict[str, Encoding]:
    """Return the layouts that a module names at its head, by their names (``#blocked``)."""
    found: dict[str, Encoding] = {}
    for name, text in _ALIAS.findall(ttgir):
        found[name] = encoding_in(text, found)
    return found


def encoding_in(text: str, known: Mapping[str, Encoding]) -> Encoding:
    """Return a layout as TTGIR writes it; ``known`` are those that have names.

    Raises:
        UsageError: the text is no layout.
    """
    parts = _PART.findall(text)
    try:
        value, _ = _value(parts, 0, known)
    except (IndexError, KeyError, ValueError):
        value = None
    if not isinstance(value, Encoding):
        raise UsageError(f"{text!r} is no layout; expected one of TTGIR, such as #ttg.blocked<{{...}}>.")
    return value


def _value(parts: Sequence[str], at: int, known: Mapping[str, Encoding]) -> tuple[Any, int]:
    part = parts[at]
    if part == "[":
        return _list(parts, at + 1, known)
    if part.startswith("#ttg."):
        fields, end = _fields(parts, at + 2, known)
        return Encoding(part.removeprefix("#ttg."), fields), end
    if part.startswith("#"):
        return known[part], at + 1
    if part in ("true", "false"):
        return part == "true", at + 1
    return int(part), at + 1


def _list(parts: Sequence[str], at: int, known: Mapping[str, Encoding]) -> tuple[Any, int]:
    """Read up to the closing bracket; ``64:+8`` is a pair."""
    found: list[Any] = []
    while parts[at] != "]":
        if parts[at] == ":":
            found[-1] = (found[-1], int(parts[at + 2]))
            at += 3
        elif parts[at] == ",":
            at += 1
        else:
            value, at = _value(parts, at, known)
            found.append(value)
    return tuple(found), at + 1


def _fields(parts: Sequence[str], at: int, known: Mapping[str, Encoding]) -> tuple[dict[str, Any], int]:
    """Read what stands between the angle brackets of a layout."""
    found: dict[str, Any] = {}
    while parts[at] != ">":
        if parts[at] == "[":
            found["paddings"], at = _list(parts, at + 1, known)
        elif parts[at + 1] == "=":
            found[parts[at]], at = _value(parts, at + 2, known)
        else:
            at += 1
    return found, at + 1


def _words(value: Any) -> str:
    return str(list(value)).replace("(", "[").replace(")", "]") if isinstance(value, tuple) else str(value)
