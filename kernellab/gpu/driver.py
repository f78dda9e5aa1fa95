"""NVIDIA's driver API, as far as launching and timing need it, without torch.

Importing torch takes seconds, a driver context some tenths of one. Everything runs on the default stream of a device's
primary context, which torch uses as well, so that both work in one process. Names and numbers are those of the CUDA
Driver API reference manual.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

_LIBRARY = "libcuda.so.1"
_SUCCESS, _NOT_READY = 0, 600
_L2_CACHE_SIZE, _CAPABILITY_MAJOR, _CAPABILITY_MINOR = 38, 75, 76  # CUdevice_attribute
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_STATIC_SHARED_AT_MOST = 48 << 10
_LAZY_PEER_ACCESS = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
_IPC_HANDLE_BYTES = 64
_UUID_BYTES = 16
_DEFAULT_STREAM = None


class DriverError(RuntimeError):
    """An error code of the driver: a refused launch, a fault of a kernel, out of memory."""


class _IpcHandle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_ubyte * _IPC_HANDLE_BYTES),)


@lru_cache(maxsize=1)
def _library() -> Any:
    """Return the driver's library, initialised.

    Raises:
        DriverError: there is none, or no GPU.
    """
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError as exc:
        raise DriverError(f"{_LIBRARY}, the driver of NVIDIA's GPUs, cannot be loaded: {exc}") from exc
    _check(library, library.cuInit(0))
    return library


def _check(library: Any, code: int, call: str = "") -> None:
    if code == _SUCCESS:
        return
    text = ctypes.c_char_p()
    library.cuGetErrorString(code, ctypes.byref(text))
    words = text.value.decode() if text.value else f"error {code}"
    raise DriverError(f"CUDA error: {words}{f' ({call})' if call else ''}")


def _call(name: str, *arguments: Any) -> None:
    library = _library()
    _check(library, getattr(library, name)(*arguments), name)


@dataclass(frozen=True, slots=True)
class IpcHandle:
    """An allocation of another process, by the driver's handle, and the offset of a memory in it."""

    data: bytes
    offset_bytes: int


def ipc_handle(address: int, device: int) -> IpcHandle:
    """Return the handle by which another process maps the memory at an address of a device.

    Raises:
        DriverError: the memory was not allocated in a way that can be shared.
    """
    base, size, handle = ctypes.c_uint64(), ctypes.c_size_t(), _IpcHandle()
    with _context_of(device):
        _call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(address))
        _call("cuIpcGetMemHandle", ctypes.byref(handle), base)
    return IpcHandle(ctypes.string_at(ctypes.byref(handle), _IPC_HANDLE_BYTES), address - base.value)


@dataclass(slots=True, eq=False)
class _DriverMemory:
    """Owner of driver memory, allocated or mapped: releases it with its last reference.

    After a fault of the device, the driver ignores the release.
    """

    address: int
    release_call: str

    def __del__(self) -> None:
        getattr(_library(), self.release_call)(ctypes.c_uint64(self.address))


@dataclass(frozen=True, slots=True, eq=False)
class DeviceBytes:
    """Bytes in the memory of a GPU; a slice shares the memory and keeps it alive.

    The methods are those of a torch tensor of bytes.
    """

    address: int
    size_bytes: int
    owner: object = None

    def data_ptr(self) -> int:
        """Return the address of the first byte."""
        return self.address

    def numel(self) -> int:
        """Return the number of bytes."""
        return self.size_bytes

    def __getitem__(self, part: slice) -> DeviceBytes:
        start, stop, step = part.indices(self.size_bytes)
        assert step == 1, "bytes in a row"
        return DeviceBytes(self.address + start, max(0, stop - start), self.owner)

    def copy_(self, source: DeviceBytes, *, non_blocking: bool = True) -> DeviceBytes:
        """Copy all bytes from other memory of the device; asynchronous."""
        assert source.size_bytes == self.size_bytes, "as many bytes"
        if self.size_bytes:
            to, count = ctypes.c_uint64(self.address), ctypes.c_size_t(self.size_bytes)
            _call("cuMemcpyDtoDAsync_v2", to, ctypes.c_uint64(source.address), count, _DEFAULT_STREAM)
        return self

    def clone(self) -> DeviceBytes:
        """Return a copy in new memory."""
        return allocate(self.size_bytes).copy_(self)

    def zero_(self) -> DeviceBytes:
        """Set all bytes to zero; asynchronous."""
        set_words(self.address, 0, 1, self.size_bytes)
        return self

    def read(self) -> bytes:
        """Return the bytes, after all earlier work of the device."""
        buffer = ctypes.create_string_buffer(self.size_bytes)
        if self.size_bytes:
            _call("cuMemcpyDtoH_v2", buffer, ctypes.c_uint64(self.address), ctypes.c_size_t(self.size_bytes))
        return buffer.raw

    def write(self, data: bytes) -> DeviceBytes:
        """Write ``data``, of the same length."""
        assert len(data) == self.size_bytes, "as many bytes"
        if data:
            _call("cuMemcpyHtoD_v2", ctypes.c_uint64(self.address), ctypes.c_char_p(data), ctypes.c_size_t(len(data)))
        return self

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """CUDA Array Interface, version 3: torch makes a tensor of bytes on the same memory from it."""
        return {"shape": (self.size_bytes,), "typestr": "|u1", "data": (self.address, False), "version": 3}


def allocate(size_bytes: int) -> DeviceBytes:
    """Allocate memory on the current device.

    Raises:
        DriverError: out of memory.
    """
    if not size_bytes:
        return DeviceBytes(0, 0)
    address = ctypes.c_uint64()
    _call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size_bytes))
    return DeviceBytes(address.value, size_bytes, _DriverMemory(address.value, "cuMemFree_v2"))


def set_words(address: int, bits: int, size_bytes: int, count: int) -> None:
    """Set consecutive words of 1, 2 or 4 bytes; asynchronous."""
    if count:
        word = {1: ctypes.c_ubyte, 2: ctypes.c_ushort, 4: ctypes.c_uint}[size_bytes](bits)
        name = f"cuMemsetD{8 * size_bytes}Async"
        _call(name, ctypes.c_uint64(address), word, ctypes.c_size_t(count), _DEFAULT_STREAM)


def map_ipc_memory(handle: IpcHandle, size_bytes: int) -> DeviceBytes:
    """Map memory of another process.

    Raises:
        DriverError: the memory was freed, or lies on a device that this one cannot reach.
    """
    base = ctypes.c_uint64()
    _call(
        "cuIpcOpenMemHandle_v2",
        ctypes.byref(base),
        _IpcHandle.from_buffer_copy(handle.data),
        ctypes.c_uint(_LAZY_PEER_ACCESS),
    )
    return DeviceBytes(base.value + handle.offset_bytes, size_bytes, _DriverMemory(base.value, "cuIpcCloseMemHandle"))


@dataclass(slots=True, eq=False)
class DeviceEvent:
    """An event on the device with timing, like `torch.cuda.Event`."""

    _handle: ctypes.c_void_p = field(default_factory=ctypes.c_void_p)

    def __post_init__(self) -> None:
        _call("cuEventCreate", ctypes.byref(self._handle), ctypes.c_uint(0))

    def __del__(self) -> None:
        if self._handle:
            _library().cuEventDestroy_v2(self._handle)

    def record(self) -> None:
        """Record the event after the work submitted so far."""
        _call("cuEventRecord", self._handle, _DEFAULT_STREAM)

    def query(self) -> bool:
        """Whether the device has reached the event."""
        library = _library()
        code = library.cuEventQuery(self._handle)
        if code not in (_SUCCESS, _NOT_READY):
            _check(library, code)
        return bool(code == _SUCCESS)

    def elapsed_time(self, end: DeviceEvent) -> float:
        """Return the milliseconds from this event to a later one; both must be complete."""
        milliseconds = ctypes.c_float()
        _call("cuEventElapsedTime", ctypes.byref(milliseconds), self._handle, end._handle)
        return milliseconds.value


@dataclass(frozen=True, slots=True)
class DeviceFunction:
    """A loaded kernel with 64-bit words as parameters: addresses and integers.

    ``parameters`` is their number; ``threads`` and ``shared_bytes`` are those of a program.
    """

    handle: ctypes.c_void_p
    parameters: int
    threads: int
    shared_bytes: int

    def launch(self, programs: int, arguments: Sequence[int]) -> None:
        """Launch a one-dimensional grid; missing parameters, unused scratch memory, are 0."""
        padded = [*arguments, *[0] * (self.parameters - len(arguments))]
        words = [ctypes.c_uint64(value % 2**64) for value in padded]
        pointers = (ctypes.c_void_p * len(words))(*[ctypes.addressof(word) for word in words])
        sizes = map(ctypes.c_uint, (programs, 1, 1, self.threads, 1, 1, self.shared_bytes))
        _call("cuLaunchKernel", self.handle, *sizes, _DEFAULT_STREAM, pointers, None)


def load_function(binary: bytes, name: str, parameters: int, threads: int, shared_bytes: int) -> DeviceFunction:
    """Load a kernel of a cubin into the current context, where it stays."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    _call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(binary))
    _call("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(name.encode()))
    if shared_bytes > _STATIC_SHARED_AT_MOST:
        _call("cuFuncSetAttribute", function, ctypes.c_int(_MAX_DYNAMIC_SHARED), ctypes.c_int(shared_bytes))
    return DeviceFunction(function, parameters, threads, shared_bytes)


def unload(module: int) -> None:
    """Unload a module by the driver's number; the device must not be using it."""
    _library().cuModuleUnload(ctypes.c_void_p(module))  # after a fault of the device, the driver ignores this


@lru_cache
def _primary_context(number: int) -> ctypes.c_void_p:
    device, context = ctypes.c_int(), ctypes.c_void_p()
    _call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(number))
    _call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    return context


@contextlib.contextmanager
def _context_of(number: int) -> Iterator[None]:
    """Use the primary context of a device inside a with statement."""
    _call("cuCtxPushCurrent_v2", _primary_context(number))
    try:
        yield
    finally:
        _call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))


def use_device(number: int) -> None:
    """Make the primary context of a device current in this thread; it lives as long as the process.

    Raises:
        DriverError: there is no such device, or no driver.
    """
    _call("cuCtxSetCurrent", _primary_context(number))


def begin_context(number: str) -> None:
    """Begin to make the primary context of a device in the background, while this process imports its modules."""

    def make() -> None:
        with contextlib.suppress(DriverError):  # the first job will raise it
            _primary_context(int(number))

    threading.Thread(target=make, daemon=True).start()


def current_device() -> int:
    """Return the number of this thread's current device."""
    device = ctypes.c_int()
    _call("cuCtxGetDevice", ctypes.byref(device))
    return device.value


def _attribute(device: int, attribute: int) -> int:
    value = ctypes.c_int()
    _call("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(attribute), ctypes.c_int(device))
    return value.value


def capability_of(device: int) -> tuple[int, int]:
    """Return the compute capability: (9, 0)."""
    return _attribute(device, _CAPABILITY_MAJOR), _attribute(device, _CAPABILITY_MINOR)


def uuid_of(device: int) -> bytes:
    """Return the UUID of a device, independent of its number in this process; a MIG instance has its own."""
    uuid = ctypes.create_string_buffer(_UUID_BYTES)
    _call("cuDeviceGetUuid_v2", uuid, ctypes.c_int(device))
    return uuid.raw


def l2_bytes_of(device: int) -> int:
    """Return the size of the L2 cache."""
    return _attribute(device, _L2_CACHE_SIZE)


def synchronize() -> None:
    """Wait for all submitted work of the device.

    Raises:
        DriverError: a kernel failed; the context cannot be used any more.
    """
    library = _library()
    _check(library, library.cuCtxSynchronize())


def free_bytes() -> int:
    """Return the free memory of the current device."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    _call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value
