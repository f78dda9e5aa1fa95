"""A second look at a launch, on the CPU."""

from __future__ import annotations

from typing import Any

import torch

from kernellab.launch.run import Run, on_cpu, run_on_cpu


def test_views_for_a_second_look_lie_on_the_cpu_whatever_the_default_device_is() -> None:
    whole = torch.arange(10.0)
    with torch.device("meta"):
        copies = on_cpu({"left": whole[:5], "right": whole[3:], "n": 5})
    assert torch.equal(copies["right"], whole[3:])
    assert copies["left"].untyped_storage().data_ptr() == copies["right"].untyped_storage().data_ptr()


def test_what_is_on_the_cpu_already_is_run_on_as_it_is() -> None:
    x, n = torch.zeros(4), 4

    def run(arguments: dict[str, Any]) -> Run:
        arguments["x"] += arguments["n"]
        return Run("kernel", (1, 1, 1), 0.0, {"x": 4}, (), "interpreter")

    assert run_on_cpu({"x": x, "n": n}, run).changed == {"x": 4}
    assert x.tolist() == [4.0] * 4
