"""The arguments of a launch as the parameters of its compiled kernel.

Triton gives each argument a parameter, in order, but none to a constexpr. A descriptor of the host brings its shape and
strides along; on targets without tensor maps it is a pointer with these. Pointers to scratch memory come last.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernellab.errors import UsageError, plural
from kernellab.explain.traffic.arithmetic import Array
from kernellab.explain.traffic.machine import parameter_address
from kernellab.explain.traffic.memory import LaunchBuffer, LaunchMemory
from kernellab.explain.traffic.tensor_maps import TENSOR_MAP_BYTES, TensorMap, host_map
from kernellab.ir.ptx import PtxKernel, PtxParameter

SCRATCH = "scratch memory"
_SCRATCH_BYTES = 1 << 26


@dataclass(frozen=True, slots=True)
class RuntimeArgument:
    """A run-time argument: its name, the type that Triton gave it, and its value.

    ``address`` is where a tensor is taken to lie, if that is not where it lies.
    """

    name: str
    type: str
    value: Any
    address: int | None = None


@dataclass(frozen=True, slots=True)
class BoundParameters:
    """The parameters of a kernel as bytes, the memory that they point to, and the tensor maps by address."""

    parameters: tuple[bytes, ...]
    memory: LaunchMemory
    maps: dict[int, TensorMap]


@dataclass(slots=True)
class _Binding:
    """Deals arguments out to the parameters of a kernel."""

    kernel: PtxKernel
    buffers: list[LaunchBuffer] = field(default_factory=list)
    filled: list[bytes] = field(default_factory=list)
    pointers: list[tuple[int, int]] = field(default_factory=list)
    descriptors: list[tuple[int, int, Any]] = field(default_factory=list)

    def next_parameter(self) -> PtxParameter:
        place = len(self.filled)
        if place >= len(self.kernel.parameters):
            raise UsageError(
                f"{self.kernel.name} has {plural(place, 'parameter')}, fewer than the launch has arguments."
            )
        return self.kernel.parameters[place]

    def take(self, given: RuntimeArgument) -> None:
        if given.type.startswith("tensordesc"):
            self._descriptor(given)
        elif given.type.startswith("*"):
            self._pointer(self._buffer(given.name, given.value, given.address))
        else:
            self.filled.append(_scalar(given.value, self.next_parameter().size_bytes, given.type))

    def _pointer(self, buffer: int) -> None:
        self.next_parameter()
        self.pointers.append((len(self.filled), buffer))
        self.filled.append(b"")

    def _buffer(self, name: str, tensor: Any, address: int | None) -> int:
        self.buffers.append(buffer_of(name, tensor, address))
        return len(self.buffers) - 1

    def _descriptor(self, given: RuntimeArgument) -> None:
        shape, strides = tuple(map(int, given.value.shape)), tuple(map(int, given.value.strides))
        buffer = self._buffer(given.name, given.value.base, given.address)
        if self.next_parameter().size_bytes == TENSOR_MAP_BYTES:
            self.descriptors.append((len(self.filled), buffer, given.value))
            self.filled.append(bytes(TENSOR_MAP_BYTES))
        else:
            self._pointer(buffer)
            self._numbers((*shape, *strides))
            while self.next_parameter().size_bytes == 1:
                self.filled.append(b"\0")
        self._numbers((*shape, *strides))

    def _numbers(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self.filled.append(_scalar(number, self.next_parameter().size_bytes, "i64"))

    def scratch(self) -> None:
        """Give all that is left a piece of scratch memory each."""
        while len(self.filled) < len(self.kernel.parameters):
            name = f"{SCRATCH} {len(self.filled)}"
            self.buffers.append(LaunchBuffer(name, 0, 0, _SCRATCH_BYTES, 1, (), (), name, _nothing))
            self._pointer(len(self.buffers) - 1)


def bound_arguments(kernel: PtxKernel, given: Sequence[RuntimeArgument]) -> BoundParameters:
    """Return the parameters of a kernel for a launch.

    Raises:
        UsageError: there are more arguments than parameters.
    """
    binding = _Binding(kernel)
    for each in given:
        binding.take(each)
    binding.scratch()
    memory = LaunchMemory(tuple(binding.buffers))
    for place, buffer in binding.pointers:
        binding.filled[place] = memory.start(buffer).to_bytes(8, "little")
    maps = {
        parameter_address(place): host_map(
            memory.start(buffer),
            binding.buffers[buffer].itemsize,
            tuple(map(int, descriptor.shape)),
            tuple(map(int, descriptor.strides)),
            tuple(map(int, descriptor.block_shape)),
        )
        for place, buffer, descriptor in binding.descriptors
    }
    return BoundParameters(tuple(binding.filled), memory, maps)


def buffer_of(name: str, tensor: Any, address: int | None = None) -> LaunchBuffer:
    """Return a tensor as a buffer; what it holds is fetched only if it matters."""
    if not hasattr(tensor, "untyped_storage") and hasattr(tensor, "base"):
        tensor = tensor.base  # a tensor under another type
    if not hasattr(tensor, "untyped_storage"):
        place = int(tensor.data_ptr()) if address is None else address
        return LaunchBuffer(name, place, 0, 0, 1, (0,), (1,), name, _nothing)
    storage = tensor.untyped_storage()
    itemsize = tensor.element_size()

    def read() -> Array:
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


def _nothing() -> Array:
    return np.zeros(0, np.uint8)


def _scalar(value: Any, size_bytes: int, kind: str) -> bytes:
    if isinstance(value, float) or kind.startswith(("fp", "bf")):
        return struct.pack("<d" if size_bytes == 8 else "<f", float(value))
    return (int(value) % (1 << (8 * size_bytes))).to_bytes(size_bytes, "little")


def flattened(name: str, kind: Any, value: Any) -> Iterator[RuntimeArgument]:
    """Yield the run-time arguments that one argument of a call stands for: the members of a tuple, nothing of None."""
    if isinstance(kind, tuple | list):
        for index, (member, each) in enumerate(zip(kind, value, strict=True)):
            yield from flattened(f"{name}[{index}]", member, each)
    elif kind != "constexpr":
        yield RuntimeArgument(name, str(kind), value)
