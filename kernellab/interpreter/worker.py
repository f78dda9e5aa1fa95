"""What an interpreter worker is asked to do. Importing this module makes Triton's interpreter the checked one."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import triton.language as tl

from kernellab._triton.loading import Loaded, _register_sources, load
from kernellab.interpreter.device import Device
from kernellab.interpreter.execute import Progress, execute
from kernellab.interpreter.language import checked_builder, prepare
from kernellab.launch.arguments import InterpretJob, Outcome
from kernellab.source import Closure

_KERNELS_KEPT = 64

checked_builder()


def interpret(job: InterpretJob, progress: Any) -> Outcome:
    """Run a launch. ``progress`` is called with (programs done, programs of the launch)."""
    loaded = _loaded(_Source(job.closure.compile_digest, job.closure))
    _register_sources(job.closure)  # another version of a cell may have taken its file name in between
    constants = {name: _plain(value) for name, value in loaded.arguments(job.constants).items()}
    report: Progress | None = None if progress is None else lambda done, total: progress((done, total))
    device = Device(job.warps, job.multiprocessors)
    return execute(loaded.kernel, job.launch, report, constants=constants, device=device)


@dataclass(frozen=True, slots=True)
class _Source:
    """A closure as a key: by its digest, since the constants in it need not be hashable."""

    digest: str
    closure: Closure = field(compare=False)


@lru_cache(_KERNELS_KEPT)
def _loaded(source: _Source) -> Loaded:
    loaded = load(source.closure, unwraps=True)
    for function in loaded.functions.values():
        if hasattr(function, "rewrite"):
            prepare(function)  # now, while the source that it reads is the right one
    return loaded


def _plain(value: object) -> object:
    return value.value if isinstance(value, tl.constexpr) else value
