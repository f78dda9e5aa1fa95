"""Views of GPU memory without torch, and the worker's own kernels on them.

A view has the methods that Triton's launcher and its descriptors need from a tensor.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache

from kernellab._triton.device_binaries import BASIC, KernelVariant, comparing_variants, device_kernel
from kernellab._triton.device_kernels import BLOCK, DIMENSIONS
from kernellab.gpu.driver import (
    DeviceBytes,
    DeviceFunction,
    allocate,
    capability_of,
    current_device,
    load_function,
    set_words,
)
from kernellab.launch.arguments import TRITON_NAMES, TensorSpec

COMPARED_DTYPES = frozenset(name for name in TRITON_NAMES if "float8" not in name)
"""The dtypes whose outputs are compared without torch."""
_WORDS = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}
_WIDEST_SET = 4
_NO_PLACE = 2**62
_BUSY_TURNS = 15_000  # some 80 microseconds


@dataclass(frozen=True, slots=True)
class DeviceDtype:
    """A dtype by torch's name, printed as torch prints it."""

    name: str
    itemsize: int

    def __str__(self) -> str:
        return f"torch.{self.name}"

    @property
    def is_floating_point(self) -> bool:
        """Whether the dtype is a floating-point format."""
        return "float" in self.name


@dataclass(frozen=True, slots=True, eq=False)
class DeviceView:
    """Elements in GPU memory; ``spec`` lays them out in ``memory``, which the view keeps alive."""

    memory: DeviceBytes
    spec: TensorSpec

    def data_ptr(self) -> int:
        """Return the address of the first element; 0 without elements, as in torch."""
        is_empty = not self.memory.address or 0 in self.spec.shape
        return 0 if is_empty else self.memory.address + self.spec.offset_bytes

    @property
    def dtype(self) -> DeviceDtype:
        """The format of the elements."""
        return DeviceDtype(self.spec.dtype, self.spec.itemsize)

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dimensions."""
        return self.spec.shape

    def stride(self) -> tuple[int, ...]:
        """Return the stride of each dimension, in elements."""
        return self.spec.strides

    def numel(self) -> int:
        """Return the number of elements."""
        return math.prod(self.spec.shape)

    def element_size(self) -> int:
        """Return the bytes of an element."""
        return self.spec.itemsize

    @property
    def real_dtype(self) -> tuple[str, int]:
        """Name and bytes of the real numbers that an element consists of."""
        numbers = _real_numbers_of(self.spec)
        return numbers.dtype, numbers.itemsize

    def clone(self) -> DeviceView:
        """Return a copy with the same layout, including the bytes between elements."""
        begin, span = self.spec.offset_bytes, self.spec.span_bytes
        spec = TensorSpec(0, 0, self.spec.shape, self.spec.strides, self.spec.dtype, self.spec.itemsize)
        return DeviceView(self.memory[begin : begin + span].clone(), spec)

    def zero_(self) -> None:
        """Set all elements to zero."""
        self.fill_bits(0)

    def fill_bits(self, bits: int) -> None:
        """Set the bits of all elements, or of both parts of complex numbers."""
        numbers = _real_numbers_of(self.spec)
        size = numbers.itemsize
        if _is_dense(numbers) and size <= _WIDEST_SET:
            set_words(self.data_ptr(), bits, size, math.prod(numbers.shape))
            return
        for offset, part in parts_of(numbers):
            _launch("fill_view", part, (self.data_ptr() + offset * size, bits), _WORDS[size])


def is_comparable(spec: TensorSpec) -> bool:
    """Whether `compare_views` supports the format and layout of a view."""
    return spec.dtype in COMPARED_DTYPES and len(_merge_dimensions(spec)) <= DIMENSIONS


def parts_of(spec: TensorSpec) -> Iterator[tuple[int, TensorSpec]]:
    """Yield parts of a view with at most as many dimensions as the kernels support, and their offsets.

    Offsets are in elements, from the first one of the view.
    """
    dimensions = _merge_dimensions(spec)
    outer, inner = dimensions[:-DIMENSIONS], dimensions[-DIMENSIONS:]
    sizes, strides = zip(*inner, strict=True)
    part = TensorSpec(0, 0, sizes, strides, spec.dtype, spec.itemsize)
    for index in itertools.product(*(range(size) for size, _ in outer)):
        yield sum(place * stride for place, (_, stride) in zip(index, outer, strict=True)), part


def _real_numbers_of(spec: TensorSpec) -> TensorSpec:
    """Return the layout of the real numbers in a view: a complex element is two."""
    if "complex" not in spec.dtype:
        return spec
    doubled = tuple(2 * stride for stride in spec.strides)
    return TensorSpec(0, 0, (*spec.shape, 2), (*doubled, 1), f"float{4 * spec.itemsize}", spec.itemsize // 2)


def _merge_dimensions(spec: TensorSpec) -> list[tuple[int, int]]:
    """Merge dimensions: size and stride of the fewest that enumerate the same elements in the same order."""
    dimensions: list[tuple[int, int]] = []
    for size, stride in zip(spec.shape, spec.strides, strict=True):
        if size == 1:
            continue
        if dimensions and dimensions[-1][1] == size * stride:
            dimensions[-1] = dimensions[-1][0] * size, stride
        else:
            dimensions.append((size, stride))
    return dimensions or [(1, 1)]


def _is_dense(spec: TensorSpec) -> bool:
    return _merge_dimensions(spec) in ([(math.prod(spec.shape), 1)], [(1, 1)])


def _launch(name: str, spec: TensorSpec, arguments: Sequence[int], element: str) -> None:
    """Launch a kernel on the elements of a view, if there are any."""
    count, dimensions = math.prod(spec.shape), _merge_dimensions(spec)
    if not count:
        return
    padded = [(1, 0)] * (DIMENSIONS - len(dimensions)) + dimensions
    sizes, strides = [size for size, _ in padded[1:]], [stride for _, stride in padded]
    function = _function(KernelVariant(name, element, _is_dense(spec)), current_device())
    function.launch(-(-count // BLOCK), (*arguments, count, *sizes, *strides))


@lru_cache
def _function(variant: KernelVariant, device: int) -> DeviceFunction:
    kernel = device_kernel(variant, capability_of(device))
    return load_function(kernel.binary, kernel.name, kernel.parameters, kernel.threads, kernel.shared_bytes)


def kernels_for(dtypes: Iterable[str]) -> tuple[KernelVariant, ...]:
    """Return the kernels of redzones and stopwatch, and those that compare outputs of some of torch's dtypes."""
    comparing = (comparing_variants(_element_of(dtype)) for dtype in dtypes if dtype in COMPARED_DTYPES)
    return tuple(dict.fromkeys((*BASIC, *itertools.chain.from_iterable(comparing))))


def _element_of(dtype: str) -> str:
    return "u8" if dtype == "bool" else TRITON_NAMES[dtype]


@dataclass(frozen=True, slots=True)
class ElementDifference:
    """The number of differing elements and their max difference; infinity if only one of a pair is finite."""

    count: int
    largest: float


@dataclass(frozen=True, slots=True)
class Limits:
    """Rounding limits of a format: unit roundoff, smallest normal and greatest finite number; see `tolerance`.

    ``share`` is the tolerance, as a share of the largest element, of outputs with no reference but their format.
    """

    unit: float
    smallest: float
    greatest: float
    share: float


def compare_views(got: DeviceView, want: DeviceView, limits: Limits) -> ElementDifference:
    """Compare ``got`` with ``want``, two views of one layout and format."""
    arguments = (got.data_ptr(), want.data_ptr())
    element = _element_of(got.spec.dtype)
    if not got.dtype.is_floating_point:
        counter = allocate(16).zero_()
        _launch("differing_integers", got.spec, (*arguments, counter.address), element)
        count, distance = struct.unpack("<qd", counter.read())
        return ElementDifference(count, distance)
    # limits, largest, count, distance, unknown
    counters = allocate(64).write(struct.pack("<4d4q", *astuple(limits), 0, 0, 0, 0))
    largest, sums = counters.address + 32, counters.address + 40
    _launch("largest_size", want.spec, (want.data_ptr(), largest), element)
    _launch("differing_floats", got.spec, (*arguments, largest, counters.address, sums), element)
    count, distance, unknown = struct.unpack("<qdq", counters[40:].read())
    return ElementDifference(count, math.inf if unknown else distance)


def fill_redzone(room: DeviceBytes, start: int, end: int) -> None:
    """Fill a redzone with its pattern."""
    _launch_on_bytes("mark_zone", end - start, room.address, start, end)


def redzone_damages(room: DeviceBytes, zones: Sequence[tuple[int, int]]) -> list[tuple[int, int, int] | None]:
    """Return the damage of each redzone: number of bytes, first and last place; None if it is intact."""
    counters = allocate(24 * len(zones)).write(struct.pack("<3q", 0, _NO_PLACE, -1) * len(zones))
    for index, (start, end) in enumerate(zones):
        _launch_on_bytes("zone_damage", end - start, room.address, start, end, counters.address + 24 * index)
    damages = struct.iter_unpack("<3q", counters.read())
    return [(count, first, last) if count else None for count, first, last in damages]


def byte_sums(memories: Sequence[DeviceBytes]) -> list[int]:
    """Return the sum of the bytes of each memory."""
    if not memories:
        return []
    counters = allocate(8 * len(memories)).zero_()
    for index, data in enumerate(memories):
        size_bytes = data.size_bytes
        _launch_on_bytes("sum_of_bytes", size_bytes, data.address, size_bytes, counters.address + 8 * index)
    return [total for (total,) in struct.iter_unpack("<q", counters.read())]


def keep_busy(word: DeviceBytes) -> None:
    """Keep the device busy for longer than the host needs for a launch; ``word`` is 8 bytes of scratch memory."""
    _launch_on_bytes("keep_busy", 1, _BUSY_TURNS, word.address)


def _launch_on_bytes(name: str, count: int, *arguments: int) -> None:
    """Launch one of the `BASIC` kernels, one program for each block of bytes."""
    if count > 0:
        _function(KernelVariant(name), current_device()).launch(-(-count // BLOCK), arguments)


def load_kernels() -> None:
    """Load the kernels of redzones and stopwatch, so that the first launch does not wait for them."""
    for variant in BASIC:
        _function(variant, current_device())
