"""What a passed trial launch holds for, without a GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernellab.gpu.trial import trial_record
from kernellab.launch.arguments import ScalarSpec, TensorSpec
from kernellab.store import PassedTrial, Store

VIEW = TensorSpec(0, 0, (300,), (1,), "float32", 4)
LIKE: dict[str, Any] = {
    "digest": "abc",
    "device": "NVIDIA H200",
    "driver": "580.1",
    "grid": (3, 1, 1),
    "arguments": (("x_ptr", VIEW), ("n", ScalarSpec(300))),
    "sizes_bytes": [1200],
}


def trial(**changed: Any) -> PassedTrial:
    return trial_record(**{**LIKE, **changed})


def test_the_same_launch_has_the_same_record() -> None:
    assert trial() == trial()


@pytest.mark.parametrize(
    "changed",
    [
        {"digest": "abd"},
        {"device": "NVIDIA H100"},
        {"driver": "580.2"},
        {"grid": (4, 1, 1)},
        {"sizes_bytes": [1196]},
        {"contents": "0123"},
        {"arguments": (("x_ptr", VIEW), ("n", ScalarSpec(301)))},
        {"arguments": (("x_ptr", replace(VIEW, offset_bytes=4)), ("n", ScalarSpec(300)))},
        {"arguments": (("x_ptr", replace(VIEW, strides=(2,))), ("n", ScalarSpec(300)))},
        {"arguments": (("x_ptr", replace(VIEW, storage=1)), ("n", ScalarSpec(300)))},
    ],
    ids=str,
)
def test_a_verdict_counts_for_launches_of_the_same_extents_alone(changed: dict[str, Any]) -> None:
    assert trial(**changed) != trial()


def test_passed_trials_are_found_by_a_later_session(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.trials.add(trial())
    store.trials.add(trial())
    store.close()
    later = Store(tmp_path)
    assert trial() in later.trials
    assert trial(grid=(4, 1, 1)) not in later.trials
