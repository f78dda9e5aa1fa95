"""Which processes measure: one for each GPU, all of one kind."""

from __future__ import annotations

from kernellab.target import parse_target
from kernellab.timing.provenance import Device
from kernellab.tune.executors import GpuOwner, owners_of


def owner(model: str, gpu: str, target: str = "cuda:90", visible: int = 1, triton: str = "3.9.0") -> GpuOwner:
    return GpuOwner(Device(parse_target(target), model, "570", {"triton": triton}, 0), gpu, visible)


def test_all_that_own_a_gpu_of_one_model_measure() -> None:
    found = owners_of({"a": owner("H100", "1"), "b": owner("H100", "2"), "c": None})
    assert found.names == ("a", "b")
    assert found.kind == "H100, driver 570, cuda:90, Triton 3.9.0"
    assert not found.notes


def test_models_are_kept_apart_and_the_more_frequent_one_measures() -> None:
    found = owners_of({"a": owner("A100", "1"), "b": owner("H100", "2"), "c": owner("H100", "3")})
    assert found.names == ("b", "c")
    (note,) = found.notes
    assert note.startswith("a has A100, driver 570")
    assert "times of two kinds are not compared" in note


def test_a_model_of_the_target_is_preferred_to_a_more_frequent_one() -> None:
    found = {"a": owner("A100", "1", "cuda:80"), "b": owner("H100", "2"), "c": owner("H100", "3")}
    assert owners_of(found, "cuda:80").names == ("a",)
    assert owners_of(found, "cuda:120").names == ("b", "c")


def test_another_triton_is_another_kind() -> None:
    assert owners_of({"a": owner("H100", "1"), "b": owner("H100", "2", triton="3.6.0")}).names == ("a",)


def test_of_two_processes_on_one_gpu_the_first_measures() -> None:
    found = owners_of({"b": owner("H100", "1"), "a": owner("H100", "1")})
    assert found.names == ("a",)
    assert found.notes == ("b shares the GPU of a and measures nothing; start one worker per GPU",)


def test_a_process_that_could_use_several_gpus_measures_and_is_told_so() -> None:
    found = owners_of({"a": owner("H100", "1", visible=4)})
    assert found.names == ("a",)
    assert "could use 4 GPUs and measures on one" in found.notes[0]


def test_without_a_gpu_nobody_measures() -> None:
    assert not owners_of({"a": None}).names
