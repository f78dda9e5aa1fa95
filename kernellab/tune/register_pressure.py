"""What compiling a config tells of its registers: which one to try beside it, and which not to measure."""

from __future__ import annotations

from collections.abc import Sequence

from kernellab.measure.config import Config, Space
from kernellab.target import DeviceLimits

MOST_SPILLED_BYTES = 256
"""A config of a generated list that spills more, in bytes per thread, is not measured while others are left.

Inductor draws that line at 16 registers, and not for kernels of the user, some of which are fastest with spills
(torch/_inductor/runtime/triton_heuristics.py): so listed configs are all measured.
"""

_LEAST_HALVED = 64


def halved_for_registers(
    config: Config, registers: int, limits: DeviceLimits, names: Sequence[str] = ("R0_BLOCK", "R1_BLOCK")
) -> Config | None:
    """Return a config with half of its largest block among ``names``, where registers keep a multiprocessor from being
    full; None where half of it would let no more blocks reside, or there is no block of 64 at least.

    ``registers`` are those of a thread of the compiled config. That is Inductor's rule for reductions
    (``_dynamic_scale_rblock`` in torch/_inductor/runtime/triton_heuristics.py).
    """
    values, warps = config.values, config.num_warps or 4
    blocks = [name for name in names if type(values.get(name)) is int and values[name] >= _LEAST_HALVED]
    if not blocks or registers <= limits.registers_per_multiprocessor // limits.threads_per_multiprocessor:
        return None
    resident = limits.registers_per_multiprocessor // (registers * warps * limits.warp_threads)
    if resident >= limits.threads_per_multiprocessor // (warps * limits.warp_threads):
        return None
    largest = max(blocks, key=values.__getitem__)
    return config.with_values({largest: values[largest] // 2})


def relieved(space: Space, config: Config, registers: int, limits: DeviceLimits) -> Config | None:
    """Return the config of a space with half of the largest block that the space has in two; None as above."""
    values = config.values
    numbers = [name for name, _ in config.parameters if type(values[name]) is int]
    names = [name for name in numbers if values[name] // 2 in space.values.get(name, ())]
    found = halved_for_registers(config, registers, limits, names)
    return found if found is not None and found in space else None
