"""Exports the arguments of a launch to the GPU worker, their memory as CUDA IPC handles, and imports them there."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kernellab._triton.drivers import descriptor
from kernellab.errors import LaunchError, first_line
from kernellab.gpu.device_view import DeviceView
from kernellab.gpu.driver import DeviceBytes, DriverError, IpcHandle, ipc_handle, map_ipc_memory
from kernellab.launch.arguments import (
    ArgumentSpec,
    CannotExport,
    DescriptorSpec,
    ScalarSpec,
    TensorSpec,
    TupleSpec,
    spec_of,
)
from kernellab.launch.memory import NOTHING, Moves, ReachedMemory, move_addresses, moved_address, words_of

_WORD_BYTES = 8


@dataclass(frozen=True, slots=True)
class Memory:
    """One storage on the GPU.

    ``handle`` is an `IpcHandle`, or torch's handle (``torch.multiprocessing``); None stands for no memory. ``address``
    is its address in its owner's process. ``is_mutated``: the kernel may write to it. ``holds_addresses``: the kernel
    reads addresses from it, which must be rewritten in a copy.
    """

    handle: Any
    size_bytes: int
    address: int
    is_mutated: bool
    holds_addresses: bool = False


@dataclass(frozen=True, slots=True)
class Tables:
    """Addresses among the arguments of a launch: ``views`` of memories that hold them, and ``numbers``."""

    views: tuple[TensorSpec, ...] = ()
    numbers: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class BinaryLaunch:
    """A launch of a compiled kernel as data.

    ``files`` are those of Triton's handle, name and path; ``constants`` the index paths of compile-time arguments.
    """

    files: tuple[tuple[str, str], ...]
    digest: str
    signature: tuple[tuple[str, Any], ...]
    constants: tuple[tuple[int, ...], ...]
    grid: tuple[int, int, int]
    arguments: tuple[tuple[str, ArgumentSpec], ...]

    def arguments_on(self, tensors: Sequence[Any], tables: Tables, moves: Moves) -> tuple[Any, ...]:
        """Return the arguments in ``tensors`` of bytes, with the addresses among its numbers rewritten by ``moves``."""
        specs = (with_moved_numbers(name, spec, tables, moves) for name, spec in self.arguments)
        return tuple(argument_of(spec, tensors) for spec in specs)


@dataclass(slots=True)
class IpcExport:
    """The storages of a launch's arguments on ``device``, for import in another process.

    ``mutated`` are the names of arguments that the kernel may write, None if unknown; ``behind`` is the memory reached
    through addresses among them. The other process must unmap the memory before this object is deleted.
    """

    device: int
    mutated: frozenset[str] | None
    names: dict[int, list[str]] = field(default_factory=dict)
    behind: ReachedMemory = NOTHING
    _storages: list[Any] = field(default_factory=list)
    _indices: dict[int, int] = field(default_factory=dict)
    _written: set[int] = field(default_factory=set)
    _tables: dict[str, TensorSpec] = field(default_factory=dict)
    _shared: list[Any] = field(default_factory=list)

    def specs(self, arguments: Mapping[str, Any]) -> tuple[tuple[str, ArgumentSpec], ...]:
        """Return every argument as data.

        Raises:
            CannotExport: an argument cannot be shared (pinned memory, another device).
            LaunchError: an argument has no data, or lies on a GPU that this one cannot reach.
        """

        def placeholder(name: str, value: object) -> ArgumentSpec:  # of an argument that the compiled kernel ignores
            return ScalarSpec(None)

        return tuple((name, spec_of(name, value, self._tensor, placeholder)) for name, value in arguments.items())

    @property
    def tables(self) -> Tables:
        """The addresses among the arguments so far."""
        return Tables(tuple(self._tables.values()), self.behind.numbers)

    @property
    def storages(self) -> tuple[Any, ...]:
        """The storages so far; None stands for no memory at all."""
        return tuple(self._storages)

    def storages_of(self, arguments: Collection[str]) -> list[Any]:
        """Return the storages of some arguments, but those without memory."""
        indices = [i for i, names in sorted(self.names.items()) if not set(names).isdisjoint(arguments)]
        return [s for s in map(self._storages.__getitem__, indices) if s is not None and s.nbytes()]

    def without_memory(self) -> frozenset[str]:
        """Return the arguments that are null pointers: tensors without elements, and addresses that are none."""
        empty = [i for i, storage in enumerate(self._storages) if storage is None or not storage.nbytes()]
        return frozenset(name for index in empty for name in self.names[index])

    def memories(self) -> tuple[Memory, ...]:
        """Return the storages of the arguments so far.

        Raises:
            CannotExport: CUDA cannot share one of them.
        """
        tables = {view.storage for view in self._tables.values()}
        memories = []
        for index, storage in enumerate(self._storages):
            is_mutated = index in self._written
            if storage is None or not storage.nbytes():
                memories.append(Memory(None, 0, 0, is_mutated))
                continue
            address, size_bytes = storage.data_ptr(), storage.nbytes()
            try:
                handle: Any = ipc_handle(address, self.device)
            except DriverError:
                handle = self._handle_of_torch(index, storage)
            memories.append(Memory(handle, size_bytes, address, is_mutated, index in tables))
        return tuple(memories)

    def unshare(self) -> None:
        """Release the memory shared through torch, after the other process has released it."""
        if self._shared:
            import torch  # it has shared something

            self._shared.clear()
            torch.cuda.ipc_collect()  # type: ignore[no-untyped-call]

    def _handle_of_torch(self, index: int, storage: Any) -> Any:
        """Return torch's handle for memory that only torch can share (``expandable_segments``).

        Raises:
            CannotExport: torch cannot share it.
        """
        import torch
        from torch.multiprocessing.reductions import reduce_tensor
        from torch.utils.dlpack import from_dlpack, to_dlpack  # type: ignore[attr-defined]

        tensor = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
        try:
            # Torch counts the sharers of a storage while it lives, and warns at exit if one is left. So another storage
            # of the same memory is shared, which is deleted with this object.
            shared = from_dlpack(to_dlpack(tensor))
            handle = reduce_tensor(shared)  # type: ignore[no-untyped-call]
        except RuntimeError as exc:
            raise CannotExport(f"the memory of {self.names[index][0]} cannot be shared ({first_line(exc)})") from exc
        self._shared.append(shared)
        return handle

    def _tensor(self, name: str, value: Any) -> TensorSpec:
        import torch

        tensor = value if isinstance(value, torch.Tensor) else getattr(value, "base", None)
        if not isinstance(tensor, torch.Tensor):  # a null pointer
            if value.data_ptr():
                raise CannotExport(f"{name} is not a tensor but an address")
            return TensorSpec(self._index(name, 0, None), 0, (0,), (1,), "uint8", 1)
        self._check(name, tensor)
        storage = tensor.untyped_storage()
        index = self._index(name, storage.data_ptr(), storage)
        spec = TensorSpec(
            storage=index,
            offset_bytes=int(tensor.storage_offset()) * tensor.element_size(),
            shape=tuple(tensor.shape),
            strides=tuple(tensor.stride()),
            dtype=str(tensor.dtype).removeprefix("torch."),
            itemsize=tensor.element_size(),
        )
        if name in self.behind.tables:
            self._tables[name] = spec
        return spec

    def _check(self, name: str, tensor: Any) -> None:
        import torch

        if tensor.layout != torch.strided or tensor.device.type == "meta":
            raise LaunchError(f"{name} is a tensor without dense data ({tensor.layout}, {tensor.device}).")
        is_on_gpu = tensor.device.type == "cuda"
        if is_on_gpu and tensor.device.index == self.device:
            return
        if is_on_gpu and not torch.cuda.can_device_access_peer(self.device, tensor.device.index):
            raise LaunchError(
                f"{name} is on {tensor.device} and the kernel runs on cuda:{self.device}, which cannot reach it; "
                f"move it with .to('cuda:{self.device}')."
            )
        raise CannotExport(f"{name} lies on {tensor.device}")

    def _index(self, name: str, address: int, storage: Any) -> int:
        index = self._indices.get(address)
        if index is None:
            index = self._indices[address] = len(self._storages)
            self._storages.append(storage)
        elif address and storage.nbytes() > self._storages[index].nbytes():  # a part was shared by dlpack
            self._storages[index] = storage
        self.names.setdefault(index, []).append(name)
        if self.mutated is None or name in self.mutated:
            self._written.add(index)
        return index


def moves_of(memories: Sequence[Memory], tensors: Sequence[Any]) -> Moves:
    """Return the address ranges of another process's memories and their addresses here, in ``tensors`` of bytes."""
    pairs = zip(memories, tensors, strict=True)
    return tuple((memory.address, memory.size_bytes, tensor.data_ptr()) for memory, tensor in pairs if memory.address)


def move_tables(tables: Tables, tensors: Sequence[Any], moves: Moves) -> None:
    """Rewrite the addresses in copied tables by ``moves``."""
    before, moved_to = -1, 0
    for storage, begin, end in sorted((v.storage, v.offset_bytes, v.offset_bytes + v.span_bytes) for v in tables.views):
        start = max(begin, moved_to) if storage == before else begin
        if start < end:  # overlaps of two views are moved once
            _move_words(tensors[storage][start:end], moves)
        before, moved_to = storage, max(start, end)


def _move_words(memory: Any, moves: Moves) -> None:
    """Rewrite the addresses in bytes of memory by ``moves``."""
    if not isinstance(memory, DeviceBytes):
        move_addresses(words_of(memory), moves)
        return
    first = -memory.address % _WORD_BYTES
    count = max(0, memory.size_bytes - first) // _WORD_BYTES
    words = memory[first : first + count * _WORD_BYTES]
    addresses = struct.unpack(f"<{count}Q", words.read())
    words.write(struct.pack(f"<{count}Q", *(moved_address(address, moves) for address in addresses)))


def with_moved_numbers(name: str, spec: ArgumentSpec, tables: Tables, moves: Moves) -> ArgumentSpec:
    """Return an argument with the addresses among its numbers rewritten by ``moves``."""
    if isinstance(spec, TupleSpec):
        items = (with_moved_numbers(f"{name}[{i}]", item, tables, moves) for i, item in enumerate(spec.items))
        return replace(spec, items=tuple(items))
    if isinstance(spec, ScalarSpec) and name in tables.numbers and isinstance(spec.value, int):
        return ScalarSpec(moved_address(spec.value, moves))
    return spec


def argument_of(spec: ArgumentSpec, memories: Sequence[Any]) -> Any:
    """Return the value of an argument spec; ``memories`` are tensors of bytes, one per storage."""
    match spec:
        case TensorSpec():
            return tensor_of(spec, memories[spec.storage])
        case DescriptorSpec():
            more = {"round_f32_to_tf32": True} if spec.round_f32_to_tf32 else {}
            base = tensor_of(spec.base, memories[spec.base.storage])
            return descriptor(base, spec.shape, spec.strides, spec.block_shape, spec.padding, **more)
        case TupleSpec():
            return tuple(argument_of(item, memories) for item in spec.items)
        case ScalarSpec():
            return spec.value
    return None


def import_memory(memory: Memory) -> DeviceBytes:
    """Map memory of another process into this one until it is released; empty memory has no address.

    Raises:
        RuntimeError: the memory is gone, or the device cannot reach it.
    """
    if memory.handle is None:
        return DeviceBytes(0, 0)
    if isinstance(memory.handle, IpcHandle):
        return map_ipc_memory(memory.handle, memory.size_bytes)
    function, arguments = memory.handle
    tensor = function(*arguments)
    return DeviceBytes(tensor.data_ptr(), memory.size_bytes, tensor)


def tensor_on(memory: DeviceBytes, spec: TensorSpec | None = None) -> Any:
    """Return a torch tensor on memory of the current device: the view of ``spec``, or all bytes."""
    import torch  # only callers that need torch get here

    if memory.size_bytes:
        held = torch.as_tensor(memory, device="cuda")
    else:
        held = torch.empty(0, dtype=torch.uint8, device="cuda")
    return held if spec is None else tensor_of(spec, held)


def needs_torch_mapping(memories: Iterable[Memory]) -> bool:
    """Whether some of the memories can only be mapped by torch."""
    return any(memory.handle is not None and not isinstance(memory.handle, IpcHandle) for memory in memories)


def tensor_of(spec: TensorSpec, memory: Any) -> Any:
    """Return the view of ``memory`` that a spec describes: a tensor, or a view without torch.

    If the memory starts inside an element, the view is of bytes.
    """
    if (memory.data_ptr() + spec.offset_bytes) % spec.itemsize:
        spec = TensorSpec(spec.storage, spec.offset_bytes, (spec.span_bytes,), (1,), "uint8", 1)
    if isinstance(memory, DeviceBytes):
        return DeviceView(memory, spec)
    import torch  # most processes never get here

    dtype = getattr(torch, spec.dtype)
    view = torch.empty(0, dtype=dtype, device=memory.device)
    offset = memory.storage_offset() + spec.offset_bytes
    return view.set_(memory.untyped_storage(), offset // spec.itemsize, spec.shape, spec.strides)
