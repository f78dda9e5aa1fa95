"""The block in which a program is recorded."""

from __future__ import annotations

import sys
import threading
from collections import ChainMap
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Any

from kernellab.capture.entering import seen
from kernellab.capture.naming import locals_of
from kernellab.capture.program import Program
from kernellab.errors import KernellabError, UsageError
from kernellab.launch.runtime import Launches
from kernellab.registry.table import Registry

Scope = Callable[[], Mapping[str, Any]]


class Capture:
    """A with statement that records the launches and torch operations of its thread as a program.

    ``scope`` gives the variables in which names for tensors are looked up; by default those of the caller.
    """

    def __init__(self, launches: Launches, kernels: Registry, scope: Scope | None = None) -> None:
        self.launches = launches
        self.kernels = kernels
        self.scope = scope
        self._program: Program | None = None
        self._open = ExitStack()

    def __enter__(self) -> Program:
        if self._program is not None:
            raise UsageError("This capture was used already; each with statement takes a lab.capture() of its own.")
        from kernellab.capture.recorder import Recorder  # needs torch
        from kernellab.capture.unseen import Calls

        if self.scope is None:
            frame = sys._getframe(1)
            self.scope = lambda: ChainMap(locals_of(frame), frame.f_globals)
        recorder = Recorder(self.launches.observers, self.scope, partial(seen, self.kernels))
        self._program = Program(self.kernels, recorder)
        self._unbound: dict[str, None] = {}
        self._open.enter_context(self.launches.switch.on())
        self._recorder: Recorder | None = recorder
        self._open.enter_context(self.launches.observers.added(recorder.launched, recorder.is_here))
        self._open.enter_context(_each_launch(self.launches, recorder, self._unbound))
        self._open.enter_context(recorder)
        self._open.enter_context(Calls(recorder))
        return self._program

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._program is not None
        assert self.scope is not None
        assert self._recorder is not None
        if kind is None:
            self._recorder.look_around(at_end=True)
        problems = tuple(self._recorder.recording.problems)
        self._open.close()
        if kind is not None:
            self._program.abandon(f"{kind.__name__} ended its block: {getattr(exc, 'message', exc)}")
        elif self._unbound:
            names = ", ".join(self._unbound)
            message = (
                f"{names} was launched in the block and is not bound to this lab, so the program lacks it; define it "
                "in a %%triton cell, or launch what lab.bind(kernel) returns."
            )
            self._program.abandon(message)
            raise UsageError(message)
        elif problems:
            message = (
                f"The capture did not see all that changed the memory of the block: {'; '.join(problems)}. Write to "
                "tensors by operations of torch and by kernels, in this thread."
            )
            self._program.abandon(message)
            raise UsageError(message)
        else:
            self._complete(self._program)
        self._recorder = None
        self.scope = None  # a frame keeps all of its variables alive

    def _complete(self, program: Program) -> None:
        assert self.scope is not None
        try:
            with self.launches.observers.withheld():
                program.complete(dict(self.scope()))
        except KernellabError as exc:
            program.abandon(exc.message)
            raise


def _each_launch(launches: Launches, recorder: Any, found: dict[str, None]) -> Any:
    """Return a with statement that notes launches of this thread which no runtime of a lab tells of.

    Before each, memory is looked at that something else than torch can change.
    """
    from kernellab._triton.launch_hook import each_launch

    thread = threading.get_ident()

    def note(name: str) -> None:
        is_own = launches.observers.is_withheld or recorder.is_inside_operation
        is_here = threading.get_ident() == thread or recorder.is_here()
        if is_here and not recorder.is_inside_operation:
            recorder.look_around()
        if is_here and not is_own:
            found[name] = None

    return each_launch(note)
