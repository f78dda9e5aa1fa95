"""What tensors held before a launch that changes what it reads: enough for the ranges that are recorded of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernellab.ir.effects import Effects
from kernellab.launch.arguments import bypass_modes, memory_of

_RUNS, _RUN_LENGTH = 16, 2**10  # of a larger tensor, so many runs of so many elements are looked at


@dataclass(frozen=True, slots=True)
class ValueSample:
    """Copies of runs of elements of a tensor, its ends included; ``is_whole`` where these are all of it, in order."""

    runs: tuple[Any, ...]
    is_whole: bool


@bypass_modes()
def sample_of(tensor: Any) -> ValueSample | None:
    """Return a sample of what a tensor holds; None where it has no data, or is large and not contiguous."""
    is_short = tensor.numel() <= _RUNS * _RUN_LENGTH
    if not tensor.numel() or tensor.device.type == "meta" or not (is_short or tensor.is_contiguous()):
        return None
    flat = tensor.detach().reshape(-1)
    last = flat.numel() - _RUN_LENGTH
    runs = [flat] if is_short else [flat.narrow(0, last * i // (_RUNS - 1), _RUN_LENGTH) for i in range(_RUNS)]
    return ValueSample(tuple(run.clone() for run in runs), is_short)


def samples_before(arguments: Mapping[str, Any], effects: Effects) -> dict[str, ValueSample]:
    """Return samples of the arguments that a launch reads and is about to change, by name."""
    return samples_of_changing(arguments, effects, changing_storages(arguments, effects))


def changing_storages(arguments: Mapping[str, Any], effects: Effects) -> frozenset[int]:
    """Return the addresses of the storages that a launch may change."""
    tensors = memory_of(arguments)
    names = tensors.keys() if effects.unknown else effects.mutated
    return frozenset(tensors[name].untyped_storage().data_ptr() for name in names if name in tensors)


def samples_of_changing(
    arguments: Mapping[str, Any], effects: Effects, storages: frozenset[int]
) -> dict[str, ValueSample]:
    """Return samples of the arguments that a launch reads and that lie in some storages, by name."""
    if not storages:
        return {}
    read = effects.reads | effects.atomics
    tensors = {name: tensor for name, tensor in memory_of(arguments).items() if effects.unknown or name in read}
    inside = {name: t for name, t in tensors.items() if t.untyped_storage().data_ptr() in storages}
    samples = {name: sample_of(tensor) for name, tensor in inside.items()}
    return {name: sample for name, sample in samples.items() if sample is not None}
