"""What a launch moves at least: each tensor that its kernel reads once, and each that it writes once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kernellab.capture.tape import Addresses, Ref, Step, Tape, refs_in


def read_and_written(step: Step) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the values that a launch reads and those that it writes, by the effects of its kernel, each once.

    All of them where an effect is unknown. What is reached by addresses counts by what the step says it changes.
    """
    use = step.use
    assert use is not None, "only launches have effects"
    read: dict[int, None] = {}
    written: dict[int, None] = {}
    for name, argument in step.kwargs:
        is_followed = isinstance(argument, Addresses)
        for path, ref in _named_refs(name, argument):
            if not use.complete or is_followed or path in use.read:
                read[ref.index] = None
            if not use.complete or path in use.mutated or (is_followed and ref.index in step.mutated):
                written[ref.index] = None
    return tuple(read), tuple(written)


def moved_bytes(tape: Tape, step: Step) -> int:
    """Return the bytes of what a launch reads and writes."""
    return sum(tape.values[index].layout.size_bytes for indices in read_and_written(step) for index in indices)


def _named_refs(name: str, argument: Any) -> Iterator[tuple[str, Ref]]:
    """Yield the values of an argument with their names, as effects call them: members of tuples by position."""
    if isinstance(argument, tuple):
        for position, member in enumerate(argument):
            yield from _named_refs(f"{name}[{position}]", member)
    else:
        yield from ((name, ref) for ref in refs_in(argument))
