"""Where an access lands is told right for any layout of the arguments."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kernellab.errors import OutOfBounds
from kernellab.launch.run import Run
from tests.interpreter import planted
from tests.tables import every

Launch = Callable[..., Run]
SIZE = 64
LARGE = 1 << 21  # of which not everything is copied


@st.composite
def views(draw: st.DrawFn) -> tuple[int, int, int]:
    """Return start, length and step of a view of a storage of `SIZE` elements."""
    step = draw(st.integers(1, 5))
    start = draw(st.integers(0, SIZE - 1))
    return start, draw(st.integers(0, (SIZE - 1 - start) // step + 1)), step


def positions(view: tuple[int, int, int]) -> tuple[int, int]:
    """Return the first position of a view in its storage and the one after its last."""
    start, length, step = view
    return start, start + (length - 1) * step + 1 if length else start


@pytest.mark.slow
@pytest.mark.parametrize("count", every(2, [50, 150]))
@pytest.mark.parametrize("size", [SIZE, LARGE])
def test_loads_anywhere(launch: Launch, size: int, count: int) -> None:
    @settings(max_examples=count, deadline=None)
    @given(
        x=views(),
        y=views(),
        offset=st.integers(-2 * SIZE, 2 * SIZE),
        dtype=st.sampled_from(["float32", "int8", "bfloat16"]),
    )
    @example(x=(0, 4, 2), y=(20, 4, 1), offset=3, dtype="float32")  # in a gap of its view
    @example(x=(0, 4, 1), y=(20, 4, 1), offset=10, dtype="float32")  # between both views
    @example(x=(0, 4, 1), y=(20, 4, 1), offset=22, dtype="float32")  # in the other view
    @example(x=(0, 4, 1), y=(20, 4, 1), offset=-1, dtype="float32")  # before the storage
    def load(x: tuple[int, int, int], y: tuple[int, int, int], offset: int, dtype: str) -> None:
        whole = torch.arange(size).to(getattr(torch, dtype))
        first, other = (whole[view[0] :][: view[1] * view[2] : view[2]] for view in (x, y))
        out = torch.zeros(1)
        position = x[0] + offset
        (start, end), (low, high) = positions(x), positions(y)
        inside_view = start <= position < end
        inside_other = low <= position < high
        arguments = (planted.reads_the_view_of_another, (1,), first, other, out, offset)
        if inside_view or (0 <= position < size and not inside_other):
            run = launch(*arguments)
            assert out.item() == whole[position]
            is_element = inside_view and offset % x[2] == 0
            assert [f.kind for f in run.findings] == ([] if is_element else ["outside_view"])
        else:
            with pytest.raises(OutOfBounds) as caught:
                launch(*arguments)
            assert f"element {offset} " in caught.value.message
            assert ("inside y" in caught.value.message) == (0 <= position < size)
            assert out.item() == 0

    load()


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(x=views(), y=views())
def test_overlaps_are_told_by_element(launch: Launch, x: tuple[int, int, int], y: tuple[int, int, int]) -> None:
    whole = torch.arange(float(SIZE))
    source, target = torch.ones(1), whole[x[0] :][: x[1] * x[2] : x[2]]
    other = whole[y[0] :][: y[1] * y[2] : y[2]]
    if not x[1]:
        return
    run = launch(planted.store_beside, (1,), source, target, other)
    shared = x[0] in range(y[0], y[0] + y[1] * y[2], y[2]) if y[1] else False
    same = x == y or (x[1] == y[1] == 1 and x[0] == y[0])
    kinds = {(f.kind, f.severity) for f in run.findings}
    if not shared:
        assert kinds == set()
    elif not same:
        assert {kind for kind, _ in kinds} == {"overlap"}
    assert run.changed["out"] == (whole[x[0]] != x[0])
