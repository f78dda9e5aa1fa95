# ruff: noqa: N802 - the functions have the names of the driver's
"""A stand-in for ``libcuda.so.1``: its functions succeed, and it notes what is loaded and launched."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any


@dataclass
class CudaLibrary:
    """The functions of the driver that a loader of binaries calls.

    ``refused`` are names of functions that fail. ``launches`` have the grid, block, shared bytes, attributes and the
    addresses of the parameters, whose bytes are read by the sizes of ``next_sizes``.
    """

    refused: tuple[str, ...] = ()
    next_sizes: tuple[int, ...] = ()
    images: list[bytes] = field(default_factory=list)
    symbols: list[bytes] = field(default_factory=list)
    attributes: list[tuple[int, int]] = field(default_factory=list)
    maps: list[tuple[Any, ...]] = field(default_factory=list)
    launches: list[dict[str, Any]] = field(default_factory=list)

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("cu") and name in self.refused:
            return lambda *arguments: 222
        return object.__getattribute__(self, name)

    def cuGetErrorString(self, code: int, text: Any) -> int:
        text._obj.value = b"the provided PTX was compiled with an unsupported toolchain."
        return 0

    def cuCtxGetCurrent(self, context: Any) -> int:
        context._obj.value = None
        return 0

    def cuDevicePrimaryCtxRetain(self, context: Any, device: int) -> int:
        context._obj.value = 1
        return 0

    def cuCtxSetCurrent(self, context: Any) -> int:
        return 0

    def cuModuleLoadData(self, module: Any, image: bytes) -> int:
        self.images.append(image)
        module._obj.value = len(self.images)
        return 0

    def cuModuleGetFunction(self, function: Any, module: Any, symbol: bytes) -> int:
        self.symbols.append(symbol)
        function._obj.value = module.value
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: int) -> int:
        value._obj.value = 227 << 10
        return 0

    def cuFuncGetAttribute(self, value: Any, attribute: int, function: Any) -> int:
        value._obj.value = 1024
        return 0

    def cuFuncSetAttribute(self, function: Any, attribute: int, value: int) -> int:
        self.attributes.append((attribute, value))
        return 0

    def cuFuncSetCacheConfig(self, function: Any, config: int) -> int:
        return 0

    def cuDriverGetVersion(self, version: Any) -> int:
        version._obj.value = 12080
        return 0

    def cuPointerGetAttribute(self, value: Any, attribute: int, address: Any) -> int:
        value._obj.value = address.value
        return 0

    def cuTensorMapEncodeTiled(self, place: Any, kind: Any, rank: Any, address: Any, *lists: Any) -> int:
        ctypes.memset(place, 0xFF, 128)
        self.maps.append((kind.value, rank.value, address.value, *(_plain(part) for part in lists)))
        return 0

    def cuLaunchKernelEx(self, config: Any, function: Any, parameters: Any, extra: Any) -> int:
        how = config._obj
        sizes = self.next_sizes or (8,) * len(parameters)
        self.launches.append(
            {
                "grid": tuple(how.grid),
                "block": tuple(how.block),
                "shared_bytes": how.shared_bytes,
                "stream": how.stream,
                "attributes": [(how.attributes[i].number, *how.attributes[i].value[:3]) for i in range(how.count)],
                "function": function.value,
                "parameters": [ctypes.string_at(p, size) for p, size in zip(parameters, sizes, strict=True)],
            }
        )
        return 0


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, ctypes.Array) else value.value


def use_library(kernel: Any, library: CudaLibrary, target: str = "cuda:90") -> None:
    """Let a kernel of exported binaries launch through a stand-in, on CPU tensors."""
    import torch

    driver = kernel.driver
    vars(kernel).pop("launch", None)  # it has read the driver before
    for launches in (kernel.functions, kernel.packers, kernel.runs):
        launches.clear()
    driver.library = library
    driver.current_device, driver.current_stream = (lambda: 0), (lambda device: 7)
    driver.target = lambda device: target
    driver.allocate = lambda size, device: torch.zeros(size, dtype=torch.uint8)
