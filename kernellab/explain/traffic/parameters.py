"""The arguments of a launch as the parameters of its compiled kernel, tensor maps among them.

Triton gives each argument but constexprs a parameter, in order. A host descriptor is followed by its shape and strides;
on targets without tensor maps it is a pointer with these. Pointers to scratch memory come last.

An access through a descriptor touches a box of a tensor, which its tensor map defines. The fields are those of
``cuTensorMapEncodeTiled`` in the CUDA driver API: extents and strides of the tensor, the innermost dimension first,
and the extents of a box. Triton cuts a block into boxes whose rows are as long as the swizzle of shared memory, 128
bytes at most (``getTMABlockShape`` in its ``Dialect.cpp``).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernellab.errors import UsageError, plural
from kernellab.explain.argument_views import TensorView
from kernellab.explain.traffic.arithmetic import Array
from kernellab.explain.traffic.assembler import assembled_kernel
from kernellab.explain.traffic.counting import Count
from kernellab.explain.traffic.machine import Machine, UnknownOperand, parameter_address
from kernellab.explain.traffic.memory import TAG_SHIFT, LaunchBuffer, LaunchMemory
from kernellab.ir.ptx import Address, Immediate, Operand, PtxInstruction, PtxKernel, members_of
from kernellab.target import SECTOR_BYTES

SCRATCH = "scratch memory"
_SCRATCH_BYTES = 1 << 26


@dataclass(frozen=True, slots=True)
class RuntimeArgument:
    """A run-time argument: its name, its type in Triton's signature, and its value.

    ``address`` replaces the true address of a tensor.
    """

    name: str
    type: str
    value: Any
    address: int | None = None


@dataclass(frozen=True, slots=True)
class PtxLaunch:
    """A launch on the machine: the kernel as ptxas assembles it, and the grid.

    ``parameters`` are those of the kernel as bytes, ``memory`` is what they point to, ``maps`` are the tensor maps
    among them, by address.
    """

    kernel: PtxKernel
    grid: tuple[int, int, int]
    parameters: tuple[bytes, ...]
    memory: LaunchMemory
    maps: dict[int, TensorMap]


@dataclass(slots=True)
class _Binding:
    """Assigns arguments to the parameters of a kernel; a value is bytes, or the number of a buffer for its pointer."""

    kernel: PtxKernel
    buffers: list[LaunchBuffer] = field(default_factory=list)
    values: list[bytes | int] = field(default_factory=list)
    descriptors: list[tuple[int, int, Any]] = field(default_factory=list)

    def next_size(self) -> int:
        """Return the bytes of the next parameter."""
        place = len(self.values)
        if place >= len(self.kernel.parameters):
            raise UsageError(
                f"{self.kernel.name} has {plural(place, 'parameter')}, fewer than the launch has arguments."
            )
        return self.kernel.parameters[place].size_bytes

    def bind(self, argument: RuntimeArgument) -> None:
        if argument.type.startswith("tensordesc"):
            self._bind_descriptor(argument)
        elif argument.type.startswith("*"):
            self.bind_pointer(buffer_of(argument.name, argument.value, argument.address))
        else:
            self._bind_number(argument.value, argument.type)

    def bind_pointer(self, buffer: LaunchBuffer) -> None:
        self.next_size()
        self.values.append(len(self.buffers))
        self.buffers.append(buffer)

    def _bind_descriptor(self, argument: RuntimeArgument) -> None:
        numbers = [*map(int, argument.value.shape), *map(int, argument.value.strides)]
        buffer = buffer_of(argument.name, argument.value.base, argument.address)
        if self.next_size() == TENSOR_MAP_BYTES:
            self.descriptors.append((len(self.values), len(self.buffers), argument.value))
            self.buffers.append(buffer)
            self.values.append(bytes(TENSOR_MAP_BYTES))
        else:
            self.bind_pointer(buffer)
            for number in numbers:
                self._bind_number(number, "i64")
            while self.next_size() == 1:
                self.values.append(b"\0")
        for number in numbers:
            self._bind_number(number, "i64")

    def _bind_number(self, number: Any, kind: str) -> None:
        size_bytes = self.next_size()
        if isinstance(number, float) or kind.startswith(("fp", "bf")):
            self.values.append(struct.pack("<d" if size_bytes == 8 else "<f", float(number)))
        else:
            self.values.append((int(number) % (1 << (8 * size_bytes))).to_bytes(size_bytes, "little"))


def bind_arguments(kernel: PtxKernel, grid: tuple[int, int, int], arguments: Sequence[RuntimeArgument]) -> PtxLaunch:
    """Return a launch of a kernel; parameters without an argument get scratch memory.

    Raises:
        UsageError: there are more arguments than parameters.
    """
    binding = _Binding(kernel)
    for argument in arguments:
        binding.bind(argument)
    for place in range(len(binding.values), len(kernel.parameters)):
        name = f"{SCRATCH} {place}"
        binding.bind_pointer(LaunchBuffer(name, 0, 0, _SCRATCH_BYTES, 1, (), (), name, _no_bytes))
    memory = LaunchMemory(tuple(binding.buffers))
    values = (memory.start(v).to_bytes(8, "little") if isinstance(v, int) else v for v in binding.values)
    maps = {
        parameter_address(place): host_map(memory.start(buffer), binding.buffers[buffer].itemsize, descriptor)
        for place, buffer, descriptor in binding.descriptors
    }
    return PtxLaunch(assembled_kernel(kernel), grid, tuple(values), memory, maps)


def buffer_of(name: str, tensor: Any, address: int | None) -> LaunchBuffer:
    """Return a tensor as a buffer; its contents are read only on demand. ``address`` replaces its true one."""
    if not hasattr(tensor, "untyped_storage") and hasattr(tensor, "base"):
        tensor = tensor.base  # a tensor under another type
    if not hasattr(tensor, "untyped_storage"):
        place = int(tensor.data_ptr()) if address is None else address
        return LaunchBuffer(name, place, 0, 0, 1, (0,), (1,), name, _no_bytes)
    storage = tensor.untyped_storage()
    itemsize = tensor.element_size()

    def read() -> Array:
        if isinstance(tensor, TensorView):
            return tensor.contents()
        import torch  # keeps `import kernellab` light

        content: Array = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage).cpu().numpy()
        return content

    return LaunchBuffer(
        name=name,
        address=tensor.data_ptr() if address is None else address,
        offset_bytes=tensor.storage_offset() * itemsize,
        storage_bytes=storage.nbytes(),
        itemsize=itemsize,
        shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
        key=(str(tensor.device), storage.data_ptr()),
        read=read,
    )


def _no_bytes() -> Array:
    return np.zeros(0, np.uint8)


def runtime_arguments(name: str, kind: Any, value: Any) -> Iterator[RuntimeArgument]:
    """Yield the run-time arguments of one argument of a call: the members of a tuple, nothing for None."""
    if isinstance(kind, tuple | list):
        for index, (member, item) in enumerate(zip(kind, value, strict=True)):
            yield from runtime_arguments(f"{name}[{index}]", member, item)
    elif kind != "constexpr":
        yield RuntimeArgument(name, str(kind), value)


_SWIZZLE_BYTES = 128
_MOST_ROWS = 256
_ELEMENT_BYTES = {0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 4, 9: 8, 10: 2, 11: 4, 12: 4}
_UNIT_BYTES = 16
TENSOR_MAP_BYTES = 128
REPLACED_WORDS = {"global_address": (0, 1), "global_dim": (0, 1), "global_stride": (1, 2)}
"""The words of shared memory loaded and stored to set a field, by machine code; one each for all other fields."""


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tensor map; each field is one array per dimension or as a whole, with an element per program or one for all.

    ``strides`` are bytes, of all dimensions but the innermost.
    """

    address: Array
    itemsize: int
    extents: tuple[Array, ...]
    strides: tuple[Array, ...]
    box: tuple[int, ...]


def host_map(address: int, itemsize: int, descriptor: Any) -> TensorMap:
    """Return the tensor map that Triton encodes for a host descriptor; the innermost dimension of that is the last."""
    layout = (descriptor.shape, descriptor.strides, descriptor.block_shape)
    shape, strides, block = (tuple(map(int, axis)) for axis in layout)
    inner = min(block[-1], _SWIZZLE_BYTES // itemsize)
    box = (inner, *(min(size, _MOST_ROWS) for size in reversed(block[:-1])))
    extents = tuple(np.array([size], np.int64) for size in reversed(shape))
    steps = tuple(np.array([stride * itemsize], np.int64) for stride in reversed(strides[:-1]))
    return TensorMap(np.array([address], np.uint64), itemsize, extents, steps, box)


@dataclass(frozen=True, slots=True)
class Box:
    """The memory that the boxes of one executed instruction touch.

    ``units`` are the addresses of pieces of ``unit_bytes``, ``programs`` the row of the program of each.
    """

    count: Count
    tags: frozenset[int]
    row_bytes: int
    units: Array
    unit_bytes: int
    programs: Array


@dataclass(slots=True)
class TensorMaps:
    """The tensor maps of a launch: those that are parameters, by address, and those that programs built."""

    parameters: Mapping[int, TensorMap]
    _built_maps: list[tuple[Array, dict[tuple[str, int], Array]]] = field(default_factory=list)

    def execute(self, machine: Machine, instruction: PtxInstruction) -> None:
        """Set a field of a map in shared memory, or copy a map from there to global memory."""
        try:
            target = _program_values(machine, instruction.operands[0])
        except UnknownOperand:
            return
        fields = self._built_map(target)
        *ordinal, source = instruction.operands[1:]
        if instruction.parts[1] == "cp_fenceproxy":
            with suppress(UnknownOperand):
                if (copied := self._built_map(_program_values(machine, instruction.operands[1]))) is not None:
                    self._built_maps.append((target, dict(copied)))
            return
        if fields is None:
            fields = {}
            self._built_maps.append((target, fields))
        key = (instruction.parts[3], ordinal[0].bits if ordinal and isinstance(ordinal[0], Immediate) else 0)
        fields.pop(key, None)
        with suppress(UnknownOperand):
            fields[key] = _program_values(machine, source)

    def boxes(self, machine: Machine, instruction: PtxInstruction, active: Array | None) -> Box:
        """Return the memory that the boxes of an access touch.

        Raises:
            UnknownOperand: it is not known.
        """
        operand = next((o for o in instruction.operands if isinstance(o, Address) and o.coordinates), None)
        if operand is None or "tile::gather4" in instruction.parts or "tile::scatter4" in instruction.parts:
            raise UnknownOperand(f"{instruction.opcode}, whose boxes are not followed")
        tensor_map, by_program = self._map_at(machine, operand)
        lanes = np.broadcast_to(np.True_ if active is None else active, machine.shape)
        coordinates = [
            np.broadcast_to(value, lanes.shape)[lanes].astype(np.uint32).view(np.int32).astype(int)
            for value in machine.values(members_of(operand.coordinates[0]))
        ]
        return _box(tensor_map, coordinates, np.nonzero(lanes)[0], by_program)

    def _map_at(self, machine: Machine, operand: Address) -> tuple[TensorMap, bool]:
        """Return the map at an address, and whether each program has its own."""
        address = _program_values(machine, Address(operand.base, operand.offset_bytes))
        parameter = self.parameters.get(int(address[0]))
        if parameter is not None:
            return parameter, False
        fields = self._built_map(address)
        built = None if fields is None else _map_from_fields(fields)
        if built is None:
            raise UnknownOperand("a tensor map that was not made here")
        return built, True

    def _built_map(self, address: Array) -> dict[tuple[str, int], Array] | None:
        return next((fields for at, fields in reversed(self._built_maps) if np.array_equal(at, address)), None)


def _program_values(machine: Machine, operand: Operand) -> Array:
    """Return a value per program, that of its first thread."""
    base, offset_bytes = (operand.base, operand.offset_bytes) if isinstance(operand, Address) else (operand, 0)
    (value,) = machine.values((base,))
    column = np.broadcast_to(value, (machine.shape[0], value.shape[1]))[:, 0].astype(np.uint64)
    return column + np.uint64(offset_bytes)


def _map_from_fields(fields: Mapping[tuple[str, int], Array]) -> TensorMap | None:
    """Return a tensor map built field by field; None where a field is missing."""
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
    return _box_of_rows(starts, lengths, np.broadcast_to(programs[:, None], rows.shape)[alive], len(programs), itemsize)


def _box_of_rows(starts: Array, lengths: Array, programs: Array, requests: int, itemsize: int) -> Box:
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
    program_rows = np.broadcast_to(programs[:, None], inside.shape)[inside]
    tags = frozenset((np.unique(starts >> TAG_SHIFT)).tolist())
    return Box(count, tags, longest, units, unit, program_rows)
