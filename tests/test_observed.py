from __future__ import annotations

import torch

from kernellab.gpu.observed import on_cpu


def test_views_for_a_second_look_lie_on_the_cpu_whatever_the_default_device_is() -> None:
    whole = torch.arange(10.0)
    with torch.device("meta"):
        copies = on_cpu({"left": whole[:5], "right": whole[3:], "n": 5})
    assert torch.equal(copies["right"], whole[3:])
    assert copies["left"].untyped_storage().data_ptr() == copies["right"].untyped_storage().data_ptr()
