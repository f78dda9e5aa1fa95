"""The machine code of a compiled kernel as text, kept next to the binary."""

from __future__ import annotations

import zlib
from contextlib import suppress
from pathlib import Path

from kernellab.errors import warn_user
from kernellab.workers.scratch import write_whole

DISASSEMBLY = "disassembly.txt"
_HEAD = b"// CRC-32 of the rest: "


def disassembly_of(binary: Path) -> str | None:
    """Return the disassembled binary; None where the disassembler cannot read it.

    It takes 0.6 s of CPU, of the smallest binary, too: so the text is kept in a file next to it.
    """
    path = binary.with_name(DISASSEMBLY)
    kept = _kept_text(path)
    if kept is not None:
        return kept
    from kernellab._triton.binary_tools import disassemble  # keeps `import kernellab` light

    text = disassemble(binary)
    if text is not None:
        content = text.encode()
        with suppress(OSError):  # a full disk, or a folder of somebody else: it is disassembled each time
            write_whole(path, _first_line(content) + content)
    return text


def _kept_text(path: Path) -> str | None:
    """Return the text in a file; None where it is absent, damaged, or of a release that wrote no checksum."""
    try:
        first, end, content = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    if first + end == _first_line(content):
        return content.decode()
    if first.startswith(_HEAD) or not end:
        warn_user(f"The disassembly in {path} is cut short, or was changed; the binary is disassembled again.")
    return None


def _first_line(content: bytes) -> bytes:
    return b"%s%08x\n" % (_HEAD, zlib.crc32(content))
