"""What stands for a target without measurements."""

from __future__ import annotations

from kernellab.explain.devices import device_of_table
from kernellab.target import parse_target


def test_a_device_that_stands_in_for_another_says_so() -> None:
    assert device_of_table(parse_target("cuda:90")).name == "H100"
    other = device_of_table(parse_target("hip:gfx1100"))
    assert other.name == "H100 in place of hip:gfx1100"
    assert other.memory_gbps == device_of_table(parse_target("cuda:90")).memory_gbps
