"""A launch on the GPU, observed: how long it took, and which elements of its arguments it changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kernellab.compile import Compiled
from kernellab.memory import memory_of
from kernellab.reached import apart, reached
from kernellab.run import Run


def observed(
    compiled: Compiled, arguments: Mapping[str, Any], launch: Callable[[], Any], grid: Callable[[], Any]
) -> tuple[Any, Run]:
    """Launch once; return what Triton returned and the run.

    What the kernel may write is copied before, where the free memory allows it, and compared bit by bit after.
    ``seconds`` is the time on the device, without the compile.
    """
    import torch  # only where there is a GPU

    behind = reached(arguments, compiled.effects, "cuda")
    everything = {**memory_of(arguments), **apart(behind.tensors, arguments)}
    tensors = {name: tensor for name, tensor in everything.items() if tensor.is_cuda}
    written = compiled.effects.mutated if not compiled.effects.unknown else frozenset(tensors)
    candidates = {name: tensor for name, tensor in tensors.items() if name in written}
    needed = sum(tensor.numel() * tensor.element_size() for tensor in candidates.values())
    affordable = needed < torch.cuda.mem_get_info()[0] // 2
    before = {name: tensor.clone() for name, tensor in candidates.items()} if affordable else {}
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record()
    handle = launch()
    end.record()
    end.synchronize()
    changed = {name: 0 for name in tensors if affordable or name not in written}
    changed.update({name: _changed(old, tensors[name]) for name, old in before.items()})
    notes = () if affordable else ("what changed was not counted: the GPU lacks memory for copies",)
    return handle, Run(
        kernel=compiled.kernel,
        grid=grid() or (0, 1, 1),
        seconds=begin.elapsed_time(end) / 1e3,
        changed=changed,
        findings=(),
        where="gpu",
        notes=notes,
    )


def _changed(before: Any, after: Any) -> int:
    import torch

    as_integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[before.element_size()]
    return int((before.contiguous().view(as_integer) != after.contiguous().view(as_integer)).sum())
