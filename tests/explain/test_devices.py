"""What stands for a target without measurements."""

from __future__ import annotations

from kernellab.explain.devices import device_of_model, device_of_table
from kernellab.target import parse_target


def test_a_device_that_stands_in_for_another_says_so() -> None:
    assert device_of_table(parse_target("cuda:90")).name == "H100"
    other = device_of_table(parse_target("hip:gfx1100"))
    assert other.name == "H100 in place of hip:gfx1100"
    assert other.memory_gbps == device_of_table(parse_target("cuda:90")).memory_gbps


def test_a_gpu_is_known_by_the_name_that_its_driver_gives() -> None:
    target = parse_target("cuda:90")
    assert device_of_model(target, "NVIDIA H200").name == "H200"
    assert device_of_model(target, "NVIDIA H100 PCIe").name == "H100 PCIe"
    assert device_of_model(target, "a card without a sheet").name == "H100"
