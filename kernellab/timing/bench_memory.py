"""The memory of a bench: copies of the arguments, their initial contents, and the groups of outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernellab.checking.comparison import (
    Check,
    ExpectedValue,
    OutputDifference,
    agree,
    compare_output,
    output_difference,
)
from kernellab.errors import RunError
from kernellab.gpu.device_view import DeviceView
from kernellab.gpu.driver import DeviceBytes
from kernellab.gpu.ipc import move_tables, moves_of, tensor_of, tensor_on
from kernellab.gpu.redzones import Damage, Redzones, Span, allocate_like, spans_of
from kernellab.launch import poison
from kernellab.launch.arguments import TensorSpec
from kernellab.launch.memory import Moves
from kernellab.timing.bench_jobs import ExpectedOutput, Setup

_ZONE_BYTES = 4 << 20
_MOST_GROUPS = 4


class TooLarge(RunError):
    """The device has no room for copies of the arguments."""


def free_bytes_of_device() -> int:
    """Return the bytes that can be allocated: those free on the device, and those that torch holds unused."""
    import torch

    unused = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    return int(torch.cuda.mem_get_info()[0] + unused)


@dataclass(slots=True)
class BenchMemory:
    """The memory that a bench launches kernels on.

    ``tensors`` are the memories as bytes: `DeviceBytes` in the GPU worker, else torch tensors. ``before`` are the
    initial contents of memories that the kernel may write, None where they are not restored. ``groups`` are the
    outputs so far. ``redzones`` surround copies, None without copies. With ``is_in_place``, ``tensors`` are the user's
    own, to be restored at the end.
    """

    setup: Setup
    tensors: list[Any]
    before: dict[int, Any]
    is_in_place: bool = False
    redzones: Redzones | None = None
    groups: list[list[Any]] = field(default_factory=list)
    free_bytes: Callable[[], int] = free_bytes_of_device

    @property
    def moves(self) -> Moves:
        """The addresses of the setup's memories in this process."""
        return moves_of(self.setup.memories, self.tensors)

    @property
    def restored(self) -> list[int]:
        """The memories that a launch changes and reads: they are restored before each launch."""
        return [index for index in self.before if index in self.setup.read]

    def restore(self) -> None:
        """Restore the memories that launches change, and zero the views declared as ``reset_to_zero``."""
        for index in self.restored:
            self.tensors[index].copy_(self.before[index], non_blocking=True)
        for spec in self.setup.zeroed:
            tensor_of(spec, self.tensors[spec.storage]).zero_()

    def poison(self) -> None:
        """Fill outputs that the kernel only writes, so that unwritten elements show."""
        for spec in self.setup.outputs:
            if spec.storage not in self.before or spec.storage in self.restored:
                continue
            view = tensor_of(spec, self.tensors[spec.storage])
            if isinstance(view, DeviceView):
                view.fill_bits(poison.pattern_of(*view.real_dtype))
            else:
                poison.fill(view)

    def group_of_outputs(self) -> int | None:
        """Return the number of the group equal to the outputs; a new one if there is room, else None."""
        outputs = list(self._outputs().values())
        for number in range(len(self.groups)):
            if self.equals_group(number):
                return number
        needed_bytes = 2 * sum(map(_clone_bytes, outputs))
        if len(self.groups) == _MOST_GROUPS or needed_bytes > self.free_bytes():
            return None
        self.groups.append([output.clone() for output in outputs])
        return len(self.groups) - 1

    def keep_outputs(self) -> bool:
        """Keep the outputs as the only group; return whether there was room."""
        self.groups.clear()
        return self.group_of_outputs() is not None

    def differences(self) -> tuple[OutputDifference, ...]:
        """Return the differences between the outputs and the first group, one per argument that differs."""
        outputs, names = self._outputs(), self.setup.names
        pairs = zip(outputs, outputs.values(), self.groups[0], strict=True)
        named = ((names[index] if names else f"output {index}", got, want) for index, got, want in pairs)
        return tuple(filter(None, (output_difference(*output) for output in named)))

    def _outputs(self) -> dict[int, Any]:
        """Return the outputs that are compared, by their place in the setup."""
        left_out = self.setup.left_out
        views = ((index, spec) for index, spec in enumerate(self.setup.outputs) if index not in left_out)
        return {index: tensor_of(spec, self.tensors[spec.storage]) for index, spec in views}

    def equals_group(self, group: int) -> bool:
        """Whether the outputs are those of a group."""
        outputs = self._outputs().values()
        return all(agree(got, want) for got, want in zip(outputs, self.groups[group], strict=True))

    def checks(self, references: Sequence[Any]) -> list[Check]:
        """Compare the outputs with their expected values, which lie in ``references``."""
        return [self._check(expected, references) for expected in self.setup.expected]

    def _check(self, expected: ExpectedOutput, references: Sequence[Any]) -> Check:
        storage = expected.output.storage
        output, value = _torch_view(expected.output, self.tensors), _torch_view(expected.value, references)
        error = None if expected.error is None else _torch_view(expected.error, references)
        missing = None if storage in self.restored else poison.pattern_mask(output)
        want = ExpectedValue(value, error, expected.unit)
        return compare_output("the reference", expected.name, output, want, missing, expected.fill)

    def damages(self) -> tuple[Damage, ...]:
        """Return the writes out of bounds of the copies, and those to read-only copies."""
        return () if self.redzones is None else tuple(self.redzones.damages())

    def give_back(self) -> None:
        """Restore the user's own memory."""
        if self.is_in_place:
            for index, held in self.before.items():
                self.tensors[index].copy_(held)


def copy_memory(
    setup: Setup,
    originals: Sequence[Any],
    *,
    keeps_originals: bool,
    free_bytes: Callable[[], int] = free_bytes_of_device,
) -> BenchMemory:
    """Copy the arguments between redzones; share those that are only read where there is no room for all.

    With ``keeps_originals``, launches restore from the originals; else these may be freed after this returns.

    Raises:
        TooLarge: there is no room even for the outputs.
    """
    filled = [memory.size_bytes > 0 for memory in setup.memories]
    written = [is_filled and memory.is_mutated for is_filled, memory in zip(filled, setup.memories, strict=True)]
    mutated = [index for index, is_written in enumerate(written) if is_written]
    restored = [index for index in mutated if index in setup.read]
    tables = [memory.holds_addresses and memory.size_bytes > 0 for memory in setup.memories]
    needed = [is_written or holds for is_written, holds in zip(written, tables, strict=True)]
    changed = [index for index in restored if tables[index]]  # they are brought back with the addresses of the copies
    for own, twice in ((filled, changed if keeps_originals else restored), (needed, changed)):
        spans, total_bytes = spans_of(setup.memories, own, _ZONE_BYTES)
        if total_bytes + sum(setup.memories[index].size_bytes for index in twice) <= free_bytes() * 3 // 4:
            break
    else:
        raise TooLarge("The GPU has no room for copies of what the kernel writes.")
    tensors, redzones = _between_redzones(setup, originals, spans, total_bytes)
    sources = {index: (tensors if index in changed else originals)[index] for index in restored}
    held = {index: source.clone() if index in twice else source for index, source in sources.items()}
    before = {index: held.get(index) for index in mutated}
    return BenchMemory(setup, tensors, before, redzones=redzones, free_bytes=free_bytes)


def _between_redzones(
    setup: Setup, originals: Sequence[Any], spans: tuple[Span | None, ...], total_bytes: int
) -> tuple[list[Any], Redzones | None]:
    """Return the memories, those with a span as copies, and the redzones around the copies."""
    if not total_bytes:
        return list(originals), None
    redzones = Redzones(allocate_like(originals[0], total_bytes), spans)
    tensors = [redzones.copy(index, original) for index, original in enumerate(originals)]
    move_tables(setup.tables, tensors, moves_of(setup.memories, tensors))
    redzones.watch_read_only(setup.memories)
    return tensors, redzones


def in_place(setup: Setup, originals: Sequence[Any]) -> BenchMemory:
    """Return the user's own memory for launches, with backups in pinned host memory of all that launches change."""
    import torch

    before = {}
    for index, memory in enumerate(setup.memories):
        if memory.is_mutated and memory.size_bytes:
            before[index] = torch.empty(memory.size_bytes, dtype=torch.uint8, pin_memory=True).copy_(originals[index])
    return BenchMemory(setup, list(originals), before, is_in_place=True)


def _torch_view(spec: TensorSpec, memories: Sequence[Any]) -> Any:
    """Return a view as a torch tensor."""
    memory = memories[spec.storage]
    return tensor_on(memory, spec) if isinstance(memory, DeviceBytes) else tensor_of(spec, memory)


def _clone_bytes(output: Any) -> int:
    """Return the bytes of a clone; without torch it includes the gaps between the elements."""
    return int(output.spec.span_bytes if isinstance(output, DeviceView) else output.numel() * output.element_size())
