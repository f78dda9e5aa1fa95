"""How to tune, and what a tuning works with."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernellab.compile.cache import Compiler
from kernellab.measure.config import Space
from kernellab.measure.implementations import Bench
from kernellab.measure.launches import Launches
from kernellab.measure.provenance import Device
from kernellab.registry import Registry
from kernellab.tune.progress import Watch
from kernellab.tune.search import Search, Searching

if TYPE_CHECKING:
    from kernellab.measure.reference import ReferenceFunction


@dataclass(frozen=True, slots=True)
class Options:
    """How to tune.

    ``configs`` is a list of `triton.Config`, or a `Space`; None takes those of the kernel's autotuner. ``timeout_s``
    limits each config on the GPU, ``budget_s`` and ``budget_configs`` the whole. ``search`` may also be a `Search` of
    one's own; ``count`` is how many configs a random or Optuna search tries. ``fresh`` measures again what the store
    knows. With a ``check``, outputs are compared with its values. ``executor`` compiles in place of the lab's own
    workers. ``devices`` are the GPUs that measure, the first of which holds the final; None is the current one.
    """

    configs: Space | Sequence[Any] | None = None
    timeout_s: float = 10.0
    search: Searching | Search = "exhaustive"
    count: int = 64
    budget_s: float | None = None
    budget_configs: int | None = None
    fresh: bool = False
    seed: int = 0
    check: ReferenceFunction | None = None
    executor: Executor | None = None
    devices: Sequence[int] | None = None


MakeBench = Callable[[Launches, float], Bench]
Progress = Callable[[str], AbstractContextManager[Watch]]


@dataclass(frozen=True, slots=True)
class Workshop:
    """What a tuning works with. Without ``make_bench`` there is no GPU, and nothing is timed.

    ``bench_on`` makes the bench of a device by its number; ``progress`` is a context in which a tuning is watched.
    ``remarks`` are notes that every tuning gets.
    """

    compiler: Compiler
    kernels: Registry
    device: Device
    make_bench: MakeBench | None
    clock: Callable[[], float] = time.perf_counter
    bench_on: Callable[[Launches, float, int], Bench] | None = None
    progress: Progress | None = None
    remarks: tuple[str, ...] = ()
