"""The arguments of a launch on another GPU: copies that share memory where the originals do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kernellab.measure.reference import Reference
from kernellab.memory import Copier
from kernellab.tune.launches import Launches


def on_device(launches: Launches, device: int) -> Launches:
    """Return the same launches on copies of their arguments on a GPU; themselves where all lie there."""
    copies = _copier(device)
    args = tuple(map(copies.value, launches.args))
    meta = copies.of(launches.meta)
    if not copies.storages:
        return launches
    reference = launches.reference
    own = None if reference is None else Reference(reference.text, reference.values, reference.identity)
    return replace(launches, args=args, meta=meta, reference=own, _made={})


def _copier(device: int) -> Copier:
    import torch

    def copied(storage: Any) -> Any:
        data = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
        return data.to(f"cuda:{device}").untyped_storage()

    return Copier(copied, lambda tensor: not (tensor.device.type == "cuda" and tensor.device.index == device))
