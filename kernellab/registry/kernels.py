"""The side table: every kernel of the lab under an id, a name and a version, with the history of its launches.

Ids go to kernels and kernels to ids in constant time, as in the side tables that graph compilers keep with a graph
that can hold plain numbers only. What the table holds is also in the store, so a name outlives the session. Of a launch
it keeps enough to launch the kernel again on arguments of the same kind.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from kernellab._triton.closure import decorated_closure_of
from kernellab._triton.kernel import Kernel, decorators_of, jit_function
from kernellab._triton.loading import load
from kernellab.compile.cache import Compiler
from kernellab.errors import (
    CannotRun,
    CompileError,
    KernellabError,
    RunError,
    SourceError,
    UnknownName,
    UsageError,
    WorkerError,
    plural,
    value_message,
    value_text,
)
from kernellab.launch.calls import require_kernel
from kernellab.launch.recording import LaunchRecord
from kernellab.launch.runtime import Runtime
from kernellab.launch.verbs import verbs
from kernellab.registry.launches_to_store import recorded_launch_of, result_of
from kernellab.registry.versions import NAMED_AT_MOST, kept_version, version_digest
from kernellab.source import Closure, is_name
from kernellab.store import LaunchedBy, Outline, Store, Version
from kernellab.target import Target
from kernellab.workers.forks_and_interrupts import rlock

_KERNEL_ERRORS = (CompileError, CannotRun, RunError, WorkerError)  # wrong arguments, say, are errors of the call


def revive_kernel(version: Version) -> Any:
    """The kernel of a stored version with its decorators; its files are named after the version."""
    entered = enumerate(version.closure.functions)
    functions = (replace(f, file=f"<{version.label}: {f.name}{i or ''}>") for i, f in entered)
    return load(replace(version.closure, functions=tuple(functions))).decorated


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entered kernel, or one of its layers (``layer``), with its version and the epoch of the database."""

    layer: weakref.ref[Any]
    owner: weakref.ref[Any]
    version: Version
    epoch: int


@dataclass(slots=True)
@verbs
class Registry:
    """Kernels by id, name and version.

    ``revive`` makes a kernel of a version from the store, ``bind`` one that launches through the lab of any kernel.
    ``notebook`` is kept with versions that cells define. The latest ``most_kernels`` are kept alive; of earlier ones,
    those that the session still has are found, and others are made from the store again.
    """

    store: Store
    revive: Callable[[Version], Any] = revive_kernel
    bind: Callable[[Any], Any] = lambda kernel: kernel
    notebook: str = ""
    most_kernels: int = 256
    _kernels: MutableMapping[int, Any] = field(default_factory=weakref.WeakValueDictionary)
    _latest: dict[int, Any] = field(default_factory=dict)
    _entries: dict[int, _Entry] = field(default_factory=dict)
    _current: dict[str, Version] = field(default_factory=dict)
    _launched: set[int] = field(default_factory=set)
    _constants: list[Mapping[str, Any]] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=rlock)

    def add(self, kernel: Kernel, name: str | None = None, closure: Closure | None = None) -> Version:
        """Enter a kernel, under ``name`` or its own; it is in the store on return.

        ``closure`` is what it was at a launch, else it is taken as it is now. An unchanged one gives the version it had
        before. The jit function under autotuners and heuristics is found by the same entry.

        Raises:
            SourceError: the source of the kernel cannot be found.
            UsageError: ``kernel`` is none, or the name no identifier.
        """
        require_kernel(kernel)
        closure = closure or decorated_closure_of(kernel)
        name = name or closure.name
        if not is_name(name):
            raise UsageError(f"{name!r} cannot name a kernel; expected an identifier, such as softmax_fp16.")
        version = self._store_version(closure, name)
        self._enter(kernel, version)
        return version

    def note_failure(self, error: BaseException) -> None:
        """Keep an error of a compile or launch with the current version of its kernel, if it is of a kept one."""
        if isinstance(error, _KERNEL_ERRORS) and error.kernel:
            with contextlib.suppress(UnknownName):
                self.store.set_failure(self.version(error.kernel).id, error.message)

    @contextlib.contextmanager
    def noting_failures(self) -> Iterator[None]:
        """Keep the error of a launch inside a with statement, as `note_failure` does."""
        try:
            yield
        except KernellabError as exc:
            self.note_failure(exc)
            raise

    def _store_version(self, closure: Closure, name: str) -> Version:
        is_cell = closure.label(closure.functions[0].file).startswith("In[")
        return self.store.add(closure, version_digest(closure), name, self.notebook if is_cell else "")

    def version_of_launch(self, kernel: Kernel, closure: Closure | None) -> Version | None:
        """The version of a kernel at a launch, or None if the kernel was never entered.

        That is a new one where a helper, or a value that it captures, is not what it was; and it is the kernel's
        version from then on. What is launched by way of its decorators, or without them, is the same kernel.

        Raises:
            SourceError: the source of the kernel cannot be found any more.
        """
        before = self.known_version(kernel)
        if before is not None and self._entries[id(kernel)].epoch != self.store.database.epoch():
            before = self._store_version(before.closure, before.name)
            self._enter(self.owner_of(kernel), before)
        if before is None or closure is None:
            return before
        owner = self.owner_of(kernel)
        closure = closure if owner is kernel else decorated_closure_of(owner)
        if _is_of(closure, before):
            return before
        decorators = closure.decorators or before.closure.decorators  # a kernel that was revived has no text of its own
        closure = replace(closure, decorators=decorators)
        version = self._store_version(closure, before.name)
        self._enter(owner, version, is_current=self._current.get(before.name) in (None, before))
        return version

    def current_version(self, kernel: Kernel) -> Version:
        """The current version of a kernel; a new one is entered.

        Raises:
            SourceError: the source of the kernel cannot be found.
        """
        require_kernel(kernel)
        owner = self.owner_of(kernel)
        return self.version_of_launch(owner, decorated_closure_of(owner)) or self.add(kernel)

    def of_session(self, version: Version) -> Any | None:
        """The launchable kernel of a version that was launched in this session, or None.

        What was not may come from elsewhere: its text is not executed for anything but a launch that the user makes.
        """
        return self[version.id] if version.id in self._launched else None

    def mark_launched(self, version: Version) -> None:
        """Count a version as launched in this session."""
        self._launched.add(version.id)

    def version_of(self, kernel: Kernel) -> Version:
        """The version, with id and name, of a kernel of this session.

        Raises:
            UnknownName: it was never entered.
        """
        if (version := self.known_version(kernel)) is not None:
            return version
        name = _name_of(kernel)
        raise UnknownName(f"{name} is not in the registry; enter it with lab.kernels.add({name}).")

    def is_new(self, kernel: Kernel) -> bool:
        """Whether the store has no version under the name of a kernel."""
        return _name_of(kernel) not in self

    def known_version(self, kernel: Kernel) -> Version | None:
        """The version of a kernel of this session, or None if it was never entered."""
        entry = self._entries.get(id(kernel))
        return entry.version if entry is not None and entry.layer() is kernel else None

    def label_of(self, kernel: Kernel) -> str:
        """``name@version`` of a kernel, or its bare name if it was never entered."""
        version = self.known_version(kernel)
        return _name_of(kernel) if version is None else version.label

    def owner_of(self, kernel: Kernel) -> Any:
        """The entered kernel with its decorators, for itself or for its jit function."""
        owner = None if self.known_version(kernel) is None else self._entries[id(kernel)].owner()
        return kernel if owner is None else owner

    def __getitem__(self, key: str | int) -> Any:
        """The launchable kernel of a name, ``name@version`` or id.

        A bare name is the version that this session defined last, else the newest in the store. With a version, the
        kernel is what it was then, also where a helper of it was defined anew since.
        """
        version = self.version(key)
        with self._lock:
            kernel = self._kernels.get(version.id)
            if kernel is None or (key != version.name and not _is_still(kernel, version)):
                kernel = self.bind(self.revive(version))
                self._enter(kernel, version, is_current=False)
            return self.bind(kernel)

    def version(self, key: str | int) -> Version:
        """The version of a name, ``name@version`` or id, as in `__getitem__`.

        Raises:
            UnknownName: there is none.
        """
        current = self._current.get(key) if isinstance(key, str) else None
        return current or kept_version(self.store, key)

    def remove(self, key: str | int) -> Version:
        """Delete a version with its history from the store; live kernel objects stay usable.

        Raises:
            UnknownName: there is none.
        """
        version = self.version(key)
        with self._lock:
            self.store.remove(version.id)
            self._kernels.pop(version.id, None)
            self._latest.pop(version.id, None)
            if self._current.get(version.name) == version:
                del self._current[version.name]
        return version

    def __contains__(self, key: object) -> bool:
        try:
            return isinstance(key, str | int) and self.version(key) is not None
        except UnknownName:
            return False

    def __repr__(self) -> str:
        """One line; `%triton_ls` is the table."""
        labels = [outline.label for outline in self.outlines()]
        more = f" and {len(labels) - NAMED_AT_MOST} more" if len(labels) > NAMED_AT_MOST else ""
        return f"<Registry of {', '.join(labels[:NAMED_AT_MOST]) or 'no kernel yet'}{more}>"

    def __iter__(self) -> Iterator[Version]:
        return iter(self.store.versions())

    def outlines(self) -> list[Outline]:
        """All versions without their source, by name and number."""
        return self.store.overview.outlines()

    def add_constants(self, constants: Mapping[str, Any]) -> int:
        """Store the constant arguments of a launch for this session; return their id."""
        if not isinstance(constants, Mapping):
            raise UsageError(value_message("constants", constants, "a dict of arguments by name", owner="lab.kernels"))
        with self._lock:
            self._constants.append(dict(constants))
            return len(self._constants) - 1

    def constants(self, number: int) -> Mapping[str, Any]:
        """The constant arguments that `add_constants` stored.

        Raises:
            UnknownName: there is no such id.
        """
        with self._lock:
            if type(number) is not int or not 0 <= number < len(self._constants):
                kept = plural(len(self._constants), "launch")
                raise UnknownName(f"No constant arguments have the id {value_text(number)}; those of {kept} are kept.")
            return self._constants[number]

    def _enter(self, kernel: Kernel, version: Version, *, is_current: bool = True) -> None:
        """Enter a kernel with its layers; with ``is_current`` its name now means this version."""
        epoch = self.store.database.epoch()
        with self._lock:
            self._kernels[version.id] = kernel
            self._latest.pop(version.id, None)
            self._latest[version.id] = kernel
            while len(self._latest) > self.most_kernels:
                del self._latest[next(iter(self._latest))]
            for layer in (*decorators_of(kernel), jit_function(kernel)):
                gone = partial(_delete_entry, self._entries, id(layer))
                self._entries[id(layer)] = _Entry(weakref.ref(layer, gone), weakref.ref(kernel), version, epoch)
            if is_current:
                self._current[version.name] = version


def _delete_entry(entries: dict[int, _Entry], number: int, gone: weakref.ref[Any]) -> None:
    """Delete the entry of a layer that was collected, unless another one has its id by now."""
    if number in entries and entries[number].layer is gone:
        del entries[number]


def _name_of(kernel: Kernel) -> str:
    """The name of a kernel; autotuners and heuristics have none of their own."""
    while not hasattr(kernel, "__name__") and hasattr(kernel, "fn"):
        kernel = kernel.fn
    return str(getattr(kernel, "__name__", type(kernel).__name__))


def _is_still(kernel: Kernel, version: Version) -> bool:
    """Whether a kernel of this session, with its present helpers, is still the entered version."""
    with contextlib.suppress(SourceError):
        return _is_of(decorated_closure_of(kernel), version)
    return False


def _is_of(closure: Closure, version: Version) -> bool:
    """Whether a closure is that of a version; the decorators' text, which a revived kernel lacks, does not count."""
    kept = version.closure
    return version_digest(replace(closure, decorators=kept.decorators)) == version_digest(kept)


def launched_version(kernels: Registry, kernel: Kernel, record: LaunchRecord) -> Version | None:
    """The version of ``kernel`` that a record launched, or None if it was never entered."""
    return kernels.version_of_launch(
        kernel if kernels.known_version(record.owner) is None else record.owner, record.closure
    )


def remember(
    kernels: Registry, kernel: Kernel, record: LaunchRecord, check: str = "", by: LaunchedBy = "launch"
) -> Version | None:
    """Store the launches of a record, if ``kernel`` was entered; committed on return.

    They belong to the version that was launched, which is returned. ``check`` is the reference of the outputs, as an
    expression over the kernel's parameters; ``by`` separates a trial by `Lab.run` from a launch.
    """
    version = launched_version(kernels, kernel, record)
    if version is None:
        return None
    kernels.mark_launched(version)
    seconds = None if record.run is None else record.run.seconds
    launch, result = replace(recorded_launch_of(record, check), by=by), result_of(record.compiled)
    kernels.store.history.add_launch(version.id, launch, seconds=seconds, count=record.launches, result=result)
    return version


def keep(kernels: Registry, record: LaunchRecord) -> None:
    """Store an unrecorded launch of an entered kernel; errors are ignored, so that the launch goes on."""
    with contextlib.suppress(KernellabError, RuntimeError):  # a lab that was closed; a tensor that cannot be read
        if kernels.known_version(record.owner) or kernels.known_version(record.kernel):
            remember(kernels, record.kernel, record)


@dataclass(frozen=True, slots=True)
class Session:
    """The runtime with its workers, the registry with its store, and the target of one call to a lab.

    ``model`` names the device that times are predicted for (`kernellab.explain.devices`); "" is the target's first.
    ``predicts`` says whether sliders show predicted times.
    """

    runtime: Runtime
    kernels: Registry
    target: Target
    model: str = ""
    predicts: bool = True

    @property
    def compiler(self) -> Compiler:
        """The compiler, over its pool of workers."""
        return self.runtime.compiler

    def bind(self, kernel: Kernel) -> Any:
        """Return the drop-in kernel that launches through the lab."""
        return self.kernels.bind(kernel)
