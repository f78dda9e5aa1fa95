"""The worker's own kernels, compiled for its GPU, in a form that the driver loads."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import triton

from kernellab._triton import device_kernels
from kernellab._triton.device_kernels import BLOCK
from kernellab._triton.specialize import gpu_target, source_of
from kernellab.target import parse_target

# The types of parameters by name; those of data are the caller's, all others integers.
_DATA = frozenset({"room", "data", "got_data", "want_data"})
_DENSE = {"IS_DENSE": True}
_TYPES = {"found": "*i64", "largest": "*fp64", "limits": "*fp64"}


@dataclass(frozen=True, slots=True)
class DeviceKernel:
    """A compiled kernel: its cubin and name in it, how many parameters of 64 bits it has, threads and shared memory."""

    binary: bytes
    name: str
    parameters: int
    threads: int
    shared_bytes: int


# What redzones and the stopwatch need, and comparing outputs of the usual formats; others are compiled when needed.
BASIC = ("mark_zone", "zone_damage", "sum_of_bytes", "keep_busy")
_USUAL = (
    *((name, "u8", {}) for name in BASIC),
    *((name, element, _DENSE) for name in ("largest_size", "differing_floats") for element in ("fp16", "bf16", "fp32")),
    *(("differing_integers", element, _DENSE) for element in ("u8", "i32", "i64")),
)


@dataclass(slots=True)
class Ahead:
    """Compiles of the worker's kernels that are under way, by process; ``done`` is a file that tells of their end."""

    done: Path
    children: dict[int, str] = field(default_factory=dict)
    has_failed: bool = False

    def wait(self, names: Container[str] | None = None) -> None:
        """Return once those of some names, or all, are compiled, or have failed."""
        for pid in [pid for pid, name in self.children.items() if names is None or name in names]:
            self.has_failed |= os.waitpid(pid, 0)[1] != 0
            del self.children[pid]
            if not self.children and not self.has_failed:
                with contextlib.suppress(OSError):  # then the next worker begins again, and finds them
                    self.done.touch()


def compile_ahead(capability: tuple[int, int]) -> Ahead:
    """Begin to compile what is usually needed, side by side in forks, unless Triton has it.

    It is for a process of one thread that has not called the driver yet.
    """
    source = Path(device_kernels.__file__).read_bytes()
    digest = hashlib.sha256(repr((triton.__version__, capability)).encode() + source).hexdigest()
    ahead = Ahead(Path(triton.knobs.cache.dir) / f"kernellab-{digest[:16]}")
    for name, element, flags in () if ahead.done.exists() else _USUAL:
        pid = os.fork()
        if pid == 0:
            _compile_and_exit(name, capability, element, flags)
        ahead.children[pid] = name
    return ahead


def _compile_and_exit(name: str, capability: tuple[int, int], element: str, flags: Mapping[str, bool]) -> NoReturn:
    status = 1
    try:
        compiled_device_kernel(name, capability, element, **flags)
        status = 0
    finally:
        os._exit(status)  # whoever needs the kernel compiles it again, and sees why it cannot be


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
