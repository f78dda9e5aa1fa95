"""Which processes measure: those that own a GPU each, all of one kind, since times of two kinds cannot be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from kernellab.measure.provenance import Device


@dataclass(frozen=True, slots=True)
class GpuOwner:
    """What a process says of its GPU, which is the only one that it uses.

    ``gpu`` is the same for two processes that share one: its UUID. ``visible`` is how many the process could use,
    ``multiprocessors`` how many this GPU has, None where that is not known.
    """

    device: Device
    gpu: str
    visible: int = 1
    multiprocessors: int | None = None

    @property
    def kind(self) -> str:
        """Model, driver, target and Triton: what rows of measurements have to agree in to be compared."""
        device = self.device
        return f"{device.name}, driver {device.driver}, {device.target}, Triton {device.facts['triton']}"


@dataclass(frozen=True, slots=True)
class Owners:
    """The processes that measure, by name, and why others do not."""

    kind: str
    names: tuple[str, ...]
    notes: tuple[str, ...]


def owners_of(found: Mapping[str, GpuOwner | None], target: str | None = None) -> Owners:
    """Return the processes that are to measure: all of one kind, one for each GPU.

    That is a kind with the ``target`` if there is one, and of these the one that most have; with as many of two, that
    of the first name. What owns no GPU (None) is left out without a note.
    """
    own, notes = _one_for_each_gpu(found)
    counts = Counter(owner.kind for owner in own.values())
    targets = {owner.kind: str(owner.device.target) for owner in own.values()}
    kind = max(counts, key=lambda each: (targets[each] == target, counts[each]), default="")
    names = tuple(name for name, owner in own.items() if owner.kind == kind)
    notes += [
        f"{name} has {owner.kind} and measures nothing: the others have {kind}, and times of two kinds are not compared"
        for name, owner in own.items()
        if owner.kind != kind
    ]
    notes += [
        f"{name} could use {own[name].visible} GPUs and measures on one; start one worker per GPU, each with its own "
        "CUDA_VISIBLE_DEVICES"
        for name in names
        if own[name].visible > 1
    ]
    return Owners(kind, names, tuple(notes))


def _one_for_each_gpu(found: Mapping[str, GpuOwner | None]) -> tuple[dict[str, GpuOwner], list[str]]:
    own: dict[str, GpuOwner] = {}
    first: dict[str, str] = {}
    notes: list[str] = []
    for name, owner in sorted(found.items()):
        if owner is None:
            continue
        if owner.gpu in first:
            notes.append(f"{name} shares the GPU of {first[owner.gpu]} and measures nothing; start one worker per GPU")
            continue
        first[owner.gpu] = name
        own[name] = owner
    return own, notes
