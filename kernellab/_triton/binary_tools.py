"""Registers, stack, spills and machine code of a compiled binary, which the tools in Triton's wheel read."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from triton import knobs

from kernellab.workers.forks_and_interrupts import delayed_forks

_TOOL_S = 60


@dataclass(frozen=True, slots=True)
class BinaryResources:
    """Registers per thread, and bytes of stack per thread and of static shared memory per block."""

    registers: int
    stack_bytes: int
    static_shared_bytes: int


def read_resources(cubin: Path) -> BinaryResources | None:
    """The resources of a cubin, by ``cuobjdump --dump-resource-usage``; None where that cannot read it."""
    with reading_resources(cubin) as resources:
        return resources()


@contextmanager
def reading_resources(cubin: Path) -> Iterator[Callable[[], BinaryResources | None]]:
    """Read the resources of a cubin in another process; the function of the with statement waits for them."""
    with _start_tool("cuobjdump", "--dump-resource-usage", str(cubin)) as tool:
        yield lambda: _resources_in(_output_of(tool) or "")


def _resources_in(text: str) -> BinaryResources | None:
    match = re.search(r"REG:(\d+)\s+STACK:(\d+)\s+SHARED:(\d+)", text)
    return BinaryResources(*map(int, match.groups())) if match else None


def read_amd_resources(amdgcn: str) -> dict[str, int | None] | None:
    """The resources in the metadata of an AMD kernel's assembly; None where it has another form.

    These are registers per lane and per wave, and bytes, by the names of `kernellab.compile.types.Resources`. A spill
    stores four bytes to scratch; several may share a place, so spills take at most the whole stack.
    https://llvm.org/docs/AMDGPUUsage.html#code-object-v3-metadata
    """
    fields = {name: int(value) for name, value in re.findall(r"^\s+(?:- )?\.(\w+):\s+(\d+)\s*$", amdgcn, re.MULTILINE)}
    try:
        stack = fields["private_segment_fixed_size"]
        return {
            "registers": fields["vgpr_count"],
            "accumulation_registers": fields.get("agpr_count"),
            "scalar_registers": fields["sgpr_count"],
            "scalar_spills": fields["sgpr_spill_count"],
            "stack_bytes": stack,
            "spill_bytes": min(stack, 4 * fields.get("vgpr_spill_count", 0)),
            "static_shared_bytes": fields["group_segment_fixed_size"],
        }
    except KeyError:
        return None


def spill_bytes(stack_bytes: int, log: str, ptx: str) -> int:
    """The bytes of a stack that hold spilled registers.

    The log of ptxas says whether any are. The stack also holds the PTX's own ``.local`` variables: arguments of
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
    """The SASS of a cubin with source lines, by ``nvdisasm -gi -c``; None where that cannot read it."""
    with _start_tool("nvdisasm", "-gi", "-c", str(cubin)) as tool:
        return _output_of(tool)


def _start_tool(name: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a tool of Triton's wheel, of which Triton asks the version first; its errors are dropped."""
    with delayed_forks():
        command = [getattr(knobs.nvidia, name).path, *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def _output_of(tool: subprocess.Popen[str]) -> str | None:
    """The output of a tool when it has ended; None where it failed."""
    try:
        text, _ = tool.communicate(timeout=_TOOL_S)
    except subprocess.TimeoutExpired:
        tool.kill()
        raise
    return text if tool.returncode == 0 else None
