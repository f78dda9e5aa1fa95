"""Checks that launches go through where somebody asks for them: for NaN that they make, for accesses out of bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kernellab.errors import CheckFailed
from kernellab.ir.effects import Effects
from kernellab.launch.memory import memory_of
from kernellab.launch.poison import poison


@dataclass(frozen=True, slots=True)
class LaunchChecks:
    """Which checks the launches of a thread go through; ``kernels`` are the names of those concerned, empty for all.

    ``bounds`` tries each launch in the GPU worker, on copies between redzones, and not the first of its kind alone:
    writes out of bounds are found there. On the CPU every access is checked anyway.
    """

    nan: bool = False
    bounds: bool = False
    kernels: frozenset[str] = frozenset()
    launched: set[str] = field(default_factory=set, compare=False)

    def of(self, kernel: str) -> LaunchChecks:
        """Return the checks of a kernel, whose launch is noted in ``launched``."""
        self.launched.add(kernel)
        return self if not self.kernels or kernel in self.kernels else LaunchChecks()

    def in_vain(self) -> str:
        """Return which of the named kernels were not launched, in a sentence; "" where all were."""
        missing = ", ".join(sorted(self.kernels - self.launched))
        others = f"; it launched {', '.join(sorted(self.launched))}" if self.launched else ""
        return f"checking: this thread launched no {missing} through the lab{others}." if missing else ""


NO_CHECKS = LaunchChecks()


@contextmanager
def no_new_nan(kernel: str, arguments: Mapping[str, Any], effects: Effects) -> Iterator[None]:
    """Raise `CheckFailed` if the launch inside a with statement writes NaN, and nothing that it reads holds one.

    What it leaves as it was does not count, whatever that holds. Outputs hold what the launch has left all the same.
    """
    tensors = {n: t for n, t in memory_of(arguments).items() if t.is_floating_point() or t.is_complex()}
    is_known = not effects.unknown
    read = [t for n, t in tensors.items() if not is_known or n in effects.reads | effects.atomics]
    if any(bool(_is_nan(tensor).any()) for tensor in read):
        yield
        return
    written = {n: t for n, t in tensors.items() if not is_known or n in effects.mutated}
    before = {name: _is_nan(tensor) for name, tensor in written.items()}
    poisoned = poison(arguments, effects)
    try:
        yield
    finally:
        poisoned.lift()
    for name, tensor in written.items():
        kept = poisoned.unwritten.get(name, before[name])
        made = _is_nan(tensor) & ~kept
        if bool(made.any()):
            first = [int(index) for index in made.nonzero()[0]]
            raise CheckFailed(
                f"{kernel} made {int(made.sum()):,} of {made.numel():,} elements of {name} NaN, the first at {first}; "
                "nothing that it reads holds NaN.",
                kernel=kernel,
            )


def _is_nan(tensor: Any) -> Any:
    return (tensor.float() if tensor.element_size() == 1 else tensor).isnan()
