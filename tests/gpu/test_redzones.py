"""Copies between redzones, on the CPU."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from kernellab.gpu.ipc import Memory
from kernellab.gpu.redzones import Damage, Redzones, spans_of

ZONE = 64


def redzones(*sizes: int, copied: tuple[bool, ...] | None = None) -> Redzones:
    memories = tuple(Memory(None, size, 16 * index, True) for index, size in enumerate(sizes))
    spans, total = spans_of(memories, copied or (True,) * len(sizes), ZONE)
    found = Redzones(torch.empty(total, dtype=torch.uint8), spans)
    for index, span in enumerate(spans):
        if span is not None:
            found.copy_of(index).fill_(index)
    return found


def start_of(found: Redzones, index: int) -> int:
    span = found.spans[index]
    assert span is not None
    return span[0]


def test_copies_lie_apart_and_aligned_like_their_originals() -> None:
    found = redzones(100, 7, 512)
    spans = [span for span in found.spans if span is not None]
    assert [start % 512 for start, _ in spans] == [0, 16, 32]
    assert all(following[0] - end >= ZONE for (_, end), following in pairwise(spans))


def test_what_is_written_inside_is_no_damage() -> None:
    found = redzones(100, 7)
    found.copy_of(0).fill_(9)
    found.copy_of(1).fill_(8)
    assert found.damages() == []


def test_an_overrun_is_told_by_place_and_length() -> None:
    found = redzones(100, 7)
    end = start_of(found, 0) + 100
    found.room[end + 4 : end + 12] ^= 255
    (damage,) = found.damages()
    assert (damage.after, damage.before, damage.past_end_bytes, damage.count) == (0, 1, 4, 8)


@pytest.mark.parametrize("distance", [1, 30])
def test_an_underrun_is_told_by_its_distance(distance: int) -> None:
    found = redzones(100)
    found.room[start_of(found, 0) - distance] ^= 255
    assert found.damages() == [Damage(None, 0, start_of(found, 0) - distance, distance, 1)]


def test_a_zone_copied_onto_another_is_damage() -> None:
    found = redzones(100, 100)
    end, last = start_of(found, 0) + 100, start_of(found, 1) + 100
    found.room[last : last + 32] = found.room[end : end + 32].clone()
    assert [damage.after for damage in found.damages()] == [1]


def test_a_watched_copy_must_not_change() -> None:
    found = redzones(100, 7)
    found.watch([1])
    found.copy_of(1)[3] = 77
    assert found.damages() == [Damage(1, 1, 0, 0, 0)]


def test_what_is_not_copied_takes_no_room() -> None:
    found = redzones(100, 1 << 20, copied=(True, False))
    assert found.spans[1] is None
    assert found.room.numel() < 1000
