"""Tensors of a recording: their layouts, and the operations that change their memory.

A recording is unusable if memory changes between two of its steps; the problem names the place. Two checks find this.
torch raises the version counter of a tensor for each of its own writes, in any thread. Memory that something else than
torch holds is written without a trace, so its contents are compared.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from kernellab.capture.naming import place_of_user
from kernellab.capture.tape import RecordedKernelLaunch, Step, TensorLayout, members_of
from kernellab.errors import UsageError
from kernellab.store import Argument

_PLAIN = torch.Tensor.__torch_dispatch__

# These change arguments that their schema does not mark, if the argument ``training`` is true.
_UNMARKED = {
    "aten.native_batch_norm.default": ("running_mean", "running_var"),
    "aten.cudnn_batch_norm.default": ("running_mean", "running_var"),
    "aten.miopen_batch_norm.default": ("running_mean", "running_var"),
}


def layout_of(tensor: Any) -> TensorLayout:
    """Return the layout of a tensor in its storage; raise `UsageError` for one that is not plain and strided."""
    if tensor.layout is not torch.strided or tensor.is_quantized or type(tensor).__torch_dispatch__ is not _PLAIN:
        kind = type(tensor).__name__ if tensor.layout is torch.strided else str(tensor.layout)
        raise UsageError(f"The block uses a {kind} tensor; a program can hold plain strided tensors only.")
    dtype = str(tensor.dtype).removeprefix("torch.")
    layout = tuple(tensor.shape), tuple(tensor.stride())
    return TensorLayout(dtype, tensor.element_size(), *layout, tensor.storage_offset(), str(tensor.device))


def is_descriptor(value: Any) -> bool:
    """Whether a value is a tensor descriptor of Triton or Gluon."""
    return hasattr(value, "block_shape") and isinstance(getattr(value, "base", None), torch.Tensor)


def tensors_in(value: Any) -> Iterator[Any]:
    """Yield the tensors among nested arguments."""
    return (member for member in members_of(value) if isinstance(member, torch.Tensor))


def version_of(tensor: Any) -> int | None:
    """Return the version counter of a tensor, which each write raises; None for a tensor of inference mode."""
    return None if tensor.is_inference() else int(tensor._version)


def versions_of(given: Any) -> dict[int, int]:
    """Return the version counters of the tensors among nested arguments."""
    return {id(t): version for t in tensors_in(given) if (version := version_of(t)) is not None}


def is_of_torch(operation: str) -> bool:
    """Whether an operation is one of torch itself, by its name such as ``aten.mm.default``."""
    return operation.partition(".")[0] in {"aten", "prims", "prim"}


def has_dynamic_shape(func: Any, dtypes: Sequence[str]) -> bool:
    """Whether data may decide the shape of a result; ``dtypes`` are those of all arguments but the first.

    For an index, data does if it is a mask; an operation that is not torch's own may do anything.
    """
    if not is_of_torch(str(func)):
        return True
    is_index = func is torch.ops.aten.index.Tensor
    return torch.Tag.dynamic_output_shape in func.tags and (not is_index or bool({"bool", "uint8"} & set(dtypes)))


def written_arguments(func: Any, args: Any, kwargs: Any) -> Iterator[Any]:
    """Yield the arguments that an operation changes, by its schema."""
    unmarked = _UNMARKED.get(str(func), ())
    for position, parameter in enumerate(func._schema.arguments):
        info = parameter.alias_info
        if (info is not None and info.is_write) or parameter.name in unmarked:
            yield args[position] if position < len(args) else kwargs.get(parameter.name)


def argument_for(func: Any, args: Any, kwargs: Any, name: str) -> Any:
    """Return the argument of an operation for a parameter, or its default; None without such a parameter."""
    for position, parameter in enumerate(func._schema.arguments):
        if parameter.name == name:
            default = parameter.default_value if parameter.has_default_value() else None
            return args[position] if position < len(args) else kwargs.get(name, default)
    return None


def with_dtype(func: Any, kwargs: dict[str, Any], outputs: list[Any]) -> dict[str, Any]:
    """Return the options of a factory function, with the default dtype of the recording."""
    names = {parameter.name for parameter in func._schema.arguments}
    tensors = any("Tensor" in str(parameter.type) for parameter in func._schema.arguments)
    if "dtype" in names and not tensors and kwargs.get("dtype") is None and isinstance(outputs[0], torch.Tensor):
        return {**kwargs, "dtype": outputs[0].dtype}
    return kwargs


@dataclass(slots=True)
class TrackedTensor:
    """A tensor of a recording.

    ``name`` is the user's name for it, ``is_result`` is True if a step made it. ``version`` is torch's version counter
    after the steps so far; None until a view is used, which has the counter of its base only then. torch may count the
    write of a step after the recorder has seen the step: ``pending_writes`` are those.
    """

    layout: TensorLayout
    storage: int
    tensor: Callable[[], Any]
    is_result: bool = True
    name: str = ""
    version: int | None = None
    pending_writes: int = 0


@dataclass(slots=True)
class Recording:
    """The data of a capture.

    ``launches`` has the launch of a step by the step's index. ``outputs`` are those that the block chose.
    ``inputs``, filled at the end, are the values that the program takes.
    """

    values: list[TrackedTensor] = field(default_factory=list)
    storages: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    launches: dict[int, RecordedKernelLaunch] = field(default_factory=dict)
    samples: dict[int, Argument] = field(default_factory=dict)
    constants: dict[int, Any] = field(default_factory=dict)
    outputs: list[int] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    problems: dict[str, None] = field(default_factory=dict)


def random_source(recording: Recording, indices: Iterable[int]) -> str:
    """Return the random operation that the contents of these values follow from, or ""."""
    origins: dict[int, str] = {}
    for step in recording.steps:
        sources = (
            origins[storage] for index in step.operands if (storage := recording.values[index].storage) in origins
        )
        origin = step.operation if step.is_random else next(sources, "")
        changed = [*(index for index in step.results if index >= 0), *step.mutated]
        origins |= {recording.values[index].storage: origin for index in changed if origin}
    return next((origins[s] for index in indices if (s := recording.values[index].storage) in origins), "")


def random_number_problem(place: str, shown: object, source: str) -> str:
    """Return the message for a number drawn at random from which a fixed part of a program follows."""
    return (
        f"{place} reads {shown}, a number that {source} draws at random: a run would draw another, and what Python "
        "decides by it, or takes as a plain number, is fixed. Hand it on as what item() returns, draw it before the "
        "block, or let the kernel load it from its tensor."
    )


@dataclass(slots=True)
class Exposure:
    """Memory that something else than torch holds, too: how it was handed out, and a digest of its contents."""

    how: str
    digest: bytes


@dataclass(slots=True)
class TrackedMemory:
    """The storages of a recording by number: the values in each, and checks that only steps change them.

    ``own_work`` is the context of the lab's own work, which is not recorded; ``name_of`` gives the user's name of a
    tensor.
    """

    recording: Recording
    own_work: Callable[[], AbstractContextManager[None]]
    name_of: Callable[[Any], str]
    of_storage: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    _storages: dict[int, tuple[StorageWeakRef, int]] = field(default_factory=dict)
    _exposed: dict[int, Exposure] = field(default_factory=dict)

    def number(self, tensor: Any) -> tuple[int, bool]:
        """Return the number of a tensor's storage, and whether it is new."""
        storage = tensor.untyped_storage()
        known = self._storages.get(storage._cdata)
        if known is not None:
            self.recording.storages[known[1]] = max(self.recording.storages[known[1]], storage.nbytes())
            return known[1], False
        number = len(self.recording.storages)
        self.recording.storages.append(storage.nbytes())
        # The reference keeps the address from being used again.
        self._storages[storage._cdata] = (StorageWeakRef(storage), number)  # type: ignore[no-untyped-call]
        return number, True

    def storage_of(self, tensor: Any) -> int | None:
        """Return the number of a tensor's current storage, or None."""
        known = self._storages.get(tensor.untyped_storage()._cdata)
        return None if known is None else known[1]

    def watch(self, storage: int, tensor: Any) -> None:
        """Check a new storage from now on, if something else than torch may hold it."""
        own = tensor.untyped_storage()
        if own.device.type == "cpu" and not own.resizable():
            self.expose(storage, tensor, "NumPy or another process holds it too")

    def expose(self, storage: int, tensor: Any, how: str) -> None:
        """Compare the contents of a storage from now on, since something else than torch can change it."""
        if storage not in self._exposed:
            self._exposed[storage] = Exposure(how, self._digest(tensor))

    def check_memory(self, *, at_end: bool = False) -> None:
        """Check memory that something else than torch can change, and at the end all memory of the recording."""
        indices = [index for storage in self._exposed for index in self.of_storage[storage]]
        for index in range(len(self.recording.values)) if at_end else indices:
            known = self.recording.values[index]
            tensor = known.tensor()
            if tensor is not None and self.storage_of(tensor) == known.storage:
                self.check_unchanged(known, tensor)

    def check_unchanged(self, known: TrackedTensor, tensor: Any) -> None:
        """Record a problem if the memory of a tensor is not as the steps so far left it."""
        version, how = version_of(tensor), ""
        is_known = version is not None and known.version is not None
        if is_known and (version or 0) - (known.version or 0) > known.pending_writes:
            how = "by an operation that was not seen, as of another thread"
        known.version, known.pending_writes = version, 0
        exposure = self._exposed.get(known.storage)
        if exposure is not None and not how:
            digest = self._digest(tensor)
            if digest != exposure.digest:
                exposure.digest, how = digest, f"by something else than torch: {exposure.how}"
        if how:
            name = known.name or self.name_of(tensor) or "a tensor"
            self.recording.problems[f"the memory of {name} was changed before {place_of_user()}, {how}"] = None

    def expect_write(self, indices: Iterable[int]) -> None:
        """Allow one write to the memory of each value, which torch has counted before its step is recorded."""
        for storage in {self.recording.values[index].storage for index in indices}:
            for index in self.of_storage[storage]:
                self.recording.values[index].pending_writes += 1

    def accept_writes(self, written: Iterable[int]) -> None:
        """Accept the current memory of values, which a step or the lab itself has changed."""
        counts = Counter(self.recording.values[index].storage for index in written)
        for storage, count in counts.items():
            for index in self.of_storage[storage]:
                known = self.recording.values[index]
                tensor = known.tensor()
                if tensor is None or self.storage_of(tensor) != storage:
                    continue
                known.version, known.pending_writes = version_of(tensor), count
                if storage in self._exposed:
                    self._exposed[storage].digest = self._digest(tensor)

    def _digest(self, tensor: Any) -> bytes:
        """Return the hash of the contents of a tensor's storage."""
        with self.own_work():
            storage = tensor.untyped_storage().cpu()
            count = storage.nbytes()
            content = (ctypes.c_char * count).from_address(storage.data_ptr()) if count else b""
            return hashlib.blake2b(content, digest_size=16).digest()


def contents_of(tensor: Any) -> str:
    """Return the hash of a tensor's elements."""
    return hashlib.blake2b(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy(), digest_size=16).hexdigest()
