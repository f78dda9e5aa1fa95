"""Tensor maps: which memory an access through a descriptor touches, by the box that it names.

The fields of a map are those of ``cuTensorMapEncodeTiled`` in the CUDA driver API: extents and strides of a tensor, the
innermost dimension first, and the extents of a box. Triton cuts a block into boxes whose rows are as long as the
swizzle of shared memory, 128 bytes at most (``getTMABlockShape`` in its ``Dialect.cpp``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernellab.explain.traffic.arithmetic import Array
from kernellab.explain.traffic.counting import SECTOR_BYTES, Count
from kernellab.explain.traffic.machine import Machine, RegisterBits, UnknownValue
from kernellab.explain.traffic.memory import TAG_SHIFT
from kernellab.ir.ptx import Address, Immediate, PtxInstruction, Vector

_SWIZZLE_BYTES = 128
_MOST_ROWS = 256
_ELEMENT_BYTES = {0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 4, 9: 8, 10: 2, 11: 4, 12: 4}
_UNIT_BYTES = 16
TENSOR_MAP_BYTES = 128
REPLACED_WORDS = {"global_address": (0, 1), "global_dim": (0, 1), "global_stride": (1, 2)}
"""The words of shared memory that setting a field loads and stores; of all others one each, as machine code shows."""


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A map; each field is one array per dimension or as a whole, with an element per program or one for all.

    ``strides`` are bytes, of all dimensions but the innermost.
    """

    address: Array
    itemsize: int
    extents: tuple[Array, ...]
    strides: tuple[Array, ...]
    box: tuple[int, ...]


def host_map(
    address: int, itemsize: int, shape: tuple[int, ...], strides: tuple[int, ...], block: tuple[int, ...]
) -> TensorMap:
    """Return the map that Triton makes of a descriptor on the host; strides in elements, the innermost last."""
    inner = min(block[-1], _SWIZZLE_BYTES // itemsize)
    box = (inner, *(min(size, _MOST_ROWS) for size in reversed(block[:-1])))
    extents = tuple(np.array([size], np.int64) for size in reversed(shape))
    steps = tuple(np.array([stride * itemsize], np.int64) for stride in reversed(strides[:-1]))
    return TensorMap(np.array([address], np.uint64), itemsize, extents, steps, box)


@dataclass(frozen=True, slots=True)
class Box:
    """What the boxes of one executed instruction touch: ``units`` of some bytes, and the place of each's program."""

    count: Count
    tags: frozenset[int]
    row_bytes: int
    units: Array
    unit_bytes: int
    programs: Array


@dataclass(slots=True)
class TensorMaps:
    """The maps of a launch: those that are parameters, by address, and those that programs made themselves."""

    parameters: Mapping[int, TensorMap]
    _made: list[tuple[Array, dict[tuple[str, int], Array]]] = field(default_factory=list)

    def begin(self) -> None:
        """Forget what programs made."""
        self._made.clear()

    def replace(self, machine: Machine, instruction: PtxInstruction) -> None:
        """Set a field of a map in shared memory, or copy a map from there to global memory."""
        target = self._column(machine, instruction.operands[0])
        if isinstance(target, UnknownValue):
            return
        if instruction.parts[1] == "cp_fenceproxy":
            source = self._column(machine, instruction.operands[1])
            found = None if isinstance(source, UnknownValue) else self._find(source)
            if found is not None:
                self._made.append((target, dict(found)))
            return
        fields = self._find(target)
        if fields is None:
            fields = {}
            self._made.append((target, fields))
        *ordinal, value_operand = instruction.operands[1:]
        value = self._column(machine, value_operand)
        index = ordinal[0].bits if ordinal and isinstance(ordinal[0], Immediate) else 0
        if isinstance(value, UnknownValue):
            fields.pop((instruction.parts[3], index), None)
        else:
            fields[instruction.parts[3], index] = value

    def boxes(self, machine: Machine, instruction: PtxInstruction, active: Array | None) -> Box | UnknownValue:
        """Return what the boxes of an access touch."""
        operand = next((each for each in instruction.operands if isinstance(each, Address) and each.coordinates), None)
        if operand is None or "tile::gather4" in instruction.parts or "tile::scatter4" in instruction.parts:
            return UnknownValue(f"{instruction.opcode}, whose boxes are not followed")
        found = self._map_of(machine, operand)
        if isinstance(found, UnknownValue):
            return found
        tensor_map, rows_of = found
        vector = operand.coordinates[0]
        assert isinstance(vector, Vector)
        coordinates = []
        lanes = np.broadcast_to(np.True_ if active is None else active, machine.shape)
        programs = np.nonzero(lanes)[0]
        for member in vector.members:
            value = machine.value(member)
            if isinstance(value, UnknownValue):
                return value
            coordinates.append(np.broadcast_to(value, lanes.shape)[lanes].astype(np.uint32).view(np.int32).astype(int))
        return _box(tensor_map, coordinates, programs, rows_of)

    def _map_of(self, machine: Machine, operand: Address) -> tuple[TensorMap, bool] | UnknownValue:
        address = self._column(machine, Address(operand.base, operand.offset_bytes))
        if isinstance(address, UnknownValue):
            return address
        parameter = self.parameters.get(int(address[0]))
        if parameter is not None:
            return parameter, False
        fields = self._find(address)
        made = None if fields is None else _made_map(fields)
        return UnknownValue("a tensor map that was not made here") if made is None else (made, True)

    def _find(self, address: Array) -> dict[tuple[str, int], Array] | None:
        return next((fields for at, fields in reversed(self._made) if np.array_equal(at, address)), None)

    def _column(self, machine: Machine, operand: Any) -> RegisterBits:
        """Return a value per program, that of its first thread."""
        offset = operand.offset_bytes if isinstance(operand, Address) else 0
        value = machine.value(operand.base if isinstance(operand, Address) else operand)
        if isinstance(value, UnknownValue):
            return value
        column = np.broadcast_to(value, (machine.shape[0], value.shape[1]))[:, 0].astype(np.uint64)
        return column + np.uint64(offset)


def _made_map(fields: Mapping[tuple[str, int], Array]) -> TensorMap | None:
    """Return the map that single fields make up; None where one is missing."""
    try:
        rank = int(fields["rank", 0][0]) + 1
        itemsize = _ELEMENT_BYTES[int(fields["elemtype", 0][0])]
        extents = tuple(fields["global_dim", d].astype(np.int64) for d in range(rank))
        strides = tuple(fields["global_stride", d].astype(np.int64) for d in range(rank - 1))
        box = tuple(int(fields["box_dim", d][0]) for d in range(rank))
        return TensorMap(fields["global_address", 0], itemsize, extents, strides, box)
    except KeyError:
        return None


def _box(tensor_map: TensorMap, coordinates: list[Array], programs: Array, by_program: bool) -> Box:
    def of(values: Array) -> Array:
        return values[programs] if by_program and values.size > 1 else np.broadcast_to(values[:1], programs.shape)

    itemsize = tensor_map.itemsize
    begin = np.maximum(coordinates[0], 0)
    end = np.minimum(coordinates[0] + tensor_map.box[0], of(tensor_map.extents[0]))
    base = of(tensor_map.address).astype(np.int64) + begin * itemsize
    length = np.maximum(end - begin, 0) * itemsize
    rows = base[:, None]
    alive = (length > 0)[:, None]
    for dimension in range(1, len(tensor_map.box)):
        places = coordinates[dimension][:, None] + np.arange(tensor_map.box[dimension])
        inside = (places >= 0) & (places < of(tensor_map.extents[dimension])[:, None])
        steps = places * of(tensor_map.strides[dimension - 1])[:, None]
        rows = (rows[:, :, None] + steps[:, None, :]).reshape(len(rows), -1)
        alive = (alive[:, :, None] & inside[:, None, :]).reshape(len(alive), -1)
    lengths = np.broadcast_to(length[:, None], rows.shape)[alive]
    starts = rows[alive]
    return _counted(starts, lengths, np.broadcast_to(programs[:, None], rows.shape)[alive], len(programs), itemsize)


def _counted(starts: Array, lengths: Array, programs: Array, requests: int, itemsize: int) -> Box:
    sectors = (starts + lengths - 1) // SECTOR_BYTES - starts // SECTOR_BYTES + 1
    used = int(lengths.sum())
    count = Count(
        requests=requests,
        sectors=int(sectors.sum()),
        ideal_sectors=-(-used // SECTOR_BYTES),
        bytes_used=used,
        lanes=requests,
    )
    longest = int(lengths.max()) if lengths.size else itemsize
    unit = math.gcd(_UNIT_BYTES, *np.unique(lengths).tolist()) if lengths.size else itemsize
    unit = math.gcd(unit, *np.unique(starts % _UNIT_BYTES).tolist()) if starts.size else unit
    places = np.arange(0, longest, unit)
    inside = places[None, :] < lengths[:, None]
    units = (starts[:, None] + places)[inside].astype(np.uint64)
    who = np.broadcast_to(programs[:, None], inside.shape)[inside]
    tags = frozenset((np.unique(starts >> TAG_SHIFT)).tolist())
    return Box(count, tags, longest, units, unit, who)
