"""The worker's own kernels, compiled for its GPU, in a form that the driver loads."""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import triton

from kernellab._triton import device_kernels
from kernellab._triton.device_kernels import BLOCK
from kernellab.settings import take_compiler_environment
from kernellab.target import parse_target
from kernellab.workers.scratch import write_whole

# The types of parameters by name; those of data are the caller's, all others integers.
_DATA = frozenset({"room", "data", "got_data", "want_data"})
_DIGEST_BYTES = 32
_TYPES = {"totals": "*i64", "largest": "*fp64", "limits": "*fp64"}


@dataclass(frozen=True, slots=True)
class KernelVariant:
    """A kernel of the worker by name, for data of a Triton element type, such as ``fp16``, and dense views or any."""

    name: str
    element: str = "u8"
    is_dense: bool = False


BASIC = tuple(map(KernelVariant, ("mark_zone", "zone_damage", "sum_of_bytes", "keep_busy")))
"""The kernels that redzones and the stopwatch need."""


def comparing_variants(element: str) -> tuple[KernelVariant, ...]:
    """The kernels that compare dense outputs of a Triton element type, and fill them before a launch."""
    is_float = element.startswith(("fp", "bf"))
    names = ("largest_size", "differing_floats") if is_float else ("differing_integers",)
    return KernelVariant("fill_view", "u64", True), *(KernelVariant(name, element, True) for name in names)


@dataclass(frozen=True, slots=True)
class DeviceKernel:
    """A compiled kernel: cubin, symbol, number of 64-bit parameters, threads, bytes of shared memory."""

    binary: bytes
    name: str
    parameters: int
    threads: int
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class KernelRequest:
    """A kernel to be compiled for a compute capability, (9, 0), into a file."""

    variant: KernelVariant
    capability: tuple[int, int]
    file: Path


def request_of(variant: KernelVariant, capability: tuple[int, int]) -> KernelRequest:
    """The request for a kernel where this process looks for it."""
    return KernelRequest(variant, capability, _path(variant, capability))


def compile_device_kernel(request: KernelRequest, progress: object) -> None:
    """Compile a kernel into its file, in a compile worker, while the GPU worker makes its context.

    What a user's compile has set in this process holds for none of the lab's own.
    """
    take_compiler_environment(())
    _keep(_compile_kernel(request.variant, request.capability), request.file)


def device_kernel(variant: KernelVariant, capability: tuple[int, int]) -> DeviceKernel:
    """One of the worker's kernels, compiled here if it has no file.

    Its file lies in Triton's cache folder. Triton's own cache would hash the whole compiler first, in each process.
    """
    path = _path(variant, capability)
    with contextlib.suppress(OSError, ValueError, TypeError):  # absent, or broken: it is written anew
        return _unpack_kernel(path.read_bytes())
    kernel = _compile_kernel(variant, capability)
    _keep(kernel, path)
    return kernel


def _keep(kernel: DeviceKernel, path: Path) -> None:
    with contextlib.suppress(OSError):  # then the next process compiles it again
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, _pack_kernel(kernel))


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


def _path(variant: KernelVariant, capability: tuple[int, int]) -> Path:
    file = "-".join([variant.name, variant.element, *["is_dense"] * variant.is_dense])
    return Path(triton.knobs.cache.dir) / f"kernellab-{_digest(capability)}" / f"{file}.cubin"


@lru_cache
def _digest(capability: tuple[int, int]) -> str:
    source = Path(device_kernels.__file__).read_bytes()
    return hashlib.sha256(repr((triton.__version__, capability)).encode() + source).hexdigest()[:16]


def _compile_kernel(variant: KernelVariant, capability: tuple[int, int]) -> DeviceKernel:
    from kernellab._triton.closure import closure_of  # a worker whose kernels are kept does without the compiler
    from kernellab._triton.compiling import build
    from kernellab._triton.specialize import Specialization

    function = getattr(device_kernels, variant.name)
    constants: dict[str, int] = {"BLOCK": BLOCK}
    if "IS_DENSE" in function.arg_names:
        constants["IS_DENSE"] = variant.is_dense
    types = {**dict.fromkeys(_DATA, f"*{variant.element}"), **_TYPES, **dict.fromkeys(constants, "constexpr")}
    signature = {parameter: types.get(parameter, "i64") for parameter in function.arg_names}
    paths: dict[tuple[int, ...], Any] = {(function.arg_names.index(n),): value for n, value in constants.items()}
    major, minor = capability
    target = parse_target(f"cuda:{10 * major + minor}")
    files = build(function, Specialization(signature, paths, {}, {}), target, closure_of(function)[0]).files
    stages = {file.rpartition(".")[2]: content for file, content in files.items()}
    parameters = stages["ptx"].partition(b".entry")[2].partition(b")")[0].count(b".param")
    metadata = json.loads(stages["json"])
    return DeviceKernel(stages["cubin"], metadata["name"], parameters, 32 * metadata["num_warps"], metadata["shared"])
