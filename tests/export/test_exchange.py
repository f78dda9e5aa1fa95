"""Measurements that go to another store in a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.errors import StoreError, UnknownName, UsageError
from kernellab.target import Target
from kernellab.timing.config import Config
from kernellab.timing.launches import Launches
from kernellab.timing.provenance import Device
from kernellab.tune.options import Options
from kernellab.tune.result import Tuning
from kernellab.tune.run_tuning import Environment, tune_launches
from tests.labs import shared_lab
from tests.tune.fakes import FakeBench

CONFIGS = [triton.Config({"BLOCK": block}) for block in (64, 128)]
TIMES = {Config.from_triton(config): 1.0 + place for place, config in enumerate(CONFIGS)}
X, OUT = torch.zeros(300), torch.zeros(300)


@triton.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * 2, mask=offsets < n)


def device(name: str, triton: str = "3.9.0") -> Device:
    return Device(Target("cuda", 90, 32), name, "580.1", {"device": name, "triton": triton})


def tune(lab: kernellab.Lab, name: str = "NVIDIA H200", triton: str = "3.9.0", factor: float = 1.0) -> Tuning:
    times = {each: time_ms * factor for each, time_ms in TIMES.items()}
    environment = Environment(lab.compiler, lab.kernels, device(name, triton), lambda *_: FakeBench(times))
    return tune_launches(
        environment, Launches(scale, (3,), (X, OUT, 300), {}, environment.device.target), Options(CONFIGS)
    )


def lab_in(folder: Path) -> kernellab.Lab:
    return shared_lab(target="cuda:90", store=folder)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first")
    with lab_in(folder) as lab:
        tune(lab)
        assert lab.export_measurements("scale", folder / "scale.jsonl") > 0
    return folder / "scale.jsonl"


@pytest.mark.slow
def test_another_machine_of_the_same_device_answers_from_them(exported: Path, tmp_path: Path) -> None:
    with lab_in(tmp_path) as lab:
        assert lab.merge(exported).new == len(exported.read_text().splitlines()) - 1
        assert tune(lab).from_cache
        assert lab.frame("measurements").shape[0] > 0


@pytest.mark.slow
def test_another_device_keeps_them_and_measures_itself(exported: Path, tmp_path: Path) -> None:
    with lab_in(tmp_path) as lab:
        lab.merge(exported)
        assert not tune(lab, "NVIDIA B200").from_cache


def test_what_became_slower_elsewhere_is_told_once_it_is_here(exported: Path, tmp_path: Path) -> None:
    with lab_in(tmp_path) as lab:
        tune(lab, triton="3.8.0", factor=0.5)
        merged = lab.merge(exported)
        assert {(row.triton, row.origin, row.launch) for row in merged.rows} == {
            ("3.8.0", "here", "n=300"), ("3.9.0", "there", "n=300")
        }  # fmt: skip
        (row,) = (row for row in lab.regressions("scale").rows if row.config == "fastest")
        assert (row.by, row.became) == ("Triton 3.9.0 to 3.8.0", "faster")  # in the order of measuring
        assert lab.frame("measurements").shape[0] == merged.new * 2


def test_a_second_import_enters_nothing(exported: Path, tmp_path: Path) -> None:
    with lab_in(tmp_path) as lab:
        assert lab.merge(exported).new > 0
        assert lab.merge(exported).new == 0


def test_a_kernel_that_was_changed_in_the_file_is_another_version(exported: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed.jsonl"
    changed.write_text(exported.read_text().replace("* 2, mask", "* 3, mask"))
    with lab_in(tmp_path) as lab:
        lab.merge(changed)
        lab.merge(exported)
        assert [version.label for version in lab.kernels.store.versions()] == ["scale@1", "scale@2"]


def test_each_line_says_where_its_number_comes_from(exported: Path) -> None:
    kernel, *rows = map(json.loads, exported.read_text().splitlines())
    assert kernel["kernel"] == "scale"
    for row in rows:
        assert row["schema"] == 1
        assert (row["device"], row["driver"], row["triton"]) == ("NVIDIA H200", "580.1", "3.9.0")


def _without(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda row: {key: value for key, value in row.items() if key != name}


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda row: "{" + json.dumps(row), "Line 3 of .* is not a measurement"),
        (_without("config"), "Line 3 .*lacks 'config'"),
        (lambda row: {**row, "time_ms": "fast"}, "Line 3 .*time_ms is 'fast'"),
        (lambda row: {**row, "device": "NVIDIA B200"}, "Line 3 .*its key names another"),
        (lambda row: {**row, "digest": "0" * 64}, "Line 3 .*no line before it holds its kernel"),
        (lambda row: {**row, "schema": 2}, "Line 3 .*its schema is 2"),
        (lambda row: [1, 2], "Line 3 .*expected an object"),
    ],
)
def test_a_broken_line_is_named_and_nothing_is_entered(
    exported: Path, tmp_path: Path, spoil: Callable[[dict[str, Any]], Any], message: str
) -> None:
    lines = exported.read_text().splitlines()
    spoilt = spoil(json.loads(lines[2]))
    lines[2] = spoilt if isinstance(spoilt, str) else json.dumps(spoilt)
    path = tmp_path / "broken.jsonl"
    path.write_text("\n".join(lines))
    with lab_in(tmp_path / "store") as lab:
        with pytest.raises(StoreError, match=message):
            lab.merge(path)
        assert lab.frame("measurements").empty
        assert not list(lab.kernels)


def test_unknown_kernels_and_files_are_refused(exported: Path, tmp_path: Path) -> None:
    with lab_in(tmp_path) as lab:
        with pytest.raises(UnknownName, match="absent"):
            lab.export_measurements("absent", tmp_path / "rows.jsonl")
        with pytest.raises(UsageError, match="cannot be read"):
            lab.merge(tmp_path / "absent.jsonl")
        with pytest.raises(UsageError, match="cannot be written"):
            lab.export_measurements(None, tmp_path / "absent" / "rows.jsonl")
