"""The worker's own kernels, compiled for its GPU, in a form that the driver loads."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

import triton

from kernellab._triton import device_kernels
from kernellab._triton.device_kernels import BLOCK
from kernellab.target import parse_target
from kernellab.workers.scratch import write_whole

# The types of parameters by name; those of data are the caller's, all others integers.
_DATA = frozenset({"room", "data", "got_data", "want_data"})
_DENSE = {"IS_DENSE": True}
_DIGEST_BYTES = 32
_TYPES = {"totals": "*i64", "largest": "*fp64", "limits": "*fp64"}


# What redzones and the stopwatch need, and comparing outputs of the usual formats; others are compiled when needed.
BASIC = ("mark_zone", "zone_damage", "sum_of_bytes", "keep_busy")
_USUAL = (
    *((name, "u8", {}) for name in BASIC),
    *((name, element, _DENSE) for name in ("largest_size", "differing_floats") for element in ("fp16", "bf16", "fp32")),
    *(("differing_integers", element, _DENSE) for element in ("u8", "i32", "i64")),
    ("fill_view", "u64", _DENSE),
)


@dataclass(frozen=True, slots=True)
class DeviceKernel:
    """A compiled kernel: cubin, symbol, number of 64-bit parameters, threads, bytes of shared memory."""

    binary: bytes
    name: str
    parameters: int
    threads: int
    shared_bytes: int


@dataclass(slots=True)
class RunningCompiles:
    """The running compiles of the worker's kernels, by process."""

    children: dict[int, str] = field(default_factory=dict)

    def wait(self, names: Container[str] | None = None) -> None:
        """Wait until the kernels of some names, or all, are compiled or have failed."""
        for pid in [pid for pid, name in self.children.items() if names is None or name in names]:
            os.waitpid(pid, 0)
            del self.children[pid]


def compile_ahead(capability: tuple[int, int]) -> RunningCompiles:
    """Start compiling the usual kernels that are not cached, in parallel forks.

    The process must not have called the driver yet, and no other thread of it may hold locks: it forks.
    """
    ahead = RunningCompiles()
    for name, element, flags in _USUAL:
        if not _path(name, capability, element, flags).exists():
            pid = os.fork()
            if pid == 0:
                _compile_and_exit(name, capability, element, flags)
            ahead.children[pid] = name
    return ahead


def _compile_and_exit(name: str, capability: tuple[int, int], element: str, flags: Mapping[str, bool]) -> NoReturn:
    silent = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # the compiler's output must not pass for a kernel's
        os.dup2(silent, stream)
    try:
        device_kernel(name, capability, element, **flags)
    finally:
        os._exit(0)  # `device_kernel` compiles a missing kernel again, and raises then


def device_kernel(name: str, capability: tuple[int, int], element: str = "u8", **flags: bool) -> DeviceKernel:
    """One of the worker's kernels for data of a Triton element type, such as ``fp16``.

    Its file lies in Triton's cache folder. Triton's own cache would hash the whole compiler first, in each process.
    """
    path = _path(name, capability, element, flags)
    with contextlib.suppress(OSError, ValueError, TypeError):  # absent, or broken: it is written anew
        return _unpack_kernel(path.read_bytes())
    kernel = _compile_kernel(name, capability, element, flags)
    with contextlib.suppress(OSError):  # then the next process compiles it again
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, _pack_kernel(kernel))
    return kernel


def _pack_kernel(kernel: DeviceKernel) -> bytes:
    """A kernel as a file: the hash of the rest, a line of JSON, the binary."""
    fields = asdict(kernel)
    binary: bytes = fields.pop("binary")
    body = json.dumps(fields).encode() + b"\n" + binary
    return hashlib.sha256(body).digest() + body


def _unpack_kernel(file: bytes) -> DeviceKernel:
    """The kernel of a file; raises `ValueError` or `TypeError` for a broken one, or one of another version."""
    digest, body = file[:_DIGEST_BYTES], file[_DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        raise ValueError("broken")
    fields, _, binary = body.partition(b"\n")
    return DeviceKernel(binary, **json.loads(fields))


def _path(name: str, capability: tuple[int, int], element: str, flags: Mapping[str, bool]) -> Path:
    file = "-".join([name, element, *(flag.lower() for flag, is_on in flags.items() if is_on)])
    return Path(triton.knobs.cache.dir) / f"kernellab-{_digest(capability)}" / f"{file}.cubin"


@lru_cache
def _digest(capability: tuple[int, int]) -> str:
    source = Path(device_kernels.__file__).read_bytes()
    return hashlib.sha256(repr((triton.__version__, capability)).encode() + source).hexdigest()[:16]


def _compile_kernel(name: str, capability: tuple[int, int], element: str, flags: Mapping[str, bool]) -> DeviceKernel:
    from kernellab._triton.closure import closure_of  # a worker whose kernels are kept does without the compiler
    from kernellab._triton.compiling import build
    from kernellab._triton.specialize import Specialization

    function = getattr(device_kernels, name)
    constants: dict[str, int] = {**flags, "BLOCK": BLOCK}
    types = {**dict.fromkeys(_DATA, f"*{element}"), **_TYPES, **dict.fromkeys(constants, "constexpr")}
    signature = {parameter: types.get(parameter, "i64") for parameter in function.arg_names}
    paths: dict[tuple[int, ...], Any] = {
        (function.arg_names.index(parameter),): value for parameter, value in constants.items()
    }
    major, minor = capability
    target = parse_target(f"cuda:{10 * major + minor}")
    files = build(function, Specialization(signature, paths, {}, {}), target, closure_of(function)[0]).files
    stages = {file.rpartition(".")[2]: content for file, content in files.items()}
    parameters = stages["ptx"].partition(b".entry")[2].partition(b")")[0].count(b".param")
    metadata = json.loads(stages["json"])
    return DeviceKernel(stages["cubin"], metadata["name"], parameters, 32 * metadata["num_warps"], metadata["shared"])
