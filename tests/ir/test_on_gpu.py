"""The suite on a GPU: what changes must be among what the analysis reports, also for what no interpreter runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from kernellab.ir.effects import effects_of
from tests.ir.conftest import graphs_of_case
from tests.ir.expected import Case, all_cases, unwrapped

# An assembly that no assembler takes, externs that no library has, gathers and scatters that ptxas refuses for this
# GPU, and descriptors in tuples, which Triton's launcher does not take.
NOT_LAUNCHED = {
    "gets_a_descriptor_among_other_members",
    "gets_descriptors_in_a_tuple",
    "hands_a_pointer_to_a_pure_extern",
    "hands_a_pointer_to_an_impure_extern",
    "hands_a_pointer_to_assembly_that_says_nothing",
    "hands_loaded_values_to_an_impure_extern",
    "gathers_by_a_descriptor",
    "scatters_by_a_descriptor",
}
CASES = [case for case in all_cases() if not case.unknown and case.name not in NOT_LAUNCHED]

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:.*make_block_ptr is deprecated.*:UserWarning")]


def on_gpu(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        storage = value.untyped_storage()
        return torch.empty(0, dtype=value.dtype, device="cuda").set_(
            storage.cuda(), value.storage_offset(), value.size(), value.stride()
        )
    if isinstance(value, TensorDescriptor):
        return TensorDescriptor(on_gpu(value.base), value.shape, value.strides, value.block_shape)
    return tuple(on_gpu(each) for each in value) if isinstance(value, tuple) else value


def tensors_of(name: str, value: Any) -> dict[str, torch.Tensor]:
    if isinstance(value, tuple):
        return {key: each for i, part in enumerate(value) for key, each in tensors_of(f"{name}[{i}]", part).items()}
    if isinstance(value, TensorDescriptor):
        return {name: value.base}
    return {name: value} if isinstance(value, torch.Tensor) else {}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_only_reported_tensors_change(case: Case) -> None:
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    arguments = {name: on_gpu(value) for name, value in case.arguments().items()}
    tensors = {key: each for name, value in arguments.items() for key, each in tensors_of(name, value).items()}
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    unwrapped(case.kernel)[case.grid,](**arguments, **case.constants(), **case.options)
    torch.cuda.synchronize()
    changed = {name for name, tensor in tensors.items() if not torch.equal(tensor, before[name])}
    assert changed <= effects_of(graphs_of_case(case)[1]).mutated
