"""The arguments of a launch on another GPU: copies that share memory where the originals do."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Any

from kernellab.tune.checking import Reference
from kernellab.tune.launches import Launches


def on_device(launches: Launches, device: int) -> Launches:
    """Return the same launches on copies of their arguments on a GPU; themselves where all lie there."""
    copies = _Copies(device)
    args = tuple(map(copies.of, launches.args))
    meta = {name: copies.of(value) for name, value in launches.meta.items()}
    if not copies.storages:
        return launches
    reference = launches.reference
    own = None if reference is None else Reference(reference.text, reference.values, reference.identity)
    return replace(launches, args=args, meta=meta, reference=own, _made={})


@dataclass(slots=True)
class _Copies:
    """Storages that were copied, by the address of the original."""

    device: int
    storages: dict[int, Any] = field(default_factory=dict)

    def of(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self.of, value))
        if hasattr(value, "untyped_storage"):
            return self._tensor(value)
        if hasattr(getattr(value, "base", None), "untyped_storage"):
            twin = copy.copy(value)
            twin.base = self._tensor(value.base)
            return twin
        return value

    def _tensor(self, tensor: Any) -> Any:
        import torch

        if tensor.device.type == "cuda" and tensor.device.index == self.device:
            return tensor
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.storages:
            data = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
            self.storages[storage.data_ptr()] = data.to(f"cuda:{self.device}").untyped_storage()
        twin = torch.empty(0, dtype=tensor.dtype, device=f"cuda:{self.device}")
        return twin.set_(self.storages[storage.data_ptr()], tensor.storage_offset(), tensor.shape, tensor.stride())
