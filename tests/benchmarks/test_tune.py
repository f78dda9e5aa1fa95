"""What the benchmark of tunings measures: its kernels are right, compile for an H100, and fill a table."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import kernellab
from benchmarks.forked import ChildFailed
from benchmarks.tune import measure_all
from benchmarks.tune_kernels import LOADED_VALUES_DECIDE, WORKLOADS, workload
from benchmarks.tune_table import table
from kernellab.store.columns import Status
from kernellab.timing.config import Config
from kernellab.tune.search import longest_first
from tests.labs import lab_fixture
from tests.tables import every

lab = lab_fixture("cuda:90")


def ends(configs: list[Any]) -> list[Any]:
    """Return the configs that compile longest and shortest."""
    order = longest_first(map(Config.from_triton, configs))
    originals = {Config.from_triton(config): config for config in configs}
    return [originals[order[0]], originals[order[-1]]]


@pytest.mark.slow
@pytest.mark.parametrize("name", every(4, WORKLOADS))
def test_each_kernel_leaves_what_torch_says(lab: kernellab.Lab, name: str) -> None:
    torch.manual_seed(0)
    work = workload(name, "cpu", is_small=True)
    config = ends(work.kernel.configs)[1]
    if config.pre_hook is not None:
        config.pre_hook({**dict(zip(work.kernel.arg_names, work.arguments, strict=False)), **config.kwargs})
    lab.run(work.kernel.fn, work.grid, *work.arguments, **config.all_kwargs())
    assert work.error() < 2e-3


@pytest.mark.slow
@pytest.mark.parametrize("name", every(4, WORKLOADS))
def test_the_configs_that_take_longest_and_shortest_compile(lab: kernellab.Lab, name: str) -> None:
    work = workload(name, "cpu", is_small=True)
    tuning = lab.tune(work.kernel, work.grid, *work.arguments, configs=ends(work.kernel.configs))
    assert tuning.rows[-1].status is Status.NOT_TIMED, tuning.rows[-1].reason
    assert {row.status for row in tuning.rows} <= {Status.NOT_TIMED, Status.CANNOT_RUN}


def test_a_kernel_that_leaves_something_else_is_far_from_what_is_expected() -> None:
    work = workload("gather", "cpu", is_small=True)
    assert work.error() > 0.1


def test_lists_are_as_long_as_the_goals_ask() -> None:
    assert WORKLOADS.keys() > LOADED_VALUES_DECIDE
    counts = {name: len(workload(name, "cpu", is_small=True).kernel.configs) for name in WORKLOADS}
    assert {counts[name] for name in ("matmul", "attention", "softmax")} == {48, 36, 32}
    assert sum(count >= 32 for count in counts.values()) >= 7


def line(what: str, seconds: float = 0.0, **more: Any) -> dict[str, Any]:
    return {"workload": "matmul", "what": what, "seconds": seconds, "error": 0.001, **more}


def measured(names: list[str], lines: list[dict[str, Any]], out: Path, left_s: Iterator[float]) -> list[str]:
    """Return what is measured of some workloads, each of which takes some of the time that is left."""
    done: list[str] = []

    def works(name: str) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
        for what in ("lab", "lab warm", "triton"):

            def work(what: str = what) -> dict[str, Any]:
                done.append(f"{name} {what}")
                if what == "triton":
                    raise ChildFailed("a child ended with status 9")
                return {"seconds": 1.0}

            yield what, work

    measure_all(names, works, lines, out, lambda: next(left_s))
    return done


def test_what_the_file_has_is_not_measured_again_but_a_cold_one_whose_warm_one_is_missing(tmp_path: Path) -> None:
    out = tmp_path / "tune.jsonl"
    assert measured(["matmul"], [], out, iter([90.0, 90.0, 10.0])) == ["matmul lab", "matmul lab warm"]
    lines = [json.loads(text) for text in out.read_text().splitlines()]
    assert [(each["workload"], each["what"], each["seconds"]) for each in lines] == [
        ("matmul", "lab", 1.0),
        ("matmul", "lab warm", 1.0),
    ]
    assert measured(["matmul"], lines, out, itertools.repeat(90.0)) == ["matmul triton"]
    assert measured(["matmul"], lines[:1], out, itertools.repeat(90.0)) == [
        "matmul lab",
        "matmul lab warm",
        "matmul triton",
    ]
    assert "failed matmul triton: a child ended with status 9" in table(lines)


def test_the_table_has_the_ratios_and_names_what_was_missed() -> None:
    lines = [
        line("lab", 4.0, machine="one H200, 16 cores", notes=["outputs disagree"]),
        line("lab ready", 2.0, start=1.5),
        line("lab warm", 0.2),
        line("triton", 24.0),
        line("triton warm", 0.5),
        {"workload": "matmul", "what": "inductor", "failed": "a child ended with status 9"},
        line("judged", count=48, best_ms=0.2, picks={"lab": 1.0, "lab ready": 1.02}),
    ]
    text = table(lines)
    head, kernel = text.splitlines()[1:3]
    assert text.startswith("one H200, 16 cores\n")
    assert dict(zip(head.split(), kernel.replace(" x", "").split(), strict=False))["configs"] == "48"
    assert "6.0 x" in kernel
    assert "12.0 x" in kernel
    missed = [each for each in text.splitlines() if each.startswith("MISSED")]
    assert missed == ["MISSED matmul: warm 0.1 s", "MISSED matmul: pick of lab ready within 1.01"]
    assert "failed matmul inductor: a child ended with status 9" in text
    assert "note matmul: outputs disagree" in text


def test_wrong_outputs_are_a_goal_that_was_missed_and_no_figure_is_none() -> None:
    assert "MISSED matmul: outputs of lab within 2%" in table([{**line("lab", 1.0), "error": float("nan")}])
    assert "every goal that has figures is met" in table([line("lab", 1.0)])
