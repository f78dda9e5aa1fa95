"""A launch beside its baseline: what counts as worse, and the file that baselines are kept in."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernellab.benchmark.baselines import Baseline, BaselineFile, compare_with_baseline, samples_of
from kernellab.errors import UsageError
from kernellab.views.cards.kernels import baseline_text

GOOD = Baseline(
    kernel="add_kernel",
    device="a GPU",
    target="cuda:90",
    grid=(4, 1, 1),
    registers=32,
    spill_bytes=0,
    shared_bytes=1024,
    reads=("x_ptr",),
    writes=("out_ptr",),
    atomics=(),
    time_ms=1.0,
    low_ms=0.98,
    high_ms=1.02,
    samples=30,
    inputs={"x_ptr": (0.5, 1.0, -1.0)},
    outputs={"out_ptr": (1.0, 2.0, None)},
    tolerance=1e-3,
    triton="3.9.0",
)


def timed(median: float, spread: float = 0.01) -> Baseline:
    return replace(GOOD, time_ms=median, low_ms=median - spread, high_ms=median + spread)


def failures(now: Baseline, margin: float = 0.05) -> tuple[str, ...]:
    return compare_with_baseline("main", GOOD, now, margin).failures


@pytest.mark.parametrize(
    ("now", "margin", "fails"),
    [
        (timed(1.0), 0.05, False),
        (timed(1.04), 0.05, False),  # beyond the noise, within the margin
        (timed(1.2, spread=0.3), 0.05, False),  # beyond the margin, within the noise
        (timed(1.2), 0.05, True),
        (timed(1.2), 0.25, False),
        (timed(0.5), 0.05, False),
    ],
)
def test_slower_is_beyond_the_noise_and_beyond_the_margin(now: Baseline, margin: float, fails: bool) -> None:
    assert bool(failures(now, margin)) is fails


def test_a_slower_launch_is_told_with_both_intervals_and_the_margin() -> None:
    assert failures(timed(1.2)) == (
        "add_kernel takes 1.2 ms (1.19 to 1.21), 20.0% longer than 1 ms (0.98 to 1.02); tolerance 5%",
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"registers": 40}, "registers is 40, and was 32"),
        ({"spill_bytes": 8}, "spill_bytes is 8, and was 0"),
        ({"shared_bytes": 2048}, "shared_bytes is 2,048, and was 1,024"),
        ({"writes": ("out_ptr", "x_ptr")}, "writes is out_ptr, x_ptr, and was out_ptr"),
        ({"reads": ()}, "reads is nothing, and was x_ptr"),
        ({"outputs": {"out_ptr": (1.0, 2.1, None)}}, "out_ptr holds other values than in the baseline"),
        ({"outputs": {"out_ptr": (1.0, 2.0, 0.0)}}, "out_ptr holds other values than in the baseline"),
        ({"outputs": {}}, "out_ptr holds other values than in the baseline"),
        ({"inputs": {"x_ptr": (0.5, 1.0, 1.0)}}, "the inputs are not those of the baseline (x_ptr)"),
    ],
)
def test_more_resources_other_effects_and_other_values_fail(change: dict[str, object], words: str) -> None:
    (failure,) = failures(replace(GOOD, **change))
    assert failure.startswith(words)


def test_what_is_better_or_of_another_version_is_a_note() -> None:
    found = compare_with_baseline("main", GOOD, replace(timed(0.5), registers=16, triton="3.10.0"))
    assert not found.failures
    assert found.notes[0].startswith("it is 50.0% faster than its baseline")
    assert "triton is 3.10.0; the baseline is of 3.9.0" in found.notes
    assert "16 (was 32)" in baseline_text(found)


def test_rounding_is_allowed_as_far_as_the_formats_go() -> None:
    assert not failures(replace(GOOD, outputs={"out_ptr": (1.0, 2.0005, None)}))


def test_samples_have_none_for_what_is_no_number() -> None:
    assert samples_of({"x": torch.tensor([1.0, float("nan")])}) == {"x": (None, 1.0, None)}


def test_a_file_keeps_baselines_by_test_name_and_device(tmp_path: Path) -> None:
    file = BaselineFile(tmp_path / "test_ops.baselines.json")
    assert file.get("test_add", "main", "a GPU") is None
    others = [replace(GOOD, device=f"device {i}") for i in range(8)]
    with ThreadPoolExecutor(8) as pool:  # each opens the folder itself, as processes do
        list(pool.map(lambda each: file.put("test_add", "main", each), [GOOD, *others]))
    assert file.get("test_add", "main", "a GPU") == GOOD
    assert all(file.get("test_add", "main", each.device) == each for each in others)
    assert file.get("test_add", "other", "a GPU") is None
    assert [path.name for path in tmp_path.iterdir()] == [file.path.name]
    assert '"reads": ["x_ptr"]' in file.path.read_text()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "has no baselines of schema 1"),
        ('{"schema": 2}', "has no baselines of schema 1"),
        (json.dumps({"schema": 1, "baselines": {"t": {"main": {"a GPU": {"kernel": "k"}}}}}), "incomplete baseline"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "test_ops.baselines.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        BaselineFile(path).get("t", "main", "a GPU")
