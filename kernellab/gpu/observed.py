"""A launch on the GPU, observed: how long it took, and which elements of its arguments it changed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernellab.compile import Compiled
from kernellab.errors import RunError
from kernellab.run import Run

_MOST_BYTES_TO_COPY = 256 << 20


def observed(
    compiled: Compiled, arguments: Mapping[str, Any], launch: Callable[[], Any], grid: Callable[[], Any]
) -> tuple[Any, Run]:
    """Launch once; return what Triton returned and the run.

    What the kernel may write is copied before, where the free memory allows it, and compared bit by bit after.
    ``seconds`` is the time on the device, without the compile.
    """
    import torch  # only where there is a GPU

    tensors = {name: tensor for name, tensor in memory_of(arguments).items() if tensor.is_cuda}
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


def memory_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tensors among the arguments, by name; ``outs[1]`` for a member of a tuple."""
    found: dict[str, Any] = {}
    for name, value in arguments.items():
        if isinstance(value, tuple):
            found.update(memory_of({f"{name}[{i}]": member for i, member in enumerate(value)}))
        elif hasattr(value, "untyped_storage"):
            found[name] = value
        elif hasattr(getattr(value, "base", None), "untyped_storage"):
            found[name] = value.base
    return found


def on_cpu(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a launch on copies of their memory on the CPU; views of one storage stay so.

    Raises:
        RunError: there is more memory than is copied for a second look, or an argument of another kind.
    """
    return _CpuCopies().of(arguments)


@dataclass(slots=True)
class _CpuCopies:
    """The storages copied so far, by their address on the GPU."""

    storages: dict[int, Any] = field(default_factory=dict)
    copied_bytes: int = 0

    def of(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._value(value) for name, value in arguments.items()}

    def _value(self, value: Any) -> Any:
        import torch

        if isinstance(value, tuple):
            return tuple(self._value(member) for member in value)
        if isinstance(value, torch.Tensor):
            return self._tensor(value.detach())
        if hasattr(value, "block_shape"):
            return _with_base(value, self._tensor(value.base))
        return value

    def _tensor(self, tensor: Any) -> Any:
        import torch

        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.storages:
            self.copied_bytes += storage.nbytes()
            if self.copied_bytes > _MOST_BYTES_TO_COPY:
                raise RunError("The arguments are too large for a second look on the CPU.")
            self.storages[storage.data_ptr()] = storage.cpu()
        copied = self.storages[storage.data_ptr()]
        view = torch.empty(0, dtype=tensor.dtype, device="cpu")  # whatever the default device is
        return view.set_(copied, tensor.storage_offset(), tensor.shape, tensor.stride())


def _with_base(descriptor: Any, base: Any) -> Any:
    """Return a ``TensorDescriptor`` over another tensor."""
    copied = copy.copy(descriptor)
    copied.base = base
    return copied


def _changed(before: Any, after: Any) -> int:
    import torch

    as_integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[before.element_size()]
    return int((before.contiguous().view(as_integer) != after.contiguous().view(as_integer)).sum())
