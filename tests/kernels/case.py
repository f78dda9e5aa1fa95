"""A launch of a kernel together with everything that it must do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from triton.runtime.jit import JITFunction

HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class Case:
    """One launch.

    ``arguments`` are the run-time arguments by name, in the order of the signature; ``meta`` the constexprs and
    compile options. ``expected`` is what the named tensors hold afterwards, as torch computes it. ``reads``,
    ``writes`` and ``atomics`` are the exact memory effects on the arguments.
    """

    name: str
    kernel: JITFunction
    grid: tuple[int, ...]
    arguments: Mapping[str, object]
    meta: Mapping[str, int]
    expected: Mapping[str, torch.Tensor]
    reads: frozenset[str]
    writes: frozenset[str]
    atomics: frozenset[str] = field(default_factory=frozenset)

    def fresh_arguments(self, device: str = "cpu") -> dict[str, object]:
        """Return the arguments with every tensor copied, so that one case can be launched many times."""
        return {
            name: value.to(device, copy=True) if isinstance(value, torch.Tensor) else value
            for name, value in self.arguments.items()
        }

    def assert_as_expected(self, arguments: Mapping[str, object]) -> None:
        """Raise AssertionError unless the expected tensors arrived and every other tensor is as it was."""
        for name, before in self.arguments.items():
            if isinstance(before, torch.Tensor):
                after = arguments[name]
                assert isinstance(after, torch.Tensor)
                self._assert_close(name, after.cpu(), before)

    def _assert_close(self, name: str, after: torch.Tensor, before: torch.Tensor) -> None:
        if name not in self.expected:
            assert torch.equal(after, before), f"{self.name} changed {name}, which it only reads"
            return
        rtol, atol = (2e-2, 2e-2) if after.dtype in HALF else (1e-4, 1e-5)
        torch.testing.assert_close(after, self.expected[name], rtol=rtol, atol=atol, msg=lambda m: f"{name}: {m}")


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Return standard normal values, the same ones for the same seed."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
