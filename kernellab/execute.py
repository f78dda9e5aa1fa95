"""Inside the interpreter worker: one launch, from source text and packed arguments to its outcome."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from kernellab._triton.interpreter.execute import execute
from kernellab._triton.loading import Loaded, load
from kernellab.interpret import InterpretJob
from kernellab.packed import Outcome
from kernellab.source import Closure


def execute_launch(job: InterpretJob, progress: Callable[[Any], None]) -> Outcome:
    """Run a launch; ``progress`` gets the number of programs done and of all."""
    loaded = _loaded(job.closure)
    constants = {name: loaded.value(binding) for name, binding in job.constants}
    return execute(loaded.kernel, job.launch, lambda done, total: progress((done, total)), constants=constants)


@lru_cache(maxsize=128)
def _loaded(closure: Closure) -> Loaded:
    return load(closure)
