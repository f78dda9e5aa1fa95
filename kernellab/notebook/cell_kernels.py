"""The kernels of a running cell: those that it defines, anywhere, and those that it only launches."""

from __future__ import annotations

import re
import symtable
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import ref

from kernellab._triton.closure import closure_of
from kernellab._triton.kernel import Kernel, fix_signature, is_jit_function, is_kernel, jit_function
from kernellab.lab import Lab
from kernellab.launch.recording import Recorder
from kernellab.source import returned_value

Namespace = dict[str, Any]
_CELL = re.compile(r"In\[\d+\]'*")


@dataclass(slots=True)
class CellKernels:
    """The kernels of one cell; ``file`` is the name of the cell, under which Python knows the code of its functions.

    ``bound`` are those that the lab launches, kernels of other modules as twins, in the order in which they were bound.
    """

    lab: Lab
    namespace: Namespace
    file: str
    bound: list[Any] = field(default_factory=list)
    _defined_refs: list[ref[Any]] = field(default_factory=list)

    @contextmanager
    def launching_through_lab(self, recorder: Recorder) -> Iterator[None]:
        """Route launches of kernels that are not bound through the lab, while ``recorder`` records.

        One that the cell defines is bound as it is. Of one of another module, which stays as it is, the lab's twin is
        launched.
        """
        from kernellab._triton.plain_kernels import LaunchWatcher, watch_plain_kernels, with_hooks_of

        def bind(kernel: Kernel) -> Any:
            if self.lab.launches.recorder is not recorder:
                return None
            if self._is_defined_here(kernel):
                return self._bind_in_place(kernel)
            twin = self.lab.bind(kernel)
            if not any(known is twin for known in self.bound):
                self.bound.append(twin)
            return with_hooks_of(kernel, twin)

        def note(kernel: Kernel) -> None:
            if self.lab.launches.recorder is recorder and self._is_defined_here(kernel):
                if is_jit_function(kernel):
                    fix_signature(kernel)
                self._defined_refs.append(ref(kernel))

        with watch_plain_kernels(LaunchWatcher(bind, note)):
            yield

    def bind_new(self) -> None:
        """Bind the kernels that the cell has defined up to now."""
        from kernellab._triton.bound import is_bound

        for kernel in self._defined_kernels():
            if not is_bound(kernel):
                self._bind_in_place(kernel)

    def store_kernels(self, recorder: Recorder) -> None:
        """Store the kernels of the cell in each launched version, else as they are now.

        One of another module is entered where the cell compiled it.
        """
        owners = {id(record.owner) for record in recorder.records.values()}
        for kernel in self.bound:
            if self._is_defined_here(kernel) or id(kernel) in owners:
                self.store_kernel(kernel, recorder)

    def store_kernel(self, kernel: Kernel, recorder: Recorder, name: str | None = None) -> None:
        """Store a kernel under ``name``, or its own."""
        launched = [record.closure for record in recorder.records.values() if record.owner is kernel]
        for closure in launched or [None]:
            self.lab.kernels.add(kernel, name, closure)

    def launchable(self) -> list[tuple[str, Any]]:
        """Return name and kernel of all that the cell defines, without those that only others of it call.

        Of a redefined one, that is the last. A function may define several under one name, which all are there.
        """
        by_name: dict[Any, tuple[str, Any]] = {}
        for kernel in self._defined_kernels():
            name, _, own = jit_function(kernel).fn.__qualname__.rpartition("<locals>.")
            alias = next((n for n, value in self.namespace.items() if value is kernel), own)
            label = own if self.namespace.get(own) is kernel else alias
            by_name[id(kernel) if name else label] = label, kernel
        kernels = by_name.values()
        used = {function.name for _, kernel in kernels for function in closure_of(kernel)[0].functions[1:]}
        return [(name, kernel) for name, kernel in kernels if jit_function(kernel).__name__ not in used]

    def not_launched(self, recorder: Recorder) -> list[tuple[str, Any]]:
        """Return name and kernel of all that the cell defines, but neither launches, compiles nor calls in a launch.

        A function that returns a value is a helper: only kernels can call it.
        """
        launched = [record.kernel for record in recorder.records.values()]
        seen = {id(kernel.fn.__code__) for kernel in launched}
        called = {function.name for kernel in launched for function in closure_of(kernel)[0].functions[1:]}
        return [
            (name, kernel)
            for name, kernel in self.launchable()
            if id(jit_function(kernel).fn.__code__) not in seen and jit_function(kernel).__name__ not in called
            if returned_value(closure_of(kernel)[0].functions[0].text) is None
        ]

    def store_imported(self, source: str) -> list[Any]:
        """Bind and store the kernels of other modules that the cell imports or assigns; return their twins."""
        table = symtable.symtable(source, self.file, "exec")
        names = [s.get_name() for s in table.get_symbols() if s.is_imported() or s.is_assigned()]
        kernels = [self.namespace[name] for name in names if is_kernel(self.namespace.get(name))]
        twins = [self.lab.bind(kernel) for kernel in kernels if not any(kernel is known for known in self.bound)]
        for twin in twins:
            self.lab.kernels.add(twin)
        return twins

    def _is_defined_here(self, kernel: Kernel) -> bool:
        """Whether this cell defines a kernel, or runs a function of an earlier cell that does."""
        file = jit_function(kernel).fn.__code__.co_filename
        return bool(file == self.file or _CELL.fullmatch(file))

    def _bind_in_place(self, kernel: Any) -> Any:
        from kernellab._triton.bound import bind_in_place

        bind_in_place(kernel, self.lab.launches)
        self.bound.append(kernel)
        return kernel

    def _defined_kernels(self) -> list[Any]:
        """Return the kernels that the cell has defined and that still exist, with their decorators."""
        from kernellab._triton.plain_kernels import outermost

        return outermost([kernel for ref in self._defined_refs if (kernel := ref()) is not None])


def follow_new_threads() -> Callable[[], bool]:
    """Return a test: whether the calling thread is newer than this call, or runs a backward pass for another.

    torch makes that of a GPU in threads of its own, which stay.
    """
    import torch

    before = frozenset(threading.enumerate())

    def follows() -> bool:
        thread = threading.current_thread()
        if isinstance(thread, threading._DummyThread):  # one that was not started by Python
            return bool(torch._C._current_graph_task_id() != -1)
        return thread not in before

    return follows
