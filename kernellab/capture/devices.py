"""Programs whose tensors lie on several GPUs: which device a launch is on, and how streams wait for each other.

torch switches devices for its own operations and lets copies between devices wait on both sides. A launch of Triton
goes to the current device, so that each has a guard around it. All goes to the current stream of its device: streams of
a recorded block are none of the program's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from kernellab._triton.tracing import is_traced
from kernellab.capture.tape import LAUNCH, Step, Tape, members_of, refs_in


def device_of_launch(tape: Tape, step: Step) -> int | None:
    """Return the value on whose device a launch is, the first on a GPU; None where there is none."""
    refs = (ref.index for _, value in step.kwargs for ref in refs_in(value))
    return next((index for index in refs if not tape.values[index].layout.device.startswith("cpu")), None)


def with_devices(tape: Tape) -> Tape:
    """Return a program of several GPUs whose factories name theirs: ``cuda`` alone is whichever is current then."""
    if len(tape.gpus) < 2:
        return tape
    return replace(tape, steps=tuple(_with_device(tape, step) for step in tape.steps))


def _with_device(tape: Tape, step: Step) -> Step:
    made = next((index for index in step.results if index >= 0), None)
    device = dict(step.kwargs).get("device")
    if step.operation == LAUNCH or made is None or not isinstance(device, torch.device) or device.index is not None:
        return step
    own = torch.device(tape.values[made].layout.device)
    return replace(step, kwargs=tuple((name, own if name == "device" else value) for name, value in step.kwargs))


@contextmanager
def on_device_of(arguments: object) -> Iterator[None]:
    """Launch on the device of the first tensor inside a with statement.

    Where others lie on other GPUs, the streams of both wait for each other, before and after.
    """
    tensors = [getattr(member, "base", member) for member in members_of(arguments)]
    found = list(dict.fromkeys(t.device for t in tensors if isinstance(t, torch.Tensor) and t.is_cuda))
    if not found or is_traced(tuple(tensors), {}):
        yield
        return
    with torch.cuda.device(found[0]):
        wait_for(found[:1], found[1:])
        yield
        wait_for(found[1:], found[:1])


def wait_for(waiting: Sequence[Any], others: Sequence[Any]) -> None:
    """Let the current streams of devices wait for what the current streams of others have been given."""
    for device in waiting:
        for other in others:
            torch.cuda.current_stream(device).wait_stream(torch.cuda.current_stream(other))


def moved_to(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """Return a tensor on another device, with its strides."""
    span = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    flat = tensor.as_strided((span if tensor.numel() else 0,), (1,)).to(device)
    return flat.as_strided(tensor.shape, tensor.stride())
