"""A launcher that runs each launch of a candidate twice: programs in batches leave what programs one by one leave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from kernellab.errors import KernellabError
from kernellab.interpreter.runner import INTERPRET_WORKER
from kernellab.judge.launchers import CpuLauncher, FailedLaunch, UnsafeLaunch
from kernellab.judge.program import LaunchVariant
from kernellab.source import Closure
from kernellab.workers.worker import Worker
from tests.interpreter.both_ways import bytes_of_storage, tensors_in


class BothWays(CpuLauncher):
    """Launches each kernel one by one and then in batches, and compares what is left; ``count`` is of launches."""

    count = 0

    def __init__(self, timeout_s: float, worker: Worker | None = None) -> None:
        super().__init__(timeout_s, worker=worker or Worker(INTERPRET_WORKER))
        self.one_by_one = CpuLauncher(timeout_s, in_batches=False, worker=self.worker)

    def __call__(self, closure: Closure, variant: LaunchVariant, arguments: Mapping[str, Any]) -> None:
        self.count += 1
        self.one_by_one.is_in_ring = self.is_in_ring
        storages = {tensor.untyped_storage().data_ptr(): tensor for tensor in tensors_in(arguments.values())}
        before = [bytes_of_storage(tensor).clone() for tensor in storages.values()]
        alone = _problem_of(self.one_by_one, closure, variant, arguments)
        after = [bytes_of_storage(tensor).clone() for tensor in storages.values()]
        for tensor, old in zip(storages.values(), before, strict=True):
            bytes_of_storage(tensor).copy_(old)
        together = _problem_of(super(), closure, variant, arguments)
        assert _words_of(together) == _words_of(alone)
        assert self.notes == self.one_by_one.notes
        assert self.unmodelled == self.one_by_one.unmodelled
        self.one_by_one.unmodelled = set(self.unmodelled)
        for tensor, one in zip(storages.values(), after, strict=True):
            assert torch.equal(bytes_of_storage(tensor), one), closure.name
        if together is not None:
            raise together


def _problem_of(launcher: Any, *launch: Any) -> KernellabError | None:
    try:
        launcher.__call__(*launch)
    except (UnsafeLaunch, FailedLaunch) as exc:
        return exc
    return None


def _words_of(problem: KernellabError | None) -> tuple[Any, ...]:
    return type(problem), str(problem), getattr(problem, "rule", None), getattr(problem, "line", None)
