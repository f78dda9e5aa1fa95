"""How long a warp waits in its machine code: what the compiler wrote into the control bits of each instruction.

Since Volta, an instruction of 128 bits says in bits 105 to 108 how many cycles the warp stalls after it, in bits 110 to
112 which of six scoreboards its result sets, and in bits 116 to 121 which ones it waits for. Jia, Maggioni, Staiger,
Scarpazza: Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking, 2018, chapter 2.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

INSTRUCTION_BYTES = 16
_NO_SCOREBOARD = 7
# Offsets of the ELF header's fields; https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.eheader.html
_SECTION_TABLE, _SECTION_COUNTS = 0x28, 0x3A
_MEMORY_CYCLES = 1000.0  # in which nothing else of a warp hides all of a wait for memory
_SHORT_CYCLES = 20.0
# Cycles until a result is there, as measured by the paper and its successors for later architectures.
_LATENCIES = {
    "LDS": 30.0,
    "LDSM": 33.0,
    "SHFL": 24.0,
    "MUFU": 24.0,
    "LDL": 35.0,
    "LDC": 30.0,
    "S2R": 25.0,
    "SYNCS": 25.0,
}
_LOADS, _ATOMICS = frozenset({"LDG", "LD"}), frozenset({"ATOMG", "ATOM"})


@dataclass(frozen=True, slots=True)
class ControlCode:
    """The stall in cycles after an instruction, the scoreboard that it sets, if any, and those that it waits for."""

    stall: int
    sets: int | None
    waits: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WarpWait:
    """The cost of an instruction to a warp: cycles, those for spilled registers, waits for loads and for atomics."""

    cycles: float
    spill_cycles: float = 0.0
    loads: float = 0.0
    atomics: float = 0.0

    def __add__(self, other: WarpWait) -> WarpWait:
        """Return the waits of both, one after the other."""
        return WarpWait(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


def control_codes(cubin: bytes, kernel: str) -> tuple[ControlCode, ...]:
    """Return the control code of each instruction of a kernel, in their order; empty if it is not found."""
    code = next((s.bytes_in(cubin) for s in elf_sections(cubin) if s.name == f".text.{kernel}"), b"")
    words = struct.unpack(f"<{len(code) // 8}Q", code[: len(code) // INSTRUCTION_BYTES * INSTRUCTION_BYTES])
    return tuple(_control_code(word >> 41) for word in words[1::2])


def _control_code(bits: int) -> ControlCode:
    """Return the control code in bits 105 and following."""
    sets, mask = bits >> 5 & 0x7, bits >> 11 & 0x3F
    waits = tuple(number for number in range(6) if mask >> number & 1)
    return ControlCode(max(1, bits & 0xF), None if sets == _NO_SCOREBOARD else sets, waits)


def warp_waits(codes: Sequence[ControlCode], mnemonics: Sequence[str]) -> Iterator[WarpWait]:
    """Yield the waits of a warp that runs instructions once, in the order of the text.

    Each waits until the scoreboards are there that it needs, then stalls. What loads bring is there after as long as a
    wait for memory takes, so that loads without a wait between them wait together.
    """
    now = 0.0
    ready: dict[int, tuple[float, str]] = {}
    for code, mnemonic in zip(codes, mnemonics, strict=True):
        wait = WarpWait(float(code.stall))
        for end, maker in sorted((ready.pop(number) for number in code.waits if number in ready), reverse=True):
            wait += _wait_for(maker, max(0.0, end - now))
            now = max(now, end)
        base = mnemonic.partition(".")[0]
        if code.sets is not None:
            latency = _MEMORY_CYCLES if base in _LOADS | _ATOMICS else _LATENCIES.get(base, _SHORT_CYCLES)
            ready[code.sets] = max(ready.get(code.sets, (0.0, "")), (now + latency, base))
        now += code.stall
        yield wait


def _wait_for(maker: str, cycles: float) -> WarpWait:
    """Return a wait of some cycles for the result of an instruction."""
    if maker in _LOADS:
        return WarpWait(0.0, loads=cycles / _MEMORY_CYCLES)
    if maker in _ATOMICS:
        return WarpWait(0.0, atomics=cycles / _MEMORY_CYCLES)
    return WarpWait(0.0, spill_cycles=cycles) if maker == "LDL" else WarpWait(cycles)


@dataclass(frozen=True, slots=True)
class ElfSection:
    """A section of an ELF file: the place of its header, its name, and the place and size of its bytes."""

    header: int
    name: str
    offset: int
    size: int

    def bytes_in(self, elf: bytes) -> bytes:
        """The bytes of the section."""
        return elf[self.offset : self.offset + self.size]


def elf_sections(elf: bytes) -> Iterator[ElfSection]:
    """Yield the sections of a little-endian ELF file of 64 bits; none of another file."""
    if not elf.startswith(b"\x7fELF\x02\x01"):
        return
    (table,) = struct.unpack_from("<Q", elf, _SECTION_TABLE)
    size, count, names = struct.unpack_from("<HHH", elf, _SECTION_COUNTS)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + index * size) for index in range(count)]
    for index, (name_offset, _, _, _, offset, length) in enumerate(headers):
        start = headers[names][4] + name_offset
        yield ElfSection(table + index * size, elf[start : elf.index(b"\0", start)].decode(), offset, length)
