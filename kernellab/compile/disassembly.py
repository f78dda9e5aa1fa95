"""The machine code of a compiled kernel as text, kept next to the binary."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from kernellab.workers.scratch import write_whole

DISASSEMBLY = "disassembly.txt"


def disassembly_of(binary: Path) -> str | None:
    """Return the disassembled binary; None where the disassembler cannot read it.

    It takes 0.6 s of CPU, of the smallest binary, too: so the text is kept in a file next to it.
    """
    path = binary.with_name(DISASSEMBLY)
    with suppress(OSError):
        return path.read_text(encoding="utf-8")
    from kernellab._triton.drivers import disassemble  # keeps `import kernellab` light

    text = disassemble(binary)
    if text is not None:
        with suppress(OSError):  # a full disk, or a folder of somebody else: it is disassembled each time
            write_whole(path, text.encode())
    return text
