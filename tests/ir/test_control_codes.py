"""Waits of a warp in its machine code: stalls, scoreboards, and loads that wait together or one after the other."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from kernellab.ir.control_codes import ControlCode, WarpWait, control_codes, warp_waits


def total(*instructions: tuple[str, ControlCode]) -> WarpWait:
    codes = [code for _, code in instructions]
    return sum(warp_waits(codes, [name for name, _ in instructions]), WarpWait(0.0))


def code(stall: int = 1, sets: int | None = None, waits: Sequence[int] = ()) -> ControlCode:
    return ControlCode(stall, sets, tuple(waits))


def test_stalls_add_up() -> None:
    assert total(("IADD3", code(4)), ("FFMA", code(2))) == WarpWait(6.0)


def test_loads_before_one_use_wait_together() -> None:
    waits = total(("LDG.E", code(sets=0)), ("LDG.E", code(sets=1)), ("FADD", code(waits=[0, 1])))
    assert waits.loads == pytest.approx(1.0, abs=0.01)


def test_a_load_whose_address_was_loaded_waits_once_more() -> None:
    waits = total(
        ("LDG.E", code(sets=0)), ("LDG.E.64", code(sets=0, waits=[0])), ("FADD", code(waits=[0]))
    )  # fmt: skip
    assert waits.loads == pytest.approx(2.0, abs=0.01)


def test_work_between_load_and_use_shortens_the_wait() -> None:
    waits = total(("LDG.E", code(sets=0)), *[("FFMA", code(10))] * 50, ("FADD", code(waits=[0])))
    assert waits.loads == pytest.approx(0.5, abs=0.01)


def test_spilled_registers_wait_on_their_own() -> None:
    waits = total(("LDL", code(sets=2)), ("FADD", code(waits=[2])))
    assert waits.spill_cycles > 20
    assert waits.loads == 0


def test_atomics_whose_results_are_used_wait_on_their_own() -> None:
    waits = total(("ATOMG.E.ADD", code(sets=0)), ("FADD", code(waits=[0])))
    assert (waits.loads, waits.atomics) == (0, pytest.approx(1.0, abs=0.01))


def test_a_scoreboard_that_nothing_set_costs_nothing() -> None:
    assert total(("FADD", code(waits=[0, 3]))) == WarpWait(1.0)


def instruction(stall: int, sets: int, mask: int) -> bytes:
    return struct.pack("<QQ", 0, (stall | sets << 5 | mask << 11) << 41)


def elf(name: str, code: bytes) -> bytes:
    """A little-endian ELF file of 64 bits with one section of code and the table of names."""
    names = b"\0" + name.encode() + b"\0.shstrtab\0"
    header = bytearray(64)
    header[:6] = b"\x7fELF\x02\x01"
    places = 64, 64 + len(code)
    struct.pack_into("<Q", header, 0x28, places[1] + len(names))
    struct.pack_into("<HHH", header, 0x3A, 64, 3, 2)
    rows = [(0, 0, 0), (1, places[0], len(code)), (2 + len(name), places[1], len(names))]
    table = b"".join(struct.pack("<IIQQQQ", at, 0, 0, 0, *place).ljust(64, b"\0") for at, *place in rows)
    return bytes(header) + code + names + table


def test_control_bits_are_read_from_the_section_of_a_kernel() -> None:
    binary = elf(".text.k", instruction(4, 7, 0) + instruction(0, 2, 0b100001))
    assert control_codes(binary, "k") == (ControlCode(4, None, ()), ControlCode(1, 2, (0, 5)))
    assert control_codes(binary, "other") == ()
    assert control_codes(b"AMD", "k") == ()
