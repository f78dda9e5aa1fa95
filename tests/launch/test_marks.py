"""Marks of launches in the timeline of a profiler: always in captures and programs, and elsewhere where asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import kernellab
from kernellab.errors import KernellabError
from tests import samples
from tests.labs import lab_fixture

lab = lab_fixture()


def marks(body: Callable[[], object]) -> int:
    """Return how many marks of the kernel a profiler sees while a function runs."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        body()
    return sum(event.name == "scale_kernel" for event in seen.events())


def launches(lab: kernellab.Lab) -> Callable[[], object]:
    scale, x, out = lab.bind(samples.scale_kernel), torch.ones(64), torch.zeros(64)
    return lambda: [scale[(1,)](x, out, 64, BLOCK=64) for _ in range(4)]


@pytest.mark.slow
def test_launches_are_marked_where_that_is_asked_for_and_not_else(lab: kernellab.Lab) -> None:
    body = launches(lab)
    assert marks(body) == 0
    with lab.marking():
        assert marks(body) == 4
    assert marks(body) == 0


@pytest.mark.slow
def test_launches_of_captures_and_programs_are_marked_once_each(lab: kernellab.Lab) -> None:
    body, programs = launches(lab), []

    def record() -> None:
        with lab.capture() as program:
            body()
        programs.append(program)

    def run() -> None:
        x, out = torch.rand(64), torch.zeros(64)
        programs[0].run(x=x, out=out)

    assert marks(record) == 4
    assert marks(run) == 4

    def run_in_a_capture() -> None:
        with lab.capture():
            run()

    assert marks(run_in_a_capture) == 4


def test_a_launch_that_fails_leaves_no_open_mark(lab: kernellab.Lab) -> None:
    scale, x = lab.bind(samples.scale_kernel), torch.ones(64)
    with lab.marking():

        def body() -> None:
            with pytest.raises(KernellabError):
                scale[(1,)](x, torch.zeros(2), 64, BLOCK=64)
            launches(lab)()

        assert marks(body) == 5
