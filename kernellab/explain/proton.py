"""Proton's side of a profile: a binary whose line table numbers its instructions, and sessions.

Proton reports samples by file and line of the binary's line table, without addresses and inlined calls. In a binary
whose table numbers its instructions, the line of a sample is its instruction. The code itself is unchanged.

A cubin is a little-endian ELF file, its table DWARF 2, with the address of each function as a relocation.
https://dwarfstd.org/doc/DWARF4.pdf, section 6.2

A session runs in a worker, around the launches of other jobs of its process, so this module imports nothing heavy.
"""

from __future__ import annotations

import shutil
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kernellab.errors import refused_by_system
from kernellab.ir.control_codes import INSTRUCTION_BYTES, elf_sections

_RELOCATION = struct.Struct("<QQq")
_SYMBOL = struct.Struct("<IBBHQQ")
_SET_ADDRESS = b"\x00\x09\x02"
_COPY, _ADVANCE_PC, _ADVANCE_LINE = b"\x01", b"\x02", b"\x03"
_SET_FIRST_FILE = b"\x04\x01"
_END = b"\x00\x01\x01"
_UNIT_BYTES = 10  # length, version and length of the prologue


class NoLineTable(ValueError):
    """The binary has no line table, or one of another form."""


@dataclass(frozen=True, slots=True)
class _Opcodes:
    """The parameters of a line program that define its special opcodes."""

    line_base: int
    line_range: int
    opcode_base: int
    unit: int

    def next_instruction(self) -> bytes:
        """Return the bytes that advance by one instruction and one line, and add a row."""
        opcode = 1 - self.line_base + self.line_range * (INSTRUCTION_BYTES // self.unit) + self.opcode_base
        if 0 < 1 - self.line_base < self.line_range and opcode < 256:
            return bytes([opcode])
        advance = _ADVANCE_PC + _leb128(INSTRUCTION_BYTES // self.unit)
        return _ADVANCE_LINE + b"\x01" + advance + _COPY


def number_instructions(cubin: bytes) -> bytes:
    """Return a binary with the same code, and instruction ``n`` of each function as line ``n + 1`` of its table.

    Raises:
        NoLineTable: it has none, or one of another form.
    """
    try:
        return _number_instructions(cubin)
    except (struct.error, IndexError, UnicodeDecodeError) as exc:
        raise NoLineTable(f"the binary cannot be read: {exc}") from exc


def instruction_address(line: int) -> int:
    """Return the address in its function, in bytes, of the instruction with a numbered line."""
    return (line - 1) * INSTRUCTION_BYTES


def _number_instructions(cubin: bytes) -> bytes:
    sections = {section.name: section for section in elf_sections(cubin)}
    if not sections:
        raise NoLineTable("the binary is not an ELF file of 64 bits")
    table, moved = sections.get(".debug_line"), sections.get(".rela.debug_line")
    if table is None or moved is None:
        raise NoLineTable("the binary was compiled without line information")
    old = table.bytes_in(cubin)
    opcodes, prologue = _prologue(old)
    new, file = bytearray(prologue), bytearray(cubin)
    count = moved.size // _RELOCATION.size
    for place in (moved.offset + index * _RELOCATION.size for index in range(count)):
        at, info, addend = _RELOCATION.unpack_from(cubin, place)
        if old[at - 3 : at] != _SET_ADDRESS:
            raise NoLineTable("the line table addresses functions in another way")
        _RELOCATION.pack_into(file, place, len(new) + len(_SET_ADDRESS), info, addend)
        symbol = sections[".symtab"].offset + (info >> 32) * _SYMBOL.size
        new += _line_program(opcodes, _SYMBOL.unpack_from(cubin, symbol)[-1])
    struct.pack_into("<I", new, 0, len(new) - 4)
    file += bytes(-len(file) % 8)
    struct.pack_into("<QQ", file, table.header + 24, len(file), len(new))
    return bytes(file + new)


def _prologue(table: bytes) -> tuple[_Opcodes, bytes]:
    """Return the opcode parameters of the only unit, and the bytes in front of its line program."""
    length, version, prologue_bytes = struct.unpack_from("<IHI", table, 0)
    if version not in {2, 3} or length + 4 > len(table):
        raise NoLineTable(f"the line table is of version {version}")
    unit, _, line_base, line_range, opcode_base = struct.unpack_from("<BBbBB", table, _UNIT_BYTES)
    end = _UNIT_BYTES + prologue_bytes
    return _Opcodes(line_base, line_range, opcode_base, unit), table[:end]


def _line_program(opcodes: _Opcodes, size_bytes: int) -> bytes:
    """Return the line program of one function, a row per instruction."""
    count = max(size_bytes // INSTRUCTION_BYTES, 1)
    rows = _COPY + opcodes.next_instruction() * (count - 1)
    end = _ADVANCE_PC + _leb128(INSTRUCTION_BYTES // opcodes.unit) + _END
    return _SET_ADDRESS + bytes(8) + _SET_FIRST_FILE + rows + end


def _leb128(value: int) -> bytes:
    encoded = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        encoded.append(low | (0x80 if value else 0))
        if not value:
            return bytes(encoded)


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A sampling session; where CUPTI refused it, ``refused`` has its words."""

    session: int = 0
    folder: str = ""
    refused: str = ""


def open_session(payload: object, progress: object) -> OpenSession:
    """Begin to sample the launches of this process, which is CUPTI's only client in it.

    Only kernels that are loaded afterwards have lines.

    Raises:
        StoreError: the system refuses a folder for the samples.
    """
    with refused_by_system("A temporary folder cannot be made"):
        folder = Path(tempfile.mkdtemp(prefix="kernellab-samples-"))
    refused = "Proton is switched off; unset TRITON_PROTON_DISABLE"
    try:
        from triton import profiler  # loads CUPTI; a Triton that was built without Proton has none

        session = profiler.start(str(folder / "samples"), hook="triton", backend="cupti", mode="pcsampling")
        if session is not None:
            return OpenSession(int(session), str(folder))
    except (RuntimeError, ImportError, AttributeError) as exc:
        refused = f"{exc}" or type(exc).__name__
    folder.rmdir()
    return OpenSession(refused=refused)


def close_session(opened: OpenSession, progress: object) -> str:
    """End a session; return Proton's output: frames with their samples, as JSON.

    Raises:
        StoreError: Proton could not write it.
    """
    from triton import profiler

    folder = Path(opened.folder)
    try:
        profiler.finalize(opened.session)
        with refused_by_system("The samples cannot be read"):
            return (folder / "samples.hatchet").read_text(encoding="utf-8")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
