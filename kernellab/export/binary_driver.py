"""Launches of cubins by the CUDA driver API through ctypes, as Triton's own launcher makes them.

Its text is copied into exported binaries, before `kernellab.export.binary_loader`.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import torch

# Numbers of the CUDA Driver API reference manual.
_MAX_DYNAMIC_SHARED, _STATIC_SHARED, _NON_PORTABLE_CLUSTER = 8, 1, 14  # CUfunction_attribute
_SHARED_OPTIN = 97  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
_DEVICE_POINTER = 3  # CU_POINTER_ATTRIBUTE_DEVICE_POINTER
_COOPERATIVE, _CLUSTER_DIMENSION, _CLUSTER_POLICY, _PROGRAMMATIC = 2, 4, 5, 6  # CUlaunchAttributeID
_SPREAD, _PREFER_SHARED = 1, 1
_STATIC_SHARED_AT_MOST = 48 << 10
MAP_BYTES, _TF32 = 128, 11
_FIXED_MAPS_DRIVER = 13010  # later drivers encode small tensors right: see `CudaDriver.tensor_map`


def cdiv(size: int, block: int) -> int:
    """Return the number of blocks that cover a size."""
    return -(-size // block)


class _LaunchAttribute(ctypes.Structure):
    _fields_ = (("number", ctypes.c_int), ("padding", ctypes.c_int), ("value", ctypes.c_uint * 16))


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig of the driver."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_LaunchAttribute)),
        ("count", ctypes.c_uint),
    )


class CudaDriver:
    """The CUDA driver API, on the device and the stream that torch uses in the calling thread."""

    @functools.cached_property
    def library(self) -> Any:
        """The library, initialised by torch."""
        return ctypes.CDLL("libcuda.so.1")

    @functools.cached_property
    def current_device(self) -> Callable[[], int]:
        """Returns the number of torch's current device."""
        torch.cuda.current_device()  # initialises CUDA
        return getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)

    @functools.cached_property
    def current_stream(self) -> Callable[[int], int]:
        """Returns the address of torch's current stream on a device."""
        slow = lambda device: int(torch.cuda.current_stream(device).cuda_stream)  # noqa: E731
        return getattr(torch._C, "_cuda_getCurrentRawStream", slow)

    def target(self, device: int) -> str:
        """Return the target of a device, such as ``cuda:90``."""
        if torch.version.hip is not None:
            return "hip"
        major, minor = torch.cuda.get_device_capability(device)
        return f"cuda:{10 * major + minor}"

    def allocate(self, size: int, device: int) -> Any:
        """Return zeros on a device, written in the order of torch's stream."""
        return torch.zeros(size, dtype=torch.uint8, device=f"cuda:{device}")

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver; raise RuntimeError with the driver's words where it fails."""
        self.require_success(name, getattr(self.library, name)(*arguments))

    def require_success(self, name: str, code: int) -> None:
        """Raise RuntimeError with the driver's words where the code that a function returned is not 0."""
        if code:
            text = ctypes.c_char_p()
            self.library.cuGetErrorString(code, ctypes.byref(text))
            words = text.value.decode() if text.value else f"error {code}"
            raise RuntimeError(f"CUDA error in {name}: {words}")

    def enter_context(self, device: int) -> bool:
        """Make the primary context of a device current in this thread, where none is; return whether none was."""
        context = ctypes.c_void_p()
        self.call("cuCtxGetCurrent", ctypes.byref(context))
        if context.value:
            return False
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        return True

    def load(self, binary: dict[str, Any], device: int) -> Any:
        """Return the function of a binary, with room for its shared memory."""
        shared_bytes = binary["shared_bytes"]
        self.enter_context(device)
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), binary["image"])
        self.call("cuModuleGetFunction", ctypes.byref(function), module, binary["symbol"].encode())
        if shared_bytes > _STATIC_SHARED_AT_MOST:
            most, static = ctypes.c_int(), ctypes.c_int()
            self.call("cuDeviceGetAttribute", ctypes.byref(most), _SHARED_OPTIN, device)
            self.call("cuFuncGetAttribute", ctypes.byref(static), _STATIC_SHARED, function)
            self.call("cuFuncSetCacheConfig", function, _PREFER_SHARED)
            self.call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, most.value - static.value)
        if binary["num_ctas"] == 16:
            self.call("cuFuncSetAttribute", function, _NON_PORTABLE_CLUSTER, 1)
        return function

    def address(self, tensor: Any) -> int:
        """Return the address of a tensor as the GPU sees it; raise ValueError for memory that it cannot reach."""
        return int(tensor.data_ptr() if getattr(tensor, "is_cuda", False) else self.device_pointer(tensor))

    def device_pointer(self, tensor: Any) -> int:
        """Return the address of a tensor, or of memory with ``data_ptr``, as the GPU sees it; 0 for None.

        Raises:
            ValueError: a GPU cannot reach it.
        """
        host = 0 if tensor is None else tensor.data_ptr()
        if not host:
            return 0
        self.enter_context(self.current_device())
        address = ctypes.c_uint64()
        code = self.library.cuPointerGetAttribute(ctypes.byref(address), _DEVICE_POINTER, ctypes.c_uint64(host))
        if code:
            place = getattr(tensor, "device", "an unknown device")
            raise ValueError(f"A tensor on {place} was passed to a kernel; a GPU cannot reach its memory.")
        return address.value

    def tensor_map(self, descriptor: Any, fields: dict[str, Any]) -> bytes:
        """Return the tensor map of a descriptor, encoded as Triton's launcher does it."""
        shape = [int(extent) for extent in descriptor.shape]
        if fields["fp4_padded"]:
            shape[-1] *= 2
        rank, size = len(shape), fields["elem_size"]
        steps = [int(stride) * size for stride in descriptor.strides[:-1]]
        steps.append(shape[0] * (steps[0] if rank > 1 else size))
        storage = ctypes.create_string_buffer(2 * MAP_BYTES)
        start = -ctypes.addressof(storage) % 64
        is_tf32 = getattr(descriptor, "round_f32_to_tf32", False)
        self.call(
            "cuTensorMapEncodeTiled",
            ctypes.c_void_p(ctypes.addressof(storage) + start),
            ctypes.c_int(_TF32 if is_tf32 else fields["elem_type"]),
            ctypes.c_uint(rank),
            ctypes.c_void_p(self.device_pointer(descriptor.base)),
            (ctypes.c_uint64 * rank)(*reversed(shape)),
            (ctypes.c_uint64 * rank)(*reversed(steps[:-1]), steps[-1]),
            (ctypes.c_uint32 * rank)(*reversed(fields["block_size"])),
            (ctypes.c_uint32 * rank)(*[1] * rank),
            ctypes.c_int(0),  # CU_TENSOR_MAP_INTERLEAVE_NONE
            ctypes.c_int(fields["swizzle"]),
            ctypes.c_int(2),  # CU_TENSOR_MAP_L2_PROMOTION_L2_128B
            ctypes.c_int(1 if descriptor.padding == "nan" else 0),
        )
        words = bytearray(storage.raw[start : start + MAP_BYTES])
        span = 1 + sum((extent - 1) * step for extent, step in zip(shape, [*steps[:-1], size], strict=True))
        version = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(version))
        if version.value <= _FIXED_MAPS_DRIVER and span < 128 * 1024:
            words[10] &= ~(1 << 5)  # bit 21 of the second word; CUTLASS commit b7ecaa605dd7
        return bytes(words)

    def repeat_launch(self, code: int, device: int, *arguments: Any) -> None:
        """Repeat a launch that failed for lack of a context in this thread; raise RuntimeError for other failures."""
        if self.enter_context(device):
            code = self.library.cuLaunchKernelEx(*arguments)
        self.require_success("cuLaunchKernelEx", code)


def launch_attributes(binary: dict[str, Any]) -> Any:
    """Return the attributes with which a binary is launched."""
    attributes: list[tuple[int, tuple[int, ...]]] = []
    attributes += [(_PROGRAMMATIC, (1,))] * binary["pdl"] + [(_COOPERATIVE, (1,))] * binary["cooperative"]
    if binary["num_ctas"] != 1:
        attributes += [(_CLUSTER_DIMENSION, (binary["num_ctas"], 1, 1)), (_CLUSTER_POLICY, (_SPREAD,))]
    return (_LaunchAttribute * len(attributes))(
        *(_LaunchAttribute(number, 0, (ctypes.c_uint * 16)(*value)) for number, value in attributes)
    )
