"""The worker's own kernels, compiled for its GPU, in a form that the driver loads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton

from kernellab._triton import device_kernels
from kernellab._triton.device_kernels import BLOCK
from kernellab._triton.specialize import gpu_target, source_of
from kernellab.target import parse_target

# The types of parameters by name; those of data are the caller's, all others integers.
_DATA = frozenset({"room", "data", "got_data", "want_data"})
_TYPES = {"found": "*i64", "largest": "*fp64", "limits": "*fp64"}


@dataclass(frozen=True, slots=True)
class DeviceKernel:
    """A compiled kernel: its cubin and name in it, how many parameters of 64 bits it has, threads and shared memory."""

    binary: bytes
    name: str
    parameters: int
    threads: int
    shared_bytes: int


def compiled_device_kernel(name: str, capability: tuple[int, int], element: str = "u8", **flags: bool) -> DeviceKernel:
    """Compile one of the worker's kernels for data of a type, by Triton's name for it; Triton keeps it on disk."""
    function = getattr(device_kernels, name)
    constants: dict[str, int] = {**flags, "BLOCK": BLOCK}
    types = {**dict.fromkeys(_DATA, f"*{element}"), **_TYPES, **dict.fromkeys(constants, "constexpr")}
    signature = {parameter: types.get(parameter, "i64") for parameter in function.arg_names}
    paths: dict[tuple[int, ...], Any] = {
        (function.arg_names.index(parameter),): value for parameter, value in constants.items()
    }
    major, minor = capability
    target = gpu_target(parse_target(f"cuda:{10 * major + minor}"))
    compiled = triton.compile(source_of(function, signature, paths, {}), target=target)
    parameters = compiled.asm["ptx"].partition(".entry")[2].partition(")")[0].count(".param")
    metadata = compiled.metadata
    threads = 32 * metadata.num_warps
    return DeviceKernel(compiled.asm["cubin"], metadata.name, parameters, threads, metadata.shared)
