from __future__ import annotations

from typing import NamedTuple

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from kernellab.launch.memory import Copier, copy_arguments, size_bytes


class Pair(NamedTuple):
    """A tensor and a number, as a kernel may take them."""

    data: torch.Tensor
    size: int


def test_copies_keep_values_and_layout_and_share_nothing_with_the_originals() -> None:
    whole = torch.arange(24.0).reshape(4, 6)
    given = {"x": whole.t()[1:4], "n": 3, "none": None}
    fresh = copy_arguments(given)
    assert torch.equal(fresh["x"], given["x"])
    assert fresh["x"].stride() == given["x"].stride()
    assert fresh["x"].storage_offset() == given["x"].storage_offset()
    fresh["x"].zero_()
    assert torch.equal(whole, torch.arange(24.0).reshape(4, 6))
    assert (fresh["n"], fresh["none"]) == (3, None)


def test_views_of_one_tensor_stay_views_of_one_tensor() -> None:
    whole = torch.zeros(8)
    fresh = copy_arguments({"left": whole[:6], "pair": (whole[2:], torch.ones(2))})
    fresh["left"][3] = 5.0
    assert fresh["pair"][0][1] == 5.0
    assert whole[3] == 0.0


def test_descriptors_are_copied_with_their_memory() -> None:
    base = torch.zeros(16, 16)
    fresh = copy_arguments({"desc": TensorDescriptor.from_tensor(base, [8, 8])})
    fresh["desc"].base.fill_(1.0)
    assert float(base.sum()) == 0.0
    assert list(fresh["desc"].block_shape) == [8, 8]


def test_memory_that_arguments_share_counts_once() -> None:
    whole = torch.zeros(100)
    assert size_bytes({"a": whole, "b": whole[5:], "c": torch.zeros(10, dtype=torch.int8)}) == 410


def test_named_tuples_stay_what_they_are() -> None:
    fresh = copy_arguments({"pair": Pair(torch.zeros(4), 3)})["pair"]
    assert isinstance(fresh, Pair)
    fresh.data.fill_(1.0)
    assert fresh.size == 3


def test_tensors_without_elements_keep_dtype_and_shape() -> None:
    fresh = copy_arguments({"a": torch.empty(0, 3), "b": torch.empty(0, dtype=torch.int8)})
    assert (fresh["a"].shape, fresh["b"].dtype) == ((0, 3), torch.int8)


def test_what_does_not_move_stays_and_the_rest_is_copied_as_told() -> None:
    here, there = torch.ones(2), torch.ones(3)
    copier = Copier(lambda storage: storage.cpu().clone(), lambda tensor: tensor.numel() == 3)
    fresh = copier.of({"here": here, "there": there})
    assert fresh["here"] is here
    assert fresh["there"].data_ptr() != there.data_ptr()
    assert len(copier.storages) == 1
