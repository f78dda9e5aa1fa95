"""Triton's floating-point sanitizer: compiles that replace floats by elements of a ring of integers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import triton
from triton import knobs

from kernellab._triton.specialize import RUN_KNOBS
from kernellab.target import Target

_MODE, _CASTS = "fpsan", "fpsan_homomorphic_casts"


def sanitizer_problem(target: Target) -> str:
    """The reason why kernels for a target cannot be compiled with the sanitizer; "" where they can."""
    if _CASTS not in RUN_KNOBS:
        return f"Triton {triton.__version__} has no floating-point sanitizer as of 3.9"
    return "" if target.backend == "cuda" else f"the sanitizer of floats is used on NVIDIA GPUs, not on {target}"


@contextmanager
def sanitized_floats() -> Iterator[None]:
    """Compile what is launched inside a with statement with the sanitizer, in all threads of the process.

    Casts are homomorphic: a sum of casts is the cast of the sum.
    """
    with knobs.compilation.scope():
        knobs.compilation.instrumentation_mode = _MODE
        if _CASTS in RUN_KNOBS:
            setattr(knobs.compilation, _CASTS, True)
        yield
