"""Marks of launches in the timeline of a profiler: that of torch, or one that shows NVTX.

A launch has a mark under the name of its kernel. Launches of programs are marked always, and cost a microsecond for it;
those that take the fast path are marked inside `mark_all_launches` alone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from kernellab._triton.drivers import hook_launches

_THREAD = threading.local()


@contextmanager
def mark_launch(name: str) -> Iterator[None]:
    """Mark a with statement in profiler timelines as the launch of a kernel.

    torch's own recorder in C++ is taken where there is one: unlike ``record_function`` it is not an operation of torch,
    so that no tracer takes it into a graph.
    """
    is_outer = not getattr(_THREAD, "is_marked", False)
    _THREAD.is_marked = True
    try:
        with _mark(name) if is_outer else ExitStack():
            yield
    finally:
        _THREAD.is_marked = not is_outer


@contextmanager
def mark_all_launches() -> Iterator[None]:
    """Mark each launch, of any kernel and thread, in profiler timelines; launches leave the fastest path for it."""

    def enter(name: str) -> None:
        leave()  # a launch that failed never ended
        if not getattr(_THREAD, "is_marked", False):
            _THREAD.open = ExitStack()
            _THREAD.open.enter_context(_mark(name))

    def leave() -> None:
        held = getattr(_THREAD, "open", None)
        _THREAD.open = None
        if held is not None:
            held.close()

    with hook_launches(enter, leave):
        try:
            yield
        finally:
            leave()


@contextmanager
def _mark(name: str) -> Iterator[None]:
    import torch

    profiler: Any = torch._C._profiler
    cuda: Any = torch.cuda
    recorder = getattr(profiler, "_RecordFunctionFast", torch.profiler.record_function)
    with recorder(name):
        if not cuda.is_initialized():
            yield
            return
        cuda.nvtx.range_push(name)
        try:
            yield
        finally:
            cuda.nvtx.range_pop()
