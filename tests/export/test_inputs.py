from __future__ import annotations

import pytest
import torch

from kernellab.registry.recorded_launches import random_tensor


@pytest.mark.parametrize("dtype", [torch.float16, torch.int32])
def test_random_inputs_are_made_where_they_are_wanted_whatever_the_default_device_is(dtype: torch.dtype) -> None:
    with torch.device("meta"):
        made = random_tensor((2, 3), (4, 1), dtype, 1, 2, torch.Generator("cpu"), "cpu")
    assert (made.device.type, made.shape, made.stride()) == ("cpu", (2, 3), (4, 1))
    assert bool(((made >= 1) & (made <= 2)).all())
