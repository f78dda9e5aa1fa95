"""The memory of a launch: its tensors, memory reached through addresses, and copies of both.

Addresses are among the arguments as numbers or in tables; the effects name these arguments. An address lies in the
storage of a live tensor, or on a GPU in a block that torch's allocator has given out; else its owner is unknown.
"""

from __future__ import annotations

import bisect
import copy
import gc
import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernellab.ir.effects import REACHED, Effects
from kernellab.ir.operations import Access
from kernellab.launch.arguments import TRITON_NAMES, members_of, memory_of, span_elements

_WORD_BYTES = 8

Moves = Sequence[tuple[int, int, int]]
"""Address and size in bytes of memories, and the addresses of their copies."""


def numbers_of(arguments: Mapping[str, Any]) -> dict[str, int]:
    """The integers among the arguments, by name; ``sizes[1]`` for a member of a tuple."""
    members = members_of(arguments.items())
    return {n: int(v) for n, v in members if isinstance(v, numbers.Integral) and not isinstance(v, bool)}


def span_of(tensor: Any) -> tuple[int, int]:
    """The address of a tensor's first element, and that of the end of its last one."""
    start = int(tensor.data_ptr())
    return start, start + span_elements(tensor.shape, tensor.stride()) * tensor.element_size()


def words_of(tensor: Any) -> Any:
    """The memory from the first to the last element of a tensor, viewed as 64-bit words.

    A word that is not aligned to its size, which no kernel can load, is left out.
    """
    import torch  # keeps `import kernellab` light

    storage = tensor.untyped_storage()
    base = storage.data_ptr()
    begin, end = span_of(tensor)
    first = -(-(begin - base) // _WORD_BYTES)
    count = 0 if base % _WORD_BYTES else max(0, (end - base) // _WORD_BYTES - first)
    return torch.empty(0, dtype=torch.int64, device=tensor.device).set_(storage, first, (count,), (1,))


def moved_address(address: int, moves: Moves) -> int:
    """The address in the copy of its memory; unchanged if no memory of ``moves`` holds it."""
    return next((to + address - start for start, size, to in moves if start <= address < start + size), address)


def move_addresses(words: Any, moves: Moves) -> None:
    """Replace every word that is an address in some memory by the same place in the copy."""
    import torch  # keeps `import kernellab` light

    if not moves or not words.numel():
        return
    ordered = sorted(moves)
    starts, ends, shifts = (
        torch.tensor(column, dtype=torch.int64, device=words.device)
        for column in zip(*((start, start + size, to - start) for start, size, to in ordered), strict=True)
    )
    places = (torch.searchsorted(starts, words, right=True) - 1).clamp_(min=0)
    inside = (words >= starts[places]) & (words < ends[places])
    words += torch.where(inside, shifts[places], 0)


@dataclass(slots=True)
class Copier:
    """Copies arguments with their layout; arguments that share memory share it in the copies.

    ``copy_storage`` makes one storage of another, on the same device or a different one. A tensor for which ``moves``
    is false stays what it is.
    """

    copy_storage: Callable[[Any], Any] = lambda storage: storage.clone()
    moves: Callable[[Any], bool] = lambda tensor: True
    storages: dict[tuple[Any, int], Any] = field(default_factory=dict)

    def of(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name on copies of their memory."""
        return {name: self.value(argument) for name, argument in arguments.items()}

    def value(self, value: Any) -> Any:
        """One argument on a copy of its memory."""
        return with_tensors(value, self._tensor)

    def _tensor(self, tensor: Any) -> Any:
        import torch  # keeps `import kernellab` light

        if not self.moves(tensor):
            return tensor
        storage = tensor.untyped_storage()
        key = storage.device, storage.data_ptr()
        if not storage.data_ptr() or key not in self.storages:
            self.storages[key] = self.copy_storage(storage)
        held = self.storages[key]
        empty = torch.empty(0, dtype=tensor.dtype, device=held.device)  # whatever the default device is
        return empty.set_(held, tensor.storage_offset(), tensor.shape, tensor.stride())


def with_tensors(value: Any, replaced: Callable[[Any], Any]) -> Any:
    """An argument with each tensor in it replaced: alone, in tuples, under descriptors and other types."""

    def replace_tensor(name: str, member: Any) -> Any:
        if hasattr(member, "untyped_storage"):
            return replaced(member)
        if hasattr(getattr(member, "base", None), "untyped_storage"):  # a descriptor, or a tensor under another type
            twin = copy.copy(member)
            twin.base = replaced(member.base)
            return twin
        return member

    return with_members("", value, replace_tensor)


def with_members(name: str, value: Any, replace: Callable[[str, Any], Any]) -> Any:
    """An argument, or a tuple of the same kind, with each member replaced by ``replace(name, member)``."""
    if isinstance(value, tuple):
        members = [with_members(f"{name}[{i}]", member, replace) for i, member in enumerate(value)]
        return type(value)(*members) if hasattr(value, "_fields") else tuple(members)
    return replace(name, value)


def copy_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with all their memory copied."""
    return Copier().of(arguments)


def size_bytes(arguments: Mapping[str, Any]) -> int:
    """The bytes of all memory among the arguments, each storage once."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in memory_of(arguments).values()}
    return sum(storages.values())


_WORD_DTYPES = frozenset({"torch.int64", "torch.uint64"})


@dataclass(frozen=True, slots=True)
class ReachedMemory:
    """The memory behind the addresses of one launch.

    ``tensors`` hold all of each storage, under the name of the first address that leads there: of element 3 of ptrs, it
    is ``memory reached through ptrs[3]``. ``tables`` names the tensors whose elements are addresses, there and among
    the arguments, ``numbers`` the arguments that are addresses themselves. ``mutated`` and ``read`` are what of
    ``tensors`` the kernel may write and read. ``through`` are the arguments that were looked at, ``owners`` the live
    tensors that the storages were found by.
    """

    tensors: Mapping[str, Any] = field(default_factory=dict)
    owners: Mapping[str, Any] = field(default_factory=dict)
    tables: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()
    mutated: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()
    through: frozenset[str] = frozenset()

    def merge(self, other: ReachedMemory) -> ReachedMemory:
        """The union of the memory that two variants of a kernel reach on the same arguments."""
        sets = (getattr(self, name) | getattr(other, name) for name in _SETS)
        return ReachedMemory({**self.tensors, **other.tensors}, {**self.owners, **other.owners}, *sets)

    def addresses_in(self, name: str, value: Any) -> list[tuple[int, Any, int]]:
        """The addresses in an argument: position of the word, owning tensor, and offset in bytes."""
        if name not in self.tables | self.numbers:
            return []
        words = [value] if name in self.numbers else words_of(value).tolist()
        spans = [(*span_of(tensor), self.owners[key]) for key, tensor in self.tensors.items()]
        return [
            (position, owner, word - owner.data_ptr())
            for position, word in enumerate(words)
            for owner in [next((owner for start, end, owner in spans if start <= word < end), None)]
            if owner is not None
        ]


_SETS = ("tables", "numbers", "mutated", "read", "through")
NOTHING = ReachedMemory()


def reached_memory(arguments: Mapping[str, Any], effects: Effects, device: str) -> ReachedMemory:
    """The memory that a launch reaches through the arguments in its effects, also through several steps.

    ``device`` is the type of the one that it runs on. Addresses that no live tensor owns lead nowhere.
    """
    if not effects.through:
        return NOTHING
    memory, integers = memory_of(arguments), numbers_of(arguments)
    tables = {name: memory[name] for name in sorted(effects.through) if name in memory}
    numbers = {name: integers[name] for name in sorted(effects.through) if name in integers}
    owners = _owners(device)
    is_nested = any(effect.is_nested for effect in effects.unknown)
    tensors_by_label: dict[str, tuple[str, Any]] = {}  # the argument that leads there, and the tensor
    inner, seen = set[str](), set[tuple[str, int]]()
    waiting = [(name, REACHED + name, holder) for name, holder in [*numbers.items(), *tables.items()]]
    for root, label, holder in waiting:  # which grows
        is_number = isinstance(holder, int)
        for position, tensor in owners.behind([holder] if is_number else words_of(holder).cpu().numpy()):
            if (root, tensor.data_ptr()) in seen:
                continue
            seen.add((root, tensor.data_ptr()))
            name = label if is_number else f"{label}[{position}]"
            tensors_by_label[name] = root, tensor
            if is_nested and str(tensor.dtype) in _WORD_DTYPES:
                inner.add(name)
                waiting.append((root, name, tensor))
    written = effects.reached_through(Access.WRITE, Access.ATOMIC)
    loaded = effects.reached_through(Access.READ, Access.ATOMIC)
    return ReachedMemory(
        tensors={name: tensor for name, (_, tensor) in tensors_by_label.items()},
        owners={name: owners.of(tensor) for name, (_, tensor) in tensors_by_label.items()},
        tables=frozenset(tables) | inner,
        numbers=frozenset(numbers),
        mutated=frozenset(name for name, (root, _) in tensors_by_label.items() if root in written),
        read=frozenset(name for name, (root, _) in tensors_by_label.items() if root in loaded),
        through=effects.through,
    )


def device_of(arguments: Mapping[str, Any]) -> str:
    """The device type on which a launch with these arguments runs."""
    import torch

    devices = {tensor.device.type for tensor in memory_of(arguments).values()}
    return "cuda" if "cuda" in devices or (not devices and torch.cuda.is_initialized()) else "cpu"  # type: ignore[no-untyped-call]


def apart(tensors: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors that no argument covers with its own view."""
    views = [span_of(tensor) for tensor in memory_of(arguments).values()]
    spans = {name: span_of(tensor) for name, tensor in tensors.items()}
    covered = {n for n, (start, end) in spans.items() if any(a <= start and end <= b for a, b in views)}
    kept = {spans[name]: name for name in sorted(tensors, reverse=True) if name not in covered}
    return {name: tensors[name] for name in tensors if kept.get(spans[name]) == name}


def with_reached(arguments: Mapping[str, Any], effects: Effects, device: str) -> dict[str, Any]:
    """The arguments of a launch with the memory that it reaches through addresses, under names of its own."""
    tensors = reached_memory(arguments, effects, device).tensors
    return {**arguments, **(apart(tensors, arguments) if tensors else {})}


@dataclass(slots=True)
class Copies:
    """The arguments of a launch on copies of their memory, also of the memory behind their addresses.

    ``device`` is the type of the one that the launch runs on, ``originals`` are its arguments, ``behind`` is what they
    reach. ``reached`` are copies of that, which the addresses in the copied ``arguments`` hold for as long as it lives.
    """

    originals: Mapping[str, Any]
    effects: Effects
    device: str
    copier: Copier = field(default_factory=Copier)
    arguments: dict[str, Any] = field(init=False)
    behind: ReachedMemory = field(init=False)
    reached: dict[str, Any] = field(init=False)
    _moves: Moves = ()

    def __post_init__(self) -> None:
        self.behind = reached_memory(self.originals, self.effects, self.device)
        copies = self.copier.of({**self.originals, **self.behind.tensors})
        held = self.copier.storages.items()
        self._moves = tuple((start, copy.nbytes(), copy.data_ptr()) for (_, start), copy in held if start)

        def relocate(name: str, value: Any) -> Any:
            return moved_address(int(value), self._moves) if name in self.behind.numbers else value

        self.arguments = {name: with_members(name, copies[name], relocate) for name in self.originals}
        self.reached = {name: copies[name] for name in self.behind.tensors}
        self._move_tables(self._moves)

    @property
    def everything(self) -> dict[str, Any]:
        """The copied arguments with the copies of the memory that they reach."""
        return {**self.arguments, **apart(self.reached, self.arguments)}

    def take_back_addresses(self) -> None:
        """Restore the original addresses in the tables, before these are copied back."""
        self._move_tables(tuple((copy, size, start) for start, size, copy in self._moves))

    def _move_tables(self, moves: Moves) -> None:
        memory = {**memory_of(self.arguments), **self.reached}
        for name in self.behind.tables:
            move_addresses(words_of(memory[name]), moves)


def tensors_at(addresses: Sequence[int], device: str) -> dict[str, Any]:
    """The memory of the live tensors that own some of the addresses, named after the first in each."""
    memories = _owners(device).behind(addresses)
    return {f"memory at {addresses[position]:#x}": tensor for position, tensor in memories}


@dataclass(frozen=True, slots=True)
class _Owners:
    """Owners of memory: start and end addresses in ascending order, and a tensor in each range."""

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    tensors: tuple[Any, ...]

    def of(self, tensor: Any) -> Any:
        """The live tensor that owns the memory of ``tensor``."""
        return self.tensors[bisect.bisect_right(self.starts, tensor.data_ptr()) - 1]

    def behind(self, addresses: Any) -> Iterator[tuple[int, Any]]:
        """The memory of each owner of some of the addresses, with the position of the first that it owns."""
        import numpy as np

        words = np.asarray(addresses).astype(np.uint64).reshape(-1)
        if not self.starts or not words.size:
            return
        places = np.searchsorted(np.array(self.starts, np.uint64), words, side="right").astype(np.int64) - 1
        inside = (places >= 0) & (words < np.array(self.ends, np.uint64)[places])
        positions = np.flatnonzero(inside)
        owners, first = np.unique(places[positions], return_index=True)
        for position, owner in sorted(zip(positions[first].tolist(), owners.tolist(), strict=True)):
            yield position, _whole_storage(self.tensors[owner])


def _owners(device: str) -> _Owners:
    """The owners of all memory that a kernel on this type of device can reach."""
    spans = list(_live_tensors(device))
    if device == "cuda":
        spans += _allocated_blocks(spans)
    kept: list[tuple[int, int, Any]] = []
    for span in sorted(spans, key=lambda span: (span[0], -span[1], -span[2].numel() * span[2].element_size())):
        if not kept or span[1] > kept[-1][1]:
            kept.append(span)
    starts, ends, tensors = zip(*kept, strict=True) if kept else ((), (), ())
    return _Owners(starts, ends, tensors)


def _live_tensors(device: str) -> Iterator[tuple[int, int, Any]]:
    """The storage span of every live tensor, and the tensor."""
    import torch

    objects, reachable = gc.get_objects(), {device, "cpu"}
    kinds = {kind for kind in set(map(type, objects)) if issubclass(kind, torch.Tensor)}
    tensors = [tensor for tensor in objects if type(tensor) in kinds]
    del objects
    with torch._C.DisableTorchFunctionSubclass():
        for tensor in tensors:
            if tensor.layout != torch.strided or tensor.device.type not in reachable:
                continue
            try:
                storage = tensor.untyped_storage()
                if storage.device.type == "meta":  # a fake tensor, which warns where it is asked for an address
                    continue
                start, size = storage.data_ptr(), storage.nbytes()
            except RuntimeError:  # a wrapper, without data of its own
                continue
            if start and size and (tensor.device.type == device or tensor.is_pinned()):
                yield start, start + size, tensor


def _allocated_blocks(known: list[tuple[int, int, Any]]) -> Iterator[tuple[int, int, Any]]:
    """The blocks that torch's allocator has given out and that no Python tensor holds."""
    import torch

    starts = {start for start, _, _ in known}
    for segment in torch.cuda.memory_snapshot():  # type: ignore[no-untyped-call]
        address, place = segment["address"], f"cuda:{segment['device']}"
        for block in segment["blocks"]:
            size = block.get("requested_size") or block["size"]
            if block["state"] == "active_allocated" and address not in starts:
                storage = torch._C._construct_storage_from_data_pointer(address, torch.device(place), size)
                yield address, address + size, torch.empty(0, dtype=torch.uint8, device=place).set_(storage)
            address += block["size"]


def _whole_storage(tensor: Any) -> Any:
    """All elements of a tensor's storage, as a vector."""
    import torch

    storage, dtype = tensor.untyped_storage(), tensor.dtype
    if str(dtype).removeprefix("torch.") not in TRITON_NAMES or storage.nbytes() % dtype.itemsize:
        dtype = torch.uint8
    empty = torch.empty(0, dtype=dtype, device=storage.device)
    return empty.set_(storage, 0, (storage.nbytes() // dtype.itemsize,), (1,))
