"""What stands for a target without measurements."""

from __future__ import annotations

from kernellab.explain.devices import device_of_model, device_of_table
from kernellab.target import known_targets, parse_target

WITHOUT_SHEET = {f"hip:gfx{model}" for model in (1100, 1101, 1102, 1103, 1150, 1151, 1200, 1201, 1250)}


def test_a_device_that_stands_in_for_another_says_so() -> None:
    assert device_of_table(parse_target("cuda:90")).name == "H100"
    other = device_of_table(parse_target("hip:gfx1100"))
    assert other.name == "H100 in place of hip:gfx1100"
    assert other.memory_gbps == device_of_table(parse_target("cuda:90")).memory_gbps


def test_every_known_target_has_a_data_sheet_but_those_named_here() -> None:
    names = {target: device_of_table(parse_target(target)).name for target in known_targets()}
    assert {target for target, name in names.items() if "in place of" in name} == WITHOUT_SHEET


def test_a_gpu_is_known_by_the_name_that_its_driver_gives() -> None:
    target = parse_target("cuda:90")
    assert device_of_model(target, "NVIDIA H200").name == "H200"
    assert device_of_model(target, "NVIDIA H100 PCIe").name == "H100 PCIe"
    assert device_of_model(target, "a card without a sheet").name == "H100"
