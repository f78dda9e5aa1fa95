"""Memory contents before each launch, for references that are computed after it.

A reference is computed from the arguments before the launch, and compared with the outputs after it. At the end of a
cell both may be overwritten, by the kernel itself or by a later one. So each launch saves the memory that it may
change; undoing launches from the last one back restores the state before any of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from kernellab.ir.effects import Effects
from kernellab.launch.arguments import memory_of
from kernellab.launch.memory import device_of, span_of, with_reached

_MOST_BYTES_OF_ONE = 1 << 28
_MOST_BYTES_IN_ALL = 1 << 30


@dataclass(frozen=True, slots=True)
class _Change:
    """Bytes that launch ``number`` may change, as a view, and their contents before it."""

    number: int
    memory: Any
    held: Any


@dataclass(slots=True)
class UndoLog:
    """Numbers launches from 1 on, and undoes them.

    ``too_large`` has the number of a launch and the name of each argument that was not kept.
    """

    number: int = 0
    too_large: list[tuple[int, str]] = field(default_factory=list)
    _changes: list[_Change] = field(default_factory=list)

    def begin(self, arguments: Mapping[str, Any], effects: Effects, wanted: Iterable[int]) -> None:
        """Save the memory that the next launch may change; of earlier launches, only ``wanted`` stay undoable."""
        import torch  # a launch needs it anyway

        self._forget_but(wanted)
        self.number += 1
        is_known = not (effects.unknown or effects.through)
        tensors = memory_of(with_reached(arguments, effects, device_of(arguments)))
        with torch.inference_mode(False):  # what is made there cannot be changed outside
            for name, tensor in tensors.items():
                if tensor.numel() and (not is_known or name in effects.mutated):
                    self._keep(name, _bytes_of(tensor))

    def is_kept(self, number: int, names: Iterable[str]) -> bool:
        """Whether the earlier values of a launch's arguments can be restored."""
        return not any(each == (number, name) for each in self.too_large for name in names)

    @contextmanager
    def before(self, number: int) -> Iterator[None]:
        """Restore the memory contents before launch ``number``, inside a with statement."""
        undone = []
        try:
            for change in reversed(self._changes):
                if change.number >= number:
                    undone.append((change.memory, change.memory.clone()))
                    change.memory.copy_(change.held)
            yield
        finally:
            for memory, now in reversed(undone):
                memory.copy_(now)

    def _keep(self, name: str, memory: Any) -> None:
        import torch  # a launch needs it anyway

        size = memory.numel()
        held = None
        if size <= _MOST_BYTES_OF_ONE and size + sum(c.held.numel() for c in self._changes) <= _MOST_BYTES_IN_ALL:
            with suppress(torch.OutOfMemoryError):
                held = memory.clone()
        if held is None:
            self.too_large.append((self.number, name))
        else:
            self._changes.append(_Change(self.number, memory, held))

    def _forget_but(self, wanted: Iterable[int]) -> None:
        """Drop changes that no wanted state needs: per place, the first change since counts."""
        needed = set()
        for number in {at for launch in wanted for at in (launch, launch + 1)}:
            first: dict[tuple[int, int], _Change] = {}
            for change in self._changes:
                if change.number >= number:
                    first.setdefault((change.memory.data_ptr(), change.memory.numel()), change)
            needed |= {id(change) for change in first.values()}
        self._changes = [change for change in self._changes if id(change) in needed]


def _bytes_of(tensor: Any) -> Any:
    """The memory from the first to the last element of a tensor, viewed as bytes."""
    import torch  # a launch needs it anyway

    storage = tensor.untyped_storage()
    start, end = span_of(tensor)
    data = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return data.set_(storage, start - storage.data_ptr(), (end - start,), (1,))
