"""How long configs may take to compile: `kernellab.both_ends` takes them by that from a line."""

from __future__ import annotations

import math
from collections.abc import Iterable

from kernellab.tune.config import Config


def longest_first(configs: Iterable[Config]) -> list[Config]:
    """Return configs by how long they may compile; equals keep their order.

    The compiler unrolls what each thread holds of a block, once per stage of a pipelined loop. So the product of the
    block sizes over the threads, times the stages, ranks the configs of one kernel; it tells nothing of two kernels.
    """
    return sorted(configs, key=_weight, reverse=True)


def _weight(config: Config) -> float:
    sizes = (value for _, value in config.parameters if type(value) is int and value > 0)
    return math.prod(sizes) * (config.num_stages or 1) / (config.num_warps or 1)
