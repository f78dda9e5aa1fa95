"""What a module marks its launches with: names for profilers, and a check for NaN that can be switched on."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from kernellab.capture.writing import MARK

NAN = float("nan")


@pytest.fixture
def module() -> dict[str, Any]:
    scope: dict[str, Any] = {"torch": torch, "contextlib": contextlib, "INTERPRETED": True}
    exec(MARK, scope)
    return scope


def launched(module: dict[str, Any], x: torch.Tensor, value: float) -> torch.Tensor:
    """Write a value into an output, as a launch of the kernel ``fill`` that reads ``x``."""
    out = torch.zeros(4)
    with module["mark"]("fill", (x,), (out,)):
        out[1] = value
    return out


def test_nan_is_found_in_the_launches_that_are_checked(module: dict[str, Any]) -> None:
    launched(module, torch.ones(4), NAN)
    module["CHECKED"].add("fill")
    with pytest.raises(FloatingPointError, match="fill made NaN"):
        launched(module, torch.ones(4), NAN)
    launched(module, torch.ones(4), 1.0)
    launched(module, torch.full((4,), NAN), NAN)
    launched(module, torch.ones(4, dtype=torch.int32), 1.0)


@pytest.mark.parametrize("marks", [False, True])
def test_a_profiler_sees_launches_where_marks_are_on(module: dict[str, Any], marks: bool) -> None:
    module["MARKS"] = marks
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as seen:
        launched(module, torch.ones(4), 1.0)
    assert any(event.name == "fill" for event in seen.events()) == marks
