"""A launch as plain data, and its arguments in memory that another process maps.

Tensors travel as views of storages; two arguments that are views of one storage stay so. For the CPU, all memory is
copied once into one block that both processes map. The tensors of the user change only after a clean run, and only
where the kernel changed something.
"""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import mmap
import numbers
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

from kernellab.errors import LaunchError
from kernellab.workers.forks_and_interrupts import is_fork

# Triton's names of dtypes by those of torch.
TRITON_DTYPES = {
    "bool": "i1",
    "uint8": "u8",
    "int8": "i8",
    "int16": "i16",
    "uint16": "u16",
    "int32": "i32",
    "uint32": "u32",
    "int64": "i64",
    "uint64": "u64",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
    "float8_e4m3fnuz": "fp8e4b8",
    "float8_e5m2fnuz": "fp8e5b16",
}


class CannotExport(Exception):
    """An argument cannot be exported to another process; the text says which, and why."""


@dataclass(frozen=True, slots=True)
class SharedBlock:
    """Memory that two processes map: a path that both can open, and its size in bytes."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StorageSpec:
    """One storage: where it lies in the block, and its address in the process of its owner. All in bytes."""

    offset_bytes: int
    size_bytes: int
    address: int


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A view of a storage. ``strides`` count elements, ``offset_bytes`` bytes.

    ``dtype`` is Triton's name ("fp32") for the interpreter, and torch's ("float32") for the GPU worker.
    """

    storage: int
    offset_bytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    itemsize: int

    @property
    def span_bytes(self) -> int:
        """The bytes from the first element to the end of the last one."""
        if 0 in self.shape:
            return 0
        last = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return (last + 1) * self.itemsize


@dataclass(frozen=True, slots=True)
class DescriptorSpec:
    """A ``TensorDescriptor`` over a tensor. ``padding`` is ``"zero"`` or ``"nan"``."""

    base: TensorSpec
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block_shape: tuple[int, ...]
    padding: str = "zero"
    round_f32_to_tf32: bool = False

    @staticmethod
    def of(value: Any, base: TensorSpec) -> DescriptorSpec:
        """Return a descriptor of Triton's as data, over a tensor that is data already."""
        return DescriptorSpec(
            base=base,
            shape=tuple(map(int, value.shape)),
            strides=tuple(map(int, value.strides)),
            block_shape=tuple(map(int, value.block_shape)),
            padding=str(value.padding),
            round_f32_to_tf32=bool(getattr(value, "round_f32_to_tf32", False)),
        )


@dataclass(frozen=True, slots=True)
class TupleSpec:
    """A tuple of arguments; a named one where ``fields`` is not None."""

    items: tuple[ArgumentSpec, ...]
    type_name: str = "tuple"
    fields: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ScalarSpec:
    """A number, string or None."""

    value: bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class DtypeSpec:
    """A ``tl.dtype``, by Triton's name for it."""

    name: str


ArgumentSpec = TensorSpec | DescriptorSpec | TupleSpec | ScalarSpec | DtypeSpec


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch: the grid, the arguments by name, the memory they lie in.

    ``uninitialised`` names arguments whose contents count as never written; of a tuple, its members: ``outs[1]``.
    """

    grid: tuple[int, int, int]
    arguments: tuple[tuple[str, ArgumentSpec], ...]
    block: SharedBlock
    storages: tuple[StorageSpec, ...]
    uninitialised: frozenset[str] = frozenset()


def members_of(arguments: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield arguments with their names, of a tuple its members: ``outs[1]``."""
    for name, value in arguments:
        if isinstance(value, tuple):
            yield from members_of((f"{name}[{i}]", member) for i, member in enumerate(value))
        else:
            yield name, value


def memory_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tensors among the arguments, by name; ``outs[1]`` for a member of a tuple."""
    found: dict[str, Any] = {}
    for name, value in members_of(arguments.items()):
        if hasattr(value, "untyped_storage"):
            found[name] = value
        elif hasattr(getattr(value, "base", None), "untyped_storage"):
            found[name] = value.base
    return found


def spec_of(
    name: str, value: Any, tensor: Callable[[str, Any], TensorSpec], other: Callable[[str, Any], ArgumentSpec]
) -> ArgumentSpec:
    """Return an argument as data: of tensors what ``tensor`` gives, of what is no argument of a kernel ``other``."""
    if isinstance(value, tuple):
        items = tuple(spec_of(f"{name}[{i}]", item, tensor, other) for i, item in enumerate(value))
        return TupleSpec(items, type(value).__name__, getattr(value, "_fields", None))
    if _is_descriptor(value):
        return DescriptorSpec.of(value, tensor(name, value.base))
    if hasattr(value, "data_ptr"):
        return tensor(name, value)
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return ScalarSpec(kind(value))
    if isinstance(value, numbers.Real):  # of numpy
        return ScalarSpec(int(value) if isinstance(value, numbers.Integral) else float(value))
    return ScalarSpec(None) if value is None else other(name, value)


def _is_descriptor(value: Any) -> bool:
    return all(hasattr(value, name) for name in ("base", "block_shape", "strides", "padding"))


def leaves_of(name: str, spec: ArgumentSpec) -> Iterator[tuple[str, ArgumentSpec]]:
    """Yield an argument with its name, of a tuple its members: ``outs[1]``."""
    if isinstance(spec, TupleSpec):
        for i, item in enumerate(spec.items):
            yield from leaves_of(f"{name}[{i}]", item)
    else:
        yield name, spec


def tensors_of(name: str, spec: ArgumentSpec) -> list[tuple[str, TensorSpec]]:
    """Return every tensor of an argument with its name, that of a descriptor too."""
    bases = ((n, leaf.base if isinstance(leaf, DescriptorSpec) else leaf) for n, leaf in leaves_of(name, spec))
    return [(n, tensor) for n, tensor in bases if isinstance(tensor, TensorSpec)]


# Storages keep their alignment up to this many bytes, and lie at least that far apart.
_ALIGNMENT = 256
_CHUNK_BYTES = 1 << 24

_Ranges = tuple[tuple[int, int], ...]
"""The addresses of all storages, in order; those that overlap count as one: two tensors may wrap the same memory."""


@dataclass(slots=True)
class SharedArguments:
    """Arguments in shared memory: the launch as data, and what is needed to bring results back."""

    launch: Launch
    _arguments: Mapping[str, object]
    _mapping: mmap.mmap
    _file: IO[bytes]

    def take_back(self, written: frozenset[int]) -> dict[str, int]:
        """Copy the storages of some indices, which a clean run has written to, into the user's tensors.

        Returns the number of changed elements per argument that holds memory; elements count as changed when their
        bits differ.
        """
        tensors = [found for name, spec in self.launch.arguments for found in tensors_of(name, spec)]
        changed = {name: self._changed_elements(spec) if spec.storage in written else 0 for name, spec in tensors}
        for index in written:
            self._copy_back(index)
        return changed

    def close(self) -> None:
        """Give the memory back; where a profiler or debugger holds a frame that uses it, it goes with that frame."""
        with contextlib.suppress(BufferError):
            self._mapping.close()
        self._file.close()

    def _fill(self) -> None:
        for index in range(len(self.launch.storages)):
            self._worker_bytes(index)[...] = self._user_bytes(index)

    def _user_bytes(self, index: int) -> Any:
        """Return the user's memory as a numpy array; the arguments keep it alive."""
        import numpy as np

        spec = self.launch.storages[index]
        if not spec.size_bytes:
            return np.empty(0, np.uint8)
        memory = (ctypes.c_ubyte * spec.size_bytes).from_address(spec.address)
        return np.ctypeslib.as_array(memory)

    def _worker_bytes(self, index: int) -> Any:
        import numpy as np

        spec = self.launch.storages[index]
        return np.frombuffer(self._mapping, np.uint8, spec.size_bytes, spec.offset_bytes)

    def _changed_elements(self, spec: TensorSpec) -> int:
        import numpy as np

        if not spec.span_bytes:
            return 0
        bits = np.dtype(f"V{spec.itemsize}" if spec.itemsize not in {1, 2, 4, 8} else f"u{spec.itemsize}")
        strides = tuple(stride * spec.itemsize for stride in spec.strides)
        before, after = (
            np.ndarray(spec.shape, bits, held, spec.offset_bytes, strides)
            for held in (self._user_bytes(spec.storage), self._worker_bytes(spec.storage))
        )
        return int(np.count_nonzero(before != after))

    def _copy_back(self, index: int) -> None:
        import numpy as np

        before, after = self._user_bytes(index), self._worker_bytes(index)
        for start in range(0, before.size, _CHUNK_BYTES):
            old, new = before[start : start + _CHUNK_BYTES], after[start : start + _CHUNK_BYTES]
            np.copyto(old, new, where=old != new)


@contextlib.contextmanager
def in_shared_memory(
    arguments: Mapping[str, object], grid: tuple[int, int, int], *, uninitialised: frozenset[str] = frozenset()
) -> Iterator[SharedArguments]:
    """Yield the arguments of a launch as data, and give their memory back at the end.

    ``arguments`` are bound by name: CPU tensors, ``TensorDescriptor``s, numbers, strings, None, dtypes of
    ``triton.language``, and tuples of such. Values of constexprs that are none of these are left out by the caller.

    Raises:
        LaunchError: an argument cannot be taken along (another device, sparse, ...), or there is no room for it.
    """
    ranges = _ranges(arguments)
    tensor = partial(_tensor_spec, ranges)
    specs = tuple((name, spec_of(name, value, tensor, _other_spec)) for name, value in arguments.items())
    _check_names(uninitialised, specs)
    storages, size_bytes = _storages(ranges)
    file, path, mapping = _block(max(size_bytes, 1))
    launch = Launch(grid, specs, SharedBlock(path, len(mapping)), storages, uninitialised)
    result = SharedArguments(launch, arguments, mapping, file)
    try:
        result._fill()
        yield result
    finally:
        result.close()


def _check_names(uninitialised: frozenset[str], specs: tuple[tuple[str, ArgumentSpec], ...]) -> None:
    known = {name for name, _ in specs} | {found for name, spec in specs for found, _ in tensors_of(name, spec)}
    for name in sorted(uninitialised - known):
        raise LaunchError(f"uninitialised names {name!r}; expected one of {', '.join(sorted(known))}.")


def _ranges(arguments: Mapping[str, Any]) -> _Ranges:
    merged: list[tuple[int, int]] = []
    for start, end in sorted({found for _, value in members_of(arguments.items()) for found in _range_of(value)}):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return tuple(merged)


def _range_of(value: Any) -> Iterator[tuple[int, int]]:
    tensor = value.base if _is_descriptor(value) or _is_reinterpreted(value) else value
    if _is_on_cpu(tensor):
        storage = tensor.untyped_storage()
        yield storage.data_ptr(), storage.data_ptr() + storage.nbytes()


def _storages(ranges: _Ranges) -> tuple[tuple[StorageSpec, ...], int]:
    """Return where each range lies in the block, and the size of that in bytes."""
    specs, size_bytes = [], 0
    for start, end in ranges:
        offset = size_bytes + _ALIGNMENT + (start - size_bytes) % _ALIGNMENT
        specs.append(StorageSpec(offset, end - start, start))
        size_bytes = offset + end - start + _ALIGNMENT
    return tuple(specs), size_bytes


def _tensor_spec(ranges: _Ranges, name: str, value: Any) -> TensorSpec:
    tensor, dtype = (value.base, str(value.dtype)) if _is_reinterpreted(value) else (value, None)
    _check_tensor(name, tensor)
    if dtype is None:
        torch_name = str(tensor.dtype).removeprefix("torch.")
        if torch_name not in TRITON_DTYPES:
            raise LaunchError(f"{name} is a tensor of {tensor.dtype}, which Triton has no type for.")
        dtype = TRITON_DTYPES[torch_name]
    storage = tensor.untyped_storage()
    index = bisect.bisect_right(ranges, storage.data_ptr(), key=lambda found: found[0]) - 1
    spec = TensorSpec(
        storage=index,
        offset_bytes=storage.data_ptr() - ranges[index][0] + tensor.storage_offset() * tensor.element_size(),
        shape=tuple(map(int, tensor.shape)),
        strides=tuple(map(int, tensor.stride())),
        dtype=dtype,
        itemsize=tensor.element_size(),
    )
    require_memory(name, tensor)
    return spec


def require_memory(name: str, tensor: Any) -> None:
    """Refuse a tensor whose storage ends before its last element, where a look at it would end the process.

    Raises:
        LaunchError: the storage of the tensor was resized or freed.
    """
    if not tensor.numel():
        return
    last = sum((extent - 1) * step for extent, step in zip(tensor.shape, tensor.stride(), strict=True))
    end = tensor.storage_offset() + last + 1
    if end * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise LaunchError(f"{name} has no memory of its own: its storage was resized or freed.")


def _other_spec(name: str, value: Any) -> ArgumentSpec:
    kind = type(value)
    if kind.__module__.startswith("triton.") and kind.__name__ == "dtype":
        return DtypeSpec(value.name)
    if kind.__module__.startswith("triton.") and kind.__name__ == "constexpr":
        return spec_of(name, value.value, partial(_tensor_spec, ()), _other_spec)
    raise LaunchError(
        f"{name} is a {kind.__module__}.{kind.__qualname__}, which cannot be an argument of a kernel; "
        "expected a tensor, a TensorDescriptor, a number, None, or a tuple of such."
    )


def _is_reinterpreted(value: Any) -> bool:
    """Tell whether a value comes from ``triton.reinterpret``: a tensor under another type."""
    return type(value).__name__ == "TensorWrapper" and hasattr(value, "base")


def _check_tensor(name: str, tensor: Any) -> None:
    device = getattr(getattr(tensor, "device", None), "type", None)
    if device == "meta" or type(tensor).__name__ == "FakeTensor":
        raise LaunchError(f"{name} is a tensor without data (device {device}); give it data with torch.empty_like.")
    if device != "cpu" and is_fork():
        raise LaunchError(
            f"{name} is a tensor on {device}, which cannot be used in a fork of a process that uses it. "
            "Start the process with multiprocessing's spawn, or pass tensors of the CPU."
        )
    if device != "cpu":
        raise LaunchError(f"{name} is a tensor on {device}, and the kernel runs on the CPU; pass {name}.cpu().")
    from kernellab._triton.specialize import dense_problem  # loads Triton

    if (problem := dense_problem(name, tensor)) is not None:
        raise LaunchError(problem)
    if getattr(tensor, "is_quantized", False):
        raise LaunchError(f"{name} is a quantized tensor; pass {name}.int_repr() and its scale.")


def _is_on_cpu(value: Any) -> bool:
    """Tell whether a value is a tensor with memory that this process can read."""
    if not hasattr(value, "data_ptr") or getattr(getattr(value, "device", None), "type", None) != "cpu":
        return False
    return str(getattr(value, "layout", "")) == "torch.strided" and type(value).__name__ != "FakeTensor"


def _block(size_bytes: int) -> tuple[IO[bytes], str, mmap.mmap]:
    """Return memory that another process can map by its path and that no crash can leave behind.

    It lies in memory, or in a deleted file in the folder for temporary files where memory is short.
    """
    failure: OSError | None = None
    for opened in (_file_in_memory, _file_on_disk):
        file = opened(size_bytes)
        if file is None:
            continue
        try:
            os.posix_fallocate(file.fileno(), 0, size_bytes)
            return file, f"/proc/{os.getpid()}/fd/{file.fileno()}", mmap.mmap(file.fileno(), size_bytes)
        except OSError as exc:
            file.close()
            failure = exc
    reason = "" if failure is None else f": {failure.strerror or failure}"
    raise LaunchError(
        f"There is no room for a copy of the arguments, {size_bytes / 2**20:.0f} MiB, in memory or in "
        f"{tempfile.gettempdir()}{reason}. Pass smaller tensors."
    ) from failure


def _file_in_memory(size_bytes: int) -> IO[bytes] | None:
    if size_bytes > _available_bytes() or not hasattr(os, "memfd_create"):
        return None
    return os.fdopen(os.memfd_create("kernellab"), "r+b")


def _file_on_disk(size_bytes: int) -> IO[bytes] | None:
    if size_bytes > shutil.disk_usage(tempfile.gettempdir()).free:
        return None
    return tempfile.TemporaryFile(prefix="kernellab-")


def _available_bytes() -> int:
    """Return how much memory Linux says can be had without swapping."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        found = next((line for line in lines if line.startswith("MemAvailable:")), None)
    return int(found.split()[1]) * 1024 if found is not None else 1 << 62
