"""What the tools in Triton's wheel tell of a compiled binary."""

from __future__ import annotations

import io
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from triton import knobs


@dataclass(frozen=True, slots=True)
class BinaryResources:
    """Registers per thread, and bytes of stack per thread and of static shared memory per block."""

    registers: int
    stack_bytes: int
    static_shared_bytes: int


def read_resources(cubin: Path) -> BinaryResources | None:
    """Return what a cubin declares, by ``cuobjdump --dump-resource-usage``; None where that cannot read it."""
    text = _tool_output([knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(cubin)])
    match = re.search(r"REG:(\d+)\s+STACK:(\d+)\s+SHARED:(\d+)", text or "")
    return BinaryResources(int(match[1]), int(match[2]), int(match[3])) if match else None


_AMD_FIELDS = ("vgpr_count", "sgpr_count", "sgpr_spill_count", "private_segment_fixed_size", "group_segment_fixed_size")


@dataclass(frozen=True, slots=True)
class AmdResources:
    """What the metadata of an AMD kernel declares: registers per lane and per wave, and bytes, as in `Resources`."""

    registers: int
    accumulation_registers: int | None
    scalar_registers: int
    scalar_spills: int
    stack_bytes: int
    spill_bytes: int
    static_shared_bytes: int


def read_amd_resources(amdgcn: str) -> AmdResources | None:
    """Return what the metadata at the end of an AMD kernel's assembly declares; None where it has another form.

    A spill is a store to scratch, of four bytes, and several may share their place there: so all of the stack at most.
    https://llvm.org/docs/AMDGPUUsage.html#code-object-v3-metadata
    """
    found = {name: int(value) for name, value in re.findall(r"^\s+(?:- )?\.(\w+):\s+(\d+)\s*$", amdgcn, re.MULTILINE)}
    if not found.keys() >= set(_AMD_FIELDS):
        return None
    stack = found["private_segment_fixed_size"]
    return AmdResources(
        registers=found["vgpr_count"],
        accumulation_registers=found.get("agpr_count"),
        scalar_registers=found["sgpr_count"],
        scalar_spills=found["sgpr_spill_count"],
        stack_bytes=stack,
        spill_bytes=min(stack, 4 * found.get("vgpr_spill_count", 0)),
        static_shared_bytes=found["group_segment_fixed_size"],
    )


@contextmanager
def ptxas_log() -> Iterator[io.StringIO]:
    """Collect what ptxas says of the binary that is compiled meanwhile, on the standard output as Triton does it."""
    told, is_wanted = io.StringIO(), knobs.nvidia.dump_ptxas_log
    with knobs.nvidia.scope():
        knobs.nvidia.dump_ptxas_log = True
        with redirect_stdout(told):
            yield told
    if is_wanted:
        print(told.getvalue())


def spill_bytes(stack_bytes: int, log: str, ptx: str) -> int:
    """Return the bytes of a stack that hold spilled registers.

    Whether any are spilled, ptxas says. What the PTX declares itself lies there as well: the arguments of
    ``tl.device_print``, arrays of libdevice. https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/#ptxas-options
    """
    traffic = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log)
    if traffic and not any(int(count) for pair in traffic for count in pair):
        return 0
    declared = sum(map(int, re.findall(r"\.local\s+\.align\s+\d+\s+\.b8\s+\S+\[(\d+)\]", ptx)))
    if traffic and declared >= stack_bytes:
        return stack_bytes
    return max(0, stack_bytes - declared)


def disassemble(cubin: Path) -> str | None:
    """Return the SASS of a cubin with source lines, by ``nvdisasm -gi -c``; None where that cannot read it."""
    return _tool_output([knobs.nvidia.nvdisasm.path, "-gi", "-c", str(cubin)])


def _tool_output(command: list[str]) -> str | None:
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return result.stdout if result.returncode == 0 else None
