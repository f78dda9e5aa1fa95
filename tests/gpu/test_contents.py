"""That the digest of memory tells contents apart."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernellab.gpu import trial
from kernellab.gpu.trial import contents_digest

SIZES = [1, 3, 8, 262_143, 262_144, 262_145, 17_000_003]


def digest(*tensors: torch.Tensor) -> str | None:
    return contents_digest([tensor.untyped_storage() for tensor in tensors])


def random_bytes(size: int) -> torch.Tensor:
    return torch.randint(0, 256, (size,), dtype=torch.uint8, generator=torch.Generator().manual_seed(size))


@pytest.mark.parametrize("size", SIZES)
def test_equal_contents_have_one_digest(size: int) -> None:
    assert digest(random_bytes(size)) == digest(random_bytes(size).clone())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("place", [0.0, 0.5, 1.0])
def test_one_changed_byte_changes_the_digest(size: int, place: float) -> None:
    data = random_bytes(size)
    before = digest(data)
    data[int(place * (size - 1))] ^= 128
    assert digest(data) != before


def swapped(data: torch.Tensor) -> torch.Tensor:
    return data.flip(0)


def with_two_signs_flipped(data: torch.Tensor) -> torch.Tensor:
    signs = torch.ones_like(data)
    signs[[11, 77]] = -1
    return data * signs


def rotated_by_a_row(data: torch.Tensor) -> torch.Tensor:
    return data.roll(65_536)


@pytest.mark.parametrize("change", [swapped, with_two_signs_flipped, rotated_by_a_row])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float64])
def test_the_order_and_the_signs_count(change: Any, dtype: torch.dtype) -> None:
    data = torch.arange(1, 200_001).to(dtype)
    assert digest(change(data)) != digest(data)


def test_the_order_and_the_ends_of_storages_count() -> None:
    one, other = torch.ones(10), torch.zeros(10)
    assert len({digest(one, other), digest(other, one), digest(torch.cat([one, other])), digest(one)}) == 4


def test_a_view_has_the_digest_of_its_whole_storage() -> None:
    data = torch.arange(100)
    assert digest(data[3:5]) == digest(data)


def test_too_much_memory_has_no_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "MOST_BYTES", 100)
    assert digest(torch.zeros(26)) is None
    assert digest(torch.zeros(25)) is not None
