"""Recording: a dispatch mode sees every torch operation of a thread, and an observer every launch of a lab.

Tensors are known by their memory. A tensor in unknown memory existed before the block, and is an input. One that shares
memory with a known tensor is a view of it. The recording keeps no tensor alive.

A mode for torch's functions sees NumPy, storages and ``x.data = y``, which are not operations. Values that Python reads
are noted, since what follows from them is fixed.
"""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from kernellab._triton.tracing import keep_from_compiling
from kernellab.capture.function_recorder import run_higher_order
from kernellab.capture.naming import is_printing, locals_of, name_in, place_of, place_of_user, short_repr
from kernellab.capture.tape import (
    READ,
    Addresses,
    RecordedKernelLaunch,
    Ref,
    Step,
    TapeDescriptor,
    TensorLayout,
    map_nested,
    refs_in,
    window_step,
)
from kernellab.capture.tracked_tensors import (
    Recording,
    TrackedMemory,
    TrackedTensor,
    argument_for,
    contents_of,
    has_dynamic_shape,
    is_descriptor,
    is_of_torch,
    layout_of,
    random_number_problem,
    random_source,
    tensors_in,
    version_of,
    versions_of,
    with_dtype,
    written_arguments,
)
from kernellab.errors import UsageError, user_frame
from kernellab.launch.arguments import memory_of
from kernellab.launch.bound_launch import BoundLaunch, ValueSample
from kernellab.launch.memory import ReachedMemory, device_of, reached_memory
from kernellab.launch.recording import Observers
from kernellab.registry import argument_of


class OperationRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the operations of one thread between ``__enter__`` and ``__exit__``.

    ``scope`` gives the user's variables, ``keep`` makes the record of a launch.
    """

    supports_higher_order_operators = True

    def __init__(
        self,
        observers: Observers,
        scope: Callable[[], Mapping[str, Any]],
        keep: Callable[[BoundLaunch], RecordedKernelLaunch],
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.observers = observers
        self.keep = keep
        self.scope = scope
        self.recording = Recording()
        self.is_inside_operation = False
        self._thread = threading.get_ident()
        self._written_inside: set[int] = set()  # storages
        self._being_launched: set[int] = set()  # storages, which the current launch may have written already
        self._before: dict[int, dict[str, ValueSample]] = {}  # what tensors held, by their ids
        self._suspensions = 0
        self._deferred_reads: list[Any] | None = None
        self._streams: dict[Any, Any] = {}
        self._check_stream()
        self._by_id: dict[int, int] = {}
        self.memory = TrackedMemory(self.recording, observers.own_launches, self._name_of)

    def is_recorded_thread(self) -> bool:
        """Whether this thread is recorded; torch takes the user's modes along to the threads of autograd."""
        return any(mode is self for mode in _get_current_dispatch_mode_stack())

    @property
    def is_own_work(self) -> bool:
        """Whether this thread does the lab's own work, or is inside an operation."""
        return bool(self.observers.own_depth or self.is_inside_operation or self._suspensions)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator):
            with self:
                return run_higher_order(func, args, kwargs)
        if self.observers.own_depth:
            result = func(*args, **kwargs)
            self.memory.accept_writes(self._known_values(written_arguments(func, args, kwargs)))
            return result
        if func is torch.ops.aten.lift_fresh.default:
            with self.suspend():
                self._add_constant(args[0])
            return func(*args, **kwargs)
        with self.suspend():
            if not is_of_torch(str(func)):  # torch counts the writes of a Python operator before it is recorded
                self.memory.expect_write(self._known_values(written_arguments(func, args, kwargs)))
            arguments = self._with_refs((args, kwargs))
            versions = versions_of((args, kwargs))
        self._written_inside.clear()
        before, self.is_inside_operation = self.is_inside_operation, True
        try:
            result = func(*args, **kwargs)
        finally:
            self.is_inside_operation = before
        with self.suspend():
            self._record_operation(func, arguments, (args, kwargs), result, versions)
        return result

    def _known_values(self, arguments: Iterable[Any]) -> list[int]:
        ids = [id(tensor) for tensor in tensors_in(list(arguments))]
        return [self._by_id[number] for number in ids if number in self._by_id]

    def record_launch(self, launched: BoundLaunch) -> None:
        """Record a launch; a launch inside an operation is part of that operation."""
        name, effects = launched.compiled.kernel, launched.compiled.effects
        memory = memory_of(launched.arguments)
        with self.suspend():
            indirect = reached_memory(launched.arguments, effects, device_of(launched.arguments))
            memory |= indirect.owners
            changed = effects.mutated | indirect.mutated if effects.is_followed else set(memory)
            written = {t.untyped_storage()._cdata for n, t in memory.items() if n in changed}
            if self.is_inside_operation:
                self._written_inside |= written
                return
            if not effects.is_followed:
                self.note(f"the effects of {name} are not fully known: all its tensors count as changed")
            if effects.lost or indirect.tables & indirect.tensors.keys():
                self.note(f"{name} uses addresses of memory that the program does not allocate: they stay as recorded")
            constants = {parameter.name for parameter in launched.kernel.params if parameter.is_constexpr}
            self._being_launched = written
            self._before = {id(memory[n]): {"": sample} for n, sample in launched.before.items()}
            others = [(n, v) for n, v in launched.arguments.items() if n not in constants]
            arguments = tuple((n, self._launch_argument(n, v, indirect)) for n, v in others)
            mutated = tuple(dict.fromkeys(self.value_of(t) for n, t in memory.items() if n in changed))
            self._being_launched, self._before = set(), {}
            self.recording.launches[len(self.recording.steps)] = record = self.keep(launched)
            if record.why_fixed:
                self.note(f"{name} keeps the config that it ran with: {record.why_fixed}")
            self._append(Step("launch", (), arguments, mutated=mutated))
            self.memory.accept_writes(mutated)

    def is_other_thread(self) -> bool:
        """Whether this is a thread that is not recorded."""
        return threading.get_ident() != self._thread and not (self.is_inside_operation or self.is_recorded_thread())

    def check_other_thread(self, launched: BoundLaunch) -> None:
        """Record a problem if a launch of another thread changes memory of this recording."""
        effects = launched.compiled.effects
        memory = memory_of(launched.arguments) if self.is_other_thread() else {}
        changed = [t for n, t in memory.items() if n in effects.mutated or not effects.is_followed]
        if any(self.memory.storage_of(tensor) is not None for tensor in changed):
            problem = f"{place_of_user()} launches {launched.compiled.kernel} in another thread, on memory of the block"
            self.recording.problems[problem] = None

    def _check_stream(self) -> None:
        """Note a step on another stream than the first one that the block used on the device."""
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            stream = torch.cuda.current_stream()
            if self._streams.setdefault(stream.device, stream) != stream:
                self.note(f"{place_of_user()} works on another stream; the program works on the current one, in order")

    def record_read(self, result: Any, given: Any) -> None:
        """Record that Python read values of a tensor: the following steps hold if a run reads the same."""
        with self.suspend():
            refs = tuple(Ref(self.value_of(tensor)) for tensor in tensors_in(given))
            self._append(Step(READ, (*refs, result)))
        if self._deferred_reads is not None:
            self._deferred_reads.append(result)
        else:
            self.note_read(result, [ref.index for ref in refs])

    def note_read(self, result: Any, values: list[int]) -> None:
        """Note that a program is valid for what was read of some values.

        Raises:
            UsageError: it is a number drawn at random.
        """
        if not isinstance(result, bool) and (source := random_source(self.recording, values)):
            raise UsageError(random_number_problem(place_of_user(), short_repr(result), source))
        what = "values" if isinstance(result, list) else "a value"
        read = f"{place_of_user()} reads {what} of a tensor, {short_repr(result)}"
        self.note(f"{read}; a run that reads something else is refused")

    @contextmanager
    def defer_read(self) -> Iterator[list[Any]]:
        """Record a read inside a with statement without a note on it; yield a list, which gets what was read."""
        self._deferred_reads = reads = list[Any]()
        try:
            yield reads
        finally:
            self._deferred_reads = None

    def note_new_memory(self, tensor: Any) -> None:
        """Note that a tensor got other memory, as by ``x.data = y``."""
        with self.suspend():
            index = self.value_of(tensor)
        name = self._name_of(tensor) or self.recording.values[index].name or "a tensor"
        self.note(
            f"{place_of_user()} replaces the memory of {name}, and the program does not: it returns the new memory as "
            "an output, and leaves the old memory as it is"
        )

    def record_exposure(self, tensor: Any, how: str, *, is_read: bool) -> None:
        """Watch memory that something else than torch can read and change from now on.

        With ``is_read``, the following steps hold if a run hands out the same contents.
        """
        with self.suspend():
            index = self.value_of(tensor)
            if is_read:
                self._append(Step(READ, (Ref(index), contents_of(tensor))))
            self.memory.expose(self.recording.values[index].storage, tensor, how)
        refused = ", and a run that hands out something else is refused" if is_read else ""
        self.note(f"{how}; what is read there is fixed in the program{refused}")

    @contextmanager
    def suspend(self) -> Iterator[None]:
        """Suspend recording inside a with statement, for the recorder's own calls of torch."""
        self._suspensions += 1
        try:
            yield
        finally:
            self._suspensions -= 1

    def _launch_argument(self, name: str, value: Any, indirect: ReachedMemory) -> Any:
        """Return an argument of a launch with values in place of tensors and of their addresses."""
        if isinstance(value, tuple):
            members = [self._launch_argument(f"{name}[{i}]", member, indirect) for i, member in enumerate(value)]
            return type(value)(*members) if hasattr(value, "_fields") else tuple(members)
        entries = indirect.addresses_in(name, value)
        if not entries:
            return self._with_refs(value)
        addressed = tuple((position, Ref(self.value_of(owner)), offset) for position, owner, offset in entries)
        return Addresses(None if isinstance(value, int) else Ref(self.value_of(value)), addressed)

    def value_of(self, tensor: Any) -> int:
        """Return the index of a tensor's value; a tensor that is new becomes an input."""
        index = self._by_id.get(id(tensor))
        layout = layout_of(tensor)
        known = None if index is None else self.recording.values[index]
        if known is not None and known.tensor() is tensor and self.memory.storage_of(tensor) != known.storage:
            known.tensor = lambda: None  # it was given other memory
            known = None
        if index is None or known is None or known.tensor() is not tensor or known.layout != layout:
            index = self._new_value(tensor, layout)
        if tensor.untyped_storage()._cdata not in self._being_launched:
            self.memory.check_unchanged(self.recording.values[index], tensor)
        return index

    def check_memory(self, *, at_end: bool = False) -> None:
        """Check for memory that was changed since the last step; see `TrackedMemory`."""
        with self.suspend():
            self.memory.check_memory(at_end=at_end)

    def _name_of(self, tensor: Any) -> str:
        """Return the user's name of a tensor, in the block or in the running function."""
        frame = user_frame()
        own = {} if frame is None else locals_of(frame)
        return name_in(self.scope(), tensor) or next((name for name, value in own.items() if value is tensor), "")

    def note(self, text: str) -> None:
        """Add a note for the user, once."""
        self.recording.notes[text] = None

    def _new_value(self, tensor: Any, layout: TensorLayout) -> int:
        """Return the value of a tensor object that is new: in known memory, or an input."""
        storage, is_new = self.memory.number(tensor)
        same = [] if is_new else self.memory.of_storage[storage]
        for index in reversed(same):
            known = self.recording.values[index]
            if known.layout == layout:
                self._by_id[id(tensor)] = index
                known.tensor, known.version = weakref.ref(tensor), version_of(tensor)
                return index
        base = next((i for i in same if self.recording.values[i].layout.covers(layout)), None)
        if base is not None:
            return self._add_view(base, tensor, layout)
        index = self._add(tensor, layout, storage, is_result=False)
        self.recording.values[index].name = name_in(self.scope(), tensor)
        with self.observers.own_launches():
            self.recording.samples[index] = argument_of("", tensor, self._before.get(id(tensor), {}))
        self.memory.watch(storage, tensor)
        return index

    def _add_view(self, base: int, tensor: Any, layout: TensorLayout) -> int:
        known = self.recording.values[base]
        index = self._add(tensor, layout, known.storage)
        self._append(window_step(base, known.layout, index, layout))
        return index

    def _add_constant(self, tensor: Any) -> None:
        """Keep a copy of a tensor that the block made from Python data."""
        layout = layout_of(tensor)
        storage, is_new = self.memory.number(tensor)
        if is_new:
            index = self._add(tensor, layout, storage)
            with self.observers.own_launches():
                self.recording.constants[index] = tensor.detach().clone()
            self.memory.watch(storage, tensor)

    def _with_refs(self, value: Any) -> Any:
        """Return nested arguments with values in place of tensors."""

        def with_ref(part: Any) -> Any:
            if isinstance(part, torch.Tensor):
                return Ref(self.value_of(part))
            if isinstance(part, torch.Generator):
                self.note(f"{place_of_user()} draws from a generator, and the program from that of its device")
                return None
            if is_descriptor(part):
                layout = (tuple(part.shape), tuple(part.strides), tuple(part.block_shape))
                return TapeDescriptor(Ref(self.value_of(part.base)), *layout, getattr(part, "padding", "zero"))
            return part

        return map_nested(value, with_ref)

    def _record_operation(
        self, func: Any, arguments: Any, originals: Any, result: Any, versions: Mapping[int, int]
    ) -> None:
        """Record an operation that ended without an error."""
        args, kwargs = arguments
        if torch.Tag.data_dependent_output in func.tags and not isinstance(result, torch.Tensor):
            if place_of_user() and not is_printing():
                self.record_read(result, originals)
            return
        tensors = {id(t): t for t in tensors_in(originals)}
        inside = [self._by_id[k] for k, t in tensors.items() if t.untyped_storage()._cdata in self._written_inside]
        by_schema = [ref.index for argument in written_arguments(func, args, kwargs) for ref in refs_in(argument)]
        grown = [self._by_id[k] for k, t in tensors.items() if k in versions and t._version != versions[k]]
        written = [*by_schema, *grown, *inside]
        mutated = tuple(dict.fromkeys(written))
        self.memory.accept_writes(written)
        if torch.Tag.inplace_view in func.tags:
            self._record_new_layout(tensors, mutated)
            return
        several = isinstance(result, list | tuple)
        outputs = list(result) if several else [result]
        results = tuple(self._result(t, tensors) if isinstance(t, torch.Tensor) else -1 for t in outputs)
        options = with_dtype(func, kwargs, outputs)
        is_seeded = torch.Tag.nondeterministic_seeded in func.tags
        is_random = is_seeded and argument_for(func, args, kwargs, "dropout_p") != 0
        step = Step(str(func), tuple(args), tuple(options.items()), results, several, mutated, is_random=is_random)
        dtypes = [self.recording.values[index].layout.dtype for index in step.operands[1:]]
        self._append(dataclasses.replace(step, has_dynamic_shape=has_dynamic_shape(func, dtypes)))

    def _append(self, step: Step) -> None:
        """Add a step with its place, and note the user's names of its tensors."""
        frame = user_frame()
        self._check_stream()
        self.recording.steps.append(dataclasses.replace(step, place=place_of(frame)))
        unnamed = [known for index in step.operands if not (known := self.recording.values[index]).name]
        if frame is None or not unnamed:
            return
        scope = [(name, value) for name, value in locals_of(frame).items() if isinstance(value, torch.Tensor)]
        for known in unnamed:
            tensor = known.tensor()
            known.name = next((name for name, value in scope if value is tensor and name.strip("_")), "")

    def _result(self, tensor: Any, given: Mapping[int, Any]) -> int:
        """Return the value of a result; -1 for an argument that is returned as it was."""
        layout = layout_of(tensor)
        if id(tensor) in given and self.recording.values[self._by_id[id(tensor)]].layout == layout:
            return -1
        storage, is_new = self.memory.number(tensor)
        index = self._add(tensor, layout, storage)
        if is_new:
            self.recording.values[index].version = version_of(tensor)
        return index

    def _record_new_layout(self, tensors: Mapping[int, Any], mutated: tuple[int, ...]) -> None:
        """Record that an operation changed the layout of a tensor and left its memory as it was."""
        for tensor in tensors.values():
            index = self._by_id[id(tensor)]
            known, layout = self.recording.values[index], layout_of(tensor)
            has_moved = self.memory.number(tensor)[0] != known.storage
            if index in mutated and (has_moved or layout != known.layout):
                same = [] if has_moved else self.memory.of_storage[known.storage]
                base = next((i for i in same if self.recording.values[i].layout.covers(layout)), None)
                if base is None:
                    raise UsageError(
                        f"{place_of_user()} resizes a tensor or replaces its memory in place, which a program cannot "
                        "record; make a new tensor instead."
                    )
                self._add_view(base, tensor, layout)

    def _add(self, tensor: Any, layout: TensorLayout, storage: int, *, is_result: bool = True) -> int:
        index = len(self.recording.values)
        self.recording.values.append(TrackedTensor(layout, storage, weakref.ref(tensor), is_result))
        self._by_id[id(tensor)] = index
        self.memory.of_storage[storage].append(index)
        return index


keep_from_compiling(OperationRecorder.__torch_dispatch__)  # torch may compile around higher-order operators
