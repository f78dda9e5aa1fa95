"""Recording: every torch operation of a thread, by a dispatch mode, and every launch that a lab tells of.

Tensors are known by their memory. A tensor whose memory was not seen before existed before the block: an input. One
that shares memory with a known tensor is a view of it. Nothing is kept alive: what the user drops is freed as ever.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from kernellab.capture.entering import Seen
from kernellab.capture.naming import is_printing, locals_of, name_in, place_of, place_of_user, user_frame
from kernellab.capture.operations import given_for, layout_of, tensors_in, versions_of, with_dtype
from kernellab.capture.tape import Addresses, Descriptor, Layout, Ref, Step, refs_in, window_step
from kernellab.errors import UsageError
from kernellab.memory import memory_of
from kernellab.observers import Launched, Observers
from kernellab.reached import Reached, device_of, reached
from kernellab.registry.launch_log import argument_of
from kernellab.store import Argument

# These change arguments that their schema does not mark, if the argument ``training`` is true.
_UNMARKED = {
    "aten.native_batch_norm.default": ("running_mean", "running_var"),
    "aten.cudnn_batch_norm.default": ("running_mean", "running_var"),
    "aten.miopen_batch_norm.default": ("running_mean", "running_var"),
}


@dataclass(slots=True)
class Known:
    """A tensor that was seen. ``name`` is what the user called it when it was, ``made`` whether a step made it."""

    layout: Layout
    storage: int
    tensor: weakref.ref[Any]
    made: bool = True
    name: str = ""


@dataclass(slots=True)
class Recording:
    """What was seen so far. ``launched`` gives the launch of a step by the step's index."""

    values: list[Known] = field(default_factory=list)
    storages: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    launched: dict[int, Seen] = field(default_factory=dict)
    samples: dict[int, Argument] = field(default_factory=dict)
    constants: dict[int, Any] = field(default_factory=dict)
    returned: list[int] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records what one thread does between ``__enter__`` and ``__exit__``. ``scope`` gives the user's variables,
    ``keep`` what is kept of a launch."""

    def __init__(
        self, observers: Observers, scope: Callable[[], Mapping[str, Any]], keep: Callable[[Launched], Seen]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.observers = observers
        self.keep = keep
        self.scope = scope
        self.recording = Recording()
        self.is_inside_operation = False
        self._by_id: dict[int, int] = {}
        self._storages: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.observers.is_withheld:
            return func(*args, **kwargs)
        if func is torch.ops.aten.lift_fresh.default:
            self._constant(args[0])
            return func(*args, **kwargs)
        taken = self._taken((args, kwargs))
        before, self.is_inside_operation = self.is_inside_operation, True
        versions = versions_of((args, kwargs))
        try:
            result = func(*args, **kwargs)
        finally:
            self.is_inside_operation = before
        self._made(func, taken, (args, kwargs), result, versions)
        return result

    def launched(self, launched: Launched) -> None:
        """Record a launch."""
        name, effects = launched.compiled.kernel, launched.compiled.effects
        memory = memory_of(launched.arguments)
        behind = reached(launched.arguments, effects, device_of(launched.arguments))
        memory |= behind.owners
        changed = effects.mutated | behind.mutated if effects.is_followed else set(memory)
        if not effects.is_followed:
            self.note(f"the effects of {name} are not fully known: all its tensors count as changed")
        if effects.lost or behind.tables & behind.tensors.keys():
            self.note(f"{name} goes to addresses in memory that the program does not make anew: they are the recorded")
        constants = {parameter.name for parameter in launched.kernel.params if parameter.is_constexpr}
        given = tuple((n, self._given(n, v, behind)) for n, v in launched.arguments.items() if n not in constants)
        mutated = tuple(dict.fromkeys(self.value_of(t) for n, t in memory.items() if n in changed))
        recording = self.recording
        recording.launched[len(recording.steps)] = self.keep(launched)
        self._append(Step("launch", (), given, mutated=mutated))

    def _given(self, name: str, value: Any, behind: Reached) -> Any:
        """Return an argument of a launch with values in place of tensors, and of the addresses of tensors."""
        if isinstance(value, tuple):
            members = [self._given(f"{name}[{i}]", member, behind) for i, member in enumerate(value)]
            return type(value)(*members) if hasattr(value, "_fields") else tuple(members)
        entries = behind.addresses_in(name, value)
        if not entries:
            return self._taken(value)
        places = tuple((position, Ref(self.value_of(owner)), offset) for position, owner, offset in entries)
        return Addresses(None if isinstance(value, int) else Ref(self.value_of(value)), places)

    def value_of(self, tensor: Any) -> int:
        """Return the value that a tensor is; one that was never seen becomes an input."""
        index = self._by_id.get(id(tensor))
        layout = layout_of(tensor)
        known = None if index is None else self.recording.values[index]
        if index is not None and known is not None and known.tensor() is tensor and known.layout == layout:
            return index
        return self._other(tensor, layout)

    def note(self, text: str) -> None:
        self.recording.notes[text] = None

    def _other(self, tensor: Any, layout: Layout) -> int:
        """Return the value of a tensor object that is new: in known memory, or an input."""
        storage, is_new = self._storage(tensor)
        same = [] if is_new else [i for i, v in enumerate(self.recording.values) if v.storage == storage]
        for index in reversed(same):
            if self.recording.values[index].layout == layout:
                self._by_id[id(tensor)] = index
                self.recording.values[index].tensor = weakref.ref(tensor)
                return index
        base = next((i for i in same if self.recording.values[i].layout.covers(layout)), None)
        if base is not None:
            return self._windowed(base, tensor, layout)
        index = self._add(tensor, layout, storage, made=False)
        self.recording.values[index].name = name_in(self.scope(), tensor)
        with self.observers.withheld():
            self.recording.samples[index] = argument_of("", tensor)
        return index

    def _windowed(self, base: int, tensor: Any, layout: Layout) -> int:
        known = self.recording.values[base]
        index = self._add(tensor, layout, known.storage)
        self._append(window_step(base, known.layout, index, layout))
        return index

    def _constant(self, tensor: Any) -> None:
        """Keep a tensor that the block made of Python data, as it is now."""
        layout = layout_of(tensor)
        storage, is_new = self._storage(tensor)
        if is_new:
            index = self._add(tensor, layout, storage)
            with self.observers.withheld():
                self.recording.constants[index] = tensor.detach().clone()

    def _taken(self, value: Any) -> Any:
        """Return arguments with values in place of tensors."""
        if isinstance(value, torch.Tensor):
            return Ref(self.value_of(value))
        if isinstance(value, list):
            return [self._taken(member) for member in value]
        if isinstance(value, tuple):
            members = (self._taken(member) for member in value)
            return type(value)(*members) if hasattr(value, "_fields") else tuple(members)
        if isinstance(value, dict):
            return {name: self._taken(member) for name, member in value.items()}
        if hasattr(value, "block_shape") and isinstance(getattr(value, "base", None), torch.Tensor):
            layout = (tuple(value.shape), tuple(value.strides), tuple(value.block_shape))
            return Descriptor(Ref(self.value_of(value.base)), *layout, getattr(value, "padding", "zero"))
        return value

    def _made(self, func: Any, taken: Any, given: Any, result: Any, versions: Mapping[int, int]) -> None:
        """Record an operation that ended well."""
        args, kwargs = taken
        if func is torch.ops.aten._local_scalar_dense.default:
            place = place_of_user()
            if place and not is_printing():
                self.note(
                    f"{place} reads a value of a tensor, {result!r}; what follows from it is fixed in the program"
                )
            return
        tensors = {id(t): t for t in tensors_in(given)}
        mutated = tuple(dict.fromkeys([*self._written(func, args, kwargs), *self._grown(tensors, versions)]))
        if torch.Tag.inplace_view in func.tags:
            self._relaid(tensors, mutated)
            return
        several = isinstance(result, list | tuple)
        outputs = list(result) if several else [result]
        results = tuple(self._result(t, tensors) if isinstance(t, torch.Tensor) else -1 for t in outputs)
        options = with_dtype(func, kwargs, outputs)
        is_random = torch.Tag.nondeterministic_seeded in func.tags and given_for(func, args, kwargs, "dropout_p") != 0
        given = tuple(options.items())
        self._append(Step(str(func), tuple(args), given, results, several, mutated, is_random=is_random))

    def _append(self, step: Step) -> None:
        """Add a step with its place, and note what the user calls the tensors that it takes."""
        frame = user_frame()
        self.recording.steps.append(dataclasses.replace(step, place=place_of(frame)))
        unnamed = [known for index in step.taken if not (known := self.recording.values[index]).name]
        if frame is None or not unnamed:
            return
        scope = [(name, value) for name, value in locals_of(frame).items() if isinstance(value, torch.Tensor)]
        for known in unnamed:
            tensor = known.tensor()
            known.name = next((name for name, value in scope if value is tensor and name.strip("_")), "")

    def _result(self, tensor: Any, given: Mapping[int, Any]) -> int:
        """Return the value that an operation returns: -1 for one of its arguments as it was."""
        if id(tensor) in given and self._is_known(tensor):
            return -1
        layout = layout_of(tensor)
        return self._add(tensor, layout, self._storage(tensor)[0])

    def _is_known(self, tensor: Any) -> bool:
        index = self._by_id.get(id(tensor))
        return index is not None and self.recording.values[index].layout == layout_of(tensor)

    def _relaid(self, tensors: Mapping[int, Any], mutated: tuple[int, ...]) -> None:
        """Record that an operation changed the layout of a tensor and left its memory as it was."""
        for tensor in tensors.values():
            index = self._by_id[id(tensor)]
            known, layout = self.recording.values[index], layout_of(tensor)
            if index in mutated and layout != known.layout:
                if self._storage(tensor)[0] != known.storage or not self._covers_storage(known.storage, layout):
                    raise UsageError(
                        f"{place_of_user()} gives a tensor other memory in place, which a program cannot record; "
                        "make a new tensor instead."
                    )
                base = next(i for i, v in enumerate(self.recording.values) if v.storage == known.storage)
                self._windowed(base, tensor, layout)

    def _covers_storage(self, storage: int, layout: Layout) -> bool:
        return (layout.offset + layout.span) * layout.itemsize <= self.recording.storages[storage]

    def _written(self, func: Any, args: Any, kwargs: Any) -> Iterator[int]:
        """Yield the values that an operation changes, by its schema."""
        unmarked = _UNMARKED.get(str(func), ())
        for position, parameter in enumerate(func._schema.arguments):
            given = args[position] if position < len(args) else kwargs.get(parameter.name)
            info = parameter.alias_info
            if (info is not None and info.is_write) or parameter.name in unmarked:
                yield from (ref.index for ref in refs_in(given))

    def _grown(self, tensors: Mapping[int, Any], versions: Mapping[int, int]) -> Iterator[int]:
        """Yield the values whose version counters say that they changed."""
        for key, tensor in tensors.items():
            if key in versions and tensor._version != versions[key]:
                yield self._by_id[key]

    def _add(self, tensor: Any, layout: Layout, storage: int, *, made: bool = True) -> int:
        index = len(self.recording.values)
        self.recording.values.append(Known(layout, storage, weakref.ref(tensor), made))
        self._by_id[id(tensor)] = index
        return index

    def _storage(self, tensor: Any) -> tuple[int, bool]:
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
