"""Targets: what a kernel is compiled for, and the limits of such a device; the GPU that this process uses.

A target is written ``backend:architecture``: ``cuda:90``, ``hip:gfx942``.

Occupancy is how many blocks of a kernel one SM can hold at a time. Its rules are those of NVIDIA's
occupancy calculator: registers are given to warps in units, warps in groups of four, shared memory in units with a
reserved part for each block. AMD's are the same with other numbers: four SIMDs have registers for waves, in units, and
share LDS, and a SIMD of CDNA has scalar registers for its waves.
https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/#calculating-occupancy
https://rocm.docs.amd.com/projects/HIP/en/latest/understand/hardware_implementation.html
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path

from kernellab.errors import UnknownTarget, value_text

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
    """The limits of one SM (CU, or the WGP of RDNA), and of one block.

    Bytes for shared memory, 32-bit registers for register counts. ``reserved_shared_bytes`` is what the system takes
    of the shared memory of each block. Registers are given to warps of ``warp_threads``, in units, by four schedulers.
    ``blocks_of_one_warp`` is given where these need no barrier and more of them reside. ``scalar_registers`` are those
    of a scheduler, where they can bound the occupancy. ``tensor_memory_columns`` are those of Blackwell's TMEM.
    """

    shared_bytes_per_block: int
    shared_bytes_per_multiprocessor: int
    reserved_shared_bytes: int
    registers_per_multiprocessor: int
    register_allocation_unit: int
    threads_per_multiprocessor: int
    blocks_per_multiprocessor: int
    threads_per_block: int = 1024
    warp_threads: int = 32
    shared_allocation_unit: int = 128
    blocks_of_one_warp: int | None = None
    scalar_registers: int | None = None
    tensor_memory_columns: int | None = None


_KIB = 1024
_WARP_GROUP = 4


def _cuda(block_kib: int, sm_kib: int, threads: int, blocks: int, tensor_memory: int | None = None) -> DeviceLimits:
    return DeviceLimits(
        shared_bytes_per_block=block_kib * _KIB,
        shared_bytes_per_multiprocessor=sm_kib * _KIB,
        reserved_shared_bytes=_KIB if block_kib != 64 else 0,
        registers_per_multiprocessor=65536,
        register_allocation_unit=256,
        threads_per_multiprocessor=threads,
        blocks_per_multiprocessor=blocks,
        tensor_memory_columns=tensor_memory,
    )


# Shared memory per block (opt-in) and per multiprocessor in KiB, resident threads and resident blocks; checked against
# the architecture traits of NVIDIA's CCCL (libcudacxx, cuda/__device/arch_traits.h) and, for 90, against a device.
# https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/compute-capabilities.html
# Tensor memory has 512 columns: https://docs.nvidia.com/cuda/parallel-thread-execution/#tensor-memory
_CUDA_LIMITS = {
    75: _cuda(64, 64, 1024, 16),
    80: _cuda(163, 164, 2048, 32),
    86: _cuda(99, 100, 1536, 16),
    87: _cuda(163, 164, 1536, 16),
    89: _cuda(99, 100, 1536, 24),
    90: _cuda(227, 228, 2048, 32),
    100: _cuda(227, 228, 2048, 32, tensor_memory=512),
    103: _cuda(227, 228, 2048, 32, tensor_memory=512),
    110: _cuda(227, 228, 1536, 24, tensor_memory=512),
    120: _cuda(99, 100, 1536, 24),
    121: _cuda(99, 100, 1536, 24),
}


def _amd(
    lanes: int, waves: int, registers: int, unit: int, block_kib: int, lds_kib: int, lds_unit: int
) -> DeviceLimits:
    """Return the limits of four SIMDs that share LDS, each of so many registers for its lanes and waves at most."""
    return DeviceLimits(
        shared_bytes_per_block=block_kib * _KIB,
        shared_bytes_per_multiprocessor=lds_kib * _KIB,
        reserved_shared_bytes=0,
        registers_per_multiprocessor=4 * registers * lanes,
        register_allocation_unit=unit * lanes,
        threads_per_multiprocessor=4 * waves * lanes,
        blocks_per_multiprocessor=2 * waves,
        warp_threads=lanes,
        shared_allocation_unit=lds_unit,
        blocks_of_one_warp=4 * waves,
        scalar_registers=800 if lanes == 64 else None,
    )


# Those of LLVM's AMDGPU backend, whose occupancy for growing counts of registers and bytes of LDS they give: the
# functions of AMDGPUBaseInfo.cpp (getTotalNumVGPRs, getVGPRAllocGranule, getMaxWavesPerEU, getMaxWorkGroupsPerCU,
# getLdsDwGranularity). On CDNA, accumulation registers are part of the 512. RDNA runs in WGP mode, LLVM's default.
# https://github.com/llvm/llvm-project/blob/main/llvm/lib/Target/AMDGPU/Utils/AMDGPUBaseInfo.cpp
_RDNA_LARGE, _RDNA = _amd(32, 16, 1536, 24, 64, 128, 512), _amd(32, 16, 1024, 16, 64, 128, 512)
_HIP_LIMITS = {
    **dict.fromkeys(("gfx90a", "gfx942"), _amd(64, 8, 512, 8, 64, 64, 512)),
    "gfx950": _amd(64, 8, 512, 8, 160, 160, 1280),
    **dict.fromkeys(("gfx1100", "gfx1101"), _RDNA_LARGE),
    **dict.fromkeys(("gfx1102", "gfx1103", "gfx1150"), _RDNA),
    **dict.fromkeys(("gfx1151", "gfx1200", "gfx1201"), _RDNA_LARGE),
    "gfx1250": _amd(32, 16, 1024, 16, 320, 320, 2048),
}


def parse_target(text: str) -> Target:
    """Return the target that ``text`` names, such as ``cuda:90`` or ``hip:gfx942``; that of a model such as ``h100``.

    Raises:
        UnknownTarget: the text has another form, or the architecture is not in the tables of this module.
    """
    target = well_formed_target(_TARGETS_OF_MODELS.get(model_name(text), text))
    if target is not None and str(target) in known_targets():
        return target
    choices = f"one of {', '.join(known_targets())}, or a model such as h100"
    raise UnknownTarget(f"target is {value_text(text)}; expected {choices}.{_hint(text)}")


def well_formed_target(text: str) -> Target | None:
    """Return the target that a text names by its form, whether the tables have it or not; None of any other form.

    Architectures gfx9 have waves of 64, later ones those of 32 that Triton's backend takes.
    """
    match = re.fullmatch(r"(cuda):(?:sm_?)?(\d{2,3})a?|(hip):(gfx\d+[0-9a-f]{2})", text.strip())
    if match is None:
        return None
    if match[1]:
        return Target("cuda", int(match[2]), 32)
    return Target("hip", match[4], 64 if re.fullmatch(r"gfx9..", match[4]) else 32)


# https://developer.nvidia.com/cuda-gpus and https://rocm.docs.amd.com/en/latest/reference/gpu-arch-specs.html
_MODELS = {
    "cuda:75": {"t4"},
    "cuda:80": {"a100", "a100-40", "a100-80"},
    "cuda:86": {"a10", "a40", "rtx3090"},
    "cuda:87": {"orin"},
    "cuda:89": {"l4", "l40", "l40s", "rtx4090"},
    "cuda:90": {"h100", "h100-pcie", "h200", "gh200"},
    "cuda:100": {"b200", "gb200"},
    "cuda:103": {"b300", "gb300"},
    "cuda:110": {"thor"},
    "cuda:120": {"rtx5090"},
    "cuda:121": {"gb10"},
    "hip:gfx90a": {"mi210", "mi250", "mi250x"},
    "hip:gfx942": {"mi300", "mi300a", "mi300x", "mi325x"},
    "hip:gfx950": {"mi350x", "mi355x"},
    "hip:gfx1100": {"rx7900xtx"},
    "hip:gfx1151": {"strixhalo"},
    "hip:gfx1200": {"rx9060xt"},
    "hip:gfx1201": {"rx9070xt"},
}

_TARGETS_OF_MODELS = {model: target for target, models in _MODELS.items() for model in models}


def model_name(text: str) -> str:
    """Return the model that a text names instead of a target, such as ``h100`` for ``"H100"``; "" if it names none."""
    word = re.sub(r"[\s_]", "", text.strip().lower())
    return word if word in _TARGETS_OF_MODELS else ""


def _hint(text: str) -> str:
    """Return a sentence with the target that was probably meant, where a model or an architecture alone was given."""
    word = re.sub(r"[\s_-]|^(?:cuda|hip|nvidia|amd):?|geforce", "", text.strip().lower())
    number = re.sub(r"^sm|[.a]", "", word)
    meant = [_TARGETS_OF_MODELS[word]] if word in _TARGETS_OF_MODELS else []
    meant += [target for target in known_targets() if target in (f"cuda:{number}", f"hip:{word}")]
    meant += get_close_matches(word, sorted(_TARGETS_OF_MODELS), 1, 0.75)
    return f" Did you mean {meant[0]}?" if meant else ""


def known_targets() -> tuple[str, ...]:
    """Return every target that `parse_target` takes, in the order of the tables."""
    return (*(f"cuda:{arch}" for arch in _CUDA_LIMITS), *(f"hip:{arch}" for arch in _HIP_LIMITS))


# Where there is no device to ask: those of an H100.
MULTIPROCESSORS = 132
SECTOR_BYTES = 32  # of memory, the least that is moved


def limits_of(target: Target) -> DeviceLimits | None:
    """Return the limits of a target, or None where the tables lack its architecture."""
    if target.backend == "cuda":
        return _CUDA_LIMITS.get(int(target.arch))
    return _HIP_LIMITS.get(str(target.arch))


def shared_bytes_limit(target: Target) -> int | None:
    """Return the shared memory that one block may ask for, in bytes, or None where it is not known."""
    limits = limits_of(target)
    return None if limits is None else limits.shared_bytes_per_block


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The ``share`` of the resident warps, from 0 to 1, and the blocks per SM.

    ``limiters`` name what allows no further block; the first is ``limiter``.
    """

    share: float
    blocks: int
    limiters: tuple[str, ...]

    @property
    def limiter(self) -> str:
        """The resource that allows no further block; the first of several."""
        return self.limiters[0]


@dataclass(frozen=True, slots=True)
class BlockNeeds:
    """The needs of one block: threads, registers of each thread, shared memory; on AMD, scalar registers of a wave."""

    threads: int
    registers: int
    shared_bytes: int
    scalar_registers: int = 0


def occupancy(limits: DeviceLimits, needs: BlockNeeds) -> Occupancy:
    """Return the occupancy of blocks that all need the same."""
    threads = -(-needs.threads // limits.warp_threads) * limits.warp_threads
    bounds = block_bounds(limits, needs)
    blocks = min(bounds.values())
    limiters = tuple(name for name, bound in bounds.items() if bound == blocks)
    return Occupancy(blocks * threads / limits.threads_per_multiprocessor, blocks, limiters)


def block_bounds(limits: DeviceLimits, needs: BlockNeeds) -> dict[str, int]:
    """Return the number of blocks per SM that each resource allows."""
    warps = -(-needs.threads // limits.warp_threads)
    bounds = {
        "registers": _blocks_by_registers(limits, warps, needs.registers),
        "shared memory": _blocks_by_shared(limits, needs.shared_bytes),
        "threads": limits.threads_per_multiprocessor // (warps * limits.warp_threads),
        "blocks": (warps == 1 and limits.blocks_of_one_warp) or limits.blocks_per_multiprocessor,
    }
    if limits.scalar_registers is not None and needs.scalar_registers:
        bounds["scalar registers"] = limits.scalar_registers // needs.scalar_registers * _WARP_GROUP // warps
    return bounds


_FIELDS = {"registers": "registers", "shared memory": "shared_bytes"}


@dataclass(frozen=True, slots=True)
class OccupancyStep:
    """The least change of one need that raises the occupancy.

    ``need`` is ``registers``, ``shared memory`` or ``threads``; ``now`` and ``then`` are its values, ``after`` is the
    occupancy with the latter.
    """

    need: str
    now: int
    then: int
    after: Occupancy


def occupancy_step(limits: DeviceLimits, needs: BlockNeeds) -> OccupancyStep | None:
    """Return the least change of the limiting need that raises the occupancy, None where no change of it alone does.

    Fewer registers or bytes let one more block reside; fewer warps fill an SM whose threads do not divide
    by those of a block, and more warps one that has all its blocks. The registers of a thread are taken to stay.
    """
    before = occupancy(limits, needs)
    if len(before.limiters) > 1 or before.share >= 1:
        return None
    if before.limiter in _FIELDS:
        return _step_down(limits, needs, before)
    threads = {"threads": needs.threads // 2, "blocks": needs.threads * 2}.get(before.limiter, 0)
    if not limits.warp_threads <= threads <= limits.threads_per_block:
        return None
    after = occupancy(limits, replace(needs, threads=threads))
    return OccupancyStep("threads", needs.threads, threads, after) if after.share > before.share else None


def _step_down(limits: DeviceLimits, needs: BlockNeeds, before: Occupancy) -> OccupancyStep | None:
    """Return the largest smaller need of registers or bytes with which more blocks reside, found by bisection."""
    field, low, high = _FIELDS[before.limiter], 0, getattr(needs, _FIELDS[before.limiter])

    def at(value: int) -> Occupancy:
        return occupancy(limits, replace(needs, **{field: value}))

    if at(low).blocks <= before.blocks:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if at(middle).blocks > before.blocks else (low, middle)
    return OccupancyStep(before.limiter, getattr(needs, field), low, at(low))


def _blocks_by_registers(limits: DeviceLimits, warps: int, registers: int) -> int:
    per_warp = _round_up(max(registers, 1) * limits.warp_threads, limits.register_allocation_unit)
    resident_warps = limits.registers_per_multiprocessor // per_warp // _WARP_GROUP * _WARP_GROUP
    return resident_warps // warps


def _blocks_by_shared(limits: DeviceLimits, shared_bytes: int) -> int:
    per_block = _round_up(shared_bytes + limits.reserved_shared_bytes, limits.shared_allocation_unit)
    return limits.shared_bytes_per_multiprocessor // per_block if per_block else limits.threads_per_multiprocessor


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def device_name(device: int | None = None) -> str:
    """Return the model of a GPU, the current one by default."""
    import torch  # only where there is a GPU

    return str(torch.cuda.get_device_name(device))


@lru_cache(maxsize=1)
def driver_version() -> str:
    """Return the GPU driver's version by the kernel module, else the CUDA version that it supports."""
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8") as file:
            words = file.readline().split()
        return next(word for word in words if word[:1].isdigit() and "." in word)
    except (OSError, StopIteration):
        import torch

        return str(torch.version.cuda or torch.version.hip or "")


def multiprocessors() -> int:
    """Return the SMs of the current GPU, or the number that offline launches assume."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return MULTIPROCESSORS
    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count)


def has_gpu_device() -> bool:
    """Whether the machine shows the device file of a GPU's driver; the GPU may still be none for torch."""
    return any(Path(file).exists() for file in ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg"))


def has_cuda_context() -> bool:
    """Whether this process uses CUDA through torch, and not AMD's HIP; none is loaded to find out."""
    torch = sys.modules.get("torch")
    if torch is None or torch.version.hip is not None:
        return False
    return bool(torch.cuda.is_initialized()) and not is_lost_to_fork()


def is_lost_to_fork() -> bool:
    """Whether this process is a fork of one that used CUDA, and so cannot use it itself."""
    import torch

    return bool(torch.cuda._is_in_bad_fork())
