"""Runs each launch twice, program by program and in batches, and compares all that a user sees of the two."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from kernellab.errors import KernellabError, WorkerTimeout
from kernellab.interpreter.runner import Interpreter
from kernellab.judge.replay import DescriptorArgument
from kernellab.launch.run import Run
from kernellab.workers.worker import Worker

_CLOCKS = "clocks are this machine's"
_COMPARED = ("kernel", "changed", "findings", "output", "notes")


class BothWays(Interpreter):
    """An interpreter whose launches run both ways; the outcome is that of batches.

    ``unbatchable`` names the kernels that ran one by one in the end.
    """

    def __init__(self, worker: Worker, timeout_s: float) -> None:
        super().__init__(worker, timeout_s)
        self._one_by_one = Interpreter(worker, timeout_s, in_batches=False)

    def run(self, function: Any, arguments: Mapping[str, Any], grid: Any, *rest: Any, **options: Any) -> Run:
        storages = {tensor.untyped_storage().data_ptr(): tensor for tensor in tensors_in(arguments.values())}
        before = [bytes_of_storage(tensor).clone() for tensor in storages.values()]
        alone = _outcome(self._one_by_one, function, arguments, grid, *rest, **copy.copy(options))
        if isinstance(alone, WorkerTimeout):
            raise alone
        after = [bytes_of_storage(tensor).clone() for tensor in storages.values()]
        for tensor, old in zip(storages.values(), before, strict=True):
            bytes_of_storage(tensor).copy_(old)
        together = _outcome(super(), function, arguments, grid, *rest, **options)
        if isinstance(together, Exception):
            assert isinstance(alone, Exception), together
            assert (str(together), vars(together).get("place")) == (str(alone), vars(alone).get("place"))
            raise together
        assert isinstance(alone, Run), alone
        if not any(_CLOCKS in note for note in alone.notes):
            for name in _COMPARED:
                assert getattr(together, name) == getattr(alone, name), name
            for tensor, one in zip(storages.values(), after, strict=True):
                assert torch.equal(bytes_of_storage(tensor), one), function.__name__
        return together


def _outcome(interpreter: Any, *arguments: Any, **options: Any) -> Run | KernellabError:
    try:
        run: Run = interpreter.run(*arguments, **options)
    except KernellabError as exc:
        return exc
    return run


def tensors_in(values: Any) -> Iterator[torch.Tensor]:
    """Yield the CPU tensors among the arguments of a launch."""
    for value in values:
        tensor = value.base if isinstance(value, TensorDescriptor | DescriptorArgument) else value
        if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided and tensor.device.type == "cpu":
            yield tensor
        elif isinstance(value, tuple | list):
            yield from tensors_in(value)


def bytes_of_storage(tensor: torch.Tensor) -> torch.Tensor:
    """All bytes of a tensor's storage, in its memory."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
