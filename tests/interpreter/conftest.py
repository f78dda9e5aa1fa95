"""One interpreter worker for all tests of a session, on which each launch runs both ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kernellab.interpreter.runner import Interpreter
from kernellab.launch.run import Run
from tests.interpreter.both_ways import BothWays
from tests.labs import shared_interpreter

Launch = Callable[..., Run]


@pytest.fixture(scope="session")
def interpreter() -> Interpreter:
    shared = shared_interpreter()
    return BothWays(shared.worker, shared.timeout_s)


@pytest.fixture(scope="session")
def launch(interpreter: Interpreter) -> Launch:
    """Return a function that runs a kernel: ``launch(kernel, grid, *args, uninitialised=(), **named)``."""

    def run(kernel: Any, grid: tuple[int, ...], *args: Any, uninitialised: tuple[str, ...] = (), **named: Any) -> Run:
        given = {**dict(zip(kernel.arg_names, args, strict=False)), **named}
        defaults = {p.name: p.default for p in kernel.params if p.has_default}
        arguments = {name: given[name] if name in given else defaults[name] for name in kernel.arg_names}
        extents = (*grid, 1, 1)[:3]
        return interpreter.run(kernel, arguments, extents, uninitialised=frozenset(uninitialised))

    return run
