"""Takes the arguments of a launch to another process and back, by way of shared memory.

All memory of the arguments is copied once into one block that both processes map; the tensors of the user change only
after a clean run, and only where the kernel changed something.
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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

from kernellab.errors import LaunchError
from kernellab.launch.arguments import (
    TRITON_DTYPES,
    ArgumentSpec,
    DescriptorSpec,
    DtypeSpec,
    Launch,
    ScalarSpec,
    SharedBlock,
    StorageSpec,
    TensorSpec,
    TupleSpec,
    tensors_of,
)
from kernellab.launch.run import RunOutcome
from kernellab.workers.forks_and_interrupts import is_fork

# Storages keep their alignment up to this many bytes, and lie at least that far apart.
_ALIGNMENT = 256
_CHUNK_BYTES = 1 << 24


@dataclass(slots=True)
class SharedArguments:
    """Arguments in shared memory: the launch as data, and what is needed to bring results back."""

    launch: Launch
    _arguments: Mapping[str, object]
    _mapping: mmap.mmap
    _file: IO[bytes]

    def take_back(self, outcome: RunOutcome) -> dict[str, int]:
        """Copy what a clean run changed into the user's tensors.

        Returns the number of changed elements per argument that holds memory; elements count as changed when their
        bits differ. After a failure nothing is copied.
        """
        tensors = [found for name, spec in self.launch.arguments for found in tensors_of(name, spec)]
        if outcome.failure is not None:
            return dict.fromkeys((name for name, _ in tensors), 0)
        changed = {
            name: self._changed_elements(spec) if spec.storage in outcome.written else 0 for name, spec in tensors
        }
        for index in outcome.written:
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
        window = slice(spec.offset_bytes, spec.offset_bytes + spec.span_bytes)
        before, after = self._user_bytes(spec.storage)[window], self._worker_bytes(spec.storage)[window]
        bits = np.dtype(f"V{spec.itemsize}") if spec.itemsize not in {1, 2, 4, 8} else np.dtype(f"u{spec.itemsize}")
        strides = tuple(stride * spec.itemsize for stride in spec.strides)
        views = (np.lib.stride_tricks.as_strided(_as(flat, bits), spec.shape, strides) for flat in (before, after))
        return int(np.count_nonzero(np.not_equal(*views)))

    def _copy_back(self, index: int) -> None:
        before, after = self._user_bytes(index), self._worker_bytes(index)
        for start in range(0, before.size, _CHUNK_BYTES):
            old, new = before[start : start + _CHUNK_BYTES], after[start : start + _CHUNK_BYTES]
            different = old != new
            if different.any():
                old[different] = new[different]


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
    maker = _SpecMaker(_ranges(arguments.values()))
    specs = tuple((name, maker.spec(name, value)) for name, value in arguments.items())
    _check_names(uninitialised, specs)
    storages, size_bytes = maker.storages()
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


def _ranges(values: Iterable[Any]) -> tuple[tuple[int, int], ...]:
    """Return the address ranges of all storages, those that overlap as one: two tensors may wrap the same memory."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted({found for value in values for found in _storage_ranges(value)}):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return tuple(merged)


def _storage_ranges(value: Any) -> Iterator[tuple[int, int]]:
    if isinstance(value, tuple):
        for item in value:
            yield from _storage_ranges(item)
    elif _is_descriptor(value) or _is_reinterpreted(value):
        yield from _storage_ranges(value.base)
    elif _is_on_cpu(value):
        storage = value.untyped_storage()
        yield storage.data_ptr(), storage.data_ptr() + storage.nbytes()


@dataclass(frozen=True, slots=True)
class _SpecMaker:
    """Turns arguments into specs. ``ranges`` are the addresses of all their memory, in ascending order."""

    ranges: tuple[tuple[int, int], ...]

    def storages(self) -> tuple[tuple[StorageSpec, ...], int]:
        """Return where each range lies in the block, and the size of that in bytes."""
        specs, size_bytes = [], 0
        for start, end in self.ranges:
            offset = size_bytes + _ALIGNMENT + (start - size_bytes) % _ALIGNMENT
            specs.append(StorageSpec(offset, end - start, start))
            size_bytes = offset + end - start + _ALIGNMENT
        return tuple(specs), size_bytes

    def spec(self, name: str, value: Any) -> ArgumentSpec:
        """Return how an argument travels."""
        if value is None or isinstance(value, bool | int | float | str):
            return ScalarSpec(_plain(value))
        if isinstance(value, tuple):
            items = tuple(self.spec(f"{name}[{i}]", item) for i, item in enumerate(value))
            return TupleSpec(items, type(value).__name__, getattr(value, "_fields", None))
        if _is_descriptor(value):
            return DescriptorSpec.of(value, self._tensor(name, value.base))
        if hasattr(value, "data_ptr"):
            return self._tensor(name, value)
        return _other(name, value)

    def _tensor(self, name: str, value: Any) -> TensorSpec:
        tensor, dtype = (value.base, str(value.dtype)) if _is_reinterpreted(value) else (value, None)
        _check_tensor(name, tensor)
        if dtype is None:
            torch_name = str(tensor.dtype).removeprefix("torch.")
            if torch_name not in TRITON_DTYPES:
                raise LaunchError(f"{name} is a tensor of {tensor.dtype}, which Triton has no type for.")
            dtype = TRITON_DTYPES[torch_name]
        storage = tensor.untyped_storage()
        index = bisect.bisect_right(self.ranges, storage.data_ptr(), key=lambda found: found[0]) - 1
        spec = TensorSpec(
            storage=index,
            offset_bytes=storage.data_ptr() - self.ranges[index][0] + tensor.storage_offset() * tensor.element_size(),
            shape=tuple(map(int, tensor.shape)),
            strides=tuple(map(int, tensor.stride())),
            dtype=dtype,
            itemsize=tensor.element_size(),
        )
        if spec.span_bytes and tensor.storage_offset() * spec.itemsize + spec.span_bytes > storage.nbytes():
            raise LaunchError(f"{name} has no memory of its own: its storage was resized or freed.")
        return spec


def _plain(value: Any) -> bool | int | float | str | None:
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return None


def _other(name: str, value: Any) -> ArgumentSpec:
    kind = type(value)
    if kind.__module__.startswith("triton.") and kind.__name__ == "dtype":
        return DtypeSpec(value.name)
    if kind.__module__.startswith("triton.") and kind.__name__ == "constexpr":
        return _SpecMaker(()).spec(name, value.value)
    if isinstance(value, numbers.Integral):
        return ScalarSpec(int(value))
    if isinstance(value, numbers.Real):
        return ScalarSpec(float(value))
    raise LaunchError(
        f"{name} is a {kind.__module__}.{kind.__qualname__}, which cannot be an argument of a kernel; "
        "expected a tensor, a TensorDescriptor, a number, None, or a tuple of such."
    )


def _is_descriptor(value: Any) -> bool:
    return all(hasattr(value, name) for name in ("base", "block_shape", "strides", "padding"))


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


def _as(flat: Any, dtype: Any) -> Any:
    """View bytes as elements; ``flat`` may be followed by less than one more element."""
    return flat[: flat.size // dtype.itemsize * dtype.itemsize].view(dtype)


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
