"""What the tools in Triton's wheel read out of a compiled binary."""

from __future__ import annotations

import re
import subprocess
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


def disassemble(cubin: Path) -> str | None:
    """Return the SASS of a cubin with source lines, by ``nvdisasm -gi -c``; None where that cannot read it."""
    return _tool_output([knobs.nvidia.nvdisasm.path, "-gi", "-c", str(cubin)])


def _tool_output(command: list[str]) -> str | None:
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return result.stdout if result.returncode == 0 else None
