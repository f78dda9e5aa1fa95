"""What of views without torch is told by their layout alone: no GPU is needed."""

from __future__ import annotations

import itertools

import pytest
import torch

from kernellab._triton.device_kernels import DIMENSIONS
from kernellab.gpu.device_view import DeviceView, is_comparable, parts_of
from kernellab.gpu.driver import DeviceBytes
from kernellab.gpu.ipc import tensor_of
from kernellab.launch.arguments import TensorSpec

SEVEN = torch.empty(3, 4, 3, 4, 3, 4, 4, dtype=torch.int8)[:2, 1:3, :2, 1:3, :2, 1:3, :3]


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    name = str(tensor.dtype).removeprefix("torch.")
    offset = tensor.storage_offset() * tensor.element_size()
    return TensorSpec(0, offset, tuple(tensor.shape), tuple(tensor.stride()), name, tensor.element_size())


def places(spec: TensorSpec) -> list[int]:
    """Return the offsets of all elements, in the order of their indices."""
    indices = itertools.product(*(range(size) for size in spec.shape))
    return [sum(i * stride for i, stride in zip(index, spec.strides, strict=True)) for index in indices]


@pytest.mark.parametrize(
    "tensor",
    [SEVEN, SEVEN.transpose(0, 6), torch.empty(5, 4).t(), torch.empty(3).expand(2, 2, 3), torch.empty(())],
    ids=["seven", "transposed", "matrix", "expanded", "number"],
)
def test_the_parts_of_a_view_are_all_its_elements_in_their_order(tensor: torch.Tensor) -> None:
    parts = list(parts_of(spec_of(tensor)))
    assert [offset + place for offset, part in parts for place in places(part)] == places(spec_of(tensor))
    assert all(len(part.shape) <= DIMENSIONS for _, part in parts)


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_a_view_without_elements_has_no_address_as_with_torch(shape: tuple[int, ...]) -> None:
    whole = torch.empty(12)
    empty = whole[:0] if len(shape) == 1 else whole.view(3, 4)[:, 1:1]
    assert empty.data_ptr() == 0
    assert DeviceView(DeviceBytes(4096, 48), spec_of(empty)).data_ptr() == 0
    assert DeviceView(DeviceBytes(4096, 48), spec_of(whole[2:])).data_ptr() == 4104


def test_of_memory_that_starts_inside_an_element_there_are_bytes() -> None:
    spec = TensorSpec(0, 8, (3, 2), (4, 1), "float32", 4)
    views = [tensor_of(spec, memory) for memory in (DeviceBytes(4098, 100), torch.empty(102, dtype=torch.uint8)[2:])]
    for view in views:
        assert (str(view.dtype), tuple(view.shape)) == ("torch.uint8", (40,))
    assert views[0].data_ptr() == 4106
    assert tensor_of(spec, DeviceBytes(4096, 100)).shape == (3, 2)


def test_formats_and_layouts_that_only_torch_compares() -> None:
    assert is_comparable(spec_of(torch.empty(4)))
    assert not is_comparable(spec_of(torch.empty(4, dtype=torch.complex64)))
    assert not is_comparable(spec_of(torch.empty(4, dtype=torch.float8_e5m2)))
    assert not is_comparable(spec_of(SEVEN))
