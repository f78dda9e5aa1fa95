"""Ceilings in the folder of the store: kept per device and driver, and never trusted when broken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import kernellab
from kernellab.errors import UsageError
from kernellab.timing.provenance import load_ceilings, save_ceilings
from tests.benchmark.frames import CEILINGS


def test_ceilings_are_found_again_for_the_same_device_and_driver(tmp_path: Path) -> None:
    other = replace(CEILINGS, device="NVIDIA A100", memory_gbps=1400.0)
    save_ceilings(tmp_path / "store", CEILINGS)
    save_ceilings(tmp_path / "store", other)
    assert load_ceilings(tmp_path / "store", CEILINGS.device, CEILINGS.driver) == CEILINGS
    assert load_ceilings(tmp_path / "store", other.device, other.driver) == other
    assert load_ceilings(tmp_path / "store", CEILINGS.device, "another") is None


def test_a_folder_without_ceilings_has_none(tmp_path: Path) -> None:
    assert load_ceilings(tmp_path, "NVIDIA H200", "1") is None


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 1}'])
def test_a_broken_file_is_a_miss_with_a_warning(tmp_path: Path, text: str) -> None:
    (tmp_path / "ceilings.json").write_text(text)
    with pytest.warns(UserWarning, match=r"ceilings\.json cannot be read"):
        assert load_ceilings(tmp_path, "NVIDIA H200", "1") is None


def test_without_a_gpu_there_is_nothing_to_measure() -> None:
    with kernellab.Lab(target="cuda:75", store=":memory:") as lab, pytest.raises(UsageError, match="There is no GPU"):
        lab.ceilings()
