"""Targets: what a kernel is compiled for, and the limits of such a device.

A target is written ``backend:architecture``: ``cuda:90``, ``hip:gfx942``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernellab.errors import UnknownTarget

DEFAULT_TARGET = "cuda:90"


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """A backend and an architecture. ``warp_size`` is in threads."""

    backend: str
    arch: int | str
    warp_size: int

    def __str__(self) -> str:
        return f"{self.backend}:{self.arch}"


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """What one multiprocessor (SM, or CU) of an architecture can hold, and what one block may ask for.

    Bytes for shared memory, 32-bit registers for register counts. ``reserved_shared_bytes`` is what the system takes
    of the shared memory of each block.
    """

    shared_bytes_per_block: int
    shared_bytes_per_multiprocessor: int
    reserved_shared_bytes: int
    registers_per_multiprocessor: int
    register_allocation_unit: int
    max_registers_per_thread: int
    threads_per_multiprocessor: int
    blocks_per_multiprocessor: int
    threads_per_block: int = 1024


_KIB = 1024


def _cuda(block_kib: int, sm_kib: int, threads: int, blocks: int) -> DeviceLimits:
    return DeviceLimits(
        shared_bytes_per_block=block_kib * _KIB,
        shared_bytes_per_multiprocessor=sm_kib * _KIB,
        reserved_shared_bytes=_KIB if block_kib != 64 else 0,
        registers_per_multiprocessor=65536,
        register_allocation_unit=256,
        max_registers_per_thread=255,
        threads_per_multiprocessor=threads,
        blocks_per_multiprocessor=blocks,
    )


# Shared memory per block (opt-in) and per multiprocessor in KiB, resident threads and resident blocks; checked against
# the architecture traits of NVIDIA's CCCL (libcudacxx, cuda/__device/arch_traits.h) and, for 90, against a device.
# https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/compute-capabilities.html
_CUDA_LIMITS = {
    75: _cuda(64, 64, 1024, 16),
    80: _cuda(163, 164, 2048, 32),
    86: _cuda(99, 100, 1536, 16),
    87: _cuda(163, 164, 1536, 16),
    89: _cuda(99, 100, 1536, 24),
    90: _cuda(227, 228, 2048, 32),
    100: _cuda(227, 228, 2048, 32),
    103: _cuda(227, 228, 2048, 32),
    110: _cuda(227, 228, 1536, 24),
    120: _cuda(99, 100, 1536, 24),
    121: _cuda(99, 100, 1536, 24),
}

# LDS per workgroup; registers are not modelled, since no tool in Triton's wheel reports them for AMD.
# AMD CDNA 2, 3 and 4 instruction set guides: 64 KiB of LDS per CU, 160 KiB on CDNA 4.
_HIP_SHARED_KIB = {"gfx90a": 64, "gfx942": 64, "gfx950": 160}


def parse_target(text: str) -> Target:
    """Return the target that ``text`` names, such as ``cuda:90`` or ``hip:gfx942``.

    Raises:
        UnknownTarget: the text has another form, or the architecture is not in the tables of this module.
    """
    match = re.fullmatch(r"(cuda):(?:sm_?)?(\d+)a?|(hip):(gfx\w+)", text.strip())
    if match and match[1] and int(match[2]) in _CUDA_LIMITS:
        return Target("cuda", int(match[2]), 32)
    if match and match[3] and match[4] in _HIP_SHARED_KIB:
        return Target("hip", match[4], 64)
    raise UnknownTarget(f"target is {text!r}; expected one of {', '.join(known_targets())}.{_hint(text)}")


# https://developer.nvidia.com/cuda-gpus and https://rocm.docs.amd.com/en/latest/reference/gpu-arch-specs.html
_TARGET_OF_MODEL = {
    "t4": "cuda:75",
    "a100": "cuda:80",
    "a10": "cuda:86",
    "a40": "cuda:86",
    "rtx3090": "cuda:86",
    "orin": "cuda:87",
    "l4": "cuda:89",
    "l40": "cuda:89",
    "l40s": "cuda:89",
    "rtx4090": "cuda:89",
    "h100": "cuda:90",
    "h200": "cuda:90",
    "gh200": "cuda:90",
    "b200": "cuda:100",
    "gb200": "cuda:100",
    "b300": "cuda:103",
    "gb300": "cuda:103",
    "thor": "cuda:110",
    "rtx5090": "cuda:120",
    "gb10": "cuda:121",
    "mi210": "hip:gfx90a",
    "mi250": "hip:gfx90a",
    "mi250x": "hip:gfx90a",
    "mi300": "hip:gfx942",
    "mi300a": "hip:gfx942",
    "mi300x": "hip:gfx942",
    "mi325x": "hip:gfx942",
    "mi350x": "hip:gfx950",
    "mi355x": "hip:gfx950",
}


def _hint(text: str) -> str:
    """Return a sentence with the target that was probably meant, where a model or an architecture alone was given."""
    word = re.sub(r"[\s_-]|^(?:cuda|hip|nvidia|amd):?|geforce", "", text.strip().lower())
    number = re.sub(r"^sm|[.a]", "", word)
    meant = _TARGET_OF_MODEL.get(word) or next(
        (known for known in known_targets() if known in (f"cuda:{number}", f"hip:{word}")), None
    )
    return f" Did you mean {meant}?" if meant else ""


def known_targets() -> tuple[str, ...]:
    """Return every target that `parse_target` takes, in the order of the tables."""
    return (*(f"cuda:{arch}" for arch in _CUDA_LIMITS), *(f"hip:{arch}" for arch in _HIP_SHARED_KIB))


# Where there is no device to ask: those of an H100.
MULTIPROCESSORS = 132


def limits_of(target: Target) -> DeviceLimits | None:
    """Return the limits of a target, or None where the tables lack its architecture (or its registers, for AMD)."""
    return _CUDA_LIMITS.get(int(target.arch)) if target.backend == "cuda" else None


def shared_bytes_limit(target: Target) -> int | None:
    """Return the shared memory that one block may ask for, in bytes, or None where it is not known."""
    limits = limits_of(target)
    if limits is not None:
        return limits.shared_bytes_per_block
    kib = _HIP_SHARED_KIB.get(str(target.arch))
    return None if kib is None else kib * _KIB
