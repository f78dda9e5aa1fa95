"""What memory held before a launch comes back, also where parts of it overlap, and goes again."""

from __future__ import annotations

import pytest
import torch

from kernellab.ir.effects import Effects, Site
from kernellab.ir.operations import Access
from kernellab.launch import recording
from kernellab.launch.recording import UndoLog


def begun(log: UndoLog, wanted: tuple[int, ...] = (), **tensors: torch.Tensor) -> int:
    """Begin a launch that writes the tensors; return its number."""
    sites = [Site(name, Access.WRITE, "tt.store", 0, None, masked=False, conditional=False) for name in tensors]
    log.begin(tensors, Effects(tuple(tensors), tuple(sites)), wanted)
    return log.number


def test_memory_holds_what_it_held_before_a_launch_and_what_it_holds_now_after() -> None:
    log, x = UndoLog(), torch.arange(10.0)
    first = begun(log, x=x)
    x += 1
    second = begun(log, (first,), x=x)
    x *= 2
    with log.before(first):
        assert torch.equal(x, torch.arange(10.0))
    with log.before(second):
        assert torch.equal(x, torch.arange(10.0) + 1)
    assert torch.equal(x, 2 * (torch.arange(10.0) + 1))


def test_views_that_overlap_are_undone_in_the_reverse_order() -> None:
    log, x = UndoLog(), torch.zeros(10)
    numbers: list[int] = []
    for value, part in enumerate([x[:6], x[4:], x[::3], x[:6]], start=1):
        numbers.append(begun(log, tuple(numbers), part=part))
        part.fill_(value)
    with log.before(numbers[0]):
        assert not x.any()
    with log.before(numbers[2]):
        assert x.tolist() == [1] * 4 + [2] * 6
    assert x.tolist() == [4] * 6 + [3] + [2] * 2 + [3]


def test_memory_comes_back_where_the_block_raises() -> None:
    log, x = UndoLog(), torch.zeros(3)
    number = begun(log, x=x)
    x += 1
    with pytest.raises(KeyError), log.before(number):
        raise KeyError
    assert x.tolist() == [1, 1, 1]


def test_what_many_launches_keep_does_not_grow() -> None:
    log, x = UndoLog(), torch.zeros(4)
    for _ in range(50):
        begun(log, (1, log.number) if log.number else (), x=x)
        x += 1
    assert len(log._changes) <= 4
    with log.before(1):
        assert not x.any()
    with log.before(50):
        assert x.tolist() == [49] * 4


def test_what_is_too_large_is_not_kept_and_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_MOST_BYTES_OF_ONE", 16)
    log = UndoLog()
    number = begun(log, small=torch.zeros(4), large=torch.zeros(5))
    assert log.is_kept(number, {"small"})
    assert not log.is_kept(number, {"small", "large"})


def test_the_version_of_a_tensor_stays_what_it_is() -> None:
    log, x = UndoLog(), torch.zeros(3)
    number, version = begun(log, x=x), x._version
    with log.before(number):
        pass
    assert x._version == version


def test_a_launch_in_inference_mode_can_be_undone_outside() -> None:
    log = UndoLog()
    with torch.inference_mode():
        x = torch.zeros(3)
        number = begun(log, x=x)
        x += 1
    with log.before(number):
        assert not x.any()
    assert x.tolist() == [1, 1, 1]
